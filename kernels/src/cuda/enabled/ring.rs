//! A ring of bytes that a stream reads behind the writer.
//!
//! Owns: which bytes may be written again, and after which mark. Refuses to know: what marks and bytes are.

use std::collections::VecDeque;
use std::ops::Range;

/// What every region begins at a multiple of.
const ALIGNMENT: usize = 64;

/// A ring.
pub struct Ring<M> {
    size: usize,
    head: usize,
    /// Regions that the stream has perhaps not read yet, oldest first.
    busy: VecDeque<(Range<usize>, M)>,
}

impl<M> Ring<M> {
    /// A ring of `size` bytes.
    pub fn new(size: usize) -> Self {
        Ring { size, head: 0, busy: VecDeque::new() }
    }

    /// Where the next `len` bytes go, and the mark to wait for before they are written, if the stream may not be past it.
    pub fn take(&mut self, len: usize) -> (usize, Option<M>) {
        assert!(len <= self.size, "a region fits the ring");
        if self.head + len > self.size {
            self.head = 0;
        }
        let start = self.head;
        self.head = (start + len).next_multiple_of(ALIGNMENT);
        // The stream is in order: past the last of these it is past all before.
        let overlaps = |region: &Range<usize>| region.start < start + len && start < region.end;
        let last = self.busy.iter().rposition(|(region, _)| overlaps(region));
        let mark = last.and_then(|last| self.busy.drain(..=last).next_back()).map(|(_, mark)| mark);
        (start, mark)
    }

    /// Says that the stream is past a region at `mark`.
    pub fn busy(&mut self, region: Range<usize>, mark: M) {
        self.busy.push_back((region, mark));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_until_bytes_are_used_again() {
        let mut ring = Ring::new(256);
        for i in 0..4 {
            assert_eq!(ring.take(64), (64 * i, None));
            ring.busy(64 * i..64 * i + 64, i);
        }
        assert_eq!(ring.take(128), (0, Some(1)));
        ring.busy(0..128, 4);
        // The tail of 64 is too small: the ring starts again, and what lay in the tail is passed over with the rest.
        assert_eq!(ring.take(64), (128, Some(2)));
        ring.busy(128..192, 5);
        assert_eq!(ring.take(128), (0, Some(4)));
    }

    #[test]
    fn regions_are_aligned() {
        let mut ring = Ring::<()>::new(256);
        assert_eq!(ring.take(1).0, 0);
        assert_eq!(ring.take(65).0, 64);
        assert_eq!(ring.take(1).0, 192);
    }

    #[test]
    fn no_region_is_given_out_while_its_mark_was_not_waited_for() {
        let mut ring = Ring::new(1000);
        let mut unread: Vec<(Range<usize>, usize)> = Vec::new();
        let mut state = 1u32;
        for mark in 0..10_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = 1 + (state >> 8) as usize % 400;
            let (start, waited) = ring.take(len);
            unread.retain(|(_, m)| waited.is_none_or(|waited| *m > waited));
            assert!(start + len <= 1000);
            assert!(unread.iter().all(|(r, _)| r.end <= start || start + len <= r.start));
            ring.busy(start..start + len, mark);
            unread.push((start..start + len, mark));
        }
    }
}
