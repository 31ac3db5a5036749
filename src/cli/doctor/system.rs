//! What the operating system says of NVIDIA's cards and driver.
//!
//! Owns: files in /proc and /sys, and what they should say. Refuses to know: what the driver says of itself.

use std::fs;
use std::path::Path;

use super::{Check, Found, Status, read};

/// NVIDIA's number on the bus.
const NVIDIA: &str = "0x10de";

/// A die of a Tesla K80.
const K80: &str = "0x102d";

/// The last driver for a Tesla K80.
const LAST_K80: u32 = 470;

/// A card on the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnBus {
    /// `0000:05:00.0`.
    pub place: String,
    /// Whether it is a die of a Tesla K80.
    pub k80: bool,
    /// Lanes in use, and those that it has.
    pub lanes: Option<(u32, u32)>,
}

/// NVIDIA's cards on the bus, by place.
pub fn on_the_bus(root: &Path) -> Vec<OnBus> {
    let entries = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    let mut found: Vec<OnBus> = entries
        .filter_map(|entry| {
            let say = |file: &str| read(&entry.path(), file);
            // Displays and what computes without one; not their sound and USB.
            let is_card = say("class")?.starts_with("0x03") && say("vendor")? == NVIDIA;
            let lanes = |file| say(file)?.parse().ok();
            is_card.then(|| OnBus {
                place: entry.file_name().to_string_lossy().into_owned(),
                k80: say("device").is_some_and(|device| device == K80),
                lanes: lanes("current_link_width").zip(lanes("max_link_width")),
            })
        })
        .collect();
    found.sort_by(|a, b| a.place.cmp(&b.place));
    found
}

/// The check of a machine on which there is nothing to check.
pub fn nothing() -> Check {
    Check::ok("graphics cards", "none of NVIDIA; everything runs on the processor")
}

/// What concerns all cards.
pub fn checks(root: &Path, bus: &[OnBus], cards: &Found) -> Vec<Check> {
    let k80 = bus.iter().filter(|card| card.k80).count();
    let named = if k80 > 0 { format!(", {k80} of them dies of a Tesla K80") } else { String::new() };
    let mut checks = vec![match bus.len() {
        // Containers may hide the bus.
        0 => Check::ok("on the bus", "not to be seen from here"),
        count => Check::ok("on the bus", format!("{count} NVIDIA{named}")),
    }];
    // What the driver says of itself counts more than what is seen from here.
    let otherwise = if cards.is_ok() { Status::Warn } else { Status::Missing };
    checks.push(driver_module(root, k80 > 0, otherwise));
    checks.push(match cards {
        Ok(((major, minor), cards)) => {
            Check::ok("driver library", format!("runs CUDA up to {major}.{minor}, shows {} cards", cards.len()))
        }
        // The sentence says what to do.
        Err(e) => Check::new(Status::Missing, "driver library", e.to_string(), ""),
    });
    checks.extend(other_modules(root, otherwise));
    if k80 > 0 {
        checks.extend(parameters(root));
    }
    checks
}

/// The driver's module in the kernel.
fn driver_module(root: &Path, k80: bool, otherwise: Status) -> Check {
    let what = "driver module";
    let version = read(root, "proc/driver/nvidia/version");
    let number = version.as_deref().and_then(|text| {
        // The first line is `NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May ..`.
        let is_number = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
        text.lines().next()?.split_whitespace().find(is_number)
    });
    let major: Option<u32> = number.and_then(|number| number.split('.').next()?.parse().ok());
    match (number, major) {
        (Some(number), Some(major)) if k80 && major > LAST_K80 => {
            let advice = "no driver after 470 knows a Tesla K80: install 470.256.02";
            Check::new(otherwise, what, number, advice)
        }
        (Some(number), Some(major)) if major < LAST_K80 => {
            let advice =
                "older than CUDA 11.4: install driver 470.256.02 for a Tesla K80, a current one for newer cards";
            Check::new(otherwise, what, number, advice)
        }
        (Some(number), Some(_)) => Check::ok(what, number),
        _ => {
            let advice = "install NVIDIA's driver (470.256.02 for a Tesla K80) and load it: `modprobe nvidia`";
            Check::new(otherwise, what, "`nvidia` is not loaded", advice)
        }
    }
}

/// Modules that take cards away from the driver, and the one that computing needs.
fn other_modules(root: &Path, otherwise: Status) -> Vec<Check> {
    let Some(modules) = read(root, "proc/modules") else {
        return Vec::new();
    };
    let loaded = |name: &str| modules.lines().any(|line| line.split(' ').next() == Some(name));
    let mut checks = Vec::new();
    for name in ["nouveau", "nvidiafb"] {
        if loaded(name) {
            let advice = format!(
                "it holds cards that the driver needs: write `blacklist {name}` into /etc/modprobe.d/blacklist-{name}.conf, \
                 renew the initial file system (`update-initramfs -u` or `dracut -f`) and restart"
            );
            checks.push(Check::new(otherwise, "other drivers", format!("`{name}` is loaded"), &advice));
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok("other drivers", "neither nouveau nor nvidiafb is loaded"));
    }
    if loaded("nvidia") && !loaded("nvidia_uvm") {
        let advice = "computing needs it: `modprobe nvidia-uvm`, or install nvidia-modprobe, which loads it when it is asked for";
        checks.push(Check::new(Status::Warn, "driver module", "`nvidia_uvm` is not loaded", advice));
    }
    checks
}

/// What a Tesla K80 needs the driver's module to be loaded with.
fn parameters(root: &Path) -> Vec<Check> {
    let Some(text) = read(root, "proc/driver/nvidia/params") else {
        return Vec::new();
    };
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let check = |name: &str| {
        let found = value(name)?;
        let (what, found) = (format!("NVreg_{name}"), found.to_owned());
        if found == "0" {
            return Some(Check::ok(what, found));
        }
        let advice = format!(
            "Tesla K80s are known to stop answering with this: load the module with NVreg_{name}=0, by `nvidia.NVreg_{name}=0` \
             on the kernel's command line, and restart"
        );
        Some(Check::new(Status::Warn, what, found, &advice))
    };
    ["EnableMSI", "DynamicPowerManagement"].into_iter().filter_map(check).collect()
}
