//! `verbatim bench` as users run it: what it prints, and what it refuses. Nothing here asserts on time.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_verbatim");
    Command::new(program).arg("bench").args(args).output().unwrap()
}

/// Standard output of a run that succeeds.
fn stdout(args: &[&str]) -> String {
    let output = bench(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a run that is refused: exit code 2, one line, nothing printed.
fn refused(args: &[&str]) -> String {
    let output = bench(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

/// A file of two tasks; one has a name that CSV must quote and XML must escape.
fn prompts(dir: &Path) -> String {
    let path = dir.join("prompts.jsonl");
    let lines = [
        r#"{"prompt": "Write these words as a numbered list.\n\norder, block", "task": "lists, <short> & \"long\""}"#,
        r#"{"prompt": "Sort these numbers.\n\n3, 1, 2"}"#,
    ];
    fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

/// Columns of a line of comma-separated values.
fn columns(line: &str) -> usize {
    let unquoted = line.split('"').step_by(2);
    unquoted.map(|part| part.matches(',').count()).sum::<usize>() + 1
}

fn assert_drawing(path: &Path) -> String {
    let svg = fs::read_to_string(path).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(!svg.contains("NaN"), "{svg}");
    for tag in ["svg", "text", "style", "title"] {
        let opened = svg.matches(&format!("<{tag}>")).count() + svg.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, svg.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    svg
}

fn assert_tally(tally: &Value) {
    for field in ["tokens_per_second", "speedup", "acceptance", "tokens_per_pass"] {
        assert!(tally[field].as_f64().is_some_and(f64::is_finite), "{field}: {tally}");
    }
    assert_eq!(tally["identical"], true, "{tally}");
    let metrics = &tally["metrics"];
    let count = |field: &str| metrics[field].as_u64().unwrap();
    assert_eq!(count("emitted"), count("accepted") + count("bonus"));
    assert!(count("accepted") <= count("drafted") && count("emitted") >= 1);
    let lengths = metrics["lengths"].as_array().unwrap();
    let passes: u64 = lengths.iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(passes, count("drafted_passes"));
    assert_shares(tally);
    assert!(tally["perfect_cuts"].as_f64().is_some_and(|gain| gain > 0.0), "{tally}");
}

/// Whoever drafted and whatever was matched, the passes with a block are the same; and so is the time.
fn assert_shares(tally: &Value) {
    let metrics = &tally["metrics"];
    let sum = |shares: &Value, field: &str| -> u64 {
        shares.as_object().unwrap().values().map(|share| share[field].as_u64().unwrap()).sum()
    };
    for (field, whole) in [("passes", "drafted_passes"), ("drafted", "drafted"), ("accepted", "accepted")] {
        assert_eq!(sum(&metrics["drafters"], field), metrics[whole].as_u64().unwrap(), "{tally}");
        let copied = metrics["drafters"]["suffix"][field].as_u64().unwrap_or(0);
        assert_eq!(sum(&metrics["matches"], field), copied, "{tally}");
    }
    let positions = tally["acceptance_by_position"].as_array().unwrap();
    assert_eq!(positions.len(), metrics["drafted_at"].as_array().unwrap().len());
    let by_match = tally["acceptance_by_match"].as_object().unwrap();
    let rates = positions.iter().chain(by_match.values()).filter(|rate| !rate.is_null());
    rates.for_each(|rate| assert!((0.0..=1.0).contains(&rate.as_f64().unwrap()), "{tally}"));
    let split = tally["time_split"].as_object().unwrap();
    assert_eq!(split.keys().collect::<Vec<_>>(), ["draft", "verify", "head", "rollback", "other"]);
    let whole: f64 = split.values().map(|part| part.as_f64().unwrap()).sum();
    assert!((whole - 1.0).abs() < 1e-9, "{tally}");
}

/// Every element is closed in order, every attribute quoted; nothing is fetched from elsewhere.
fn assert_page(path: &Path) -> String {
    let html = fs::read_to_string(path).unwrap();
    let rest = html.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let mut open = Vec::new();
    for part in rest.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap();
        assert!(!text.contains('>'), "{part}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).next().unwrap();
        match (tag.strip_prefix('/'), tag.ends_with('/')) {
            (Some(closed), _) => assert_eq!(open.pop(), Some(closed), "{part}"),
            (None, true) => {}
            (None, false) => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for absent in ["NaN", "http", "<script", "url("] {
        assert!(!html.contains(absent), "{absent}");
    }
    html
}

#[test]
fn json_names_every_task_and_drafter_and_says_that_the_tokens_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = prompts(dir.path());
    let text = stdout(&["--prompts", &file, "-n", "5", "--repeat", "2", "--block", "4", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["tokens"], &json["block"], &json["repeat"]), (&5.into(), &4.into(), &2.into()));
    assert!(json["model"].is_string() && json["device"].is_string());
    let rows: Vec<u64> = json["curve"].as_array().unwrap().iter().map(|p| p["rows"].as_u64().unwrap()).collect();
    assert_eq!((rows, &json["curve"][0]["relative"]), (vec![1, 2, 4, 5], &1.0.into()));
    assert!(json["ceiling"]["speedup"].as_f64().is_some_and(|gain| gain >= 1.0), "{json}");
    assert!(json["ceiling"]["rows"].as_u64().is_some_and(|rows| (1..=5).contains(&rows)), "{json}");
    let tasks = json["tasks"].as_array().unwrap();
    let names: Vec<&str> = tasks.iter().map(|t| t["task"].as_str().unwrap()).collect();
    assert_eq!(names, ["lists, <short> & \"long\"", "prompts"]);
    for drafters in tasks.iter().map(|t| &t["drafters"]).chain([&json["total"]]) {
        let drafters = drafters.as_array().unwrap();
        let names: Vec<&str> = drafters.iter().map(|d| d["drafter"].as_str().unwrap()).collect();
        assert_eq!(names[..2], ["plain", "auto"]);
        drafters.iter().for_each(assert_tally);
        assert_eq!((&drafters[0]["speedup"], &drafters[0]["acceptance"]), (&1.0.into(), &0.0.into()));
    }
}

#[test]
fn every_line_of_csv_has_the_columns_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = prompts(dir.path());
    for args in [&["--prompts", &file, "-n", "4"][..], &["--passes"]] {
        let text = stdout(&[args, &["--repeat", "1", "--csv"]].concat());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 2, "{text}");
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{text}");
    }
}

#[test]
fn the_built_in_prompts_run_and_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bars.svg");
    let text = stdout(&["-n", "2", "--repeat", "1", "--plot", path.to_str().unwrap()]);
    let svg = assert_drawing(&path);
    for task in ["rewrite code", "convert data", "quote", "list", "free text", "total"] {
        assert!(text.contains(task) && svg.contains(task), "{task}");
    }
    assert!(!text.contains("NO"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_task_may_be_called_anything() {
    let dir = tempfile::tempdir().unwrap();
    let (file, drawing, page) = (prompts(dir.path()), dir.path().join("bars.svg"), dir.path().join("page.html"));
    let keep = ["--plot", drawing.to_str().unwrap(), "--html", page.to_str().unwrap()];
    stdout(&[&["--prompts", &file, "-n", "2", "--repeat", "1"][..], &keep].concat());
    for kept in [assert_drawing(&drawing), assert_page(&page)] {
        assert!(kept.contains("lists, &lt;short&gt; &amp; &quot;long&quot;"));
    }
}

#[test]
fn a_page_shows_every_task_and_drafter_and_how_it_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let args = ["-n", "12", "--repeat", "1", "--block", "6", "--drafts", "all", "--html", path.to_str().unwrap()];
    let text = stdout(&args);
    let html = assert_page(&path);
    for task in ["rewrite code", "convert data", "quote", "list", "free text", "total"] {
        assert!(html.contains(&format!(">{task}</td>")), "{task}");
    }
    for drafter in ["plain", "suffix", "shallow", "auto"] {
        assert!(html.contains(&format!(">{drafter}</td>")) && text.contains(drafter), "{drafter}");
    }
    for part in ["Speed by task", "Acceptance by position", "Accepted lengths", "Acceptance by match", "identical"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.contains("verbatim bench -n 12 --repeat 1 --block 6 --drafts all --html"), "{html}");
    for part in ["perfect cuts", "Acceptance by position", "Accepted lengths", "Who drafted", "rollback"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_report_without_drafters_or_blocks_is_whole_too() {
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = (prompts(dir.path()), dir.path().join("page.html"));
    for more in [["--drafts", "off"], ["--block", "0"]] {
        let args = ["--prompts", &file, "-n", "2", "--repeat", "1", "--html", path.to_str().unwrap()];
        let text = stdout(&[&args[..], &more].concat());
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_page(&path);
    }
}

#[test]
fn passes_are_measured_from_1_to_64_rows_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("curve.svg");
    let text = stdout(&["--passes", "--repeat", "1", "--json", "--plot", path.to_str().unwrap()]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let points = json["points"].as_array().unwrap();
    let rows: Vec<u64> = points.iter().map(|p| p["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]);
    assert_eq!(points[0]["relative"], 1.0);
    for point in points {
        for field in ["seconds", "median_seconds", "rows_per_second", "bytes_per_second"] {
            assert!(point[field].as_f64().is_some_and(|v| v > 0.0), "{field}: {point}");
        }
    }
    assert!(json["memory_bytes_per_second"].as_f64().is_some_and(|v| v > 0.0));
    // More rows reach more experts; the rest is read once, whatever the rows.
    let bytes: Vec<u64> = points.iter().map(|p| p["bytes"].as_u64().unwrap()).collect();
    assert!(bytes.is_sorted() && bytes[0] > 0 && bytes[10] < 3 * bytes[0], "{bytes:?}");
    assert_eq!(assert_drawing(&path).matches("<circle").count(), rows.len());
}

#[test]
fn the_passes_and_the_context_can_be_chosen() {
    let text = stdout(&["--passes", "--rows", "300,2,300", "--context", "5", "--repeat", "1", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let rows: Vec<u64> = json["points"].as_array().unwrap().iter().map(|p| p["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [1, 2, 300]);
    assert_eq!((&json["context"], json["tokens"].as_array().unwrap().len()), (&5.into(), 305));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let args = ["--passes", "--rows", "2", "--context", "300", "--repeat", "1", "--html", path.to_str().unwrap()];
    let text = stdout(&args);
    assert!(assert_page(&path).contains("T(n)/T(1)"));
    assert!(text.starts_with("passes of n rows after 300 tokens"), "{text}");
}

#[test]
fn a_bad_prompt_file_is_refused_by_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.jsonl");
    let name = path.to_str().unwrap();
    fs::write(&path, "{\"prompt\": \"a\"}\n{\"prompt\": 7}\n").unwrap();
    let error = refused(&["--prompts", name]);
    assert!(error.contains(name) && error.contains("line 2"), "{error}");
    fs::write(&path, "").unwrap();
    assert!(refused(&["--prompts", name]).contains(name));
    fs::remove_file(&path).unwrap();
    assert!(refused(&["--prompts", name]).contains(name));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = prompts(dir.path());
    let error = refused(&["--prompts", &file, "--ctx", "8", "--device", "cpu"]);
    assert!(error.contains(&file) && error.contains("prompt 1") && error.contains("--ctx"), "{error}");
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing").join("a.svg"), dir.path().to_owned()] {
        let name = path.to_str().unwrap();
        for flag in ["--plot", "--html"] {
            assert!(refused(&[flag, name]).contains(name));
            assert!(refused(&["--passes", flag, name]).contains(name));
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
