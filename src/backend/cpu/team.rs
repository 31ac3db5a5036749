//! The threads of a pass: one parallel region, spin barriers between its phases.
//!
//! Owns: the region, the hand-out of a phase's items and the proof that no two threads write the same place.
//! Refuses to know: what a phase computes. Which thread runs which item never shows in a result.
//!
//! A fork-join per operation costs several microseconds, and a pass has hundreds of operations. So a pass opens one
//! region (a rayon broadcast); inside it the workers spin, and a phase is one published closure and one barrier.
//! Lending a borrowed closure and disjoint pieces of a buffer to spinning workers is what needs `unsafe` here.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A phase's body: every thread in it calls the same closure, which hands out items until none is left.
type Job<'a> = &'a (dyn Fn() + Sync);

/// Keeps a counter on a cache line of its own.
#[repr(align(128))]
struct Line<T>(T);

/// Threads that compute passes together.
pub struct Team {
    /// The threads beside the caller's; `None` for a team of one.
    workers: Option<rayon::ThreadPool>,
    threads: usize,
    board: Board,
}

/// What leader and workers share.
struct Board {
    job: UnsafeCell<Option<Job<'static>>>,
    /// The phase: its number times [`PHASE`], plus [`JOINABLE`] while it may be joined, plus the workers inside it.
    phase: Line<AtomicU64>,
    /// Whether the region is open; closing it sends the workers home.
    open: Line<AtomicBool>,
    panicked: AtomicBool,
    /// Held while a region is open, so that two passes on one team follow each other.
    turn: Mutex<()>,
}

const JOINABLE: u64 = 1 << 31;
const PHASE: u64 = 1 << 32;

// SAFETY: `job` is written by the leader only while the phase is not joinable and no worker is inside it, and read by
// workers only after they have joined a phase, which follows the leader's release store.
unsafe impl Sync for Board {}

/// Below this many scalar operations a phase runs on the leader alone: a barrier would cost more.
const SOLO: usize = 16 * 1024;

impl Team {
    /// A team of `threads` (at least 1), the caller's thread among them.
    ///
    /// # Errors
    /// If the operating system refuses the threads.
    pub fn new(threads: usize) -> crate::Result<Team> {
        assert!(threads >= 1, "a team has at least one thread");
        let workers = match threads {
            1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads - 1)
                    .thread_name(|i| format!("verbatim-{}", i + 1))
                    .build()
                    .map_err(|e| {
                        crate::Error::new(format!("cannot start {threads} threads: {e}")).about("--threads")
                    })?,
            ),
        };
        let board = Board {
            job: UnsafeCell::new(None),
            phase: Line(AtomicU64::new(0)),
            open: Line(AtomicBool::new(false)),
            panicked: AtomicBool::new(false),
            turn: Mutex::new(()),
        };
        Ok(Team { workers, threads, board })
    }

    /// Threads in the team, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `body` on the calling thread with the workers standing by; phases inside it cost one barrier each.
    pub fn region<R>(&self, body: impl FnOnce(&Phases) -> R) -> R {
        let Some(pool) = &self.workers else {
            return body(&Phases { team: None });
        };
        // A poisoned turn only says that an earlier pass panicked; the board is reset below.
        let _turn = self.board.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let board = &self.board;
        board.open.0.store(true, Ordering::Release);
        board.panicked.store(false, Ordering::Relaxed);
        pool.in_place_scope(|scope| {
            scope.spawn_broadcast(move |_, _| board.work());
            // Closes the region also when `body` unwinds, so that the workers go home and the scope can end.
            let _close = OnDrop(|| board.open.0.store(false, Ordering::Release));
            body(&Phases { team: Some(self) })
        })
    }
}

/// Runs its closure when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Waits until `done`, spinning first and yielding after a while (a machine may have fewer free cores than threads).
fn spin_until(mut done: impl FnMut() -> bool) {
    let mut spins = 0u32;
    while !done() {
        spins = spins.saturating_add(1);
        if spins < 20_000 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

impl Board {
    /// A worker's life in a region: joins every phase that is still open when it comes by.
    fn work(&self) {
        let mut last = u64::MAX;
        loop {
            let mut seen = 0;
            spin_until(|| {
                seen = self.phase.0.load(Ordering::Acquire);
                (seen & JOINABLE != 0 && seen / PHASE != last) || !self.open.0.load(Ordering::Acquire)
            });
            if seen & JOINABLE == 0 || seen / PHASE == last {
                return;
            }
            if self.phase.0.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            last = seen / PHASE;
            // SAFETY: the leader wrote the job before its release store of the phase that was joined, and does not
            // touch it, nor return from the phase that lends it, while a worker is inside.
            let job = unsafe { *self.job.get() };
            let result = catch_unwind(AssertUnwindSafe(|| job.into_iter().for_each(|job| job())));
            if result.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.phase.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Runs `job` on the calling thread and on every worker that joins before the caller is through with it. A worker
    /// that the machine does not run just now is not waited for: its share is already done.
    fn phase(&self, job: Job<'_>) {
        // SAFETY: only the lifetime changes. The job outlives its use: this function does not return or unwind before
        // the phase is closed and every worker that joined has left (`_close`).
        let lent: Job<'static> = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        // SAFETY: the last phase is closed and empty, so no worker reads `job` now.
        unsafe { *self.job.get() = Some(lent) };
        let next = (self.phase.0.load(Ordering::Relaxed) / PHASE + 1) % (1 << 31);
        self.phase.0.store(next * PHASE + JOINABLE, Ordering::Release);
        {
            let _close = OnDrop(|| {
                self.phase.0.fetch_and(!JOINABLE, Ordering::AcqRel);
                spin_until(|| self.phase.0.load(Ordering::Acquire) & (JOINABLE - 1) == 0);
            });
            job();
        }
        assert!(!self.panicked.load(Ordering::Relaxed), "a worker thread panicked");
    }
}

/// The right to run phases, given inside a region.
pub struct Phases<'t> {
    team: Option<&'t Team>,
}

impl Phases<'_> {
    /// Runs `body(i, part i of parts)` for every item `0..items`, each exactly once, and returns when all are done.
    /// `work` is the phase's size in scalar operations; small phases stay on the calling thread.
    pub fn each<P: Parts>(&self, items: usize, work: usize, parts: P, body: impl Fn(usize, P::Part) + Sync) {
        assert!(items <= parts.items(), "more items than parts");
        let shared = &parts;
        let run = |range: Range<usize>| {
            for i in range {
                // SAFETY: `each` hands out every item once: by one loop here or by the counter below.
                body(i, unsafe { shared.part(i) });
            }
        };
        match self.team {
            Some(team) if work >= SOLO && items > 1 => {
                let next = AtomicUsize::new(0);
                // Large shares first, so that neighbouring items mostly meet on one thread; small ones at the end, so
                // that the threads end together, whatever each of them is slowed down by.
                let share = |from: usize| (items - from).div_ceil(team.threads * 4);
                team.board.phase(&|| {
                    let take = |from| (from < items).then(|| from + share(from));
                    while let Ok(from) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                        run(from..from + share(from));
                    }
                });
            }
            _ => run(0..items),
        }
    }
}

/// Something that falls into disjoint pieces, one per item.
///
/// # Safety
/// `part(i)` and `part(j)` of different items must not overlap.
pub unsafe trait Parts: Sync {
    /// What an item may write.
    type Part;
    /// How many items there are.
    fn items(&self) -> usize;
    /// The piece of item `i < items`.
    ///
    /// # Safety
    /// Each item's piece may be taken once.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// A buffer cut into chunks of equal length (the last may be shorter).
pub struct Chunks<'a, T> {
    start: *mut T,
    len: usize,
    chunk: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&mut [T]` whose pieces go to different threads.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

impl<'a, T> Chunks<'a, T> {
    /// Cuts `data` into chunks of `chunk` elements.
    pub fn new(data: &'a mut [T], chunk: usize) -> Self {
        assert!(chunk > 0, "a chunk has at least one element");
        Chunks { start: data.as_mut_ptr(), len: data.len(), chunk, owner: PhantomData }
    }
}

// SAFETY: chunks of different index do not overlap.
unsafe impl<'a, T: Send> Parts for Chunks<'a, T> {
    type Part = &'a mut [T];

    fn items(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        let from = i * self.chunk;
        assert!(from < self.len, "chunk out of range");
        let len = self.chunk.min(self.len - from);
        // SAFETY: inside the buffer, and only item `i` holds it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}

/// A matrix `[rows][width]` cut into rectangles: row ranges times column tiles, tiles running fastest.
pub struct Grid<'a> {
    start: *mut f32,
    width: usize,
    tile: usize,
    ranges: Vec<Range<usize>>,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for a `&mut [f32]` whose rectangles go to different threads.
unsafe impl Sync for Grid<'_> {}

impl<'a> Grid<'a> {
    /// Cuts `data` (`[rows][width]`) into all rows times tiles of `tile` columns.
    pub fn columns(data: &'a mut [f32], width: usize, tile: usize) -> Self {
        let rows = data.len() / width;
        Grid::new(data, width, tile, std::iter::once(0..rows).collect())
    }

    /// Cuts `data` (`[rows][width]`) into `ranges` of rows (ascending, disjoint) times tiles of `tile` columns.
    pub fn new(data: &'a mut [f32], width: usize, tile: usize, ranges: Vec<Range<usize>>) -> Self {
        assert!(width > 0 && tile > 0, "a grid has columns");
        let mut end = 0;
        for range in &ranges {
            assert!(range.start >= end && range.start <= range.end, "row ranges ascend and do not overlap");
            end = range.end;
        }
        assert!(end * width <= data.len(), "row ranges lie inside the matrix");
        Grid { start: data.as_mut_ptr(), width, tile, ranges, owner: PhantomData }
    }

    /// Tiles in one row range.
    pub fn tiles(&self) -> usize {
        self.width.div_ceil(self.tile)
    }
}

// SAFETY: rectangles of different index differ in their row range or in their column tile.
unsafe impl<'a> Parts for Grid<'a> {
    type Part = Rect<'a>;

    fn items(&self) -> usize {
        self.ranges.len() * self.tiles()
    }

    unsafe fn part(&self, i: usize) -> Rect<'a> {
        let rows = self.ranges[i / self.tiles()].clone();
        let from = i % self.tiles() * self.tile;
        let cols = from..(from + self.tile).min(self.width);
        Rect { start: self.start, width: self.width, rows, cols, owner: PhantomData }
    }
}

/// One rectangle of a [`Grid`].
pub struct Rect<'a> {
    start: *mut f32,
    width: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    owner: PhantomData<&'a mut [f32]>,
}

impl Rect<'_> {
    /// The matrix's rows that the rectangle covers.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The matrix's columns that the rectangle covers.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// The rectangle's part of row `row` (counted in the matrix).
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(self.rows.contains(&row), "row outside the rectangle");
        // SAFETY: inside the matrix (checked at construction) and inside this rectangle, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + self.cols.start), self.cols.len()) }
    }
}

/// Several grids one after another; a piece comes with the number of its grid.
pub struct Several<'a>(pub Vec<Grid<'a>>);

// SAFETY: grids stand for different buffers, and a grid's rectangles do not overlap.
unsafe impl<'a> Parts for Several<'a> {
    type Part = (usize, Rect<'a>);

    fn items(&self) -> usize {
        self.0.iter().map(Parts::items).sum()
    }

    unsafe fn part(&self, mut i: usize) -> (usize, Rect<'a>) {
        for (which, grid) in self.0.iter().enumerate() {
            if i < grid.items() {
                // SAFETY: the caller's promise, item by item.
                return (which, unsafe { grid.part(i) });
            }
            i -= grid.items();
        }
        panic!("item out of range");
    }
}

macro_rules! tuple_parts {
    ($($name:ident $index:tt),+) => {
        // SAFETY: pieces of different items do not overlap in any member.
        unsafe impl<$($name: Parts),+> Parts for ($($name,)+) {
            type Part = ($($name::Part,)+);

            fn items(&self) -> usize {
                [$(self.$index.items()),+].into_iter().min().unwrap_or(0)
            }

            unsafe fn part(&self, i: usize) -> Self::Part {
                // SAFETY: the caller's promise holds for every member.
                unsafe { ($(self.$index.part(i),)+) }
            }
        }
    };
}

tuple_parts!(A 0, B 1);
tuple_parts!(A 0, B 1, C 2);
tuple_parts!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_runs_once_on_any_number_of_threads() {
        for threads in 1..=4 {
            let team = Team::new(threads).unwrap();
            let mut counts = vec![0u32; 1000];
            for _ in 0..3 {
                team.region(|phases| {
                    for _ in 0..50 {
                        phases.each(334, SOLO, Chunks::new(&mut counts, 3), |_, part| {
                            part.iter_mut().for_each(|c| *c += 1);
                        });
                    }
                });
            }
            assert!(counts.iter().all(|&c| c == 150));
        }
    }

    #[test]
    fn rectangles_cover_their_rows_and_columns_once() {
        let team = Team::new(2).unwrap();
        let mut data = vec![0.0; 7 * 10];
        team.region(|phases| {
            let grid = Grid::new(&mut data, 10, 4, vec![0..2, 2..5, 6..7]);
            phases.each(9, SOLO, grid, |_, mut rect| {
                for row in rect.rows() {
                    rect.row(row).iter_mut().for_each(|v| *v += 1.0);
                }
            });
        });
        for (i, v) in data.iter().enumerate() {
            assert_eq!(*v, if i / 10 == 5 { 0.0 } else { 1.0 });
        }
    }

    #[test]
    fn a_panic_in_a_phase_reaches_the_caller_and_the_team_lives_on() {
        let team = Team::new(2).unwrap();
        for _ in 0..3 {
            let mut data = vec![0u8; 64];
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.region(|phases| {
                    phases.each(64, SOLO, Chunks::new(&mut data, 1), |i, _| assert_ne!(i, 40));
                });
            }));
            assert!(caught.is_err());
            let mut sum = vec![0u8; 64];
            team.region(|phases| phases.each(64, SOLO, Chunks::new(&mut sum, 1), |_, part| part[0] = 1));
            assert!(sum.iter().all(|&v| v == 1));
        }
    }
}
