//! A context of a card: what all calls happen in.
//!
//! Owns: which context is current on a thread, the life of a context and its events. Refuses to know: memory, kernels.
//!
//! Every device has a context of its own, also two devices on one card, so that they share nothing but the hardware: what
//! works between them works between two cards.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;

use super::failure::{Failure, failure};
use crate::driver::{Error, Result};

/// Calls a function of the driver in a context: `call!(context, cuMemFree_v2(address))`.
macro_rules! call {
    ($context:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $context.enter() {
            Ok(()) => $context.check(stringify!($function), cudarc::driver::sys::$function($($argument),*)),
            Err(e) => Err(e),
        }
    };
}
pub(super) use call;

/// A name that the driver gave to something.
#[derive(Clone, Copy)]
pub struct Handle<T>(pub T);

// SAFETY: a handle is only a name; the driver's functions may be called with it from any thread.
unsafe impl<T> Send for Handle<*mut T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<*mut T> {}

/// A context.
pub struct Context {
    raw: Handle<sys::CUcontext>,
    /// The driver's name of the card.
    pub device: sys::CUdevice,
    /// For messages: `cuda:0 (Tesla K80)`.
    pub name: String,
    /// Compute capability, ten times the major number plus the minor one.
    pub architecture: u32,
    /// Told apart from every other context of this process, also from those that are gone.
    pub serial: u64,
    /// Events that nobody uses.
    idle: Mutex<Vec<Handle<sys::CUevent>>>,
}

thread_local! {
    /// The serial of the context that is current on this thread; 0 for none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

impl Context {
    /// Makes a context on a card, of which the driver shows at least `ordinal + 1`.
    pub fn create(ordinal: usize) -> Result<Arc<Context>> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let place = format!("cuda:{ordinal}");
        let device = device(ordinal)?;
        let name = format!("{place} ({})", device_name(&place, device)?);
        let architecture = architecture(&name, device)?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written; the flags are the default, spinning while there are fewer contexts than processors.
        let made = unsafe { sys::cuCtxCreate_v2(&mut raw, 0, device) };
        check(&name, "cuCtxCreate_v2", made)?;
        CURRENT.set(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Context { raw: Handle(raw), device, name, architecture, serial, idle: Mutex::default() }))
    }

    /// The driver's name of it.
    pub fn raw(&self) -> sys::CUcontext {
        self.raw.0
    }

    /// Makes it the one in which this thread's calls happen.
    pub fn enter(&self) -> Result<()> {
        if CURRENT.get() != self.serial {
            // SAFETY: the context lives as long as `self`.
            self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw.0) })?;
            CURRENT.set(self.serial);
        }
        Ok(())
    }

    /// Turns what a call returned into a sentence about this device.
    pub fn check(&self, call: &str, result: sys::CUresult) -> Result<()> {
        check(&self.name, call, result)
    }

    /// Waits until all of its streams are empty: also those that copy out for another device, of which that one may be lost.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the context lives.
        unsafe { call!(self, cuCtxSynchronize()) }
    }

    /// An event, recorded nowhere yet.
    pub fn mark(self: &Arc<Context>) -> Result<Mark> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let raw = match idle {
            Some(raw) => raw,
            None => {
                let mut raw = ptr::null_mut();
                // SAFETY: `raw` is written; the flags are the default, with time.
                unsafe { call!(self, cuEventCreate(&mut raw, 0)) }?;
                Handle(raw)
            }
        };
        Ok(Mark { context: self.clone(), raw })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: whatever was made in the context holds it and is gone; its idle events go with it.
        unsafe { sys::cuCtxDestroy_v2(self.raw.0) };
        if CURRENT.get() == self.serial {
            CURRENT.set(0);
        }
    }
}

/// An event; used again by its context once dropped.
pub struct Mark {
    context: Arc<Context>,
    raw: Handle<sys::CUevent>,
}

impl Mark {
    /// Waits until what was before it is done.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        unsafe { call!(self.context, cuEventSynchronize(self.raw.0)) }
    }

    /// Seconds from this event to a later one of the same device; waits for both.
    pub fn elapsed(&self, to: &Mark) -> Result<f64> {
        if self.context.serial != to.context.serial {
            let (a, b) = (&self.context.name, &to.context.name);
            return Err(Error(format!(
                "{a}: the time from its event to one of {b} is not known: they are two devices"
            )));
        }
        self.synchronize()?;
        to.synchronize()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events live, are of this context, and were recorded and reached.
        unsafe { call!(self.context, cuEventElapsedTime(&mut milliseconds, self.raw.0, to.raw.0)) }?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Whoever was told to wait for the event waits for what it marked at that moment: it may be recorded anew.
        self.context.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.raw);
    }
}

/// A queue of a device: what is asked of it happens in order.
pub struct Stream {
    context: Arc<Context>,
    raw: Handle<sys::CUstream>,
}

impl Stream {
    /// A queue that waits for no other one by itself.
    pub fn create(context: &Arc<Context>) -> Result<Stream> {
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` is written.
        unsafe { call!(context, cuStreamCreate(&mut raw, flags)) }?;
        Ok(Stream { context: context.clone(), raw: Handle(raw) })
    }

    /// The driver's name of it.
    pub fn raw(&self) -> sys::CUstream {
        self.raw.0
    }

    /// Marks its end.
    pub fn record(&self) -> Result<Mark> {
        let mark = self.context.mark()?;
        self.record_at(&mark)?;
        Ok(mark)
    }

    /// Moves an event of the same context to its end.
    pub fn record_at(&self, mark: &Mark) -> Result<()> {
        // SAFETY: both live; the event is of the stream's context, or the driver refuses.
        unsafe { call!(self.context, cuEventRecord(mark.raw.0, self.raw.0)) }
    }

    /// Lets it wait for an event of any context.
    pub fn wait(&self, mark: &Mark) -> Result<()> {
        // SAFETY: both live.
        unsafe { call!(self.context, cuStreamWaitEvent(self.raw.0, mark.raw.0, 0)) }
    }

    /// Waits until it is empty.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives.
        unsafe { call!(self.context, cuStreamSynchronize(self.raw.0)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody else holds the stream; the driver finishes what is in it. An error here is one of a lost device,
        // which was reported by the call that met it.
        let _ = unsafe { call!(self.context, cuStreamDestroy_v2(self.raw.0)) };
    }
}

/// Turns what a call returned into a sentence.
pub fn check(place: &str, call: &str, result: sys::CUresult) -> Result<()> {
    match failure(result) {
        None => Ok(()),
        Some(failure) => Err(failure.told(place, call)),
    }
}

/// The driver's name of a card.
pub fn device(ordinal: usize) -> Result<sys::CUdevice> {
    let mut device = 0;
    let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: `device` is written.
    check(&format!("cuda:{ordinal}"), "cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number) })?;
    Ok(device)
}

/// What NVIDIA calls a card.
pub fn device_name(place: &str, device: sys::CUdevice) -> Result<String> {
    let mut name = [0 as c_char; 256];
    // SAFETY: at most 256 bytes are written, the last of them 0.
    check(place, "cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 256, device) })?;
    // SAFETY: as above.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// A card's compute capability, ten times the major number plus the minor one.
pub fn architecture(place: &str, device: sys::CUdevice) -> Result<u32> {
    use sys::CUdevice_attribute_enum as Attribute;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: `value` is written.
        check(place, "cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(10 * major + minor)
}

/// Whether a call failed for want of memory.
pub fn out_of_memory(result: sys::CUresult) -> bool {
    failure(result).is_some_and(|f| f.code == Failure::OUT_OF_MEMORY)
}
