//! Weight formats and the canonical arithmetic.
//!
//! Owns: every rounding that the engine does (`canon`), the bits of each format (`blocks`) and their sizes
//! (`formats`). Random blocks for tests and synthetic models come from `synthetic`. Refuses to know: files, layers, threads.

pub mod blocks;
pub mod canon;
mod formats;
pub mod synthetic;

pub use formats::Format;
