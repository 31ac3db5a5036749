//! Results in each form in which they may be wanted.
//!
//! Owns: nothing but its parts, one for each measurement. Refuses to know: how anything was measured.

mod drafting;
mod passes;
mod pictures;
mod rates;

pub use drafting::drafting;
pub use passes::passes;
