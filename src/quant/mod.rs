//! Weight formats and the canonical arithmetic.
//!
//! Owns: every rounding that the engine does (`canon`), the bits of each format (`blocks`) and their sizes
//! (`formats`). Refuses to know: files, layers, threads.

mod formats;

pub use formats::Format;
