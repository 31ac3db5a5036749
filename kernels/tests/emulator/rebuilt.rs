//! Kernels compiled anew with a change, while the program runs.

use kernels::{Change, Rebuilt};

use super::*;

const UNITS: [(&str, &str); 1] = [("probe", "1")];
const WRITES: [&str; 2] = ["out[index] = 1;", "out[index] = 2;"];

/// Compiles the probe with a change; `None`, and the reason printed, where there is no compiler.
fn rebuilt(from: &str, to: &str) -> Option<Result<Rebuilt>> {
    if let Err(why) = Rebuilt::compiler() {
        println!("skipped: {why}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    Some(Rebuilt::new(folder.path(), &UNITS, Some(Change { file: "probe.cu", from, to })))
}

fn refused(from: &str, to: &str, all: &[&str]) {
    if let Some(outcome) = rebuilt(from, to) {
        says(outcome, all);
    }
}

#[test]
fn a_changed_kernel_runs_on_the_device_that_was_given_it_and_on_no_other() {
    let Some(changed) = rebuilt(WRITES[0], WRITES[1]) else { return };
    let changed = changed.unwrap();
    let devices = [Emulator::new(37, 1).unwrap().with_rebuilt(&changed), device(1)];
    for (device, written) in devices.iter().zip([2, 1]) {
        let memory = put(device, &[0; 32]);
        run(device, "writes", line(1, 32), &[at(&memory), Arg::Int(2)]).unwrap();
        assert_eq!(get(device, &memory)[2], written);
    }
}

#[test]
fn kernels_that_were_not_compiled_anew_are_the_programs() {
    let Some(changed) = rebuilt(WRITES[0], WRITES[1]) else { return };
    let device = Emulator::new(37, 0).unwrap().with_rebuilt(&changed.unwrap());
    device.prepare(&[probe("writes"), Kernel { variant: "2", ..probe("writes") }]).unwrap();
    says(device.prepare(&[probe("nothing")]), &["there is no kernel"]);
}

#[test]
fn a_failure_of_a_changed_kernel_is_told_like_any_other() {
    let Some(changed) = rebuilt(WRITES[0], WRITES[1]) else { return };
    let device = Emulator::new(37, 0).unwrap().with_rebuilt(&changed.unwrap());
    let memory = device.allocate(12).unwrap();
    let outcome = run(&device, "writes", line(1, 32), &[at(&memory), Arg::Int(3)]);
    says(outcome, &["probe.cu as 1: writes", "out of bounds", "an allocation of 12 bytes"]);
}

#[test]
fn a_text_that_is_not_there_once_or_not_c_is_refused() {
    refused("no such text", "", &["probe.cu", "expected once, found 0 times", "no such text"]);
    refused("KERNEL", "", &["probe.cu", "expected once, found", "KERNEL"]);
    refused(WRITES[0], "one two", &["refuses the changed kernels", "probe.cu:"]);
}
