//! Fast text generation that provably changes nothing.
//!
//! `verbatim` runs Qwen3.5-family hybrid models from GGUF files and speeds greedy decoding up by verifying
//! drafted blocks of tokens in one pass. The text, the logits and the state are bit for bit those of plain
//! decoding: one forward, one arithmetic, one guarded state (`docs/architecture.md`).
//!
//! Owns: the list of modules and their order. Refuses to know: what is in them.
//! Modules depend on each other in one direction:
//! `error → quant → gguf → { text, backend, synthetic } → state → model → engine → cli`.

pub mod backend;
pub mod cli;
pub mod constraint;
pub mod engine;
pub mod error;
pub mod gguf;
pub mod model;
pub mod quant;
pub mod state;
pub mod synthetic;
pub mod text;
mod whole;

pub use error::{Error, Result};
