//! Who touched what: accesses that no barrier orders.
//!
//! Owns: the record of the last accesses to every word of a memory, and the rule. Refuses to know: values, and what a memory is part of.
//!
//! Two accesses of different threads, at least one of them a write, are ordered only by a barrier between them: of the block, or of
//! the warp if both threads are of one warp. Blocks of a launch are never ordered, launches always are. A word that one thread of a
//! launch changes atomically may only be touched atomically in that launch; one that is read as constant may not be written.

/// Bytes that are recorded together once one of them was touched.
const PAGE: usize = 1024;

/// A thread at a moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stamp {
    /// Its block, by a number that no other block of any launch has. 0 is nobody.
    pub block: u32,
    /// The block's barriers before it.
    pub barriers: u32,
    /// The warp's barriers before it.
    pub warp_barriers: u32,
    pub thread: u32,
    /// Its instruction.
    pub at: u32,
}

impl Stamp {
    fn warp(self) -> u32 {
        self.thread / 32
    }

    fn lane(self) -> u32 {
        1 << (self.thread % 32)
    }

    /// Whether `self` happened before `now` for certain, or is of the same thread.
    fn is_before(self, now: Stamp) -> bool {
        self.block == now.block
            && (self.thread == now.thread
                || self.barriers < now.barriers
                || (self.warp() == now.warp() && self.warp_barriers < now.warp_barriers))
    }
}

/// What is done to memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Touch {
    Read,
    /// A read through the cache of what nobody writes while the launch runs.
    ReadConstant,
    Write,
    Atomic,
}

/// What was done to a word.
#[derive(Clone, Copy, Default)]
struct Record {
    /// The last write.
    write: Stamp,
    /// The last atomic change.
    atomic: Stamp,
    /// The last read; of its block since that block's last barrier: the warps that read, and of its warp since the warp's last
    /// barrier the lanes.
    read: Stamp,
    warps: u32,
    lanes: u32,
    /// A read of another block than the last read's.
    elsewhere: Stamp,
    /// The last read as constant.
    constant: Stamp,
}

/// An earlier access that a new one collides with.
#[derive(Debug)]
pub struct Race {
    pub other: Stamp,
    pub touch: Touch,
}

impl Record {
    /// `first`: the first block of the launch; what lies before is done.
    fn touch(&mut self, touch: Touch, now: Stamp, first: u32) -> Result<(), Race> {
        let (write, atomic, read) = (self.write, self.atomic, self.read);
        let race = |other, touch| Err(Race { other, touch });
        if atomic.block >= first && touch != Touch::Atomic {
            return race(atomic, Touch::Atomic);
        }
        if write.block >= first && (!write.is_before(now) || touch == Touch::ReadConstant || touch == Touch::Atomic) {
            return race(write, Touch::Write);
        }
        match touch {
            Touch::Read => self.note_read(now),
            // Nobody may write after it: which threads have read does not matter.
            Touch::ReadConstant => self.constant = now,
            _ if self.constant.block >= first => return race(self.constant, Touch::ReadConstant),
            Touch::Write => {
                if let Some(other) = self.reader_beside(now, first) {
                    return race(other, Touch::Read);
                }
                self.write = now;
            }
            Touch::Atomic if read.block >= first => return race(read, Touch::Read),
            Touch::Atomic => self.atomic = now,
        }
        Ok(())
    }

    fn note_read(&mut self, now: Stamp) {
        let last = self.read;
        if last.block != now.block {
            self.elsewhere = last;
        }
        if last.block != now.block || last.barriers != now.barriers {
            (self.warps, self.lanes) = (0, 0);
        } else if last.warp() != now.warp() || last.warp_barriers != now.warp_barriers {
            self.lanes = 0;
        }
        self.warps |= 1 << now.warp();
        self.lanes |= now.lane();
        self.read = now;
    }

    /// A reader that does not come before a write of `now`.
    fn reader_beside(&self, now: Stamp, first: u32) -> Option<Stamp> {
        let read = self.read;
        if read.block < first {
            return None;
        }
        if read.block != now.block {
            return Some(read);
        }
        if self.elsewhere.block >= first {
            return Some(self.elsewhere);
        }
        if read.barriers < now.barriers {
            return None;
        }
        // Of several readers the last is named, unless it is the writer itself.
        let other_warps = self.warps & !(1 << now.warp());
        if other_warps != 0 {
            let of_other = read.warp() != now.warp();
            return Some(if of_other { read } else { Stamp { thread: other_warps.trailing_zeros() * 32, ..read } });
        }
        let other_lanes = self.lanes & !now.lane();
        let unordered = read.warp_barriers >= now.warp_barriers && other_lanes != 0;
        unordered.then(|| Stamp { thread: now.warp() * 32 + other_lanes.trailing_zeros(), ..read })
    }
}

/// The record of a memory.
#[derive(Default)]
pub struct Shadow {
    pages: Vec<Option<Page>>,
}

/// Records of words, or of bytes once one of them is touched alone. Most memory is only read as constant: then a bit for every word
/// will do.
enum Page {
    Constant(Constant),
    Words(Box<[Record]>),
    Bytes(Box<[Record]>),
}

/// Words that a launch has read as constant.
struct Constant {
    /// The launch's first block.
    first: u32,
    last: Stamp,
    words: [u64; PAGE / 4 / 64],
}

impl Constant {
    fn note(&mut self, words: std::ops::Range<usize>, now: Stamp, first: u32) {
        if self.first != first {
            (self.first, self.words) = (first, [0; PAGE / 4 / 64]);
        }
        self.last = now;
        words.for_each(|word| self.words[word / 64] |= 1 << (word % 64));
    }

    fn records(&self) -> Box<[Record]> {
        let constant = |word: usize| self.words[word / 64] >> (word % 64) & 1 == 1;
        let record =
            |word| Record { constant: if constant(word) { self.last } else { Stamp::default() }, ..Record::default() };
        (0..PAGE / 4).map(record).collect()
    }
}

impl Shadow {
    /// Notes an access of `len` bytes that do not cross a boundary of 16 bytes.
    ///
    /// # Errors
    /// If it races with an earlier one.
    pub fn touch(&mut self, offset: usize, len: usize, touch: Touch, now: Stamp, first: u32) -> Result<(), Race> {
        let (page, within) = (offset / PAGE, offset % PAGE);
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let new = || Page::Constant(Constant { first, last: now, words: [0; PAGE / 4 / 64] });
        let page = self.pages[page].get_or_insert_with(new);
        if let Page::Constant(constant) = page {
            if touch == Touch::ReadConstant {
                constant.note(within / 4..(within + len).div_ceil(4), now, first);
                return Ok(());
            }
            *page = Page::Words(constant.records());
        }
        if let Page::Words(words) = page {
            if len.is_multiple_of(4) && within.is_multiple_of(4) {
                return words[within / 4..][..len / 4].iter_mut().try_for_each(|word| word.touch(touch, now, first));
            }
            let bytes = words.iter().flat_map(|word| [*word; 4]).collect();
            *page = Page::Bytes(bytes);
        }
        let Page::Bytes(bytes) = page else { unreachable!("made of words above") };
        bytes[within..][..len].iter_mut().try_for_each(|byte| byte.touch(touch, now, first))
    }
}
