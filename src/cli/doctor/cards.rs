//! What the driver and its libraries say of each card.
//!
//! Owns: what a card should be like. Refuses to know: how it is asked.

use std::fs;
use std::path::Path;

use kernels::cuda::{Card, Reading};

use super::system::OnBus;
use super::{Check, Machine, Status};
use crate::cli::device::OLDEST;
use crate::cli::terminal::bytes;

/// Degrees Celsius at which cards begin to slow down.
const HOT: u32 = 80;

/// Watts that keep a Tesla K80 on the bus.
const K80_POWER: u32 = 110;

/// What concerns each card, and what they are between them.
pub fn checks(machine: &Machine, bus: &[OnBus]) -> Vec<Check> {
    let mut checks = Vec::new();
    let (driver, cards) = match &machine.cards {
        Ok((driver, cards)) => (*driver, cards.as_slice()),
        Err(_) => ((11, 4), [].as_slice()),
    };
    for card in cards {
        let here = bus.iter().find(|other| same_place(&other.place, &card.bus));
        checks.push(card_itself(card, here));
        let reading = machine.readings.iter().flatten().find(|reading| same_place(&reading.bus, &card.bus));
        match reading {
            Some(reading) => checks.extend(condition(card, reading)),
            None => checks.push(unread(card, machine)),
        }
    }
    checks.extend(compilers(machine, cards, bus, driver));
    checks.extend(between(machine, cards));
    checks.push(cache(machine.cache.as_deref()));
    checks
}

/// `cuda:0`.
fn name(card: &Card) -> String {
    format!("cuda:{}", card.ordinal)
}

/// Places are written with domains of four or eight digits, in either case.
fn same_place(a: &str, b: &str) -> bool {
    let plain = |place: &str| place.trim_start_matches('0').to_lowercase();
    plain(a) == plain(b)
}

fn card_itself(card: &Card, here: Option<&OnBus>) -> Check {
    let lanes = here.and_then(|card| card.lanes);
    let width = lanes.map_or(String::new(), |(now, _)| format!(", {now} lanes"));
    let found =
        format!("{}, sm_{}, {}, at {}{width}", card.name, card.architecture, bytes(card.memory as usize), card.bus);
    match lanes {
        _ if card.architecture < OLDEST => {
            let advice = format!("kernels need sm_{OLDEST} or newer: this card cannot be used");
            Check::new(Status::Missing, name(card), found, &advice)
        }
        Some((now, all)) if now < all => {
            let advice = format!("it has {all} lanes: another slot may give it more, which matters between cards");
            Check::new(Status::Warn, name(card), found, &advice)
        }
        _ => Check::ok(name(card), found),
    }
}

/// What the management library said of a card.
fn condition(card: &Card, reading: &Reading) -> Vec<Check> {
    let what = |part: &str| format!("{} {part}", name(card));
    let number = card.ordinal;
    let mut checks = Vec::new();
    if let Some(on) = reading.persistence {
        let advice = "the driver lets go of idle cards, and takes them up slowly: `nvidia-smi -pm 1`";
        checks.push(match on {
            true => Check::ok(what("persistence"), "on"),
            false => Check::new(Status::Warn, what("persistence"), "off", advice),
        });
    }
    if let Some(on) = reading.ecc {
        let found =
            if on { "on: errors in its memory are corrected" } else { "off: errors in its memory are not seen" };
        checks.push(Check::ok(what("ECC"), found));
    }
    if let Some(watts) = reading.power_limit {
        let advice = format!(
            "under load a weak card or supply can make it fall off the bus (Xid 79 in `dmesg`): if it does, \
             `nvidia-smi -i {number} -pl {K80_POWER}`"
        );
        let found = format!("{watts} W");
        checks.push(match card.name.contains("K80") && watts > K80_POWER {
            true => Check::new(Status::Warn, what("power limit"), found, &advice),
            false => Check::ok(what("power limit"), found),
        });
    }
    if let Some(degrees) = reading.temperature {
        let advice = "it slows down or falls off the bus when hot, and a Tesla K80 has no fan of its own: give it air";
        let found = format!("{degrees} °C");
        checks.push(match degrees >= HOT {
            true => Check::new(Status::Warn, what("temperature"), found, advice),
            false => Check::ok(what("temperature"), found),
        });
    }
    checks
}

/// A card of which the management library says nothing.
fn unread(card: &Card, machine: &Machine) -> Check {
    let found = match &machine.readings {
        Err(e) => e.to_string(),
        Ok(_) => "the management library does not know it".to_owned(),
    };
    let advice = "look by hand: `nvidia-smi -q -d POWER,TEMPERATURE,ECC,PERFORMANCE`, `nvidia-smi -pm 1`";
    Check::new(Status::Warn, format!("{} condition", name(card)), found, advice)
}

/// The run-time compiler of each architecture; of a Tesla K80's also before its driver runs.
fn compilers(machine: &Machine, cards: &[Card], bus: &[OnBus], driver: (u32, u32)) -> Vec<Check> {
    let mut architectures: Vec<u32> = cards.iter().map(|card| card.architecture).collect();
    if cards.is_empty() && bus.iter().any(|card| card.k80) {
        architectures.push(OLDEST);
    }
    architectures.sort_unstable();
    architectures.dedup();
    let check = |architecture: u32| {
        let what = format!("compiler for sm_{architecture}");
        match (machine.compiler)(architecture, driver) {
            Err(e) => Check::new(Status::Missing, what, e.to_string(), ""),
            Ok(compiler) => {
                let (major, minor) = compiler.version;
                let found = format!("{}, CUDA {major}.{minor}", compiler.path.display());
                let advice =
                    "newer than the driver, which may not run its code: install one of the driver's CUDA version";
                match major > driver.0 {
                    true => Check::new(Status::Warn, what, found, advice),
                    false => Check::ok(what, found),
                }
            }
        }
    };
    architectures.into_iter().filter(|architecture| *architecture >= OLDEST).map(check).collect()
}

/// How rows go from each card to the next.
fn between(machine: &Machine, cards: &[Card]) -> Vec<Check> {
    let way = |two: &[Card]| {
        let what = format!("{} to {}", name(&two[0]), name(&two[1]));
        match (machine.peers)(two[1].ordinal, two[0].ordinal) {
            Ok(true) => Check::ok(what, "directly"),
            Ok(false) => {
                Check::ok(what, "through the host's memory: this machine does not let cards read each other's")
            }
            Err(e) => Check::new(Status::Warn, what, e.to_string(), ""),
        }
    };
    cards.windows(2).map(way).collect()
}

/// The folder for compiled kernels.
fn cache(folder: Option<&Path>) -> Check {
    let what = "kernel cache";
    let advice = "kernels are compiled again at every start, which takes minutes: let this user write there, or set \
                  XDG_CACHE_HOME to a folder where it may";
    let Some(folder) = folder else {
        return Check::new(Status::Warn, what, "this user has no folder for it", advice);
    };
    let probe = folder.join(format!("doctor-{}", std::process::id()));
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::write(&probe, "")).and_then(|()| fs::remove_file(&probe));
    match written {
        Ok(()) => Check::ok(what, folder.display().to_string()),
        Err(e) => Check::new(Status::Warn, what, format!("{}: cannot be written: {e}", folder.display()), advice),
    }
}
