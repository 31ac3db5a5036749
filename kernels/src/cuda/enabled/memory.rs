//! A device's memory, and memory of the host that a device reads and writes by itself.
//!
//! Owns: slabs from the driver and when they go back. Refuses to know: what lies in them.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::arena::{Arena, taken};
use super::context::{Context, Handle, call, out_of_memory};
use crate::driver::{Address, Allocation, Error, Result};

/// Bytes of a slab.
const SLAB: u64 = 64 << 20;

/// What is larger has a slab of its own, as small as it may be: a few such pieces would leave much of a usual one empty.
const LARGE: u64 = 8 << 20;

/// What the driver gives memory in units of.
const UNIT: u64 = 2 << 20;

/// A device's memory.
pub struct Memory {
    context: Arc<Context>,
    arena: Mutex<Arena>,
}

impl Memory {
    /// Nothing yet. What is given back is free as soon as the stream has come there.
    pub fn new(context: &Arc<Context>) -> Arc<Memory> {
        Arc::new(Memory { context: context.clone(), arena: Mutex::default() })
    }

    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Free and total bytes.
    pub fn state(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written.
        unsafe { call!(self.context, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free + self.arena().free() as usize, total))
    }

    /// A piece.
    pub fn allocate(self: &Arc<Memory>, bytes: usize) -> Result<Allocation> {
        let mut arena = self.arena();
        let at = match arena.take(bytes) {
            Some(at) => at,
            None => {
                self.grow(&mut arena, bytes)?;
                let Some(at) = arena.take(bytes) else { panic!("a new slab holds what it was made for") };
                at
            }
        };
        let keep = Box::new(Piece { memory: self.clone(), at });
        Ok(Allocation { at, len: bytes, keep })
    }

    /// Adds a slab that holds `bytes`: a usual one, or, where that does not fit any more, one as small as it may be.
    fn grow(&self, arena: &mut Arena, bytes: usize) -> Result<()> {
        let least = taken(bytes).next_multiple_of(UNIT);
        let sizes = if least > LARGE { vec![least] } else { vec![SLAB, least] };
        self.context.enter()?;
        for size in &sizes {
            let mut at = 0;
            // SAFETY: `at` is written.
            let result = unsafe { sys::cuMemAlloc_v2(&mut at, *size as usize) };
            if !out_of_memory(result) {
                self.context.check("cuMemAlloc_v2", result)?;
                arena.add(at, *size);
                return Ok(());
            }
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written.
        unsafe { call!(self.context, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Err(Error(format!(
            "{}: out of memory: {} MiB more were asked for, {} of {} MiB are free; end what else uses the device, take a \
             shorter context or a smaller model, or spread the model over more devices",
            self.context.name,
            bytes.div_ceil(1 << 20),
            free >> 20,
            total >> 20,
        )))
    }

    /// Takes a piece back. What was asked of the stream before may still use it, and what is asked after comes after.
    fn give(&self, at: Address) {
        let mut arena = self.arena();
        let Some(slab) = arena.give(at) else {
            return;
        };
        if arena.slabs().count() > 1 {
            arena.remove(slab);
            // An error here is one of a lost device, which was reported by the call that met it.
            let _ = self.context.synchronize();
            // SAFETY: nobody holds a piece of the slab, and the device is past all that did.
            let _ = unsafe { call!(self.context, cuMemFree_v2(slab)) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        for slab in self.arena().slabs() {
            // SAFETY: every piece holds the memory, so there is none.
            let _ = unsafe { call!(self.context, cuMemFree_v2(slab)) };
        }
    }
}

/// What keeps a piece.
struct Piece {
    memory: Arc<Memory>,
    at: Address,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.memory.give(self.at);
    }
}

/// Memory of the host that devices copy from and to by themselves, readable by the processor at full speed.
pub struct Pinned {
    context: Arc<Context>,
    at: Handle<*mut u8>,
    len: usize,
}

impl Pinned {
    /// Memory, usable from every context.
    pub fn allocate(context: &Arc<Context>, len: usize) -> Result<Pinned> {
        let mut at = ptr::null_mut::<c_void>();
        // SAFETY: `at` is written.
        unsafe { call!(context, cuMemHostAlloc(&mut at, len, sys::CU_MEMHOSTALLOC_PORTABLE)) }?;
        Ok(Pinned { context: context.clone(), at: Handle(at.cast()), len })
    }

    /// Where its byte `offset` is.
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "inside the pinned memory");
        // SAFETY: inside the memory, as asserted.
        unsafe { self.at.0.add(offset) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; who copied from or to it has waited.
        let _ = unsafe { call!(self.context, cuMemFreeHost(self.at.0.cast())) };
    }
}
