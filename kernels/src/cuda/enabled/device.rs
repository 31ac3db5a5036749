//! A card as a device.
//!
//! Owns: what belongs together: context, stream, memory, code. Refuses to know: how each of them works.

use std::any::Any;
use std::sync::Arc;

use super::code::Code;
use super::compiler::Compiler;
use super::context::{Context, Mark, Stream, call};
use super::memory::Memory;
use super::peer::Ways;
use super::staging::{Downloads, Uploads};
use crate::driver::{Address, Allocation, Arg, Driver, Error, Event, Grid, Kernel, Result};

/// A card, with a context and a stream of its own. Its parts go before what they stand on: in this order.
pub struct CudaDevice {
    ways: Ways,
    uploads: Uploads,
    downloads: Downloads,
    code: Code,
    memory: Arc<Memory>,
    stream: Arc<Stream>,
    context: Arc<Context>,
}

impl CudaDevice {
    /// Opens a card of which the driver is known to show at least `ordinal + 1`; it runs CUDA up to `driver`.
    pub(super) fn create(ordinal: usize, compiler: &Compiler, driver: (u32, u32)) -> Result<CudaDevice> {
        let context = Context::create(ordinal)?;
        let stream = Arc::new(Stream::create(&context)?);
        Ok(CudaDevice {
            ways: Ways::new(&context, &stream),
            uploads: Uploads::new(&context, &stream)?,
            downloads: Downloads::new(&context, &stream)?,
            code: Code::new(&context, compiler, driver),
            memory: Memory::new(&context),
            stream,
            context,
        })
    }

    /// Lets all copies from other devices go through the host, as they do where no card can read another's memory.
    #[must_use]
    pub fn through_host(mut self) -> CudaDevice {
        self.ways.through_host();
        self
    }

    fn mark<'a>(&self, event: &'a Event) -> Result<&'a Mark> {
        let foreign = || Error(format!("{}: an event of a device of another kind", self.context.name));
        (**event).downcast_ref().ok_or_else(foreign)
    }
}

impl Driver for CudaDevice {
    fn describe(&self) -> String {
        let memory = self.memory().map_or(String::new(), |(_, total)| format!(", {} MiB", total >> 20));
        format!("{}, sm_{}{memory}", self.context.name, self.context.architecture)
    }

    fn architecture(&self) -> u32 {
        self.context.architecture
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.memory.state()
    }

    fn prepare(&self, kernels: &[Kernel]) -> Result<()> {
        self.code.prepare(kernels)
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation> {
        self.memory.allocate(bytes)
    }

    fn upload(&self, to: Address, from: &[u8]) -> Result<()> {
        self.uploads.upload(to, from)
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<()> {
        self.downloads.download(from, to)
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: a wrong address is the driver's to refuse.
        unsafe { call!(self.context, cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.raw())) }
    }

    fn clear(&self, at: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: a wrong address is the driver's to refuse.
        unsafe { call!(self.context, cuMemsetD8Async(at, 0, bytes, self.stream.raw())) }
    }

    fn receive(&self, other: &dyn Driver, from: Address, to: Address, bytes: usize) -> Result<()> {
        let Some(other) = (other as &dyn Any).downcast_ref::<CudaDevice>() else {
            let (here, there) = (&self.context.name, other.describe());
            return Err(Error(format!("{here}: cannot copy from {there}: it is a device of another kind")));
        };
        if other.context.serial == self.context.serial {
            return self.copy(from, to, bytes);
        }
        if bytes == 0 {
            return Ok(());
        }
        self.ways.receive(&other.context, from, to, bytes)
    }

    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        self.code.launch(&self.stream, kernel, grid, args)
    }

    fn record(&self) -> Result<Event> {
        Ok(Arc::new(self.stream.record()?))
    }

    fn wait(&self, event: &Event) -> Result<()> {
        self.stream.wait(self.mark(event)?)
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        self.mark(from)?.elapsed(self.mark(to)?)
    }

    fn finish(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // An error here is one of a lost device, which was reported by the call that met it.
        let _ = self.stream.synchronize();
    }
}
