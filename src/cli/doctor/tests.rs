//! Machines that are only files.

use std::fs;

use kernels::Error;
use kernels::cuda::{Card, FoundCompiler, Reading};
use serde_json::Value;
use tempfile::TempDir;

use super::{Check, Machine, Status, show};

/// Writes the files of a machine; a text for each path.
fn root(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// The files of a card.
macro_rules! on_bus {
    ($place:literal, $device:literal) => {
        [
            (concat!("sys/bus/pci/devices/", $place, "/class"), "0x030200\n"),
            (concat!("sys/bus/pci/devices/", $place, "/vendor"), "0x10de\n"),
            (concat!("sys/bus/pci/devices/", $place, "/device"), concat!($device, "\n")),
            (concat!("sys/bus/pci/devices/", $place, "/current_link_width"), "16\n"),
            (concat!("sys/bus/pci/devices/", $place, "/max_link_width"), "16\n"),
        ]
    };
}

fn version(number: &str) -> String {
    format!(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {number}  Thu May  2 00:00:00 UTC 2024\nGCC version:  gcc 12\n"
    )
}

/// A machine under `root` with a Tesla K80 that is as it should be.
fn k80(root: &TempDir) -> Machine<'static> {
    let card = |ordinal: usize, bus: &str| Card {
        ordinal,
        name: "Tesla K80".into(),
        bus: bus.into(),
        architecture: 37,
        memory: 11_441 << 20,
    };
    let reading = |bus: &str| Reading {
        bus: bus.into(),
        persistence: Some(true),
        ecc: Some(true),
        power_limit: Some(110),
        temperature: Some(50),
    };
    Machine {
        root: root.path().to_owned(),
        processor: "2 threads, plain".into(),
        cards: Ok(((11, 4), vec![card(0, "0000:05:00.0"), card(1, "0000:06:00.0")])),
        readings: Ok(vec![reading("0000:05:00.0"), reading("00000000:06:00.0")]),
        compiler: &|architecture, _| {
            assert_eq!(architecture, 37);
            Ok(FoundCompiler { path: "libnvrtc.so.11.2".into(), version: (11, 8), architectures: vec![37] })
        },
        peers: &|_, _| Ok(false),
        cache: Some(root.path().join("cache")),
    }
}

fn k80_files(params: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut files = [on_bus!("0000:05:00.0", "0x102d"), on_bus!("0000:06:00.0", "0x102d")].concat();
    files.push(("proc/modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\n"));
    files.push(("proc/driver/nvidia/params", params));
    files
}

const GOOD: &str = "EnableMSI: 0\nDynamicPowerManagement: 0\n";

fn driver(root: &TempDir, number: &str) {
    fs::create_dir_all(root.path().join("proc/driver/nvidia")).unwrap();
    fs::write(root.path().join("proc/driver/nvidia/version"), version(number)).unwrap();
}

/// What is not as it should be.
fn amiss(checks: &[Check]) -> Vec<(&str, Status)> {
    let amiss = checks.iter().filter(|check| check.status != Status::Ok);
    amiss.map(|check| (check.what.as_str(), check.status)).collect()
}

fn check<'c>(checks: &'c [Check], what: &str) -> &'c Check {
    checks.iter().find(|check| check.what == what).unwrap_or_else(|| panic!("{what}: {checks:?}"))
}

#[test]
fn a_machine_without_cards_runs_on_the_processor() {
    let root = root(&[
        ("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n"),
        ("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n"),
        ("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n"),
        ("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n"),
    ]);
    let machine = Machine { cards: Err(Error("no driver".into())), ..k80(&root) };
    let checks = machine.checks();
    assert_eq!(checks.len(), 2);
    assert_eq!(amiss(&checks), []);
    assert!(show::text(&machine, &checks).ends_with("\nruns on  cpu\n"));
}

#[test]
fn a_tesla_k80_as_it_should_be_has_nothing_amiss() {
    let root = root(&k80_files(GOOD));
    driver(&root, "470.256.02");
    let machine = k80(&root);
    let checks = machine.checks();
    assert_eq!(amiss(&checks), []);
    let text = show::text(&machine, &checks);
    for fact in [
        "2 NVIDIA, 2 of them dies of a Tesla K80",
        "470.256.02",
        "runs CUDA up to 11.4, shows 2 cards",
        "Tesla K80, sm_37, 11.2 GiB, at 0000:06:00.0, 16 lanes",
        "libnvrtc.so.11.2, CUDA 11.8",
        "through the host's memory",
        "runs on  cuda:0, cuda:1, cpu\n",
    ] {
        assert!(text.contains(fact), "{fact}: {text}");
    }
    let object: Value = serde_json::from_str(&show::json(&machine, &checks).to_string()).unwrap();
    assert_eq!(object["runs_on"], serde_json::json!(["cuda:0", "cuda:1", "cpu"]));
    assert_eq!(object["checks"].as_array().unwrap().len(), checks.len());
    assert_eq!(
        object["checks"][0],
        serde_json::json!({"what": "processor", "status": "ok",
        "found": "2 threads, plain", "advice": null})
    );
}

#[test]
fn what_a_tesla_k80_must_not_have_is_found() {
    let mut files = k80_files("EnableMSI: 1\nDynamicPowerManagement: 3\nOther: 1\n");
    files.push(("proc/modules", "nvidia 1 1 - Live 0x0\nnouveau 1 0 - Live 0x0\nnvidiafb 1 0 - Live 0x0\n"));
    files.push(("sys/bus/pci/devices/0000:06:00.0/current_link_width", "8\n"));
    let root = root(&files);
    driver(&root, "535.104.05");
    let mut machine = k80(&root);
    let hot = Reading {
        bus: "0000:05:00.0".into(),
        persistence: Some(false),
        ecc: None,
        power_limit: Some(149),
        temperature: Some(83),
    };
    machine.readings = Ok(vec![hot]);
    let expected = [
        "driver module",
        "other drivers",
        "other drivers",
        "driver module",
        "NVreg_EnableMSI",
        "NVreg_DynamicPowerManagement",
        "cuda:0 persistence",
        "cuda:0 power limit",
        "cuda:0 temperature",
        "cuda:1",
        "cuda:1 condition",
    ];
    let checks = machine.checks();
    assert_eq!(amiss(&checks), expected.map(|what| (what, Status::Warn)));
    assert!(checks.iter().filter(|check| check.status == Status::Warn).all(|check| !check.advice.is_empty()));
    assert!(check(&checks, "driver module").advice.contains("470.256.02"));
    assert!(check(&checks, "cuda:0 power limit").advice.contains("nvidia-smi -i 0 -pl 110"));
    assert!(check(&checks, "NVreg_EnableMSI").advice.contains("nvidia.NVreg_EnableMSI=0"));
    assert_eq!(machine.usable().count(), 2, "it runs, though not for long");
}

#[test]
fn without_a_driver_all_that_is_missing_is_named_at_once() {
    let root =
        root(&[on_bus!("0000:05:00.0", "0x102d").as_slice(), &[("proc/modules", "nouveau 1 0 - Live 0x0\n")]].concat());
    let mut machine = k80(&root);
    machine.cards = Err(Error("libcuda.so.1 was not found".into()));
    machine.compiler = &|_, _| Err(Error("no libnvrtc".into()));
    machine.cache = None;
    let checks = machine.checks();
    let missing = ["driver module", "driver library", "other drivers", "compiler for sm_37"];
    let mut expected = missing.map(|what| (what, Status::Missing)).to_vec();
    expected.push(("kernel cache", Status::Warn));
    assert_eq!(amiss(&checks), expected);
    assert_eq!(machine.usable().count(), 0);
    assert!(show::text(&machine, &checks).ends_with("runs on  cpu\n"));
}

#[test]
fn cards_that_are_too_old_and_compilers_that_are_too_new_are_found() {
    let root = root(&k80_files(GOOD));
    driver(&root, "470.256.02");
    let mut machine = k80(&root);
    machine.compiler = &|_, _| Ok(FoundCompiler { path: "x".into(), version: (12, 9), architectures: vec![] });
    machine.peers = &|_, _| Err(Error("cannot say".into()));
    // A file stands where the folder should be.
    machine.cache = Some(root.path().join("proc/modules"));
    if let Ok((_, cards)) = &mut machine.cards {
        cards[1].architecture = 35;
    }
    let checks = machine.checks();
    let expected = [
        ("cuda:1", Status::Missing),
        ("compiler for sm_37", Status::Warn),
        ("cuda:0 to cuda:1", Status::Warn),
        ("kernel cache", Status::Warn),
    ];
    assert_eq!(amiss(&checks), expected);
    assert!(check(&checks, "kernel cache").advice.contains("XDG_CACHE_HOME"));
    assert!(show::text(&machine, &checks).ends_with("runs on  cuda:0, cpu\n"));
}
