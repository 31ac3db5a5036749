//! A device made of this machine's processor: it runs the same kernel files, slowly, and says what a kernel does wrong.
//!
//! Owns: what a device checks before it queues work. Refuses to know: kernels by name. What goes on asynchronously is
//! in `stream`, threads of blocks in `pool`, the fibers and guard pages behind `host`.
//!
//! With a seed other than 0, lanes, warps and blocks run in another order each time and the stream dozes where nobody
//! waits for it, so that a missing barrier or event shows. The first failure of a kernel is kept, and every later call
//! returns it.

mod host;
mod memory;
mod pool;
mod rebuilt;
mod stream;

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::driver::{Address, Allocation, Arg, Driver, Error, Event, Grid, Kernel, Result};
use host::{BUILT_IN, Code, Core, Launch, Mapping};
use memory::Ledger;
pub use rebuilt::{Change, Rebuilt};
use stream::{Item, Mark, Queue};

/// Bytes of memory unless told otherwise.
const MEMORY: usize = 8 << 30;
/// Limits of the oldest architecture, which hold on all.
const MOST_THREADS: u64 = 1024;
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const MOST_SHARED: u32 = 48 << 10;

/// An emulated device. Dropping it waits for its stream.
pub struct Emulator {
    architecture: u32,
    seed: u32,
    /// Kernels that stand before the program's own.
    rebuilt: Option<&'static Core>,
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// What an allocation holds: its memory is let go in the stream's order.
struct Keep {
    mapping: Arc<Mapping>,
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
}

impl Drop for Keep {
    fn drop(&mut self) {
        self.ledger.forget(&self.mapping);
        self.queue.push(Item::Free(Arc::clone(&self.mapping)));
    }
}

impl Emulator {
    /// A device of 8 GiB that takes itself for one of this architecture (37, 61, 80, ..) and uses all the processor's
    /// threads. `seed` 0: everything in a fixed order; else in an order of that seed.
    ///
    /// # Errors
    /// The processor lacks an instruction that the kernels were compiled with, or the system gives no thread.
    pub fn new(architecture: u32, seed: u32) -> Result<Self> {
        if !host::processor_fits() {
            let why =
                "the emulator needs a processor with FMA instructions (x86-64 of 2013 or later); use the CPU itself";
            return Err(Error(why.into()));
        }
        host::catch_faults();
        let (ledger, queue) = (Arc::new(Ledger::default()), Arc::new(Queue::default()));
        ledger.set_total(MEMORY);
        queue.threads.store(std::thread::available_parallelism().map_or(1, usize::from), Ordering::Relaxed);
        let work = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("emulated stream".into()).spawn(move || stream::run(&work, seed));
        let thread = thread.map_err(|e| Error(format!("the emulator gets no thread for its stream: {e}")))?;
        Ok(Emulator { architecture, seed, rebuilt: None, ledger, queue, thread: Some(thread) })
    }

    /// The same with this much memory, in bytes; it is only counted, not taken.
    #[must_use]
    pub fn with_memory(self, bytes: usize) -> Self {
        self.ledger.set_total(bytes);
        self
    }

    /// The same with this many host threads for the blocks of a launch, at least 1. Takes effect before the first
    /// launch.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        self.queue.threads.store(threads.max(1), Ordering::Relaxed);
        self
    }

    /// The same with other kernels: those that `rebuilt` has are its own, the rest are the program's.
    #[must_use]
    pub fn with_rebuilt(mut self, rebuilt: &Rebuilt) -> Self {
        self.rebuilt = Some(rebuilt.core());
        self.ledger.set_core(rebuilt.core());
        self
    }

    fn push(&self, item: Item) -> Result<()> {
        self.queue.check()?;
        self.queue.push(item);
        Ok(())
    }

    /// The compiled kernel, if this architecture has what it needs.
    fn code(&self, kernel: &Kernel) -> Result<Code> {
        let found = self.rebuilt.into_iter().chain([&BUILT_IN]).find_map(|core| Code::find(core, kernel));
        let code = found.ok_or_else(|| Error(format!("emulated device: there is no kernel {kernel}")))?;
        if code.from() > self.architecture {
            let (needs, has) = (code.from(), self.architecture);
            return Err(Error(format!("emulated device: {kernel} needs architecture {needs}, this device has {has}")));
        }
        Ok(code)
    }

    /// The launch as an item, or what is wrong with it.
    fn checked(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<Item> {
        let code = self.code(kernel)?;
        let refuse = |why: String| Error(format!("emulated device: {kernel}: {why}"));
        let threads = grid.threads.iter().map(|&n| u64::from(n)).product::<u64>();
        if threads == 0 || threads > MOST_THREADS.min(u64::from(code.threads())) {
            let most = code.threads();
            return Err(refuse(format!("{:?} threads in a block; it may have 1 to {most}", grid.threads)));
        }
        if grid.blocks.iter().zip(MOST_BLOCKS).any(|(&n, most)| n == 0 || n > most) {
            return Err(refuse(format!("{:?} blocks; there may be 1 to {MOST_BLOCKS:?}", grid.blocks)));
        }
        if grid.shared > MOST_SHARED {
            return Err(refuse(format!("{} bytes of shared memory; there are {MOST_SHARED}", grid.shared)));
        }
        let kinds = kinds(args);
        if kinds != code.kinds() {
            let expected = code.kinds();
            return Err(refuse(format!(
                "arguments are '{kinds}', parameters '{expected}' (p pointer, i int, f float)"
            )));
        }
        let mut touched = Vec::new();
        for (i, arg) in args.iter().enumerate() {
            let Arg::At(at) = *arg else { continue };
            if at != 0 {
                let why = || refuse(format!("argument {i}, address {at:#x}, lies in no memory of this device"));
                touched.push(self.ledger.holder(at).ok_or_else(why)?);
            }
        }
        Ok(Item::Launch(Launch::new(code, kernel, grid, args), touched))
    }

    fn mark(&self, event: &Event) -> Result<Arc<Mark>> {
        let mark = Arc::clone(event).downcast::<Mark>();
        mark.map_err(|_| Error("emulated device: the event is of another kind of device".into()))
    }
}

/// What kinds of arguments these are, as [`parameters`] says it.
pub(crate) fn kinds(args: &[Arg]) -> String {
    args.iter().map(kind).collect()
}

/// A letter for each parameter of a kernel: p pointer, i int, f float; `None` if there is no such kernel.
pub fn parameters(kernel: &Kernel) -> Option<&'static str> {
    Code::find(&BUILT_IN, kernel).map(Code::kinds)
}

fn kind(arg: &Arg) -> char {
    match arg {
        Arg::At(_) => 'p',
        Arg::Int(_) => 'i',
        Arg::Float(_) => 'f',
    }
}

impl Driver for Emulator {
    fn describe(&self) -> String {
        let order = if self.seed == 0 { String::new() } else { format!(", order {}", self.seed) };
        format!("emulated device (sm_{}{order})", self.architecture)
    }

    fn architecture(&self) -> u32 {
        self.architecture
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.queue.check()?;
        Ok(self.ledger.free_and_total())
    }

    fn prepare(&self, kernels: &[Kernel]) -> Result<()> {
        self.queue.check()?;
        kernels.iter().try_for_each(|kernel| self.code(kernel).map(|_| ()))
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation> {
        self.queue.check()?;
        let mapping = self.ledger.allocate(bytes)?;
        let (ledger, queue) = (Arc::clone(&self.ledger), Arc::clone(&self.queue));
        Ok(Allocation { at: mapping.at(), len: bytes, keep: Box::new(Keep { mapping, ledger, queue }) })
    }

    fn upload(&self, to: Address, from: &[u8]) -> Result<()> {
        self.push(Item::Write(self.ledger.piece(to, from.len(), "upload")?, from.to_vec()))
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<()> {
        let (reply, answer) = mpsc::channel();
        self.push(Item::Read(self.ledger.piece(from, to.len(), "download")?, reply))?;
        let _hurry = self.queue.hurry();
        match answer.recv() {
            Ok(bytes) => to.copy_from_slice(&bytes),
            Err(mpsc::RecvError) => {
                self.queue.check()?;
                return Err(self.queue.fail(Error("emulated device: its stream has ended".into())));
            }
        }
        Ok(())
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        let (from, to) = (self.ledger.piece(from, bytes, "copy from")?, self.ledger.piece(to, bytes, "copy to")?);
        self.push(Item::Copy(from, to))
    }

    fn clear(&self, at: Address, bytes: usize) -> Result<()> {
        self.push(Item::Clear(self.ledger.piece(at, bytes, "clear")?))
    }

    fn receive(&self, other: &dyn Driver, from: Address, to: Address, bytes: usize) -> Result<()> {
        let Some(other) = (other as &dyn Any).downcast_ref::<Emulator>() else {
            return Err(Error(format!(
                "emulated device: cannot copy from {}, which is another kind",
                other.describe()
            )));
        };
        let (from, to) =
            (other.ledger.piece(from, bytes, "receive from")?, self.ledger.piece(to, bytes, "receive to")?);
        self.push(Item::Copy(from, to))
    }

    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        self.queue.check()?;
        let item = self.checked(kernel, grid, args).map_err(|error| self.queue.fail(error))?;
        self.push(item)
    }

    fn record(&self) -> Result<Event> {
        let mark = Arc::new(Mark::new(&self.queue));
        self.push(Item::Record(Arc::clone(&mark)))?;
        Ok(mark)
    }

    fn wait(&self, event: &Event) -> Result<()> {
        self.push(Item::Wait(self.mark(event)?))
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        self.queue.check()?;
        let (from, to) = (self.mark(from)?, self.mark(to)?);
        if !from.is_of(&self.queue) || !to.is_of(&self.queue) {
            return Err(Error("emulated device: time between events of another device".into()));
        }
        let (from, to) = (from.wait()?, to.wait()?);
        Ok(to.saturating_duration_since(from).as_secs_f64())
    }

    fn finish(&self) -> Result<()> {
        let mark = Arc::new(Mark::new(&self.queue));
        self.push(Item::Record(Arc::clone(&mark)))?;
        mark.wait().map(|_| ())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.queue.end();
        if let Some(thread) = self.thread.take() {
            // The stream's thread does not panic; if it did, its panic was printed.
            let _ = thread.join();
        }
    }
}
