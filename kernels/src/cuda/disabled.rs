//! Graphics cards in a build without them.
//!
//! Owns: one sentence that says so. Refuses to know: everything else.

use std::path::{Path, PathBuf};

use super::{Card, FoundCompiler, Reading};
use crate::Change;
use crate::driver::{Address, Allocation, Arg, Driver, Error, Event, Grid, Kernel, Result};

fn absent<T>() -> Result<T> {
    Err(Error("this program was built without CUDA: build it with the feature `cuda`, which is on by default".into()))
}

/// The number of cards.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn count() -> Result<usize> {
    absent()
}

/// The cards.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn cards() -> Result<Vec<Card>> {
    absent()
}

/// The newest CUDA that the driver runs.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn version() -> Result<(u32, u32)> {
    absent()
}

/// Whether card `to` can read the memory of card `from`.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn peers(_to: usize, _from: usize) -> Result<bool> {
    absent()
}

/// The run-time compiler that would be used for cards of an architecture.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn compiler_for(_nvrtc: Option<&Path>, _architecture: u32, _driver: (u32, u32)) -> Result<FoundCompiler> {
    absent()
}

/// What the management library says of the cards.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn readings() -> Result<Vec<Reading>> {
    absent()
}

/// Opens a card.
///
/// # Errors
/// Always: this build has no CUDA.
pub fn open(_ordinal: usize, _compiler: &Compiler) -> Result<CudaDevice> {
    absent()
}

/// What would compile kernels.
#[derive(Clone, Default)]
pub struct Compiler(());

impl Compiler {
    /// Looks at neither path.
    pub fn new(_nvrtc: Option<PathBuf>, _cache: Option<PathBuf>) -> Compiler {
        Compiler(())
    }

    /// The PTX of each unit for an architecture.
    ///
    /// # Errors
    /// Always: this build has no CUDA.
    pub fn portable(&self, _: u32, _units: &[(&'static str, &'static str)], _: Option<Change>) -> Result<Vec<String>> {
        absent()
    }
}

/// A card, of which there is none.
pub enum CudaDevice {}

impl CudaDevice {
    /// Unreachable.
    #[must_use]
    pub fn through_host(self) -> CudaDevice {
        self
    }
}

impl Driver for CudaDevice {
    fn describe(&self) -> String {
        match *self {}
    }

    fn architecture(&self) -> u32 {
        match *self {}
    }

    fn memory(&self) -> Result<(usize, usize)> {
        match *self {}
    }

    fn prepare(&self, _: &[Kernel]) -> Result<()> {
        match *self {}
    }

    fn allocate(&self, _: usize) -> Result<Allocation> {
        match *self {}
    }

    fn upload(&self, _: Address, _: &[u8]) -> Result<()> {
        match *self {}
    }

    fn download(&self, _: Address, _: &mut [u8]) -> Result<()> {
        match *self {}
    }

    fn copy(&self, _: Address, _: Address, _: usize) -> Result<()> {
        match *self {}
    }

    fn clear(&self, _: Address, _: usize) -> Result<()> {
        match *self {}
    }

    fn receive(&self, _: &dyn Driver, _: Address, _: Address, _: usize) -> Result<()> {
        match *self {}
    }

    fn launch(&self, _: &Kernel, _: Grid, _: &[Arg]) -> Result<()> {
        match *self {}
    }

    fn record(&self) -> Result<Event> {
        match *self {}
    }

    fn wait(&self, _: &Event) -> Result<()> {
        match *self {}
    }

    fn elapsed(&self, _: &Event, _: &Event) -> Result<f64> {
        match *self {}
    }

    fn finish(&self) -> Result<()> {
        match *self {}
    }
}
