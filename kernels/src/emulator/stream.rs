//! A stream: work that one thread does in order while whoever asked goes on.
//!
//! Owns: the queue, the thread, events, the first failure, which ends all later work. Refuses to know: how memory is
//! counted, which launches are sensible.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::host::{EndOfThread, Launch, Mapping};
use super::memory::Piece;
use super::pool::Pool;
use crate::driver::{Error, Result};

/// How long a stream dozes at most where nobody waits for it.
const DOZE: Duration = Duration::from_millis(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something to do.
pub(super) enum Item {
    /// Run a kernel that was given pointers into these allocations.
    Launch(Launch, Vec<Arc<Mapping>>),
    /// Write bytes.
    Write(Piece, Vec<u8>),
    /// Send what is there.
    Read(Piece, Sender<Vec<u8>>),
    /// Copy the first to the second.
    Copy(Piece, Piece),
    /// Write zeros.
    Clear(Piece),
    /// This point is reached.
    Record(Arc<Mark>),
    /// Wait for a point of some stream.
    Wait(Arc<Mark>),
    /// Let go of memory.
    Free(Arc<Mapping>),
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    /// How many wait for something in this stream.
    urgent: usize,
    ended: bool,
}

/// What is asked of a stream and not yet done.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    failure: Mutex<Option<Error>>,
    /// Host threads for the blocks of a launch.
    pub(super) threads: AtomicUsize,
}

impl Queue {
    /// Adds to the end; what comes after the end is dropped.
    pub(super) fn push(&self, item: Item) {
        let mut waiting = lock(&self.waiting);
        if !waiting.ended {
            waiting.items.push_back(item);
            self.changed.notify_all();
        }
    }

    /// Nothing more will come.
    pub(super) fn end(&self) {
        lock(&self.waiting).ended = true;
        self.changed.notify_all();
    }

    /// The first failure, for ever.
    pub(super) fn check(&self) -> Result<()> {
        lock(&self.failure).clone().map_or(Ok(()), Err)
    }

    /// Makes a failure the device's, unless it has one; returns the device's.
    pub(super) fn fail(&self, error: Error) -> Error {
        lock(&self.failure).get_or_insert(error).clone()
    }

    /// As long as what this returns lives, the stream does not doze.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        lock(&self.waiting).urgent += 1;
        self.changed.notify_all();
        Hurry(self)
    }

    /// The next item; dozes before it if asked to and nobody waits. `None` at the end.
    fn next(&self, doze: bool) -> Option<Item> {
        let mut waiting = lock(&self.waiting);
        while waiting.items.is_empty() {
            if waiting.ended {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if doze {
            let asleep = |waiting: &mut Waiting| waiting.urgent == 0 && !waiting.ended;
            let woken = self.changed.wait_timeout_while(waiting, DOZE, asleep);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.items.pop_front()
    }
}

/// Somebody waits for a stream.
pub(super) struct Hurry<'a>(&'a Queue);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        lock(&self.0.waiting).urgent -= 1;
    }
}

#[derive(Clone)]
enum State {
    Ahead,
    Reached(Instant),
    Lost(Error),
}

/// A point in a stream.
pub(super) struct Mark {
    state: Mutex<State>,
    changed: Condvar,
    queue: Arc<Queue>,
}

impl Mark {
    /// A point that the stream of this queue has not reached.
    pub(super) fn new(queue: &Arc<Queue>) -> Self {
        Mark { state: Mutex::new(State::Ahead), changed: Condvar::new(), queue: Arc::clone(queue) }
    }

    /// Whether it is a point of that stream.
    pub(super) fn is_of(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    fn reach(&self) {
        let state = self.queue.check().map_or_else(State::Lost, |()| State::Reached(Instant::now()));
        *lock(&self.state) = state;
        self.changed.notify_all();
    }

    /// Waits until it is reached and says when that was; the stream's failure if it came before.
    pub(super) fn wait(&self) -> Result<Instant> {
        let _hurry = self.queue.hurry();
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Ahead => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Reached(when) => return Ok(*when),
                State::Lost(error) => return Err(error.clone()),
            }
        }
    }
}

/// The stream's thread: does what the queue holds until its end.
pub(super) fn run(queue: &Queue, seed: u32) {
    let _end = EndOfThread;
    let mut pool = None;
    let mut order = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        order ^= order << 13;
        order ^= order >> 7;
        order ^= order << 17;
        (order >> 32) as u32
    };
    while let Some(item) = queue.next(seed != 0 && draw().is_multiple_of(8)) {
        let sound = queue.check().is_ok();
        let done = match item {
            Item::Record(mark) => {
                mark.reach();
                Ok(())
            }
            _ if !sound => Ok(()),
            Item::Launch(launch, touched) => {
                let pool = pool.get_or_insert_with(|| Pool::new(queue.threads.load(Ordering::Relaxed)));
                let label = launch.label().to_owned();
                let seed = if seed == 0 { 0 } else { draw().max(1) };
                pool.run(launch, seed).and_then(|()| margins(&touched, &label))
            }
            Item::Write(to, bytes) => {
                to.write(&bytes);
                Ok(())
            }
            Item::Read(from, reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(from.read());
                Ok(())
            }
            Item::Copy(from, to) => {
                to.copy(&from);
                Ok(())
            }
            Item::Clear(piece) => {
                piece.clear();
                Ok(())
            }
            Item::Wait(mark) => {
                mark.wait().map(|_| ()).map_err(|Error(why)| Error(format!("waited for a device that failed: {why}")))
            }
            Item::Free(mapping) => margins(&[mapping], "a kernel, noticed when the memory was given back"),
        };
        if let Err(Error(why)) = done {
            queue.fail(Error(format!("emulated device: {why}")));
        }
    }
}

/// Whether nobody wrote beside these allocations.
fn margins(allocations: &[Arc<Mapping>], who: &str) -> Result<()> {
    match allocations.iter().find(|allocation| !allocation.margins_whole()) {
        None => Ok(()),
        Some(torn) => Err(Error(format!("{who}: wrote out of bounds, beside an allocation of {} bytes", torn.len()))),
    }
}
