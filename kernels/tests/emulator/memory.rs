//! Memory of an emulated device: what is counted, what is refused, what it holds.

use super::*;

#[test]
fn memory_is_counted_in_units_of_256_bytes() {
    let device = device(0).with_memory(10_000);
    assert_eq!(device.memory(), Ok((10_000, 10_000)));
    let a = device.allocate(1).unwrap();
    let b = device.allocate(257).unwrap();
    assert_eq!(device.memory(), Ok((10_000 - 256 - 512, 10_000)));
    drop(a);
    assert_eq!(device.memory(), Ok((10_000 - 512, 10_000)));
    says(device.allocate(9_473).map(|_| ()), &["no room for 9473 bytes", "9488 of 10000 are free"]);
    says(device.allocate(usize::MAX).map(|_| ()), &["no room"]);
    let rest = device.allocate(9_472).unwrap();
    assert_eq!(device.memory(), Ok((16, 10_000)));
    drop((b, rest));
    assert_eq!(device.memory(), Ok((10_000, 10_000)));
    device.finish().unwrap();
}

#[test]
fn allocations_are_aligned_and_hold_no_number_at_first() {
    let device = device(0);
    for bytes in [0, 1, 4, 255, 256, 257, 4096, 5000, 100_000] {
        let memory = device.allocate(bytes).unwrap();
        assert_eq!((memory.at % 256, memory.len), (0, bytes));
        let mut found = vec![0; bytes];
        device.download(memory.at, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == 0xff), "{bytes} bytes");
    }
}

#[test]
fn bytes_are_copied_cleared_and_read_where_they_were_asked_for() {
    for seed in SEEDS {
        let device = device(seed);
        let (a, b) = (put(&device, &[1, 2, 3, 4, 5, 6]), put(&device, &[7; 6]));
        device.copy(a.at + 4, b.at + 8, 12).unwrap();
        device.clear(a.at + 8, 4).unwrap();
        assert_eq!(get(&device, &b), [7, 7, 2, 3, 4, 7], "seed {seed}");
        assert_eq!(get(&device, &a), [1, 2, 0, 4, 5, 6], "seed {seed}");
        let mut part = [0; 8];
        device.download(b.at + 12, &mut part).unwrap();
        assert_eq!(words(&part), [3, 4], "seed {seed}");
    }
}

#[test]
fn a_range_that_leaves_its_allocation_is_refused() {
    let [device, other] = [device(0), device(0)];
    let (a, b) = (room(&device, 16), room(&other, 16));
    says(device.upload(a.at + 60, &[0; 5]), &["upload: 5 bytes", "at byte 60 of an allocation of 64"]);
    says(device.download(a.at + 64, &mut [0]), &["download: 1 bytes"]);
    says(device.copy(a.at, b.at, 4), &["copy to: 4 bytes", "no memory of this device"]);
    says(device.copy(b.at, a.at, 4), &["copy from: 4 bytes", "no memory of this device"]);
    says(device.clear(a.at - 1, 1), &["clear: 1 bytes", "no memory of this device"]);
    says(device.receive(&other, a.at, a.at, 4), &["receive from: 4 bytes"]);
    device.upload(a.at + 64, &[]).unwrap();
    device.receive(&other, b.at, a.at, 64).unwrap();
    device.finish().unwrap();
}
