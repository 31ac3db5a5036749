//! The program on graphics cards that are none: a driver's library made for tests (kernels/tests/cuda/driver.c) behind which the
//! emulator's kernels compute.
//!
//! Owns: that text, bits, errors and exit codes are right from the command line down to the driver's calls, and that the driver
//! has nothing to complain of. Refuses to know: kernels; whether a real card does what its driver says.
#![cfg(all(feature = "cuda", target_os = "linux"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernels::Rebuilt;
use serde_json::Value;

/// What the pocket model launches on cards of architectures 37, 61 and 80.
const UNITS: [(&str, &str); 18] = [
    ("rows", ""),
    ("attention", ""),
    ("delta", ""),
    ("moe", ""),
    ("select", ""),
    ("product_wide", "F32"),
    ("product_float", "Q4_K"),
    ("product_float", "Q5_K"),
    ("product_float", "Q6_K"),
    ("product_float", "Q8_0"),
    ("product_dp4a", "Q4_K"),
    ("product_dp4a", "Q5_K"),
    ("product_dp4a", "Q6_K"),
    ("product_dp4a", "Q8_0"),
    ("product_mma", "Q4_K"),
    ("product_mma", "Q5_K"),
    ("product_mma", "Q6_K"),
    ("product_mma", "Q8_0"),
];

/// A prompt whose answer repeats much of it, so that drafts are accepted.
const COPY: &str = "Convert this CSV to JSON.\n\nname,city,age,id\nAda,Oslo,36,412\nLinus,Kyoto,54,730";

/// Two cards that pass rows through the host's memory, and do everything as late as they may.
const PLAIN: &[(&str, &str)] = &[];

/// The folder with the driver, the compiler and the kernels; `None` where they cannot be compiled.
fn cards() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        if let Err(e) = Rebuilt::compiler() {
            println!("skipped: {e}");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("card");
        // What the last run left.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("made")).unwrap();
        Rebuilt::new(&folder.join("made"), &UNITS, None).unwrap();
        let made = fs::read_dir(folder.join("made")).unwrap().map(|entry| entry.unwrap().path().join("kernels.so"));
        fs::rename(made.into_iter().find(|path| path.exists()).unwrap(), folder.join("kernels.so")).unwrap();
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/tests/cuda/driver.c");
        let flags = ["-shared", "-fPIC", "-w", "-O1", "-o"];
        let built = Command::new("cc").args(flags).arg(folder.join("libcuda.so")).arg(text).status();
        if !built.is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler `cc` to make a driver of");
            return None;
        }
        std::os::unix::fs::symlink("libcuda.so", folder.join("libnvrtc.so")).unwrap();
        Some(folder)
    });
    folder.as_deref()
}

/// How a run of the program ended.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
    /// What the driver wrote at its end.
    report: String,
}

impl Done {
    /// What stands behind `key` in the driver's report.
    fn says(&self, key: &str) -> &str {
        let line = self.report.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("the driver does not report {key:?}: {}", self.report)).trim()
    }

    /// What was printed, by a run that succeeded, used the driver rightly and gave back everything.
    fn whole(self) -> Done {
        assert_eq!(self.code, Some(0), "{}", self.err);
        assert_eq!((self.says("complaint"), self.says("alive")), ("", "0"), "{}", self.err);
        self
    }

    fn object(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs the program where these cards are.
fn run(folder: &Path, settings: &[(&str, &str)], args: &[&str]) -> Done {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let report = folder.join(format!("report-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.args(args).stdin(Stdio::null()).env("LD_LIBRARY_PATH", folder).env("XDG_CACHE_HOME", folder);
    command.env("FAKE_REPORT", &report).envs(settings.iter().copied());
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Done { code: output.status.code(), out, err, report: fs::read_to_string(report).unwrap_or_default() }
}

/// Cards of every kind and manner, and what each is opened as.
fn everywhere() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let (eager, peers) = (("FAKE_EAGER", "1"), ("FAKE_PEERS", "1"));
    vec![
        ("cuda:0", vec![]),
        ("cuda:0", vec![eager]),
        ("cuda:0,1", vec![]),
        ("cuda:0,1", vec![eager]),
        ("cuda:1,0", vec![peers]),
        ("cuda:0,1", vec![eager, peers]),
        ("cuda:0,0", vec![]),
        ("cuda:0,1", vec![("FAKE_ARCHITECTURE", "61")]),
        ("cuda:0", vec![("FAKE_ARCHITECTURE", "80")]),
        ("cuda:0,1", vec![("FAKE_ARCHITECTURE", "61,37")]),
    ]
}

#[test]
fn plain_decoding_has_the_logits_of_the_processor_on_every_kind_of_card() {
    let Some(folder) = cards() else { return };
    let (prompts, record) = (folder.join("prompts.jsonl"), folder.join("record.json"));
    fs::write(&prompts, serde_json::json!({"prompt": COPY}).to_string()).unwrap();
    let record = record.to_str().unwrap();
    let keep = ["check", "--device", "cpu", "--prompts", prompts.to_str().unwrap(), "-n", "6", "--record", record];
    assert_eq!(run(folder, PLAIN, &keep).code, Some(0));
    for (device, settings) in everywhere() {
        let done = run(folder, &settings, &["check", "--device", device, "--against", record, "--json"]).whole();
        assert_eq!(done.object()["same"], true, "{device} {settings:?}: {}", done.out);
        assert!(done.says("launches").parse::<usize>().unwrap() > 500, "{}", done.report);
        let two = device == "cuda:1,0" || settings.len() == 2;
        assert_eq!(done.says("passed directly") != "0", two, "{device} {settings:?}: {}", done.report);
    }
}

#[test]
fn every_drafter_gives_the_bits_of_the_processor_on_two_cards() {
    let Some(folder) = cards() else { return };
    let prompts = folder.join("ids.jsonl");
    fs::write(&prompts, serde_json::json!({"prompt_ids": [1, 2, 3]}).to_string()).unwrap();
    let args = ["check", "--device", "cuda:0,1", "--prompts", prompts.to_str().unwrap(), "-n", "2", "--json"];
    for settings in [PLAIN, &[("FAKE_EAGER", "1"), ("FAKE_PEERS", "1")]] {
        let found = run(folder, settings, &args).whole().object();
        assert_eq!((&found["same"], &found["bits_differing"]), (&Value::Bool(true), &Value::from(0)), "{found}");
        // Drafts that are wrong are taken back.
        assert!(found["groups"].as_array().unwrap().iter().any(|group| group["drafter"] == "wrong"), "{found}");
    }
}

#[test]
fn what_a_command_does_by_itself_is_to_run_on_all_cards() {
    let Some(folder) = cards() else { return };
    let done = run(folder, PLAIN, &["generate", "hi", "-n", "3", "--profile", "--json"]).whole();
    assert!(done.err.starts_with("verbatim: running on cuda:0 (Tesla K80), sm_37, 1024 MiB, cuda:1 (Tesla K80)"));
    let profile = done.object()["profile"].as_array().unwrap().clone();
    let dies: std::collections::BTreeSet<_> = profile.iter().map(|entry| entry["die"].as_u64().unwrap()).collect();
    assert_eq!(Vec::from_iter(dies), [0, 1]);
    assert!(profile.iter().all(|entry| entry["seconds"].as_f64().unwrap() > 0.0));
}

#[test]
fn cards_that_cannot_be_used_are_left_out_and_named() {
    let Some(folder) = cards() else { return };
    let args = ["generate", "hi", "-n", "3"];
    let processor = run(folder, PLAIN, &[&args[..], &["--device", "cpu"]].concat()).out;
    let old = "verbatim: not running on cuda:1 (Some Card), sm_30, 1024 MiB: kernels need sm_37 or newer\n";
    let one = run(folder, &[("FAKE_ARCHITECTURE", "37,30")], &args).whole();
    assert!(one.err.starts_with(old) && one.err.contains("\nverbatim: running on cuda:0 (Tesla K80)"), "{}", one.err);
    assert_eq!(one.out, processor);
    let none = run(folder, &[("FAKE_ARCHITECTURE", "30")], &args).whole();
    assert!(none.err.contains("running on the processor, for no graphics card can be used"), "{}", none.err);
    assert_eq!((&none.out, none.says("launches")), (&processor, "0"));
    // Who names the cards means them.
    let named = run(folder, &[("FAKE_ARCHITECTURE", "37,30")], &[&args[..], &["--device", "cuda"]].concat());
    assert_eq!((named.code, named.says("alive")), (Some(2), "0"));
    assert!(named.err.starts_with("verbatim: die 1: cuda:1 (Some Card): no CUDA run-time"), "{}", named.err);
    let doctor = run(folder, &[("FAKE_ARCHITECTURE", "37,30")], &["doctor"]).whole();
    assert!(doctor.out.ends_with("\nruns on  cuda:0, cpu\n"), "{}", doctor.out);
}

#[test]
fn the_doctor_finds_the_cards_and_how_they_reach_each_other() {
    let Some(folder) = cards() else { return };
    let done = run(folder, &[("FAKE_PEERS", "1")], &["doctor"]).whole();
    for line in ["shows 2 cards", "Tesla K80, sm_37, 1.0 GiB, at 0000:0a:00.0", "libnvrtc.so, CUDA 11.8", "directly"] {
        assert!(done.out.contains(line), "{line}: {}", done.out);
    }
    assert!(done.out.ends_with("\nruns on  cuda:0, cuda:1, cpu\n"), "{}", done.out);
    assert!(run(folder, PLAIN, &["doctor"]).whole().out.contains("through the host's memory"));
}

#[test]
fn a_card_that_fails_is_named_with_what_to_do_and_ends_the_program() {
    let Some(folder) = cards() else { return };
    let lost = "CUDA_ERROR_LAUNCH_FAILED (719): a kernel failed or the card was lost";
    let full = "out of memory: 64 MiB more were asked for";
    let pinned = "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): the system gives no more memory";
    // What fails, with which code, after how many that succeed, on which card; what is said of which die.
    let cases = [
        ("cuMemAlloc:2:0:1", "die 1: cuda:1 (Tesla K80): ", full),
        ("cuMemHostAlloc:2:0:1", "--device cuda:0,1: cuda:1 (Tesla K80): ", pinned),
        ("cuMemcpyHtoDAsync:719:50:0", "pocket model: die 0: cuda:0 (Tesla K80): cuMemcpyHtoDAsync: ", lost),
        ("cuLaunchKernel:701:100:1", "die 1: cuda:1 (Tesla K80): cuLaunchKernel: ", "more registers or shared memory"),
        ("cuLaunchKernel:701:61:1", "die 1: cuda:1 (Tesla K80): cuLaunchKernel: ", "more registers or shared memory"),
        ("cuLaunchKernel:719:30:0", "die 0: cuda:0 (Tesla K80): cuLaunchKernel: ", lost),
        ("kernel:719:300:0", "die 0: cuda:0 (Tesla K80): cu", lost),
        ("kernel:719:100:1", "die 1: cuda:1 (Tesla K80): cu", lost),
        ("cuMemcpyDtoHAsync:719:3:1", "die 1: cuda:1 (Tesla K80): cuMemcpyDtoHAsync: ", lost),
        ("cuStreamWaitEvent:719:6:1", "die 1: cuda:1 (Tesla K80): cuStreamWaitEvent: ", lost),
    ];
    let args = ["generate", COPY, "-n", "30", "--device", "cuda:0,1", "--draft", "suffix"];
    for (fails, who, what) in cases {
        for (eager, peers) in [("0", "0"), ("0", "1"), ("1", "0")] {
            let settings = [("FAKE_FAIL", fails), ("FAKE_EAGER", eager), ("FAKE_PEERS", peers)];
            let done = run(folder, &settings, &args);
            assert_eq!(done.code, Some(2), "{fails}: {}", done.err);
            let told = done.err.lines().count() == 1 && done.err.starts_with(&format!("verbatim: {who}"));
            assert!(told && done.err.contains(what), "{fails}: {}", done.err);
            assert_eq!(done.says("complaint"), "", "{fails}: {}", done.err);
        }
    }
}

#[test]
fn weights_that_do_not_fit_are_refused_in_figures() {
    let Some(folder) = cards() else { return };
    let done = run(folder, &[("FAKE_MEMORY", "8")], &["generate", "hi", "--device", "cuda:0,1"]);
    assert_eq!((done.code, done.says("complaint"), done.says("alive")), (Some(2), "", "0"));
    assert!(done.err.contains("are free"), "{}", done.err);
    // Whoever named no device wants an answer.
    let done = run(folder, &[("FAKE_MEMORY", "8")], &["generate", "hi", "-n", "3"]).whole();
    let told = "verbatim: running on the processor, for the graphics cards do not take the model: ";
    assert!(done.err.starts_with(told) && done.err.contains("are free"), "{}", done.err);
    assert_eq!(done.out, run(folder, PLAIN, &["generate", "hi", "-n", "3", "--device", "cpu"]).out);
}
