//! NVIDIA's management library, loaded when it is needed.
//!
//! Owns: what it says of the cards. Refuses to know: what is good or bad about that.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use crate::cuda::Reading;
use crate::driver::{Error, Result};

type Card = *mut c_void;
type Ask = unsafe extern "C" fn(Card, *mut c_uint) -> c_int;

/// How the library describes where a card sits.
#[repr(C)]
struct Place {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    identity: c_uint,
    subsystem: c_uint,
    name: [c_char; 32],
}

/// What the management library says of the cards, in its own order.
///
/// # Errors
/// If it is not there or does not start.
pub fn readings() -> Result<Vec<Reading>> {
    // SAFETY: the library runs no code of ours when it is opened.
    let library = unsafe { Library::new("libnvidia-ml.so.1") }.map_err(|_| {
        Error("NVIDIA's management library libnvidia-ml.so.1 was not found; it comes with the driver".into())
    })?;
    let unknown = |_| Error("NVIDIA's management library is too old to be asked".into());
    // SAFETY: the types are those of the library's header.
    unsafe { read(&library) }.map_err(unknown)?
}

/// Starts the library, asks, and stops it.
///
/// # Safety
/// The library is NVIDIA's management library.
unsafe fn read(library: &Library) -> std::result::Result<Result<Vec<Reading>>, libloading::Error> {
    // SAFETY: the types are those of the library's header; cards are asked for only below their number and while the
    // library is started.
    unsafe {
        let start: unsafe extern "C" fn() -> c_int = *library.get(b"nvmlInit_v2")?;
        let stop: unsafe extern "C" fn() -> c_int = *library.get(b"nvmlShutdown")?;
        let number: unsafe extern "C" fn(*mut c_uint) -> c_int = *library.get(b"nvmlDeviceGetCount_v2")?;
        let by_number: unsafe extern "C" fn(c_uint, *mut Card) -> c_int =
            *library.get(b"nvmlDeviceGetHandleByIndex_v2")?;
        let code = start();
        if code != 0 {
            return Ok(Err(Error(format!(
                "NVIDIA's management library does not start (code {code}): is the driver loaded?"
            ))));
        }
        let mut count = 0;
        number(&mut count);
        let mut readings = Vec::new();
        for i in 0..count {
            let mut card = ptr::null_mut();
            if by_number(i, &mut card) == 0 {
                readings.push(reading(library, card));
            }
        }
        stop();
        Ok(Ok(readings))
    }
}

/// Asks about one card.
///
/// # Safety
/// The library is started, the card is its own.
unsafe fn reading(library: &Library, card: Card) -> Reading {
    // SAFETY: the types are those of the library's header; every answer is written into what is given for it.
    unsafe {
        let ask = |name: &[u8]| {
            let mut value = 0;
            let function = library.get::<Ask>(name).ok()?;
            (function(card, &mut value) == 0).then_some(value)
        };
        let ecc = || {
            let (mut now, mut next) = (0, 0);
            type Two = unsafe extern "C" fn(Card, *mut c_uint, *mut c_uint) -> c_int;
            let function = library.get::<Two>(b"nvmlDeviceGetEccMode").ok()?;
            (function(card, &mut now, &mut next) == 0).then_some(now != 0)
        };
        let temperature = || {
            let mut value = 0;
            type Sensor = unsafe extern "C" fn(Card, c_uint, *mut c_uint) -> c_int;
            let function = library.get::<Sensor>(b"nvmlDeviceGetTemperature").ok()?;
            (function(card, 0, &mut value) == 0).then_some(value)
        };
        Reading {
            bus: bus(library, card).unwrap_or_default(),
            persistence: ask(b"nvmlDeviceGetPersistenceMode").map(|on| on != 0),
            ecc: ecc(),
            power_limit: ask(b"nvmlDeviceGetEnforcedPowerLimit").map(|milliwatts| milliwatts / 1000),
            temperature: temperature(),
        }
    }
}

/// Where a card sits.
///
/// # Safety
/// As [`reading`].
unsafe fn bus(library: &Library, card: Card) -> Option<String> {
    type Where = unsafe extern "C" fn(Card, *mut Place) -> c_int;
    let mut place = Place { legacy: [0; 16], domain: 0, bus: 0, device: 0, identity: 0, subsystem: 0, name: [0; 32] };
    // SAFETY: the structure is that of version 3 of the function.
    let code = unsafe { library.get::<Where>(b"nvmlDeviceGetPciInfo_v3").ok()?(card, &mut place) };
    (code == 0).then(|| format!("{:04x}:{:02x}:{:02x}.0", place.domain, place.bus, place.device))
}
