//! Entry points into x86-64 vector code.
//!
//! Owns: the target features of each level and their detection. Refuses to know: what runs in them; the kernels are
//! portable Rust that the compiler vectorises for the features named here.
#![allow(unsafe_code)]

use super::isa::{Isa, Kernel};

macro_rules! level {
    ($enter:ident, $inside:ident, $has:ident, $features:literal, [$($feature:tt),*]) => {
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
            kernel.run()
        }
    };
}

level!(avx2, inside_avx2, has_avx2, "avx2,fma,bmi2", ["avx2", "fma", "bmi2"]);
level!(
    avx512,
    inside_avx512,
    has_avx512,
    "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl",
    ["avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl"]
);
level!(
    avx512vnni,
    inside_avx512vnni,
    has_avx512vnni,
    "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    ["avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"]
);
