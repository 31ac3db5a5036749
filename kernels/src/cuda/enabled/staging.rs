//! Copies between host and device through pinned memory.
//!
//! Owns: the pinned buffers and when they may be written again. Refuses to know: what is copied.

use std::sync::{Arc, Mutex, PoisonError};

use super::context::{Context, Mark, Stream, call};
use super::memory::Pinned;
use super::ring::Ring;
use crate::driver::{Address, Result};

/// Bytes of the ring that uploads go through.
const RING: usize = 16 << 20;

/// Bytes of one copy: while the device reads one the host writes the next.
const CHUNK: usize = 4 << 20;

/// Copies to a device that do not wait for it, as long as the ring holds them.
pub struct Uploads {
    context: Arc<Context>,
    stream: Arc<Stream>,
    ring: Mutex<Ring<Mark>>,
    buffer: Pinned,
}

impl Uploads {
    /// With a buffer of its own.
    pub fn new(context: &Arc<Context>, stream: &Arc<Stream>) -> Result<Uploads> {
        let buffer = Pinned::allocate(context, RING)?;
        Ok(Uploads { context: context.clone(), stream: stream.clone(), ring: Mutex::new(Ring::new(RING)), buffer })
    }

    /// Copies to the device's address `to`.
    pub fn upload(&self, to: Address, from: &[u8]) -> Result<()> {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, chunk) in from.chunks(CHUNK).enumerate() {
            let (offset, free) = ring.take(chunk.len());
            if let Some(mark) = free {
                mark.synchronize()?;
            }
            let staged = self.buffer.at(offset, chunk.len());
            // SAFETY: the region is inside the buffer, and the stream is past its last use.
            unsafe { staged.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
            let to = to + (i * CHUNK) as u64;
            // SAFETY: the region is not written again before the mark behind this copy; a wrong address is the driver's to
            // refuse.
            unsafe { call!(self.context, cuMemcpyHtoDAsync_v2(to, staged.cast(), chunk.len(), self.stream.raw())) }?;
            ring.busy(offset..offset + chunk.len(), self.stream.record()?);
        }
        Ok(())
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        // An error here is one of a lost device, which was reported by the call that met it.
        let _ = self.stream.synchronize();
    }
}

/// Copies from a device, which wait for it.
pub struct Downloads {
    context: Arc<Context>,
    stream: Arc<Stream>,
    /// Two chunks: while the host reads one the device writes the other.
    buffer: Mutex<Pinned>,
}

impl Downloads {
    /// With a buffer of its own.
    pub fn new(context: &Arc<Context>, stream: &Arc<Stream>) -> Result<Downloads> {
        let buffer = Mutex::new(Pinned::allocate(context, 2 * CHUNK)?);
        Ok(Downloads { context: context.clone(), stream: stream.clone(), buffer })
    }

    /// Copies from the device's address `from`.
    pub fn download(&self, from: Address, to: &mut [u8]) -> Result<()> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |i: usize, len: usize| {
            let staged = buffer.at(i % 2 * CHUNK, len).cast();
            let from = from + (i * CHUNK) as u64;
            // SAFETY: the half is inside the buffer and was read; it is read again behind the mark after this copy.
            unsafe { call!(self.context, cuMemcpyDtoHAsync_v2(staged, from, len, self.stream.raw())) }?;
            self.stream.record()
        };
        let lengths: Vec<usize> = to.chunks(CHUNK).map(<[u8]>::len).collect();
        let mut asked = Vec::with_capacity(lengths.len());
        for (i, chunk) in to.chunks_mut(CHUNK).enumerate() {
            for (next, len) in lengths.iter().enumerate().take(i + 2).skip(asked.len()) {
                asked.push(ask(next, *len)?);
            }
            asked[i].synchronize()?;
            let staged = buffer.at(i % 2 * CHUNK, chunk.len());
            // SAFETY: the device has written this half and writes it again only when asked to below.
            unsafe { chunk.as_mut_ptr().copy_from_nonoverlapping(staged, chunk.len()) };
        }
        Ok(())
    }
}
