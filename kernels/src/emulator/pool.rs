//! The host threads that share the blocks of a launch.
//!
//! Owns: the threads of one device and how they take blocks. Refuses to know: streams, memory, what a kernel does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::host::{EndOfThread, Launch};
use crate::driver::{Error, Result};

/// Launches with fewer threads in all are not worth waking anybody.
const WORTH_SHARING: u64 = 1024;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A launch that is being run.
struct Task {
    launch: Launch,
    seed: u32,
    /// Blocks in all; the first and the step of their order.
    blocks: u64,
    first: u64,
    step: u64,
    next: AtomicU64,
    failed: AtomicBool,
    outcome: Mutex<Outcome>,
    complete: Condvar,
}

struct Outcome {
    left: u64,
    failure: Option<Error>,
}

impl Task {
    fn new(launch: Launch, seed: u32) -> Self {
        let blocks = launch.blocks();
        let (mut first, mut step) = (0, 1);
        if seed != 0 && blocks > 1 {
            first = u64::from(seed.wrapping_mul(0x9e37_79b9)) % blocks;
            step =
                (1 + u64::from(seed) % blocks..).find(|&step| greatest_common_divisor(step, blocks) == 1).unwrap_or(1);
        }
        let outcome = Mutex::new(Outcome { left: blocks, failure: None });
        let (next, failed, complete) = (AtomicU64::new(0), AtomicBool::new(false), Condvar::new());
        Task { launch, seed, blocks, first, step, next, failed, outcome, complete }
    }

    /// Runs blocks until none is left to take.
    fn work(&self) {
        let mut done = 0;
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if turn >= self.blocks {
                break;
            }
            done += 1;
            if self.failed.load(Ordering::Relaxed) {
                continue;
            }
            let index = (u128::from(self.first) + u128::from(turn) * u128::from(self.step)) % u128::from(self.blocks);
            if let Err(error) = self.launch.run(index as u64, self.seed) {
                self.failed.store(true, Ordering::Relaxed);
                lock(&self.outcome).failure.get_or_insert(error);
            }
        }
        if done > 0 {
            let mut outcome = lock(&self.outcome);
            outcome.left -= done;
            if outcome.left == 0 {
                self.complete.notify_all();
            }
        }
    }

    /// Waits until every block has ended.
    fn wait(&self) -> Result<()> {
        let mut outcome = lock(&self.outcome);
        while outcome.left > 0 {
            outcome = self.complete.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
        outcome.failure.take().map_or(Ok(()), Err)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// What the threads look at: the newest task and its number, or that they shall end.
#[derive(Default)]
struct Board {
    number: u64,
    task: Option<Arc<Task>>,
    ended: bool,
}

type Shared = (Mutex<Board>, Condvar);

/// Host threads beside the one that asks.
pub(super) struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `threads` threads in all: the one that calls [`Pool::run`] is one of them. Fewer, if the system gives no more.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let start = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("emulated blocks".into()).spawn(move || help(&shared)).ok()
        };
        let helpers = (1..threads).map_while(start).collect();
        Pool { shared, helpers }
    }

    /// Runs a launch to its end, its order given by `seed`.
    pub(super) fn run(&self, launch: Launch, seed: u32) -> Result<()> {
        let shares = launch.blocks() > 1 && launch.blocks().saturating_mul(launch.threads()) >= WORTH_SHARING;
        let task = Arc::new(Task::new(launch, seed));
        if shares && !self.helpers.is_empty() {
            let mut board = lock(&self.shared.0);
            board.number += 1;
            board.task = Some(Arc::clone(&task));
            self.shared.1.notify_all();
        }
        task.work();
        task.wait()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.0).ended = true;
        self.shared.1.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper does not panic; if it did, its panic was printed.
            let _ = helper.join();
        }
    }
}

fn help(shared: &Shared) {
    let _end = EndOfThread;
    let mut seen = 0;
    loop {
        let mut board = lock(&shared.0);
        while board.number == seen && !board.ended {
            board = shared.1.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        if board.ended {
            return;
        }
        seen = board.number;
        let task = board.task.clone();
        drop(board);
        if let Some(task) = task {
            task.work();
        }
    }
}
