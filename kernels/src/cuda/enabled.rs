//! Graphics cards through NVIDIA's driver.
//!
//! Owns: whether there is a driver and what cards it shows. Refuses to know: what is done with a card.
//!
//! Nothing of CUDA is needed to build or to start this program: the driver's library is looked for at the first question.

mod arena;
mod cache;
mod code;
mod compiler;
mod context;
mod device;
mod failure;
mod management;
mod memory;
mod nvrtc;
mod peer;
mod ring;
mod sources;
mod staging;

use std::panic::catch_unwind;
use std::path::Path;

use cudarc::driver::sys;

pub use compiler::Compiler;
pub use device::CudaDevice;
pub use management::readings;

use self::context::check;
use super::{Card, FoundCompiler};
use crate::driver::{Error, Result};

/// The oldest driver's CUDA that has all that is used: driver 470, the last for a Tesla K80.
const OLDEST: (u32, u32) = (11, 4);

/// Starts the driver. Returns the newest CUDA that it runs.
fn start() -> Result<(u32, u32)> {
    // SAFETY: the driver's library runs no code of ours when it is opened.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error(
            "there is no NVIDIA driver: its library libcuda.so.1 was not found; install NVIDIA's driver (470.256.02 for a \
             Tesla K80, a current one for newer cards)"
                .into(),
        ));
    }
    // A driver that lacks a function makes the binding panic; none from 470 on does.
    let lacking =
        |_| Error("the NVIDIA driver is too old: it lacks functions of CUDA 11.4; install 470 or newer".into());
    catch_unwind(|| {
        let mut number = 0;
        // SAFETY: `number` is written.
        check("cuda", "cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut number) })?;
        let number = u32::try_from(number).unwrap_or(0);
        let version = (number / 1000, number % 1000 / 10);
        if version < OLDEST {
            let (major, minor) = version;
            return Err(Error(format!(
                "the NVIDIA driver is too old: it runs CUDA up to {major}.{minor}, 11.4 is needed; install driver 470 or newer"
            )));
        }
        // SAFETY: the flags must be 0.
        check("cuda", "cuInit", unsafe { sys::cuInit(0) })?;
        Ok(version)
    })
    .map_err(lacking)?
}

/// The newest CUDA that the driver runs, major and minor.
///
/// # Errors
/// If there is no driver, it is older than CUDA 11.4, or it does not start; the sentence says what to do.
pub fn version() -> Result<(u32, u32)> {
    start()
}

/// The number of cards; a card of two dies counts twice. Never 0.
///
/// # Errors
/// If there is no driver, it is too old, or it shows no card; the sentence says what to do.
pub fn count() -> Result<usize> {
    start()?;
    let mut count = 0;
    // SAFETY: `count` is written.
    check("cuda", "cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    match usize::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => Err(Error("the NVIDIA driver shows no card: does CUDA_VISIBLE_DEVICES hide it?".into())),
    }
}

/// The cards.
///
/// # Errors
/// As [`count`].
pub fn cards() -> Result<Vec<Card>> {
    (0..count()?).map(card).collect()
}

fn card(ordinal: usize) -> Result<Card> {
    let place = format!("cuda:{ordinal}");
    let device = context::device(ordinal)?;
    let (name, architecture) = (context::device_name(&place, device)?, context::architecture(&place, device)?);
    let mut memory = 0;
    // SAFETY: `memory` is written.
    check(&place, "cuDeviceTotalMem_v2", unsafe { sys::cuDeviceTotalMem_v2(&mut memory, device) })?;
    let mut bus = [0; 32];
    // SAFETY: at most 32 bytes are written, the last of them 0.
    check(&place, "cuDeviceGetPCIBusId", unsafe { sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, device) })?;
    let bus: String = bus.iter().map(|c| *c as u8 as char).take_while(|c| *c != '\0').collect();
    Ok(Card { ordinal, name, bus: bus.to_lowercase(), architecture, memory: memory as u64 })
}

/// Whether card `to` can read the memory of card `from` by itself.
///
/// # Errors
/// As [`count`], or if there is no such card.
pub fn peers(to: usize, from: usize) -> Result<bool> {
    start()?;
    peer::can_reach(&format!("cuda:{to}"), context::device(to)?, context::device(from)?)
}

/// The run-time compiler that would be used for cards of an architecture, whose driver runs CUDA up to `driver`; `nvrtc` as
/// in [`Compiler::new`].
///
/// # Errors
/// If there is none; the sentence says where it was looked for and what to install.
pub fn compiler_for(nvrtc: Option<&Path>, architecture: u32, driver: (u32, u32)) -> Result<FoundCompiler> {
    nvrtc::choose(nvrtc, architecture, driver).map(|(nvrtc, _)| nvrtc.found)
}

/// Opens a card. Each time it is a device of its own, with its own context, memory and stream, so that one card can stand
/// for two.
///
/// # Errors
/// As [`count`], if there is no such card, or if the card does not open; the sentence says what to do.
pub fn open(ordinal: usize, compiler: &Compiler) -> Result<CudaDevice> {
    let driver = start()?;
    let count = count()?;
    if ordinal >= count {
        let last = count - 1;
        return Err(Error(format!(
            "cuda:{ordinal}: there is no such card: the driver shows {count}, cuda:0 to cuda:{last}"
        )));
    }
    CudaDevice::create(ordinal, compiler, driver)
}
