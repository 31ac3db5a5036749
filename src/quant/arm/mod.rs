//! Entry points into AArch64 vector code.
//!
//! Owns: the target features of each level, their detection, and the vector operations in them. Refuses to know: what
//! runs in them.
#![allow(unsafe_code)]

mod neon;

use super::isa::{Isa, Kernel};
use neon::Neon;
use std::arch::is_aarch64_feature_detected;

macro_rules! level {
    ($enter:ident, $inside:ident, $has:ident, $unit:ty, $features:literal, [$($feature:tt),*]) => {
        /// Whether the processor has this level's features.
        pub fn $has() -> bool {
            $(is_aarch64_feature_detected!($feature))&&*
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

level!(neon, inside_neon, has_neon, Neon<false>, "neon", ["neon"]);
level!(neondot, inside_neondot, has_neondot, Neon<true>, "neon,dotprod", ["neon", "dotprod"]);

/// The vector operations of one unit: each body may use the intrinsics of the unit's features.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident ($self:ident $(, $arg:ident: $type:ty)*) $(-> $out:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            // Operations that only call others, or only intrinsics of the target's baseline, need none.
            #[allow(unused_unsafe)]
            fn $name ($self $(, $arg: $type)*) $(-> $out)? {
                // SAFETY: a value of this type says that the machine has its features. Pointers come from references
                // to arrays as long as what is read or written, or from `Rows::checked`.
                unsafe { $body }
            }
        )*
    };
}
use operations;
