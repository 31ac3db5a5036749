//! Memory cut into pieces.
//!
//! Owns: which bytes of which slab are taken. Refuses to know: where slabs come from; it computes with numbers alone.
//!
//! The driver gives memory slowly and in units of 2 MiB, so that a model's thousand tensors would waste gigabytes.

use std::collections::BTreeMap;

/// What every piece begins at a multiple of, in bytes.
pub const ALIGNMENT: u64 = 256;

/// Slabs by address, and what is free in them.
#[derive(Default)]
pub struct Arena {
    /// Bytes of each slab.
    slabs: BTreeMap<u64, u64>,
    /// Free gaps: address and bytes. No two of one slab touch.
    gaps: BTreeMap<u64, u64>,
    /// Pieces: address and bytes.
    pieces: BTreeMap<u64, u64>,
}

/// Bytes that a piece of `bytes` takes: no piece is empty, so that no two have the same address.
pub fn taken(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(ALIGNMENT)
}

impl Arena {
    /// A piece, in the first gap that holds it.
    pub fn take(&mut self, bytes: usize) -> Option<u64> {
        let len = taken(bytes);
        let (at, gap) = self.gaps.iter().find(|(_, gap)| **gap >= len).map(|(at, gap)| (*at, *gap))?;
        self.gaps.remove(&at);
        if gap > len {
            self.gaps.insert(at + len, gap - len);
        }
        self.pieces.insert(at, len);
        Some(at)
    }

    /// A new slab, free as a whole; `at` and `len` are multiples of [`ALIGNMENT`].
    pub fn add(&mut self, at: u64, len: u64) {
        assert!(at.is_multiple_of(ALIGNMENT) && len.is_multiple_of(ALIGNMENT) && len > 0, "a slab is aligned");
        self.slabs.insert(at, len);
        self.gaps.insert(at, len);
    }

    /// Takes a piece back. Returns the slab it lay in if that is free as a whole now.
    pub fn give(&mut self, piece: u64) -> Option<u64> {
        let (Some(mut len), Some((&slab, &size))) =
            (self.pieces.remove(&piece), self.slabs.range(..=piece).next_back())
        else {
            panic!("a piece lies in a slab and is given back once");
        };
        let mut at = piece;
        if let Some((&before, &gap)) = self.gaps.range(slab..at).next_back()
            && before + gap == at
        {
            self.gaps.remove(&before);
            (at, len) = (before, gap + len);
        }
        let end = at + len;
        if end < slab + size
            && let Some(gap) = self.gaps.remove(&end)
        {
            len += gap;
        }
        self.gaps.insert(at, len);
        (len == size).then_some(slab)
    }

    /// Forgets a slab that is free as a whole.
    pub fn remove(&mut self, slab: u64) {
        let len = self.slabs.remove(&slab);
        assert!(len.is_some() && self.gaps.remove(&slab) == len, "a slab is removed once, when it is free");
    }

    /// Free bytes in all slabs.
    pub fn free(&self) -> u64 {
        self.gaps.values().sum()
    }

    /// Addresses of all slabs.
    pub fn slabs(&self) -> impl Iterator<Item = u64> {
        self.slabs.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_apart() {
        let mut arena = Arena::default();
        arena.add(1 << 20, 4096);
        let pieces: Vec<_> = [0, 1, 256, 257].iter().map(|n| arena.take(*n).unwrap() - (1 << 20)).collect();
        assert_eq!(pieces, [0, 256, 512, 768]);
        assert_eq!(arena.free(), 4096 - 1280);
    }

    #[test]
    fn a_slab_is_whole_again_in_whatever_order_pieces_come_back() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut arena = Arena::default();
            arena.add(4096, 768);
            // A slab that begins where the other ends: gaps never reach across.
            arena.add(4864, 256);
            let pieces = [(); 3].map(|()| arena.take(256).unwrap());
            assert_eq!(arena.give(pieces[order[0]]), None);
            assert_eq!(arena.give(pieces[order[1]]), None);
            assert_eq!(arena.give(pieces[order[2]]), Some(4096));
            arena.remove(4096);
            assert_eq!((arena.free(), arena.slabs().collect::<Vec<_>>()), (256, vec![4864]));
        }
    }

    #[test]
    fn a_gap_that_is_too_small_is_passed_over() {
        let mut arena = Arena::default();
        arena.add(4096, 256);
        arena.add(8192, 1024);
        assert_eq!(arena.take(512), Some(8192));
        assert_eq!(arena.take(1024), None);
        assert_eq!(arena.take(512), Some(8704));
        assert_eq!(arena.take(256), Some(4096));
    }
}
