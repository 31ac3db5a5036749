//! `verbatim doctor`.

use crate::{object, run, succeed};

#[test]
fn whatever_the_machine_it_runs_on_the_processor_at_least() {
    let (out, err) = succeed(&["doctor"]);
    assert_eq!(err, "");
    assert!(out.starts_with("ok       processor"), "{out}");
    assert!(out.lines().last().unwrap().starts_with("runs on  ") && out.ends_with("cpu\n"), "{out}");
    let object = object(&["doctor", "--json"]);
    assert_eq!(object["runs_on"].as_array().unwrap().last().unwrap(), "cpu");
    assert_eq!(object["checks"][0]["status"], "ok");
}

#[test]
fn unknown_flags_are_refused() {
    assert_eq!(run(&["doctor", "--fix"]).status.code(), Some(2));
}
