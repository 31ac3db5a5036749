//! CUDA kernels and what runs them.
//!
//! Owns: the kernel files, the trait of a device, and the devices: graphics cards, and this machine's processor in place of
//! one. Refuses to know: models and weight files; a kernel's arguments are the business of whoever launches it.

pub mod cuda;
mod driver;
mod emulator;
mod manifest;
mod units;

pub use driver::{Address, Allocation, Arg, Driver, Error, Event, Grid, Kernel, Result};
pub use emulator::{Change, Emulator, Rebuilt, parameters};
pub use manifest::{FLOATS, QUANTISED, SOURCES, Source};
