//! Models made of nothing: files of a real model's dimensions, filled with random weights of sane sizes.
//!
//! Owns: which shapes there are (`shape`), which tensors in which formats such a file holds (`layout`), how they are
//! filled (`fill`), and where the file goes: into memory or onto the disk. Refuses to know: how a model runs.
//!
//! The same shape gives the same bytes on every machine, whatever the number of its processors. A shape cut to fewer
//! layers has the first layers of the whole one.

mod fill;
mod layout;
mod shape;

use std::fs;
use std::io::BufWriter;
use std::path::Path;

use crate::gguf::{Gguf, Writer};
use crate::{Error, Result, whole};

use fill::Pools;
use layout::Tensor;

pub use fill::Random;
pub use shape::{FeedForward, Shape};

/// How far a file is: told the bytes of each tensor as soon as it is filled.
pub type Progress<'a> = &'a mut dyn FnMut(usize);

/// A file that can be made.
#[derive(Debug, Clone)]
pub struct Recipe {
    shape: Shape,
    tensors: Vec<Tensor>,
}

impl Recipe {
    /// The recipe for a model of this shape.
    pub fn new(shape: Shape) -> Recipe {
        Recipe { tensors: layout::tensors(&shape), shape }
    }

    fn writer(&self) -> Result<Writer> {
        let mut writer = Writer::new(layout::metadata(&self.shape))?;
        for tensor in &self.tensors {
            writer.tensor(&tensor.name, &tensor.dims, tensor.format)?;
        }
        Ok(writer)
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// If they are more than this machine can count.
    pub fn file_bytes(&self) -> Result<usize> {
        self.writer()?.file_bytes()
    }

    /// Makes the file in memory. Nothing is in memory twice.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn make(&self, progress: Progress) -> Result<Gguf> {
        let writer = self.writer()?;
        enough_memory(writer.file_bytes()?)?;
        let mut pools = Pools::default();
        let bytes = writer.into_vec_with(|i, data| {
            self.tensors[i].fill(&mut pools, data);
            progress(data.len());
        })?;
        Gguf::from_vec(bytes, &format!("{}, made in memory", self.shape))
    }

    /// Writes the same file to `path`, tensor by tensor: the memory holds one at a time. `path` has the whole file or,
    /// after an error, none.
    ///
    /// # Errors
    /// If there is a file at `path` already, or it cannot be written.
    pub fn write(&self, path: &Path, progress: Progress) -> Result<()> {
        if path.exists() {
            return Err(Error::new("exists already, and is not overwritten").at(path));
        }
        let writer = self.writer()?;
        let mut pools = Pools::default();
        let mut data = Vec::new();
        whole::stream(path, |file| {
            let mut stream = writer.start(BufWriter::new(file))?;
            for tensor in &self.tensors {
                data.clear();
                data.resize(tensor.bytes(), 0);
                tensor.fill(&mut pools, &mut data);
                stream.tensor(&data)?;
                progress(data.len());
            }
            stream.finish().map(drop)
        })
    }
}

/// Refuses what surely does not fit, where the system says how much memory is available (Linux does).
fn enough_memory(needed: usize) -> Result<()> {
    match available_memory() {
        Some(available) if available < needed => Err(Error::new(format!(
            "needs {} of memory, this machine has {} available; fewer layers (NAME:LAYERS) need less",
            gib(needed),
            gib(available)
        ))),
        _ => Ok(()),
    }
}

fn gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Bytes that a program may take without pushing others out, as Linux estimates them.
fn available_memory() -> Option<usize> {
    available_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// The line `MemAvailable:  n kB` of `meminfo`.
fn available_in(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read_from_its_line() {
        let text = "MemTotal:       24689764 kB\nMemFree:         1 kB\nMemAvailable:   23000000 kB\nBuffers: 2 kB\n";
        assert_eq!(available_in(text), Some(23_000_000 * 1024));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
        assert_eq!(available_in("MemAvailable: many\n"), None);
    }

    #[test]
    fn memory_that_no_machine_has_is_refused_with_what_is_needed() {
        if available_memory().is_some() {
            let error = enough_memory(1 << 50).unwrap_err().to_string();
            assert!(error.contains("needs 1048576.0 GiB"), "{error}");
        }
        assert!(enough_memory(1).is_ok());
    }
}
