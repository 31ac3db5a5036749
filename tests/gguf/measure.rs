//! An allocator that remembers, per thread, the largest single allocation and the most memory held.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    /// Bytes of the largest single allocation.
    pub largest: usize,
    /// The most bytes held at once, over what was held before.
    pub peak: isize,
    held: isize,
}

thread_local! {
    static MEMORY: Cell<Memory> = const { Cell::new(Memory { largest: 0, peak: 0, held: 0 }) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(allocated: usize, freed: usize) {
    // A thread that is ending has no counters any more.
    let _ = MEMORY.try_with(|memory| {
        let mut m = memory.get();
        m.largest = m.largest.max(allocated);
        m.held += allocated as isize - freed as isize;
        m.peak = m.peak.max(m.held);
        memory.set(m);
    });
}

// SAFETY: every call is handed to the system's allocator as it is; counting touches a thread-local cell that needs no
// allocation and no destructor.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What `work` answers, and the memory that this thread needed for it.
pub fn memory<T>(work: impl FnOnce() -> T) -> (T, Memory) {
    MEMORY.set(Memory::default());
    let answer = work();
    (answer, MEMORY.get())
}
