//! What the driver returns when a call fails, and what to do about it.
//!
//! Owns: the words. Refuses to know: where a call came from.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys;

use crate::driver::Error;

/// A code that is not success.
pub struct Failure {
    /// The code.
    pub code: u32,
    /// The driver's name of it, `CUDA_ERROR_OUT_OF_MEMORY`.
    name: String,
}

/// What failed, if anything did.
///
/// A driver may be newer than the list of codes this program was built with, so a code is looked at as a number.
pub fn failure(result: sys::CUresult) -> Option<Failure> {
    let code = result as u32;
    if code == 0 {
        return None;
    }
    let mut name = ptr::null();
    // SAFETY: `name` becomes null or a text that lives as long as the driver.
    unsafe { sys::cuGetErrorName(result, &mut name) };
    let name = match name.is_null() {
        true => "an error that this driver has no name for".to_owned(),
        // SAFETY: as above.
        false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
    };
    Some(Failure { code, name })
}

impl Failure {
    /// No memory is left.
    pub const OUT_OF_MEMORY: u32 = 2;
    /// Two contexts see each other's memory already.
    pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;

    /// `place: call: NAME (code): what to do`.
    pub fn told(&self, place: &str, call: &str) -> Error {
        let call = call.trim_end_matches("_v2");
        let Failure { code, name } = self;
        match advice(*code, call) {
            Some(advice) => Error(format!("{place}: {call}: {name} ({code}): {advice}")),
            None => Error(format!("{place}: {call}: {name} ({code})")),
        }
    }
}

/// What to do about a code that a call returned, where we know.
fn advice(code: u32, call: &str) -> Option<&'static str> {
    Some(match code {
        2 if call == "cuMemHostAlloc" => {
            "the system gives no more memory that cards may read by themselves: end what else holds memory of this machine"
        }
        2 => {
            "the device's memory is full: end what else uses it, take a shorter context or a smaller model, or spread the \
             model over more devices"
        }
        3 | 999 if call == "cuInit" => {
            "the driver does not start: is its module nvidia_uvm loaded (`modprobe nvidia-uvm`), and may this user open \
             /dev/nvidia*?"
        }
        34 => "the library found is the toolkit's stand-in for building, not a driver: install NVIDIA's driver",
        46 => "another process holds the card, or its compute mode is exclusive or prohibited: `nvidia-smi -c 0`",
        100 => {
            "the driver is there but shows no card: is one plugged in (`lspci`), is the driver's version for it (a Tesla K80 \
             needs 470), does CUDA_VISIBLE_DEVICES hide it?"
        }
        101 => "there is no such card: `verbatim doctor` lists them",
        200 | 209 => {
            "the driver cannot run this machine code: its CUDA is older than the compiler's; give a run-time compiler \
             (libnvrtc) of the driver's CUDA version"
        }
        214 | 220 => {
            "the card's memory has an error that it cannot correct: reset it, and replace it if this comes again"
        }
        218 | 222 => {
            "the driver is older than the compiler that made this code: give an older libnvrtc or a newer driver"
        }
        700 | 715..=718 => {
            "a kernel failed, now or earlier, and the device answers no more in this process: the same on an emulated device \
             (`--device emu`) names the kernel and the thread; please report it"
        }
        701 => {
            "the kernel needs more registers or shared memory than the card has: please report it, with the card's name"
        }
        702 => "the display's watchdog ended a kernel: compute on a card without a display",
        719 | 999 => {
            "a kernel failed or the card was lost: look for `NVRM: Xid` in the kernel's log (`dmesg`); Xid 79 means that the \
             card fell off the bus, which power (`nvidia-smi -pl 110` on a Tesla K80) or heat makes it do; without an Xid \
             the same on an emulated device (`--device emu`) names the kernel and the thread"
        }
        802 => {
            "the system is still starting (on machines with NVSwitch: is nvidia-fabricmanager running?): try again later"
        }
        803 => "the driver's library and its kernel module are of two versions: restart the machine after the update",
        804 => {
            "a compatibility package stands before the driver's own library, and this card does not support it: remove it"
        }
        _ => return None,
    })
}
