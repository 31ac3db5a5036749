//! Several dies at work on one pass.
//!
//! Owns: micro-blocks, the order of stages, who waits for whom. Refuses to know: what the commands do; layers.
//!
//! A pass is a line of stages, each on one die. Its rows are cut into micro-blocks, so that the second die works on the first of
//! them while the first die works on the next: one thread of the host for each die goes through the die's own stages, micro-block
//! by micro-block, and waits where a stage needs what another die has not done yet. Rows that must stay together (those whose
//! logits are wanted) come last and are one block.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kernels::{Address, Event};

use super::die::Die;
use super::tape::{Arrival, Source, Stage};
use crate::Result;

/// What a die says that waited for one that failed.
const OTHER: &str = "another die failed";

/// One stage over one micro-block.
struct Turn<'a> {
    stage: usize,
    block: usize,
    rows: Range<usize>,
    what: &'a Stage,
}

/// Which turns are done, as far as others wait for them.
struct Board {
    done: Mutex<Done>,
    news: Condvar,
}

struct Done {
    /// `[stage][block]`.
    events: Vec<Vec<Option<Event>>>,
    failed: bool,
}

/// Runs the stages over `dies`, rows that may be cut in `blocks` micro-blocks: no more than there are rows.
///
/// # Errors
/// If a die failed.
pub fn run(dies: &[Die], stages: &[Stage], blocks: usize) -> Result<()> {
    let turns = turns(stages, blocks);
    let board = Board {
        done: Mutex::new(Done { events: stages.iter().map(|s| vec![None; s.blocks(blocks)]).collect(), failed: false }),
        news: Condvar::new(),
    };
    let needed: Vec<bool> = (0..stages.len()).map(|s| stages.iter().any(|stage| waits_for(stage, s))).collect();
    let go = |turn: &Turn| {
        let die = &dies[turn.what.die];
        die.name(board.turn(dies, die, turn, needed[turn.stage]))
    };
    let busy: Vec<&Die> = dies.iter().filter(|die| stages.iter().any(|s| s.die == die.index())).collect();
    if blocks == 1 || busy.len() < 2 {
        // In the order in which they were written down nothing waits for what is not asked for yet.
        return turns.iter().try_for_each(go);
    }
    let work = |die: &Die| {
        let _alarm = Alarm(&board);
        let done = turns.iter().filter(|turn| turn.what.die == die.index()).try_for_each(go);
        if done.is_err() {
            board.fail();
        }
        done
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = busy[1..].iter().map(|die| scope.spawn(|| work(die))).collect();
        let first = work(busy[0]);
        let rest = others.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // Who failed tells more than who waited for it.
        let errors = std::iter::once(first).chain(rest).filter_map(Result::err);
        errors.min_by_key(|e| e.to_string().ends_with(OTHER)).map_or(Ok(()), Err)
    })
}

/// All turns, in an order that one thread could take them in.
fn turns(stages: &[Stage], blocks: usize) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    let mut from = 0;
    while from < stages.len() {
        let joint = stages[from].joint;
        let run = stages[from..].iter().take_while(|s| s.joint == joint).count();
        for block in 0..stages[from].blocks(blocks) {
            for (i, what) in stages[from..from + run].iter().enumerate() {
                let rows = part(what.rows, block, what.blocks(blocks));
                turns.push(Turn { stage: from + i, block, rows, what });
            }
        }
        from += run;
    }
    turns
}

/// The `block`-th of `blocks` nearly equal parts of `rows` rows.
fn part(rows: usize, block: usize, blocks: usize) -> Range<usize> {
    rows * block / blocks..rows * (block + 1) / blocks
}

impl Stage {
    /// Micro-blocks of its own.
    fn blocks(&self, blocks: usize) -> usize {
        if self.joint { 1 } else { blocks }
    }
}

fn waits_for(stage: &Stage, other: usize) -> bool {
    stage.after.contains(&other)
        || stage.arrivals.iter().any(|a| matches!(a.from, Source::Die { after: Some(after), .. } if after == other))
}

/// Lets nobody wait for a thread that panicked.
struct Alarm<'b>(&'b Board);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

impl Board {
    fn turn(&self, dies: &[Die], die: &Die, turn: &Turn, needed: bool) -> kernels::Result<()> {
        for &after in &turn.what.after {
            die.driver().wait(&self.event(after, turn)?)?;
        }
        for arrival in &turn.what.arrivals {
            self.receive(dies, die, turn, arrival)?;
        }
        for command in &turn.what.commands {
            command(die, turn.rows.clone())?;
        }
        if needed {
            let event = die.driver().record()?;
            self.lock().events[turn.stage][turn.block] = Some(event);
            self.news.notify_all();
        }
        Ok(())
    }

    fn receive(&self, dies: &[Die], die: &Die, turn: &Turn, arrival: &Arrival) -> kernels::Result<()> {
        let row = 4 * arrival.width;
        let (from, len) = (row * turn.rows.start, row * turn.rows.len());
        let to = arrival.to + from as Address;
        match &arrival.from {
            Source::Host(values) => die.driver().upload(to, &bytemuck::cast_slice(values.as_slice())[from..from + len]),
            Source::Die { die: other, at, after } => {
                if let Some(after) = after {
                    die.driver().wait(&self.event(*after, turn)?)?;
                }
                die.driver().receive(dies[*other].driver(), at + from as Address, to, len)
            }
        }
    }

    /// The event behind stage `stage`, as far as `turn` needs it: its own micro-block, or all of them. Waits until it is there.
    fn event(&self, stage: usize, turn: &Turn) -> kernels::Result<Event> {
        let mut done = self.lock();
        loop {
            let blocks = &done.events[stage];
            let block = if turn.what.joint { blocks.len() - 1 } else { turn.block.min(blocks.len() - 1) };
            if let Some(event) = &blocks[block] {
                return Ok(event.clone());
            }
            if done.failed {
                return Err(kernels::Error(OTHER.to_owned()));
            }
            done = self.news.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self) {
        self.lock().failed = true;
        self.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use kernels::Emulator;

    use super::super::tape::Command;
    use super::*;

    fn dies() -> Vec<Die> {
        (0..2).map(|i| Die::new(Arc::new(Emulator::new(37, 0).unwrap()), i)).collect()
    }

    /// The first die, then the second with `command`, then the first again, each behind the other.
    fn stages(command: Command) -> Vec<Stage> {
        let nothing = || Box::new(|_: &Die, _| Ok(())) as Command;
        let stage = |die, after, command| Stage {
            die,
            rows: 16,
            joint: false,
            after,
            arrivals: Vec::new(),
            commands: vec![command],
        };
        vec![stage(0, vec![], nothing()), stage(1, vec![0], command), stage(0, vec![1], nothing())]
    }

    #[test]
    fn nobody_waits_for_a_die_that_failed_and_the_cause_is_told() {
        for blocks in [2, 4] {
            let fail = |_: &Die, rows: Range<usize>| match rows.start {
                0 => Ok(()),
                _ => Err(kernels::Error("lost".to_owned())),
            };
            let error = run(&dies(), &stages(Box::new(fail)), blocks).unwrap_err();
            assert_eq!(error.to_string(), "die 1: lost", "{blocks} micro-blocks");
        }
    }

    #[test]
    fn nobody_waits_for_a_thread_that_panicked() {
        let panic = |_: &Die, rows: Range<usize>| {
            assert_eq!(rows.start, 0, "only the first micro-block");
            Ok(())
        };
        let ended = catch_unwind(AssertUnwindSafe(|| run(&dies(), &stages(Box::new(panic)), 4)));
        assert!(ended.is_err());
    }
}
