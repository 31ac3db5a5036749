//! Weight formats and the canonical arithmetic.
//!
//! Owns: every rounding that the engine does (`canon`), the bits of each format (`blocks`), their sizes (`formats`), the
//! fast product (`tile`, over `codes`) in each instruction set (`isa`, `simd`), and random blocks for models made of nothing (`synthetic`).
//! Refuses to know: files, layers, threads.

#[cfg(target_arch = "aarch64")]
mod arm;
pub mod blocks;
pub mod canon;
mod codes;
pub mod floats;
mod formats;
mod isa;
pub mod simd;
pub mod synthetic;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use formats::Format;
pub use isa::{Isa, Kernel};
pub use tile::{Activations, Input, Output, PANEL, TileDot};
