//! What a kernel or its launch does wrong, and what is said about it.

use std::process::Command;

use super::*;

/// Set in a process that shall die of a kernel's fault.
const FAULT: &str = "EMULATED_FAULT";

#[test]
fn lanes_that_do_not_meet_are_named() {
    let wrong: [(&str, u32, &[&str]); 4] = [
        ("parts_at_barrier", 64, &["different barriers", "probe.cu:"]),
        ("shuffles_apart", 32, &["probe.cu:", "lanes"]),
        ("shuffles_outside", 32, &["reads lane 16", "outside its mask", "probe.cu:"]),
        ("waits_for_ever", 64, &["waits for ever", "probe.cu:", "at a barrier"]),
    ];
    for (name, threads, parts) in wrong {
        for seed in SEEDS {
            let device = device(seed);
            let out = room(&device, 64);
            let outcome = run(&device, name, line(1, threads), &[at(&out)]);
            says(outcome.clone(), parts);
            says(outcome, &["emulated device: probe.cu as 1: ", name, "block (0, 0, 0), thread ("]);
        }
    }
}

#[test]
fn a_failure_stays_the_devices() {
    let device = device(0);
    let out = room(&device, 64);
    device.launch(&probe("parts_at_barrier"), line(1, 64), &[at(&out)]).unwrap();
    let first = device.finish().unwrap_err();
    let Error(sentence) = &first;
    assert!(sentence.contains("parts_at_barrier"));
    assert_eq!(device.launch(&probe("ends_early"), line(1, 64), &[at(&out)]), Err(first.clone()));
    assert_eq!(device.download(out.at, &mut [0; 4]), Err(first.clone()));
    assert_eq!(device.upload(out.at, &[0; 4]), Err(first.clone()));
    assert_eq!(device.allocate(4).map(|_| ()), Err(first.clone()));
    assert_eq!(device.record().map(|_| ()), Err(first.clone()));
    assert_eq!(device.memory(), Err(first.clone()));
    assert_eq!(device.finish(), Err(first));
}

#[test]
fn another_device_is_not_touched_by_a_failure_unless_it_waits_for_it() {
    let [a, b] = [device(0), device(0)];
    let out = room(&a, 64);
    // Time to ask for more before the failure is there.
    a.launch(&probe("slow"), line(1, 32), &[Arg::Int(20_000), Arg::Int(1), at(&out)]).unwrap();
    a.launch(&probe("parts_at_barrier"), line(1, 64), &[at(&out)]).unwrap();
    let Ok(event) = a.record() else { return println!("skipped: the failure came before the event") };
    b.finish().unwrap();
    b.wait(&event).unwrap();
    says(b.finish(), &["waited for a device that failed", "parts_at_barrier"]);
}

#[test]
fn arguments_must_fit_the_parameters() {
    let fits = |args: fn(u64) -> Vec<Arg>| {
        let device = device(0);
        let memory = room(&device, 600);
        run(&device, "arguments", line(1, 32), &args(memory.at))
    };
    let [p, i, f] = [|_| vec![], |at| vec![Arg::At(at)], |at| vec![Arg::At(at), Arg::Int(1), Arg::Int(2)]];
    says(fits(p), &["probe.cu as 1: arguments", "arguments are ''", "parameters 'pfiip'"]);
    says(fits(i), &["arguments are 'p'"]);
    says(fits(f), &["arguments are 'pii'"]);
    let whole = |at| vec![Arg::At(at), Arg::Float(1.0), Arg::Int(0), Arg::Int(1), Arg::At(at + 2400)];
    fits(whole).unwrap();
    let foreign = |at| vec![Arg::At(at), Arg::Float(1.0), Arg::Int(0), Arg::Int(1), Arg::At(at + 2401)];
    says(fits(foreign), &["argument 4", "no memory of this device"]);
}

#[test]
fn a_pointer_to_memory_given_back_or_of_another_device_is_refused() {
    let [a, b] = [device(0), device(0)];
    let (mine, other) = (room(&a, 64), room(&b, 64));
    says(run(&a, "ends_early", line(1, 64), &[at(&other)]), &["argument 0", "no memory of this device"]);
    let given_back = Arg::At(mine.at);
    drop(mine);
    let [c] = [device(0)];
    let address = room(&c, 64).at;
    says(run(&c, "ends_early", line(1, 64), &[Arg::At(address)]), &["no memory of this device"]);
    says(run(&a, "ends_early", line(1, 64), &[given_back]), &["emulated device"]);
}

#[test]
fn a_launch_beyond_the_limits_is_refused() {
    let outcome = |name, grid| {
        let device = device(0);
        let memory = room(&device, 2048);
        let kernel = probe(name);
        device.launch(&kernel, grid, &[at(&memory)])?;
        device.finish()
    };
    let one = line(1, 32);
    says(outcome("finds", Grid { threads: [0, 1], ..one }), &["[0, 1] threads", "1 to 32"]);
    says(outcome("finds", Grid { threads: [33, 1], ..one }), &["[33, 1] threads", "1 to 32"]);
    says(outcome("places", Grid { threads: [64, 8], ..one }), &["[64, 8] threads", "1 to 256"]);
    says(outcome("finds", Grid { blocks: [1, 65_536, 1], ..one }), &["[1, 65536, 1] blocks"]);
    says(outcome("finds", Grid { blocks: [1, 1, 65_536], ..one }), &["blocks"]);
    says(outcome("finds", Grid { blocks: [0, 1, 1], ..one }), &["[0, 1, 1] blocks"]);
    says(outcome("finds", Grid { shared: 49_153, ..one }), &["49153 bytes of shared memory"]);
    says(
        outcome("finds_static", Grid { shared: 49_152, ..one }),
        &["128 bytes of static and 49152 of dynamic shared memory", "49152"],
    );
    outcome("finds", Grid { shared: 49_152, ..one }).unwrap();
    outcome("finds_static", Grid { shared: 49_024, ..one }).unwrap();
}

#[test]
fn a_kernel_must_be_there_and_run_on_the_architecture() {
    let device = device(0);
    device.prepare(&[probe("finds"), Kernel { variant: "2", ..probe("tile") }]).unwrap();
    for missing in [probe("nothing"), Kernel { variant: "3", ..probe("finds") }, Kernel { file: "x", ..probe("finds") }]
    {
        says(device.prepare(&[missing]), &["there is no kernel", missing.name]);
    }
    device.finish().unwrap();
    says(device.launch(&probe("nothing"), line(1, 1), &[]), &["there is no kernel probe.cu as 1: nothing"]);
    says(device.finish(), &["there is no kernel probe.cu as 1: nothing"]);
    let old = Emulator::new(20, 0).unwrap();
    says(old.prepare(&[probe("finds")]), &["needs architecture 30, this device has 20"]);
}

#[test]
fn writing_just_beside_an_allocation_is_noticed() {
    // Between the end and the guard page there may be up to 255 bytes, and a page before the beginning.
    for index in [3, 60, -1, -900] {
        let device = device(0);
        let memory = device.allocate(12).unwrap();
        let outcome = run(&device, "writes", line(1, 32), &[at(&memory), Arg::Int(index)]);
        says(outcome, &["probe.cu as 1: writes", "out of bounds", "an allocation of 12 bytes"]);
    }
    let device = device(0);
    let memory = device.allocate(12).unwrap();
    run(&device, "writes", line(1, 32), &[at(&memory), Arg::Int(2)]).unwrap();
}

/// Runs this test alone in a process that makes it fault, and gives back what the process said before it died.
fn last_words(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--exact", test, "--nocapture"]).env(FAULT, "1").output().unwrap();
    assert!(!output.status.success(), "{test} lived on");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn dies(test: &str, fault: fn(&Emulator), all: &[&str]) {
    if std::env::var_os(FAULT).is_some() {
        // Unlike a fault in a kernel, coming back from here is a success, which `last_words` does not take.
        return fault(&device(0));
    }
    let said = last_words(test);
    for part in all {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
}

#[test]
fn a_read_behind_an_allocation_kills_the_process_with_a_name() {
    fn fault(device: &Emulator) {
        let (memory, out) = (room(device, 64), room(device, 1));
        let _ = run(device, "reads", line(2, 32), &[at(&memory), Arg::Int(64), at(&out)]);
    }
    let words = [
        "kernel probe.cu as 1: reads, block (1, 0, 0), thread (5, 0)",
        "0 bytes behind the end of an allocation of 256",
    ];
    dies("faults::a_read_behind_an_allocation_kills_the_process_with_a_name", fault, &words);
}

#[test]
fn a_read_before_an_allocation_kills_the_process_with_a_name() {
    fn fault(device: &Emulator) {
        let (memory, out) = (room(device, 1024), room(device, 1));
        let _ = run(device, "reads", line(2, 32), &[at(&memory), Arg::Int(-1024), at(&out)]);
    }
    let words = ["reads, block (1, 0, 0), thread (5, 0)", "4096 bytes before an allocation of 4096 bytes"];
    dies("faults::a_read_before_an_allocation_kills_the_process_with_a_name", fault, &words);
}

#[test]
fn a_write_behind_shared_memory_kills_the_process_with_a_name() {
    fn fault(device: &Emulator) {
        let out = room(device, 32);
        let grid = Grid { shared: 128, ..line(1, 32) };
        let _ = run(device, "writes_behind_shared", grid, &[at(&out), Arg::Int(33)]);
    }
    let words = ["writes_behind_shared, block (0, 0, 0), thread (2, 0)", "4 bytes behind the end of shared memory"];
    dies("faults::a_write_behind_shared_memory_kills_the_process_with_a_name", fault, &words);
}

#[test]
fn a_read_behind_static_shared_memory_kills_the_process_with_a_name() {
    fn fault(device: &Emulator) {
        let out = room(device, 32);
        let _ = run(device, "reads_behind_static", line(1, 32), &[at(&out), Arg::Int(40)]);
    }
    let words = ["reads_behind_static, block (0, 0, 0), thread (0, 0)", "32 bytes behind the end of shared memory"];
    dies("faults::a_read_behind_static_shared_memory_kills_the_process_with_a_name", fault, &words);
}

#[test]
fn a_thread_without_room_for_its_variables_kills_the_process_with_a_name() {
    fn fault(device: &Emulator) {
        let out = room(device, 1);
        let _ = run(device, "sinks", line(1, 1), &[at(&out), Arg::Int(100_000)]);
    }
    let words = ["sinks, block (0, 0, 0), thread (0, 0)", "local memory, 64 KiB here, is full"];
    dies("faults::a_thread_without_room_for_its_variables_kills_the_process_with_a_name", fault, &words);
}

#[test]
fn a_division_by_zero_kills_the_process_with_a_name() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: this processor divides by zero without a word");
        return;
    }
    fn fault(device: &Emulator) {
        let out = room(device, 32);
        let _ = run(device, "divides", line(1, 32), &[Arg::Int(0), at(&out)]);
    }
    let words = ["divides, block (0, 0, 0), thread (0, 0) divides an integer by zero"];
    dies("faults::a_division_by_zero_kills_the_process_with_a_name", fault, &words);
}
