//! Graphics cards of NVIDIA, through their driver.
//!
//! Owns: what is said about cards, whether or not this build can use them. Refuses to know: what runs on a card; the driver
//! itself is in `enabled`, and `disabled` stands in its place in a build without it.

#[cfg(not(feature = "cuda"))]
mod disabled;
#[cfg(feature = "cuda")]
mod enabled;

use std::path::PathBuf;

#[cfg(not(feature = "cuda"))]
pub use disabled::{Compiler, CudaDevice, cards, compiler_for, count, open, peers, readings, version};
#[cfg(feature = "cuda")]
pub use enabled::{Compiler, CudaDevice, cards, compiler_for, count, open, peers, readings, version};

/// A card (or one die of a card) as the driver sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// What [`open`] takes.
    pub ordinal: usize,
    /// As NVIDIA names it.
    pub name: String,
    /// Where it sits, `0000:05:00.0`.
    pub bus: String,
    /// Compute capability: ten times the major number plus the minor one.
    pub architecture: u32,
    /// Bytes of its memory.
    pub memory: u64,
}

/// A run-time compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCompiler {
    /// Its file, or the name under which the system's loader found it.
    pub path: PathBuf,
    /// Major and minor version of its CUDA.
    pub version: (u32, u32),
    /// The architectures it compiles for, ascending.
    pub architectures: Vec<u32>,
}

/// What NVIDIA's management library says of a card; what it does not know is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Where the card sits, `0000:05:00.0`.
    pub bus: String,
    /// Whether the driver keeps it ready while nobody uses it.
    pub persistence: Option<bool>,
    /// Whether its memory corrects errors.
    pub ecc: Option<bool>,
    /// The most it may draw, in watts.
    pub power_limit: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
}
