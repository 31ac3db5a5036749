//! Bytes: a cheaply cloned view into a memory map, a vector or embedded data.
//!
//! Owns: who keeps the bytes alive, where they begin in memory, the one `unsafe` of this module tree.
//! Refuses to know: what the bytes mean.

use std::fmt;
use std::fs::File;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::{Error, Result};

/// Every source begins at a multiple of this many bytes, so that data aligned in the file is aligned in memory.
pub(super) const BASE_ALIGNMENT: usize = 8;

/// What keeps the bytes alive.
enum Source {
    Map(Mmap),
    Owned(Vec<u8>),
    /// A copy, in words, of bytes that began at an odd address; the last word may be longer than the data.
    Words(Vec<u64>),
    Static(&'static [u8]),
}

impl Source {
    fn as_slice(&self) -> &[u8] {
        match self {
            Source::Map(map) => map,
            Source::Owned(bytes) => bytes,
            Source::Words(words) => bytemuck::cast_slice(words),
            Source::Static(bytes) => bytes,
        }
    }
}

/// A view of bytes that live as long as any view of them: cloning and slicing copy nothing.
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// Maps the regular file at `path`; errors where it cannot be opened or mapped.
    ///
    /// A map shows the file as it is: if another program shortens the file meanwhile, the operating system ends this
    /// one at the next read beyond the new end.
    pub fn map(path: &Path) -> Result<Bytes> {
        let file = File::open(path).map_err(|e| Error::io(path, "open the file", &e))?;
        let about = file.metadata().map_err(|e| Error::io(path, "read the file's size", &e))?;
        if !about.is_file() {
            return Err(Error::new("expected a regular file, found a directory or a device").at(path));
        }
        // SAFETY: the map is read-only and private to this value. Its bytes are only ever read as plain bytes, every
        // offset into them is checked against the map's length, and text is checked and copied before use, so a
        // program that overwrites the file meanwhile can change numbers but break no invariant of a type.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "map the file", &e))?;
        let len = map.len();
        Ok(Bytes::new(Source::Map(map), len))
    }

    /// Takes over `bytes`; copies them only if they begin at an address that is not a multiple of 8.
    pub fn from_vec(bytes: Vec<u8>) -> Bytes {
        if !is_aligned(&bytes) {
            return Bytes::copied(&bytes);
        }
        let len = bytes.len();
        Bytes::new(Source::Owned(bytes), len)
    }

    /// Views `bytes`; copies them only if they begin at an address that is not a multiple of 8.
    pub fn from_static(bytes: &'static [u8]) -> Bytes {
        if !is_aligned(bytes) {
            return Bytes::copied(bytes);
        }
        Bytes::new(Source::Static(bytes), bytes.len())
    }

    fn new(source: Source, len: usize) -> Bytes {
        Bytes { source: Arc::new(source), start: 0, len }
    }

    fn copied(bytes: &[u8]) -> Bytes {
        let mut words = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Bytes::new(Source::Words(words), bytes.len())
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.source.as_slice()[self.start..self.start + self.len]
    }

    /// A view of a part of this view. Panics, as slices do, if `range` does not lie within it.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Bytes {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        assert!(start <= end && end <= self.len, "{start}..{end} of {} bytes", self.len);
        Bytes { source: self.source.clone(), start: self.start + start, len: end - start }
    }
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BASE_ALIGNMENT)
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_begin_at_an_odd_address_are_copied_to_an_even_one() {
        #[repr(align(8))]
        struct Aligned([u8; 16]);
        static DATA: Aligned = Aligned([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let whole = Bytes::from_static(&DATA.0);
        assert_eq!(whole.as_ptr(), DATA.0.as_ptr());
        let odd = Bytes::from_static(&DATA.0[3..]);
        assert_eq!(&*odd, &DATA.0[3..]);
        assert!(is_aligned(&odd));
    }

    #[test]
    fn a_slice_of_a_slice_shares_the_bytes() {
        let whole = Bytes::from_vec((0..100).collect());
        let part = whole.slice(10..20).slice(2..=4);
        assert_eq!(&*part, &[12, 13, 14]);
        assert_eq!(part.as_ptr(), whole[12..].as_ptr());
        assert!(whole.slice(100..).is_empty());
    }
}
