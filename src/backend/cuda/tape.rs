//! A pass as it is written down before it runs: stages of commands, each stage on one die.
//!
//! Owns: what a stage needs from elsewhere before it begins. Refuses to know: what the commands do, and when they run (`pair`).
//!
//! Operations say what is to be done with all rows of a pass; a command is told, when it runs, with which of them. So a pass
//! can be cut into micro-blocks of rows afterwards. A command of the later rows finds what those of the earlier rows left: K and
//! V, tentative S, the conv window.

use std::ops::Range;
use std::sync::Arc;

use kernels::Address;

use super::die::Die;
use super::rows::{Held, Rows};

/// Something to do on a die with some rows of the pass.
pub type Command = Box<dyn Fn(&Die, Range<usize>) -> kernels::Result<()> + Send + Sync>;

/// Commands in a row on one die.
pub struct Stage {
    /// The die.
    pub die: usize,
    /// Rows that its commands cover.
    pub rows: usize,
    /// Whether the rows must be gone through together.
    pub joint: bool,
    /// Stages on other dies that must be done first: they read what is written here.
    pub after: Vec<usize>,
    /// What must arrive first.
    pub arrivals: Vec<Arrival>,
    /// What is done.
    pub commands: Vec<Command>,
}

/// Rows that a stage needs from elsewhere.
pub struct Arrival {
    /// Where they come from.
    pub from: Source,
    /// Where they go on the stage's die.
    pub to: Address,
    /// Elements of a row.
    pub width: usize,
}

/// Where rows come from.
pub enum Source {
    /// From the host.
    Host(Arc<Vec<f32>>),
    /// From another die, once it is done with a stage.
    Die {
        /// The die.
        die: usize,
        /// Where they lie on it.
        at: Address,
        /// The last stage before that runs there; none if it is of an earlier pass.
        after: Option<usize>,
    },
}

impl Source {
    /// Whether it is this place on this die.
    fn is(&self, die: usize, at: Address) -> bool {
        matches!(self, Source::Die { die: from, at: there, .. } if (*from, *there) == (die, at))
    }
}

/// A pass being written down.
#[derive(Default)]
pub struct Tape {
    /// What is to be done.
    pub stages: Vec<Stage>,
    /// Memory that the commands use.
    pub held: Held,
    /// Whether rows have been dropped: from here on they go together.
    pub joint: bool,
}

impl Tape {
    /// Whether rows go from die to die.
    pub fn crosses(&self) -> bool {
        let arrivals = self.stages.iter().flat_map(|stage| &stage.arrivals);
        arrivals.into_iter().any(|arrival| matches!(arrival.from, Source::Die { .. }))
    }

    /// Appends a command over `rows` rows on `die`.
    pub fn push(&mut self, die: &Die, rows: usize, command: Command) {
        self.stage(die, rows).commands.push(command);
    }

    fn stage(&mut self, die: &Die, rows: usize) -> &mut Stage {
        let joint = self.joint;
        let fits = |s: &Stage| s.die == die.index() && s.joint == joint && s.rows == rows;
        if !self.stages.last().is_some_and(fits) {
            self.begin(die, rows);
        }
        let last = self.stages.len() - 1;
        &mut self.stages[last]
    }

    fn begin(&mut self, die: &Die, rows: usize) {
        let (joint, after, arrivals, commands) = (self.joint, Vec::new(), Vec::new(), Vec::new());
        self.stages.push(Stage { die: die.index(), rows, joint, after, arrivals, commands });
    }

    /// Lets what follows on `die` wait for the dies that read, from there, the rows at `at`: they are about to be written.
    pub fn after_readers(&mut self, at: Address, rows: usize, die: &Die) {
        let reads = |stage: &Stage| stage.arrivals.iter().any(|arrival| arrival.from.is(die.index(), at));
        let readers: Vec<usize> = (0..self.stages.len()).filter(|&stage| reads(&self.stages[stage])).collect();
        if !readers.is_empty() {
            self.begin(die, rows);
            self.stage(die, rows).after = readers;
        }
    }

    /// Makes `rows` valid on `die` and says where they lie there.
    ///
    /// # Errors
    /// If the die's memory does not suffice.
    pub fn read(&mut self, rows: &Rows, die: &Die) -> kernels::Result<Address> {
        let to = rows.place(die, &mut self.held)?;
        if !rows.is_on(die) {
            let from = match rows.host() {
                Some(values) => Source::Host(values),
                None => {
                    let (other, at) = rows.home();
                    let after = self.stages.iter().rposition(|s| s.die == other);
                    Source::Die { die: other, at, after }
                }
            };
            let (width, count) = (rows.width(), rows.len());
            self.after_readers(to, count, die);
            // What arrives does so before a stage's commands; those that are there may need what lies there now.
            if self.stages.last().is_some_and(|stage| !stage.commands.is_empty()) {
                self.begin(die, count);
            }
            self.stage(die, count).arrivals.push(Arrival { from, to, width });
            rows.arrive(die);
        }
        Ok(to)
    }
}
