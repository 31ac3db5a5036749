//! Running a model by hand, pass by pass, and the bits that runs are compared by.
//!
//! Owns: the reference run of one row at a time. Refuses to know: engines and drafters.

use std::path::PathBuf;
use std::sync::Arc;

use draft::{Drafter, Token};
use verbatim::backend::KvFormat;
use verbatim::backend::cpu::Cpu;
use verbatim::engine::{Finish, Sequence, Settings, Unwatched};
use verbatim::gguf::Gguf;
use verbatim::model::{Model, Workspace};
use verbatim::state::{Snapshot, State};

/// The bits of logits.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// A file that lies beside the repository; `None`, with the reason printed, where it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
        return None;
    }
    Some(path)
}

/// The model that the repository holds.
pub fn pocket(threads: usize) -> Arc<Model<Cpu>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/pocket-Q4_K_M.gguf");
    let gguf = Gguf::open(&path).unwrap();
    Arc::new(Model::load(&gguf, Cpu::new(threads).unwrap()).unwrap())
}

/// A model with one state, driven pass by pass.
pub struct Runner {
    pub model: Arc<Model<Cpu>>,
    pub state: State<Cpu>,
    workspace: Workspace<Cpu>,
}

/// What a pass gave: the logits' bits of each wanted row, and each one's best token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    pub logits: Vec<Vec<u32>>,
    pub choices: Vec<Token>,
}

impl Runner {
    pub fn new(model: &Arc<Model<Cpu>>, positions: usize, kv: KvFormat, log_rows: usize) -> Runner {
        Runner {
            model: model.clone(),
            state: model.state(positions, kv, log_rows).unwrap(),
            workspace: model.workspace(),
        }
    }

    /// A pass over `tokens` of which the first `keep` rows are kept; 0 drops the guard.
    pub fn pass(&mut self, tokens: &[Token], logits_from: usize, keep: usize) -> Rows {
        let verdict = self.model.forward(&mut self.workspace, &mut self.state, tokens, logits_from);
        let choices = verdict.choices;
        match keep {
            0 => drop(verdict.guard),
            n => verdict.guard.keep(n),
        }
        let logits = (0..choices.len()).map(|row| {
            let mut out = Vec::new();
            self.model.logits(&self.workspace, row, &mut out);
            bits(&out)
        });
        Rows { logits: logits.collect(), choices }
    }

    /// All rows, all kept.
    pub fn all(&mut self, tokens: &[Token]) -> Rows {
        self.pass(tokens, 0, tokens.len())
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(self.model.backend(), &self.state, self.model.fingerprint())
    }

    pub fn restore(&mut self, snapshot: &Snapshot) {
        snapshot.restore(self.model.backend(), &mut self.state).unwrap();
    }
}

/// A run of one row at a time: what every other way of computing must equal.
pub struct Reference {
    pub tokens: Vec<Token>,
    /// Logits after each token.
    pub logits: Vec<Vec<u32>>,
    pub choices: Vec<Token>,
    /// The state before token `i`, for each `i` asked for, and after the last.
    pub states: Vec<Option<Snapshot>>,
}

impl Reference {
    /// Runs `tokens`, remembering the state at the lengths that `wanted` names.
    pub fn run(model: &Arc<Model<Cpu>>, tokens: &[Token], kv: KvFormat, wanted: impl Fn(usize) -> bool) -> Reference {
        let mut runner = Runner::new(model, tokens.len(), kv, 0);
        let (mut logits, mut choices, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for (i, &token) in tokens.iter().enumerate() {
            states.push(wanted(i).then(|| runner.snapshot()));
            let mut rows = runner.all(&[token]);
            logits.append(&mut rows.logits);
            choices.append(&mut rows.choices);
        }
        states.push(wanted(tokens.len()).then(|| runner.snapshot()));
        Reference { tokens: tokens.to_vec(), logits, choices, states }
    }

    pub fn state(&self, len: usize) -> &Snapshot {
        self.states[len].as_ref().expect("the state was asked for")
    }

    /// Computes rows `start..start + n` in one pass from the remembered state, and compares logits and final state.
    pub fn compare(&self, runner: &mut Runner, start: usize, n: usize, what: &str) {
        runner.restore(self.state(start));
        let rows = runner.all(&self.tokens[start..start + n]);
        self.compare_rows(&rows, start, what);
        let state = runner.snapshot();
        assert!(state.body() == self.state(start + n).body(), "{what}: the state after {n} rows at {start} differs");
    }

    /// Compares the rows of a pass whose first wanted row is at `start`.
    pub fn compare_rows(&self, rows: &Rows, start: usize, what: &str) {
        for (i, logits) in rows.logits.iter().enumerate() {
            assert!(
                logits == &self.logits[start + i],
                "{what}: logits at {} of a pass of {} rows differ",
                start + i,
                rows.logits.len()
            );
        }
        assert_eq!(rows.choices, self.choices[start..start + rows.choices.len()], "{what}: best tokens at {start}");
    }
}

/// The settings of the suites: short contexts, f16 K/V.
pub fn settings(context: usize, block: usize) -> Settings {
    Settings { context, block, kv: KvFormat::F16, checkpoints: 0 }
}

/// A sequence that has read `prompt`.
pub fn sequence(
    model: &Arc<Model<Cpu>>,
    settings: Settings,
    drafter: Option<Box<dyn Drafter>>,
    prompt: &[Token],
) -> Sequence<Cpu> {
    let mut sequence = Sequence::new(model.clone(), settings, drafter).unwrap();
    sequence.prompt(prompt, &mut Unwatched).unwrap();
    sequence
}

/// Steps until the output ends or has `max` tokens; at least one token comes of every step that does not end.
pub fn generate(
    sequence: &mut Sequence<Cpu>,
    max: usize,
    ends: impl Fn(Token) -> bool,
) -> (Vec<Token>, Option<Finish>) {
    let mut out = Vec::new();
    loop {
        let step = sequence.step(max - out.len(), &mut |t| ends(t).then_some(Finish::Stop));
        out.extend_from_slice(&step.emitted);
        if step.finish.is_some() {
            return (out, step.finish);
        }
        assert!(!step.emitted.is_empty(), "a step goes on by at least one token");
    }
}

/// Plain decoding of `max` tokens.
pub fn plain(model: &Arc<Model<Cpu>>, prompt: &[Token], max: usize) -> Vec<Token> {
    let mut sequence = sequence(model, settings(prompt.len() + max, 0), None, prompt);
    generate(&mut sequence, max, |_| false).0
}
