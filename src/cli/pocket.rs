//! The pocket model: a small trained model inside the program.
//!
//! Owns: its bytes and its name. Refuses to know: everything else; it is a GGUF file like any other.

use crate::Result;
use crate::gguf::Gguf;

/// What messages call it.
pub const NAME: &str = "pocket model";

/// Puts the file at an address that tensors may be read from in place.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../../models/pocket-Q4_K_M.gguf"));

/// Opens the embedded file.
///
/// # Errors
/// If the file that was built in is damaged.
pub fn open() -> Result<Gguf> {
    Gguf::from_static(&FILE.0, NAME)
}
