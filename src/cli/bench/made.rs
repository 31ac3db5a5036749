//! A model made for the measurement.
//!
//! Owns: where it is made, in memory or in a file, and the wait for it. Refuses to know: what it holds.

use crate::cli::args::BenchArgs;
use crate::cli::device::Open;
use crate::cli::setup::{self, Loaded};
use crate::cli::terminal;
use crate::gguf::Gguf;
use crate::synthetic::{Recipe, Shape};
use crate::{Error, Result};

/// The model that `--synthetic` names, made in memory, or in the file that `--write` names.
///
/// # Errors
/// If there is no such shape, the device cannot be used, the memory does not suffice, or the file exists already or cannot be written.
pub fn load<O: Open>(args: &BenchArgs, shape: &str, devices: &O) -> Result<Loaded<O::B>> {
    let about = |e: Error| e.about("--synthetic");
    let recipe = Recipe::new(Shape::parse(shape).map_err(about)?);
    let backend = devices.open(&args.model.split)?;
    let bar = terminal::bar("making the model, MiB", recipe.file_bytes().map_err(about)? >> 20);
    let mut done = 0;
    let mut progress = |bytes: usize| {
        done += bytes;
        bar.set_position((done >> 20) as u64);
    };
    let gguf = match &args.write {
        None => recipe.make(&mut progress).map_err(about)?,
        Some(path) => {
            recipe.write(path, &mut progress)?;
            Gguf::open(path)?
        }
    };
    bar.finish_and_clear();
    setup::load_file(&args.model, backend, &gguf)
}
