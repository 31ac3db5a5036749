//! Copies from one device to another.
//!
//! Owns: the way between each two devices. Refuses to know: what is copied, and when it was written.
//!
//! Where the hardware lets one card read the other's memory, and a trial shows that the bytes arrive, one copy does it, and
//! so it does between two contexts of one card. Elsewhere the bytes go through the host, in chunks: while the second card reads one, the first writes the next.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;

use super::context::{Context, Mark, Stream, call, check};
use super::failure::{Failure, failure};
use super::memory::Pinned;
use crate::driver::{Address, Result};

/// Bytes of a chunk: some tens of microseconds on the bus, which is more than a copy costs to ask for.
const CHUNK: usize = 256 << 10;

/// The ways that lead to a device.
pub struct Ways {
    context: Arc<Context>,
    stream: Arc<Stream>,
    through_host: bool,
    /// By the serial of the other context.
    ways: Mutex<HashMap<u64, Way>>,
}

enum Way {
    Direct,
    Staged(Staged),
}

/// A way through the host.
struct Staged {
    /// Two chunks.
    buffer: Pinned,
    /// What the other device copies out with, beside its own stream.
    out: Stream,
    /// The point of this device's stream at which a copy begins.
    start: Mark,
    /// Of the other device: the chunk is in the buffer.
    filled: [Mark; 2],
    /// Of this device: the chunk was read.
    read: [Mark; 2],
}

impl Drop for Staged {
    fn drop(&mut self) {
        // If this device was lost, nobody has waited for what the other writes into the buffer. An error here is one of a lost
        // device, which was reported by the call that met it.
        let _ = self.out.synchronize();
    }
}

impl Ways {
    /// None yet.
    pub fn new(context: &Arc<Context>, stream: &Arc<Stream>) -> Ways {
        Ways { context: context.clone(), stream: stream.clone(), through_host: false, ways: Mutex::default() }
    }

    /// From now on all ways lead through the host.
    pub fn through_host(&mut self) {
        self.through_host = true;
        self.ways.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Copies from another device in this device's stream.
    pub fn receive(&self, other: &Arc<Context>, from: Address, to: Address, bytes: usize) -> Result<()> {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let way = match ways.entry(other.serial) {
            Entry::Occupied(way) => way.into_mut(),
            Entry::Vacant(place) => place.insert(self.find(other)?),
        };
        match way {
            Way::Direct => {
                let (here, there, stream) = (self.context.raw(), other.raw(), self.stream.raw());
                // SAFETY: both contexts live; a wrong address is the driver's to refuse.
                unsafe { call!(self.context, cuMemcpyPeerAsync(to, here, from, there, bytes, stream)) }
            }
            Way::Staged(staged) => self.pass(staged, other, (from, to), bytes),
        }
    }

    /// Looks for the way from a device.
    fn find(&self, other: &Arc<Context>) -> Result<Way> {
        let same_card = self.context.device == other.device;
        if !self.through_host && (same_card || (self.reaches(other)? && self.proven(other)?)) {
            return Ok(Way::Direct);
        }
        let mark = |context: &Arc<Context>| context.mark();
        Ok(Way::Staged(Staged {
            buffer: Pinned::allocate(&self.context, 2 * CHUNK)?,
            out: Stream::create(other)?,
            start: mark(&self.context)?,
            filled: [mark(other)?, mark(other)?],
            read: [mark(&self.context)?, mark(&self.context)?],
        }))
    }

    /// Whether this card can read the other's memory; if so, it may from now on.
    fn reaches(&self, other: &Context) -> Result<bool> {
        if !can_reach(&self.context.name, self.context.device, other.device)? {
            return Ok(false);
        }
        self.context.enter()?;
        // SAFETY: both contexts live.
        let enabled = unsafe { sys::cuCtxEnablePeerAccess(other.raw(), 0) };
        match failure(enabled) {
            Some(failure) if failure.code != Failure::PEER_ACCESS_ALREADY_ENABLED => Ok(false),
            _ => Ok(true),
        }
    }

    /// Whether bytes arrive as they were: some machines that keep devices apart (IOMMU) let cards read each other, and hand
    /// over something else.
    fn proven(&self, other: &Arc<Context>) -> Result<bool> {
        let (sent, received) = (Scratch::allocate(other)?, Scratch::allocate(&self.context)?);
        let buffer = Pinned::allocate(&self.context, 2 * CHUNK)?;
        let (first, second) = (buffer.at(0, CHUNK), buffer.at(CHUNK, CHUNK));
        // SAFETY: this half is inside the buffer, and no device knows of it yet.
        let pattern = unsafe { slice::from_raw_parts_mut(first, CHUNK) };
        pattern.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i.wrapping_mul(0x9e37_79b9) >> 13) as u8);
        let out = Stream::create(other)?;
        // SAFETY: both ends are CHUNK bytes long and stay until the copy was waited for.
        unsafe { call!(other, cuMemcpyHtoDAsync_v2(sent.at, first.cast(), CHUNK, out.raw())) }?;
        out.synchronize()?;
        let (here, there, stream) = (self.context.raw(), other.raw(), self.stream.raw());
        // SAFETY: as above.
        unsafe { call!(self.context, cuMemcpyPeerAsync(received.at, here, sent.at, there, CHUNK, stream)) }?;
        // SAFETY: as above.
        unsafe { call!(self.context, cuMemcpyDtoHAsync_v2(second.cast(), received.at, CHUNK, stream)) }?;
        self.stream.synchronize()?;
        // SAFETY: this half is inside the buffer, and the device has written it.
        Ok(*pattern == *unsafe { slice::from_raw_parts(second, CHUNK) })
    }

    /// Copies through the host.
    fn pass(&self, way: &Staged, other: &Context, (from, to): (Address, Address), bytes: usize) -> Result<()> {
        // Also behind the last copy this way: its chunks were read.
        self.stream.record_at(&way.start)?;
        way.out.wait(&way.start)?;
        for (i, offset) in (0..bytes).step_by(CHUNK).enumerate() {
            let len = CHUNK.min(bytes - offset);
            let (half, at) = (i % 2, offset as u64);
            let staged = way.buffer.at(half * CHUNK, len);
            if i >= 2 {
                way.out.wait(&way.read[half])?;
            }
            // SAFETY: the half is inside the buffer, and was read; a wrong address is the driver's to refuse.
            unsafe { call!(other, cuMemcpyDtoHAsync_v2(staged.cast(), from + at, len, way.out.raw())) }?;
            way.out.record_at(&way.filled[half])?;
            self.stream.wait(&way.filled[half])?;
            // SAFETY: the half is filled by then and not written again before it is read.
            unsafe { call!(self.context, cuMemcpyHtoDAsync_v2(to + at, staged.cast(), len, self.stream.raw())) }?;
            self.stream.record_at(&way.read[half])?;
        }
        Ok(())
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        // The pinned memory is not given back while a device may still read it. An error here is one of a lost device,
        // which was reported by the call that met it.
        let _ = self.stream.synchronize();
    }
}

/// CHUNK bytes of a device.
struct Scratch {
    context: Arc<Context>,
    at: Address,
}

impl Scratch {
    fn allocate(context: &Arc<Context>) -> Result<Scratch> {
        let mut at = 0;
        // SAFETY: `at` is written.
        unsafe { call!(context, cuMemAlloc_v2(&mut at, CHUNK)) }?;
        Ok(Scratch { context: context.clone(), at })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. An error here is one of a lost device, which was reported by the call that met it.
        let _ = unsafe { call!(self.context, cuMemFree_v2(self.at)) };
    }
}

/// Whether a card can read another's memory.
pub fn can_reach(place: &str, card: sys::CUdevice, other: sys::CUdevice) -> Result<bool> {
    let mut can = 0;
    // SAFETY: `can` is written.
    check(place, "cuDeviceCanAccessPeer", unsafe { sys::cuDeviceCanAccessPeer(&mut can, card, other) })?;
    Ok(can != 0)
}
