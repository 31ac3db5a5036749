//! Entry points into x86-64 vector code.
//!
//! Owns: the target features of each level, their detection, and the vector operations in them. Refuses to know: what
//! runs in them.
#![allow(unsafe_code)]

mod avx2;
mod avx512;

use super::isa::{Isa, Kernel};
use avx2::Avx2;
use avx512::Avx512;

macro_rules! level {
    ($enter:ident, $inside:ident, $has:ident, $unit:ty, $features:literal, [$($feature:tt),*]) => {
        /// Whether the processor has this level's features.
        pub fn $has() -> bool {
            $(is_x86_feature_detected!($feature))&&*
        }

        /// Runs `kernel` with this level's features; an [`Isa`] of this level is the proof that they are there.
        #[inline]
        pub fn $enter<K: Kernel>(proof: Isa, kernel: K) -> K::Output {
            debug_assert!(Isa::available().contains(&proof));
            // SAFETY: an `Isa` of this level is made only by `Isa::available`, after `$has` said yes.
            unsafe { $inside(kernel) }
        }

        #[target_feature(enable = $features)]
        fn $inside<K: Kernel>(kernel: K) -> K::Output {
            // SAFETY: this function has the features that the unit's operations need.
            kernel.run(unsafe { <$unit>::new() })
        }
    };
}

level!(avx2, inside_avx2, has_avx2, Avx2, "avx2,fma,f16c,bmi2", ["avx2", "fma", "f16c", "bmi2"]);
level!(
    avx512,
    inside_avx512,
    has_avx512,
    Avx512<false>,
    "avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl",
    ["avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl"]
);
level!(
    avx512vnni,
    inside_avx512vnni,
    has_avx512vnni,
    Avx512<true>,
    "avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    ["avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"]
);

/// Marks a byte that a shuffle sets to zero.
const ZERO: u8 = 0x80;

/// For the scales of 64 weights, vector `v` of 256: the scale's byte for the top of every i16 (two weights each).
const fn scale_tops(sub: usize) -> [[u8; 64]; 4] {
    let mut tops = [[ZERO; 64]; 4];
    let mut i = 1;
    while i < 256 {
        tops[i / 64][i % 64] = (i / sub) as u8;
        i += 2;
    }
    tops
}

/// [`scale_tops`] for sub-blocks of 16 and of 32.
static SCALE_TOPS: [[[u8; 64]; 4]; 2] = [scale_tops(16), scale_tops(32)];

/// For `signed_pair`: byte `i` of each lane goes to the top of the lane's lower i16, byte `j` to that of the upper.
const fn pair_tops(i: usize, j: usize) -> [u8; 16] {
    let mut tops = [ZERO; 16];
    let mut lane = 0;
    while lane < 4 {
        tops[4 * lane + 1] = (4 * lane + i) as u8;
        tops[4 * lane + 3] = (4 * lane + j) as u8;
        lane += 1;
    }
    tops
}

/// [`pair_tops`] of all `[i][j]`.
static PAIR_TOPS: [[[u8; 16]; 4]; 4] = {
    let mut all = [[[0; 16]; 4]; 4];
    let mut at = 0;
    while at < 16 {
        all[at / 4][at % 4] = pair_tops(at / 4, at % 4);
        at += 1;
    }
    all
};

/// The vector operations of one unit: each body may use the intrinsics of the unit's features.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident $(<const $n:ident: usize>)? ($self:ident $(, $arg:ident: $type:ty)*) $(-> $out:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            // Operations that only call others need none.
            #[allow(unused_unsafe)]
            fn $name $(<const $n: usize>)? ($self $(, $arg: $type)*) $(-> $out)? {
                // SAFETY: a value of this type says that the machine has its features. Pointers come from references
                // to arrays as long as what is read or written, or from `Rows::checked`.
                unsafe { $body }
            }
        )*
    };
}
use operations;
