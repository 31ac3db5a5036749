//! What a device must be able to do: memory, copies, launches, events.
//!
//! Owns: the trait that the real driver and the emulator implement, and the words they share. Refuses to know: kernels by
//! name, models, weights.
//!
//! A device has one stream: what is asked of it happens in order, and the host goes on. Only [`Driver::download`],
//! [`Driver::finish`] and [`Driver::elapsed`] wait. Addresses are plain numbers, so that they can stand in a list of commands; an
//! [`Allocation`] gives its memory back when it is dropped, in the stream's order.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// An address in a device's memory.
pub type Address = u64;

/// What went wrong on a device, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The result of whatever touches a device.
pub type Result<T> = std::result::Result<T, Error>;

/// A kernel: its file, the variant of it, its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// A file of the manifest.
    pub file: &'static str,
    /// One of the file's variants, or nothing.
    pub variant: &'static str,
    /// The `extern "C" __global__` function.
    pub name: &'static str,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variant {
            "" => write!(f, "{}.cu: {}", self.file, self.name),
            variant => write!(f, "{}.cu as {variant}: {}", self.file, self.name),
        }
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arg {
    /// A pointer.
    At(Address),
    /// An `int`.
    Int(i32),
    /// A `float`.
    Float(f32),
}

/// How many threads run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks: x to 2^31 − 1, y and z to 65,535.
    pub blocks: [u32; 3],
    /// Threads of a block, at most 1024: x and y.
    pub threads: [u32; 2],
    /// Bytes of dynamic shared memory, at most 48 KiB together with the static.
    pub shared: u32,
}

/// Memory of a device; given back when dropped.
pub struct Allocation {
    /// Where it begins; a multiple of 256.
    pub at: Address,
    /// Bytes.
    pub len: usize,
    /// What gives it back.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// A point in a device's stream.
pub type Event = Arc<dyn Any + Send + Sync>;

/// A device.
pub trait Driver: Any + Send + Sync {
    /// For users: what it is, its architecture.
    fn describe(&self) -> String;

    /// Compute capability: ten times the major number plus the minor one.
    fn architecture(&self) -> u32;

    /// Free and total bytes of its memory.
    fn memory(&self) -> Result<(usize, usize)>;

    /// Makes sure that these kernels can be launched: compiles what is not compiled yet.
    fn prepare(&self, kernels: &[Kernel]) -> Result<()>;

    /// Memory, not initialised.
    fn allocate(&self, bytes: usize) -> Result<Allocation>;

    /// Writes `from`, which the caller may change as soon as this returns.
    fn upload(&self, to: Address, from: &[u8]) -> Result<()>;

    /// Reads, after all that was asked before.
    fn download(&self, from: Address, to: &mut [u8]) -> Result<()>;

    /// Copies inside the device; the two do not overlap.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()>;

    /// Writes zeros.
    fn clear(&self, at: Address, bytes: usize) -> Result<()>;

    /// Copies from another device of the same kind, in this device's stream: wait for the event behind what wrote it first.
    fn receive(&self, other: &dyn Driver, from: Address, to: Address, bytes: usize) -> Result<()>;

    /// Runs a kernel.
    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()>;

    /// Marks this point of the stream.
    fn record(&self) -> Result<Event>;

    /// Lets the stream wait for an event of this device or of another of the same kind. It is recorded already.
    fn wait(&self, event: &Event) -> Result<()>;

    /// Seconds between two events of this device; waits for both.
    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64>;

    /// Waits for all that was asked.
    fn finish(&self) -> Result<()>;
}
