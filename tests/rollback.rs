//! What a pass leaves behind: after any acceptance every buffer of the state is, bit for bit, that of a run that never
//! speculated. And what a comparison would miss is shown by breaking each buffer once.

mod support;

use std::sync::Arc;

use draft::{Plan, Scripted, Token};
use support::Spec;
use support::random::Random;
use support::runs::{Reference, Runner, plain, sequence, settings};
use verbatim::backend::KvFormat;
use verbatim::backend::cpu::Cpu;
use verbatim::model::Model;
use verbatim::quant::Isa;
use verbatim::state::{LayerShape, Snapshot};
use xxhash_rust::xxh3::xxh3_128;

const PROMPT: usize = 5;

/// Longest draft of the scripts.
const MOST: usize = 9;

/// A prompt, what the model says to it, and the state at every length.
fn truth(model: &Arc<Model<Cpu>>, prompt: usize, output: usize, kv: KvFormat) -> Reference {
    let prompt = Random::new(11).tokens(prompt, model.vocab());
    let tokens = [&prompt[..], &plain(model, &prompt, output)].concat();
    Reference::run(model, &tokens, kv, |_| true)
}

/// Runs a script of (drafted, right in front) steps and compares text and state after each.
fn follow(model: &Arc<Model<Cpu>>, reference: &Reference, script: &[(usize, usize)]) {
    let truth = &reference.tokens;
    let drafter = Scripted::new(Plan::Steps(script.to_vec()), truth.clone(), model.vocab());
    let settings = settings(truth.len(), MOST);
    let mut sequence = sequence(model, settings, Some(Box::new(drafter)), &truth[..PROMPT]);
    for (i, &(drafted, right)) in script.iter().enumerate() {
        let step = sequence.step(usize::MAX, &mut |_| None);
        let len = sequence.tokens().len();
        assert_eq!(step.emitted.len(), right + 1, "step {i} of {script:?}");
        assert_eq!(sequence.tokens(), &truth[..len], "step {i} of {script:?}");
        let same = sequence.snapshot().body() == reference.state(len - 1).body();
        assert!(same, "the state after step {i} of {script:?} ({right} of {drafted} kept) differs");
    }
}

fn every_acceptance(spec: &Spec, threads: usize) {
    let model = spec.build().model_on(threads, Isa::best());
    let reference = truth(&model, PROMPT, 3 * MOST + 8, KvFormat::F16);
    for k in 0..=MOST {
        for m in 0..=k {
            for empty in 1..=3 {
                let mut script = vec![(k, m)];
                script.extend(vec![(0, 0); empty]);
                // Another draft, cut elsewhere, and the first one again.
                script.extend([(MOST - k, (MOST - k) / 2), (k, m)]);
                follow(&model, &reference, &script);
            }
        }
    }
}

#[test]
fn every_acceptance_then_empty_drafts_then_drafts_leaves_the_state_of_plain_decoding() {
    every_acceptance(&Spec::mixed(), 2);
}

#[test]
fn the_same_in_a_dense_model_with_a_longer_convolution() {
    let spec = Spec { taps: 7, interval: 2, ..Spec::dense() };
    every_acceptance(&spec, 1);
}

#[test]
fn long_scripts_without_a_pause_leave_the_state_of_plain_decoding() {
    let model = Spec::mixed().model();
    let reference = truth(&model, PROMPT, 200, KvFormat::F16);
    let mut random = Random::new(12);
    for _ in 0..4 {
        let mut script = Vec::new();
        let mut len = PROMPT;
        loop {
            let drafted = random.below(MOST + 1);
            let right = random.below(drafted + 1);
            len += right + 1;
            if len + MOST > reference.tokens.len() {
                break;
            }
            script.push((drafted, right));
        }
        follow(&model, &reference, &script);
    }
}

#[test]
fn keeping_any_number_of_a_passes_rows_equals_evaluating_only_those() {
    for kv in [KvFormat::F16, KvFormat::F32] {
        let model = Spec::mixed().model();
        let reference = truth(&model, PROMPT, 40, kv);
        for n in [1, 2, 5, 10, 17, 33] {
            let mut runner = Runner::new(&model, reference.tokens.len(), kv, n);
            for keep in 1..=n {
                runner.restore(reference.state(PROMPT));
                runner.pass(&reference.tokens[PROMPT..PROMPT + n], n - 1, keep);
                let same = runner.snapshot().body() == reference.state(PROMPT + keep).body();
                assert!(same, "{keep} of {n} rows, {}", kv.name());
            }
        }
    }
}

#[test]
fn dropping_the_guard_changes_neither_the_state_nor_the_next_pass() {
    let model = Spec::mixed().model();
    let reference = truth(&model, PROMPT, 40, KvFormat::F16);
    let mut random = Random::new(13);
    for n in [1, 2, 9, 33] {
        let mut runner = Runner::new(&model, 64, KvFormat::F16, 10);
        runner.restore(reference.state(PROMPT));
        let before = runner.snapshot();
        runner.pass(&random.tokens(n, model.vocab()), 0, 0);
        assert_eq!(runner.state.len(), PROMPT);
        assert!(runner.snapshot() == before, "{n} rows dropped");
        let rows = runner.all(&reference.tokens[PROMPT..PROMPT + 7]);
        reference.compare_rows(&rows, PROMPT, "after a dropped pass");
        assert!(runner.snapshot().body() == reference.state(PROMPT + 7).body());
    }
}

#[test]
fn a_pass_longer_than_the_log_is_kept_whole() {
    let model = Spec::mixed().model();
    let reference = truth(&model, PROMPT, 40, KvFormat::F16);
    for log in [0, 1, 4] {
        let mut runner = Runner::new(&model, 64, KvFormat::F16, log);
        runner.restore(reference.state(PROMPT));
        runner.all(&reference.tokens[PROMPT..PROMPT + 11]);
        assert!(runner.snapshot().body() == reference.state(PROMPT + 11).body());
    }
}

#[test]
#[should_panic(expected = "a pass that may be cut is logged")]
fn cutting_a_pass_longer_than_the_log_is_refused() {
    let model = Spec::mixed().model();
    let mut runner = Runner::new(&model, 64, KvFormat::F16, 4);
    runner.pass(&[1, 2, 3, 4, 5], 0, 3);
}

#[test]
#[should_panic(expected = "between one and all of its rows")]
fn keeping_more_rows_than_the_pass_has_is_refused() {
    let model = Spec::mixed().model();
    Runner::new(&model, 64, KvFormat::F16, 4).pass(&[1, 2, 3], 0, 4);
}

#[test]
#[should_panic(expected = "room for them")]
fn a_pass_beyond_the_context_is_refused() {
    let model = Spec::mixed().model();
    Runner::new(&model, 4, KvFormat::F16, 8).all(&[1, 2, 3, 4, 5]);
}

/// Where each kind of buffer lies in a snapshot's body: (name, first byte, element bytes, elements).
fn buffers(layers: &[LayerShape], positions: usize, kv: KvFormat) -> Vec<(String, usize, usize, usize)> {
    let mut out = Vec::new();
    let mut at = 0;
    for (i, layer) in layers.iter().enumerate() {
        let parts = match layer {
            LayerShape::Attention(a) => {
                [("K", kv.bytes(), positions * a.kv_width()), ("V", kv.bytes(), positions * a.kv_width())]
            }
            LayerShape::Delta(d) => [("S", 4, d.state_len()), ("window", 4, d.window_len())],
        };
        for (name, bytes, len) in parts {
            out.push((format!("{name} of layer {i}"), at, bytes, len));
            at += bytes * len;
        }
    }
    out
}

/// The snapshot with bit `bit` of body byte `at` flipped, as if it had been taken so.
fn poisoned(snapshot: &Snapshot, at: usize, bit: u8, model: &Model<Cpu>) -> Snapshot {
    let mut bytes = snapshot.as_bytes().to_vec();
    let end = bytes.len() - 16;
    let header = end - snapshot.body().len();
    bytes[header + at] ^= 1 << bit;
    let checksum = xxh3_128(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&checksum);
    Snapshot::from_bytes(bytes, model.fingerprint()).unwrap()
}

/// The element of largest magnitude: its sign matters to what is computed next. Returns the byte of its sign.
fn loudest(body: &[u8], at: usize, bytes: usize, len: usize) -> usize {
    let magnitude = |i: usize| {
        let b = &body[at + i * bytes..][..bytes];
        match bytes {
            2 => u32::from(u16::from_le_bytes([b[0], b[1]]) & 0x7fff),
            _ => u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x7fff_ffff,
        }
    };
    let loudest = (0..len).max_by_key(|&i| magnitude(i)).unwrap();
    at + loudest * bytes + bytes - 1
}

#[test]
fn one_flipped_bit_in_any_buffer_shows_in_the_comparison_and_in_the_next_logits() {
    const LEN: usize = PROMPT + 20;
    for kv in [KvFormat::F16, KvFormat::F32] {
        let model = Spec::mixed().model();
        let reference = truth(&model, PROMPT, 40, kv);
        let clean = reference.state(LEN);
        let mut runner = Runner::new(&model, 64, kv, 10);
        let mut kinds = 0;
        for (name, at, bytes, len) in buffers(&model.config().layers, LEN, kv) {
            let at = loudest(clean.body(), at, bytes, len);
            let bad = poisoned(clean, at, 7, &model);
            runner.restore(&bad);
            assert!(runner.snapshot().body() == bad.body(), "{name}: taken over as it is");
            assert!(runner.snapshot().body() != clean.body(), "{name}: compared");
            let rows = runner.pass(&reference.tokens[LEN..LEN + 5], 0, 0);
            let differ = rows.logits.iter().zip(&reference.logits[LEN..]).any(|(a, b)| a != b);
            assert!(differ, "{name}: the next logits do not read it");
            // And the lowest bit of the element, which no logit need notice, is compared too.
            runner.restore(&poisoned(clean, at + 1 - bytes, 0, &model));
            assert!(runner.snapshot().body() != clean.body(), "{name}: lowest bit");
            kinds += 1;
        }
        assert_eq!(kinds, 2 * model.config().layers.len());
        // The same pass on the clean state gives the reference's bits: it was the flipped bit that showed.
        runner.restore(clean);
        let rows = runner.pass(&reference.tokens[LEN..LEN + 5], 0, 0);
        reference.compare_rows(&rows, LEN, "clean");
    }
}

#[test]
fn a_flipped_bit_survives_a_partial_rollback_where_it_is_state_and_not_where_it_is_draft() {
    const LEN: usize = PROMPT + 20;
    let model = Spec::mixed().model();
    let reference = truth(&model, PROMPT, 40, KvFormat::F16);
    for (name, at, bytes, len) in buffers(&model.config().layers, LEN, KvFormat::F16) {
        let at = loudest(reference.state(LEN).body(), at, bytes, len);
        let mut runner = Runner::new(&model, 64, KvFormat::F16, 10);
        runner.restore(&poisoned(reference.state(LEN), at, 7, &model));
        runner.pass(&reference.tokens[LEN..LEN + 6], 0, 2);
        let same = runner.snapshot().body() == reference.state(LEN + 2).body();
        assert!(!same, "{name}: a rollback does not heal what was broken before");
        // The wrong rows of an earlier pass leave nothing.
        runner.restore(reference.state(LEN));
        let wrong: Vec<Token> = vec![reference.tokens[LEN], 0, 1, 2, 3];
        runner.pass(&wrong, 0, 1);
        assert!(runner.snapshot().body() == reference.state(LEN + 1).body(), "{name}");
    }
}
