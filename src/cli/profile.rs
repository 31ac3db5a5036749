//! Where the time went, as a table and as JSON.
//!
//! Owns: `--profile`: the columns, their order and sums, and the refusal of devices that cannot tell. Refuses to know: how
//! it is measured.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::table::{Align, Table};
use super::terminal;
use crate::backend::{
    Backend,
    profile::{Entry, Profile},
};
use crate::{Error, Result};

/// Begins to measure on `backend`, if it is `wanted`.
///
/// # Errors
/// If the device cannot tell where its time goes.
pub fn begin<B: Backend>(backend: &B, wanted: bool) -> Result<()> {
    if !wanted || backend.profile().is_some() {
        return Ok(());
    }
    let text = format!("needs a CUDA or an emulated device, found {} (--device)", backend.describe());
    Err(Error::new(text).about("--profile"))
}

/// What `backend` has measured since [`begin`], if it was `wanted`.
pub fn end<B: Backend>(backend: &B, wanted: bool) -> Option<Profile> {
    wanted.then(|| backend.profile()).flatten()
}

/// Launches, seconds and bytes of some entries.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    launches: usize,
    seconds: f64,
    bytes: u64,
}

impl Sum {
    fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Sum {
        entries.into_iter().fold(Sum::default(), |sum, e| Sum {
            launches: sum.launches + e.launches,
            seconds: sum.seconds + e.seconds,
            bytes: sum.bytes + e.bytes,
        })
    }
}

/// `all` in groups of one `key`, the longest group first.
fn groups<'e, K: Ord>(all: &[&'e Entry], key: impl Fn(&Entry) -> K) -> Vec<Vec<&'e Entry>> {
    let mut groups: BTreeMap<K, Vec<&Entry>> = BTreeMap::new();
    for entry in all {
        groups.entry(key(entry)).or_default().push(entry);
    }
    let mut groups: Vec<Vec<&Entry>> = groups.into_values().collect();
    let seconds = |group: &[&Entry]| Sum::of(group.iter().copied()).seconds;
    groups.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    groups
}

/// For people: each die with its sum, its stages with theirs, and their kernels; of each what took longest first.
pub fn text(profile: &Profile) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("die", Left),
        ("stage", Left),
        ("kernel", Left),
        ("launches", Right),
        ("ms", Right),
        ("% of die", Right),
        ("us/launch", Right),
        ("bytes", Right),
        ("GB/s", Right),
    ]);
    let mut dies: BTreeMap<usize, Vec<&Entry>> = BTreeMap::new();
    for entry in &profile.entries {
        dies.entry(entry.die).or_default().push(entry);
    }
    for (die, entries) in dies {
        let whole = Sum::of(entries.iter().copied());
        let mut push = |names: [&str; 3], sum: Sum| {
            let figures = figures(sum, whole);
            table.push(names.into_iter().map(str::to_owned).chain(figures).collect());
        };
        push([&die.to_string(), "all", ""], whole);
        for stage in groups(&entries, |e| e.stage) {
            let name = stage[0].stage;
            let kernels = groups(&stage, |e| e.kernel.clone());
            if let [kernel] = &kernels[..] {
                push(["", name, &kernel[0].kernel], Sum::of(kernel.iter().copied()));
                continue;
            }
            push(["", name, ""], Sum::of(stage.iter().copied()));
            kernels.iter().for_each(|k| push(["", "", &k[0].kernel], Sum::of(k.iter().copied())));
        }
    }
    table.aligned()
}

/// The numbers of a line. What cannot be divided is a dash.
fn figures(sum: Sum, die: Sum) -> [String; 6] {
    let Sum { launches, seconds, bytes } = sum;
    let ratio = |a: f64, b: f64, digits: usize| match b > 0.0 {
        true => format!("{:.digits$}", a / b),
        false => "-".to_owned(),
    };
    let counted = |text: String| if bytes == 0 { "-".to_owned() } else { text };
    [
        launches.to_string(),
        format!("{:.3}", 1e3 * seconds),
        ratio(100.0 * seconds, die.seconds, 1),
        ratio(1e6 * seconds, launches as f64, 1),
        counted(terminal::bytes(bytes as usize)),
        counted(ratio(bytes as f64 / 1e9, seconds, 1)),
    ]
}

/// For programs: the entries as they are measured, by die, what took longest first.
pub fn json(profile: &Profile) -> Value {
    let mut entries: Vec<&Entry> = profile.entries.iter().collect();
    entries.sort_by(|a, b| a.die.cmp(&b.die).then(b.seconds.total_cmp(&a.seconds)));
    let entry = |e: &&Entry| {
        json!({"die": e.die, "stage": e.stage, "kernel": e.kernel, "launches": e.launches, "seconds": e.seconds,
               "bytes": e.bytes, "bytes_per_second": e.rate()})
    };
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;

    fn entry(die: usize, stage: &'static str, kernel: &str, seconds: f64, bytes: u64) -> Entry {
        Entry { die, stage, kernel: kernel.to_owned(), launches: 4, seconds, bytes }
    }

    fn profile() -> Profile {
        let entries = vec![
            entry(1, "head", "product_wide.cu as Q6_K: product_1", 0.002, 4_000_000),
            entry(0, "norm", "rows.cu: rms_norm", 0.001, 0),
            entry(0, "project", "rows.cu: quantize", 0.001, 0),
            entry(0, "project", "product.cu as Q4_K: product_1", 0.006, 1_200_000_000),
        ];
        Profile { entries }
    }

    #[test]
    fn the_table_goes_from_dies_through_stages_to_kernels() {
        let expected = "\
die  stage    kernel                              launches     ms  % of die  us/launch    bytes   GB/s
0    all                                                12  8.000     100.0      666.7  1.1 GiB  150.0
     project                                             8  7.000      87.5      875.0  1.1 GiB  171.4
              product.cu as Q4_K: product_1              4  6.000      75.0     1500.0  1.1 GiB  200.0
              rows.cu: quantize                          4  1.000      12.5      250.0        -      -
     norm     rows.cu: rms_norm                          4  1.000      12.5      250.0        -      -
1    all                                                 4  2.000     100.0      500.0  3.8 MiB    2.0
     head     product_wide.cu as Q6_K: product_1         4  2.000     100.0      500.0  3.8 MiB    2.0
";
        assert_eq!(text(&profile()), expected);
    }

    #[test]
    fn nothing_measured_is_an_empty_table_without_divisions_by_nothing() {
        assert_eq!(text(&Profile::default()).lines().count(), 1);
        let idle = Profile { entries: vec![Entry { launches: 0, ..entry(0, "norm", "rows.cu: rms_norm", 0.0, 0) }] };
        assert!(!text(&idle).contains("NaN"), "{}", text(&idle));
        assert_eq!(json(&idle)[0]["bytes_per_second"], Value::Null);
    }

    #[test]
    fn the_object_lists_the_entries_by_die_and_time() {
        let list = json(&profile());
        let field = |name: &str| -> Vec<Value> { list.as_array().unwrap().iter().map(|e| e[name].clone()).collect() };
        assert_eq!(field("die"), [0, 0, 0, 1]);
        assert_eq!(field("seconds"), [0.006, 0.001, 0.001, 0.002]);
        assert_eq!(list[0]["bytes_per_second"], 200e9);
    }

    #[test]
    fn a_device_that_cannot_tell_is_refused_only_where_it_is_asked() {
        let cpu = Cpu::new(1).unwrap();
        begin(&cpu, false).unwrap();
        let error = begin(&cpu, true).unwrap_err().to_string();
        assert!(error.starts_with("--profile: needs a CUDA or an emulated device, found cpu, "), "{error}");
        assert_eq!(end(&cpu, false), None);
    }
}
