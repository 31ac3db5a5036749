//! The instruction set a kernel is compiled for, chosen once at start.
//!
//! Owns: the list of instruction sets and the one place where a kernel enters its machine code. Refuses to know:
//! what a kernel computes. The arithmetic is the same for all (`canon`), so the choice changes speed, never a bit.

#[cfg(target_arch = "aarch64")]
use super::arm;
use super::simd::{Portable, Simd};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// A computation whose body is compiled once per instruction set. Its `run`, and all that it calls in a loop, must be
/// `#[inline(always)]`, so that the body ends up inside the function that carries the target features.
pub trait Kernel {
    /// What the kernel returns.
    type Output;
    /// The body. It may use `unit`'s operations, or leave vectors to the compiler.
    fn run<S: Simd>(self, unit: S) -> Self::Output;
}

/// An instruction set that this machine has: a value of this type is the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

impl Isa {
    /// What every machine has: the target's baseline.
    pub const PORTABLE: Isa = Isa(Level::Portable);

    /// All that this machine has, slowest first.
    pub fn available() -> Vec<Isa> {
        #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_mut))]
        let mut list = vec![Isa::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            let levels = [
                (x86::has_avx2(), Level::Avx2),
                (x86::has_avx512(), Level::Avx512),
                (x86::has_avx512vnni(), Level::Avx512Vnni),
            ];
            list.extend(levels.iter().filter(|l| l.0).map(|l| Isa(l.1)));
        }
        #[cfg(target_arch = "aarch64")]
        {
            let levels = [(arm::has_neon(), Level::Neon), (arm::has_neondot(), Level::NeonDot)];
            list.extend(levels.iter().filter(|l| l.0).map(|l| Isa(l.1)));
        }
        list
    }

    /// The fastest that this machine has.
    pub fn best() -> Isa {
        Isa::available().pop().unwrap_or(Isa::PORTABLE)
    }

    /// The name users see.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => "avx512vnni",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => "neondot",
        }
    }

    /// Runs `kernel` in this instruction set's machine code.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Level::Portable => kernel.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => x86::avx2(self, kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => x86::avx512(self, kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => x86::avx512vnni(self, kernel),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => arm::neon(self, kernel),
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => arm::neondot(self, kernel),
        }
    }
}
