//! Streams: what is asked of a device happens later, in order.

use super::*;

/// Rounds that keep a device busy for some milliseconds.
const LONG: Arg = Arg::Int(5_000);

#[test]
fn what_was_uploaded_may_change_at_once() {
    for seed in SEEDS {
        let device = device(seed);
        let (busy, memory) = (room(&device, 1), room(&device, 2));
        device.launch(&probe("slow"), line(1, 32), &[LONG, Arg::Int(1), at(&busy)]).unwrap();
        let mut bytes = bytes(&[5, 6]);
        device.upload(memory.at, &bytes).unwrap();
        bytes.fill(0);
        assert_eq!(get(&device, &memory), [5, 6], "seed {seed}");
    }
}

#[test]
fn work_happens_in_the_order_it_was_asked_for() {
    for seed in SEEDS {
        let device = device(seed);
        let (a, b) = (room(&device, 1), room(&device, 1));
        for value in 0..50 {
            device.launch(&probe("slow"), line(1, 32), &[Arg::Int(10), Arg::Int(value), at(&a)]).unwrap();
            device.copy(a.at, b.at, 4).unwrap();
            device.clear(a.at, 4).unwrap();
            if value % 10 == 0 {
                assert_eq!([get(&device, &a), get(&device, &b)], [vec![0], vec![value as u32]], "seed {seed}");
            }
        }
        assert_eq!(get(&device, &b), [49], "seed {seed}");
    }
}

#[test]
fn memory_given_back_lives_until_the_stream_is_past_its_use() {
    for seed in SEEDS {
        let device = device(seed);
        let kept = room(&device, 1);
        for value in 0..20 {
            let memory = room(&device, 1);
            device.launch(&probe("slow"), line(1, 32), &[Arg::Int(500), Arg::Int(value), at(&memory)]).unwrap();
            device.copy(memory.at, kept.at, 4).unwrap();
        }
        assert_eq!(get(&device, &kept), [19], "seed {seed}");
    }
}

/// A value goes from one device to another and back; `heed` says whether events are waited for. Whether it arrived.
fn goes_and_returns(seed: u32, heed: bool) -> bool {
    let [a, b] = [device(seed), device(seed + 100)];
    let (here, there, back) = (room(&a, 1), room(&b, 1), room(&a, 1));
    a.launch(&probe("slow"), line(1, 32), &[LONG, Arg::Int(42), at(&here)]).unwrap();
    let written = a.record().unwrap();
    if heed {
        b.wait(&written).unwrap();
    }
    b.receive(&a, here.at, there.at, 4).unwrap();
    let arrived = b.record().unwrap();
    if heed {
        a.wait(&arrived).unwrap();
    }
    a.receive(&b, there.at, back.at, 4).unwrap();
    get(&a, &back) == [42]
}

#[test]
fn a_missing_event_between_two_devices_shows() {
    for seed in SEEDS {
        assert!((0..20).all(|_| goes_and_returns(seed, true)), "seed {seed}");
        assert!((0..20).any(|_| !goes_and_returns(seed, false)), "seed {seed}: never read too early");
    }
}

#[test]
fn two_devices_pass_a_value_round_many_times() {
    for seed in SEEDS {
        let [a, b] = [device(seed), device(seed + 7)];
        let (here, there) = (put(&a, &[0]), room(&b, 1));
        let mut last = a.record().unwrap();
        for value in 1..100 {
            b.wait(&last).unwrap();
            b.launch(&probe("slow"), line(1, 32), &[Arg::Int(20), Arg::Int(value), at(&there)]).unwrap();
            let event = b.record().unwrap();
            a.wait(&event).unwrap();
            a.receive(&b, there.at, here.at, 4).unwrap();
            last = a.record().unwrap();
        }
        assert_eq!(get(&a, &here), [99], "seed {seed}");
    }
}

#[test]
fn time_passes_between_events_of_one_device() {
    let [a, b] = [device(0), device(0)];
    let out = room(&a, 1);
    let from = a.record().unwrap();
    a.launch(&probe("slow"), line(1, 32), &[LONG, Arg::Int(1), at(&out)]).unwrap();
    let to = a.record().unwrap();
    assert!(a.elapsed(&from, &to).unwrap() > 0.0);
    assert_eq!(a.elapsed(&to, &from), Ok(0.0));
    says(b.elapsed(&from, &to), &["events of another device"]);
}

#[test]
fn a_device_that_is_dropped_does_first_what_it_was_asked() {
    let [a, b] = [device(1), device(0)];
    let (here, there) = (room(&a, 1), room(&b, 1));
    a.launch(&probe("slow"), line(1, 32), &[LONG, Arg::Int(3), at(&here)]).unwrap();
    let event = a.record().unwrap();
    b.wait(&event).unwrap();
    b.receive(&a, here.at, there.at, 4).unwrap();
    drop(a);
    drop(here);
    assert_eq!(get(&b, &there), [3]);
}

#[test]
fn a_device_says_what_it_is() {
    let device = Emulator::new(61, 5).unwrap();
    assert_eq!((device.describe().as_str(), device.architecture()), ("emulated device (sm_61, order 5)", 61));
}
