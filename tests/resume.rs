//! Continuing a sequence: later turns, diverging prompts, checkpoints, session files. Only new tokens are evaluated, and
//! what follows is, bit for bit, what a cold run gives; a file that cannot be used changes nothing.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use draft::Token;
use support::Spec;
use support::random::Random;
use support::runs::{bits, generate};
use verbatim::backend::KvFormat;
use verbatim::backend::cpu::Cpu;
use verbatim::engine::{Sequence, Settings, Unwatched, Watch};
use verbatim::model::Model;
use verbatim::quant::Format;
use verbatim::state::Snapshot;
use xxhash_rust::xxh3::xxh3_128;

const CONTEXT: usize = 512;

fn settings() -> Settings {
    Settings { context: CONTEXT, block: 0, kv: KvFormat::F16, checkpoints: 3 }
}

/// A small model: these tests read long prompts many times.
fn model(seed: u64) -> Arc<Model<Cpu>> {
    let spec = Spec {
        format: Format::Q8_0,
        width: 64,
        layers: 3,
        interval: 3,
        heads: 2,
        kv_heads: 1,
        head_dim: 32,
        value_heads: 2,
        value_dim: 32,
        ff: 64,
        vocab: 128,
        seed,
        ..Spec::dense()
    };
    spec.model()
}

fn cold(model: &Arc<Model<Cpu>>) -> Sequence<Cpu> {
    Sequence::new(model.clone(), settings(), None).unwrap()
}

fn read(sequence: &mut Sequence<Cpu>, prompt: &[Token]) -> usize {
    sequence.prompt(prompt, &mut Unwatched).unwrap()
}

/// Three tokens of reply with the bits of their logits, and the state after them.
fn reply(sequence: &mut Sequence<Cpu>) -> (Vec<(Token, Vec<u32>)>, Snapshot) {
    let tokens = (0..3).map(|_| {
        let step = sequence.step(1, &mut |_| None);
        let mut logits = Vec::new();
        sequence.logits(0, &mut logits);
        (step.emitted[0], bits(&logits))
    });
    (tokens.collect(), sequence.snapshot())
}

/// A place for a session file, removed with its folder when dropped.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session");
    (dir, path)
}

fn resumed(model: &Arc<Model<Cpu>>, path: &Path) -> Sequence<Cpu> {
    let mut sequence = cold(model);
    sequence.resume(path).unwrap();
    sequence
}

#[test]
fn a_second_turn_evaluates_only_its_new_tokens() {
    let model = model(1);
    let mut random = Random::new(21);
    for first in [1, 2, 20, 63, 64, 300] {
        let mut prompt = random.tokens(first, model.vocab());
        let mut sequence = cold(&model);
        assert_eq!(read(&mut sequence, &prompt), first - 1);
        for turn in [1, 7, 40] {
            let (out, _) = generate(&mut sequence, 9, |_| false);
            let held = prompt.len() + out.len() - 1;
            prompt.extend(out);
            prompt.extend(random.tokens(turn, model.vocab()));
            assert_eq!(read(&mut sequence, &prompt), prompt.len() - 1 - held, "{first} tokens, turn of {turn}");
            let mut fresh = cold(&model);
            read(&mut fresh, &prompt);
            assert!(sequence.snapshot() == fresh.snapshot(), "{first} tokens, turn of {turn}");
        }
    }
}

#[test]
fn the_same_prompt_again_evaluates_nothing() {
    let model = model(1);
    let prompt = Random::new(22).tokens(50, model.vocab());
    let mut sequence = cold(&model);
    read(&mut sequence, &prompt);
    let first = reply(&mut sequence);
    // The reply lies beyond the prompt's last checkpoint, which is right before its last token.
    assert_eq!(read(&mut sequence, &prompt), 0);
    assert!(reply(&mut sequence) == first);
    // A prefix of what is held, cut at the tail's checkpoint.
    assert_eq!(read(&mut sequence, &prompt[..18]), 0);
    let mut fresh = cold(&model);
    read(&mut fresh, &prompt[..18]);
    assert!(reply(&mut sequence) == reply(&mut fresh));
}

/// Diverges from a saved first turn at `at`; `checkpoints` are the lengths at which that turn can be taken up again.
fn diverge(model: &Arc<Model<Cpu>>, path: &Path, first: &[Token], at: usize, checkpoints: &[usize]) {
    let mut prompt = first[..at].to_vec();
    // Other tokens than the first turn's, none of them equal to what stood there.
    prompt.extend((0..6).map(|i| (first.get(at + i).map_or(0, |t| t + 1) + i as u32 * 3) % 128));
    let mut sequence = resumed(model, path);
    let held = sequence.tokens().len() - 1;
    let nearest = if held <= at { held } else { checkpoints.iter().copied().filter(|&c| c <= at).max().unwrap_or(0) };
    assert_eq!(read(&mut sequence, &prompt), prompt.len() - 1 - nearest, "diverging at {at}");
    let mut fresh = cold(model);
    read(&mut fresh, &prompt);
    assert!(reply(&mut sequence) == reply(&mut fresh), "diverging at {at}");
}

#[test]
fn a_prompt_that_diverges_anywhere_goes_on_from_the_nearest_checkpoint_like_a_cold_run() {
    let model = model(1);
    let (_dir, path) = place();
    let prompt = Random::new(23).tokens(90, model.vocab());
    let mut sequence = cold(&model);
    read(&mut sequence, &prompt);
    reply(&mut sequence);
    sequence.save(&path).unwrap();
    // Checkpoints: 32 tokens before the prompt's end, and at its end (its last token is the next step's).
    let first = sequence.tokens().to_vec();
    for at in 0..=first.len() {
        diverge(&model, &path, &first, at, &[57, 89]);
    }
}

#[test]
fn a_long_prompt_that_diverges_goes_on_from_the_nearest_checkpoint() {
    let model = model(1);
    let (_dir, path) = place();
    let prompt = Random::new(24).tokens(300, model.vocab());
    let mut sequence = cold(&model);
    read(&mut sequence, &prompt);
    sequence.save(&path).unwrap();
    for at in [0, 1, 255, 256, 257, 266, 267, 268, 298, 299, 300] {
        diverge(&model, &path, &prompt, at, &[256, 267, 299]);
    }
}

#[test]
fn without_checkpoints_a_diverging_prompt_starts_anew_and_is_right() {
    let model = model(1);
    let mut random = Random::new(25);
    let prompt = random.tokens(60, model.vocab());
    let none = Settings { checkpoints: 0, ..settings() };
    let mut sequence = Sequence::new(model.clone(), none, None).unwrap();
    read(&mut sequence, &prompt);
    let mut other = prompt[..40].to_vec();
    other.push((prompt[40] + 1) % 128);
    assert_eq!(read(&mut sequence, &other), 40);
    let mut fresh = cold(&model);
    read(&mut fresh, &other);
    assert!(reply(&mut sequence) == reply(&mut fresh));
}

#[test]
fn a_session_continued_from_a_file_is_the_session_that_never_stopped() {
    let model = model(1);
    let (_dir, path) = place();
    let mut random = Random::new(26);
    let prompt = random.tokens(70, model.vocab());
    let mut sequence = cold(&model);
    read(&mut sequence, &prompt);
    generate(&mut sequence, 11, |_| false);
    sequence.save(&path).unwrap();

    let mut other = resumed(&model, &path);
    assert_eq!(other.tokens(), sequence.tokens());
    assert!(other.snapshot() == sequence.snapshot());
    let more = [sequence.tokens(), &random.tokens(13, model.vocab())].concat();
    assert_eq!(read(&mut other, &more), 13);
    assert_eq!(read(&mut sequence, &more), 13);
    assert!(reply(&mut other) == reply(&mut sequence));
    // Saved over: the new file is whole, and nothing else is left beside it.
    other.save(&path).unwrap();
    assert_eq!(resumed(&model, &path).tokens(), other.tokens());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

/// Resuming from `bytes` fails with a sentence that holds `says`, and leaves the sequence as it was.
fn refused(sequence: &mut Sequence<Cpu>, path: &Path, bytes: &[u8], says: &str) {
    let (tokens, state) = (sequence.tokens().to_vec(), sequence.snapshot());
    std::fs::write(path, bytes).unwrap();
    let error = sequence.resume(path).expect_err("a bad session is refused").to_string();
    assert!(error.contains(says), "`{error}` does not say `{says}`");
    assert!(error.contains(path.to_str().unwrap()), "`{error}` does not name the file");
    assert_eq!(sequence.tokens(), tokens);
    assert!(sequence.snapshot() == state, "a refused session changes nothing");
}

/// The session file's own checksum set right, so that what lies deeper is looked at.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 16;
    let checksum = xxh3_128(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&checksum);
    bytes
}

/// A saved session of model 1, and a sequence of the same model in the middle of something else.
fn saved(path: &Path) -> (Vec<u8>, Sequence<Cpu>) {
    let model = model(1);
    let mut random = Random::new(27);
    let mut sequence = cold(&model);
    read(&mut sequence, &random.tokens(40, model.vocab()));
    sequence.save(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let mut other = cold(&model);
    read(&mut other, &random.tokens(10, model.vocab()));
    (bytes, other)
}

#[test]
fn a_session_cut_short_anywhere_is_refused_and_changes_nothing() {
    let (_dir, path) = place();
    let (bytes, mut sequence) = saved(&path);
    let lengths = (0..80).chain((80..bytes.len()).step_by(bytes.len() / 60));
    for len in lengths.chain(bytes.len() - 40..bytes.len()) {
        refused(&mut sequence, &path, &bytes[..len], "session");
    }
    // Cut and sealed again: the fields inside run out instead.
    for len in (24..bytes.len() - 1).step_by(bytes.len() / 60) {
        refused(&mut sequence, &path, &resealed(bytes[..len].to_vec()), "");
    }
}

#[test]
fn a_session_with_a_flipped_bit_is_refused_and_changes_nothing() {
    let (_dir, path) = place();
    let (bytes, mut sequence) = saved(&path);
    for at in (0..64).chain((64..bytes.len()).step_by(bytes.len() / 100)) {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        refused(&mut sequence, &path, &bad, "session file");
    }
    // A damaged state inside an undamaged file.
    let snapshot = bytes.windows(4).position(|w| w == b"VBSN").unwrap();
    for at in (snapshot..bytes.len() - 16).step_by(bytes.len() / 40) {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        refused(&mut sequence, &path, &resealed(bad), "saved state");
    }
}

#[test]
fn a_session_of_another_version_or_size_is_refused_and_changes_nothing() {
    let (_dir, path) = place();
    let (bytes, mut sequence) = saved(&path);
    let with = |at: usize, value: u64, width: usize| {
        let mut bad = bytes.clone();
        bad[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        resealed(bad)
    };
    refused(&mut sequence, &path, &with(4, 2, 4), "version 2");
    let snapshot = bytes.windows(4).position(|w| w == b"VBSN").unwrap();
    refused(&mut sequence, &path, &with(snapshot + 4, 9, 4), "version 9");
    // Counts that no file could hold: of tokens, of checkpoints, of the first checkpoint's bytes.
    let checkpoints = 16 + 4 * 40;
    for absurd in [41, 1 << 20, u64::MAX / 4, u64::MAX] {
        for at in [8, checkpoints, checkpoints + 16] {
            refused(&mut sequence, &path, &with(at, absurd, 8), "");
        }
    }
    // A token that is not in the vocabulary.
    refused(&mut sequence, &path, &with(16, 128, 4), "do not agree");
}

#[test]
fn a_session_that_does_not_fit_is_refused_and_changes_nothing() {
    let (_dir, path) = place();
    let (bytes, _) = saved(&path);
    let of = |seed: u64, settings: Settings, says: &str| {
        let model = model(seed);
        let mut sequence = Sequence::new(model, settings, None).unwrap();
        read(&mut sequence, &[1, 2, 3]);
        refused(&mut sequence, &path, &bytes, says);
    };
    of(2, settings(), "another model");
    let f32 = Settings { kv: KvFormat::F32, ..settings() };
    of(1, f32, "f32");
    // The state alone would fit the second one; its last token, not evaluated yet, would not.
    for context in [38, 39] {
        let short = Settings { context, ..settings() };
        of(1, short, &format!("room for {context}"));
    }
}

#[test]
fn a_session_file_that_is_absent_or_cannot_be_written_is_an_error() {
    let (_dir, path) = place();
    let (_, mut sequence) = saved(&path);
    let absent = path.with_file_name("absent");
    assert!(sequence.resume(&absent).unwrap_err().to_string().contains("absent"));
    let nowhere = path.with_file_name("no-such-folder").join("session");
    assert!(sequence.save(&nowhere).unwrap_err().to_string().contains("no-such-folder"));
}

/// Interrupts a prompt after the first pass.
struct Impatient;

impl Watch for Impatient {
    fn progress(&mut self, done: usize, total: usize) {
        assert!(done <= total);
    }
    fn wants_logits(&self) -> bool {
        true
    }
    fn logits(&mut self, position: usize, logits: &[f32]) {
        assert!(position < 256 && logits.len() == 128);
    }
    fn cancelled(&self) -> bool {
        true
    }
}

#[test]
fn an_interrupted_or_refused_prompt_leaves_a_sequence_that_goes_on() {
    let model = model(1);
    let prompt = Random::new(28).tokens(300, model.vocab());
    let mut sequence = cold(&model);
    sequence.prompt(&prompt, &mut Impatient).unwrap();
    assert!(sequence.tokens().len() <= 257);
    assert_eq!(sequence.tokens(), &prompt[..sequence.tokens().len()]);
    let too_long = vec![1; CONTEXT + 1];
    for bad in [&[][..], &too_long, &[1, 2, 128]] {
        let (tokens, state) = (sequence.tokens().to_vec(), sequence.snapshot());
        assert!(sequence.prompt(bad, &mut Unwatched).unwrap_err().to_string().contains("prompt"));
        assert!(sequence.tokens() == tokens && sequence.snapshot() == state);
    }
    read(&mut sequence, &prompt);
    let mut fresh = cold(&model);
    read(&mut fresh, &prompt);
    assert!(reply(&mut sequence) == reply(&mut fresh));
}
