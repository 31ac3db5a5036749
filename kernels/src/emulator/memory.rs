//! What of an emulated device's memory is in use.
//!
//! Owns: the list of live allocations, the count of bytes. Refuses to know: what lies in them, and when it may be
//! freed: who still uses an allocation holds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::host::{BUILT_IN, Core, Mapping};
use crate::driver::{Address, Error, Result};

/// A range inside one allocation, held alive.
pub(super) struct Piece {
    mapping: Arc<Mapping>,
    offset: usize,
    bytes: usize,
}

impl Piece {
    /// Writes `bytes`, which are as many.
    pub(super) fn write(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes, "bytes for a piece");
        self.mapping.write(self.offset, bytes);
    }

    /// What it holds.
    pub(super) fn read(&self) -> Vec<u8> {
        self.mapping.read(self.offset, self.bytes)
    }

    /// Copies another piece of the same length.
    pub(super) fn copy(&self, from: &Piece) {
        assert_eq!(from.bytes, self.bytes, "bytes for a piece");
        self.mapping.copy(self.offset, &from.mapping, from.offset, self.bytes);
    }

    /// Writes zeros.
    pub(super) fn clear(&self) {
        self.mapping.clear(self.offset, self.bytes);
    }
}

/// Live allocations by where they begin.
#[derive(Default)]
struct Live {
    /// Whose memory it is, if not the program's own.
    core: Option<&'static Core>,
    total: usize,
    used: usize,
    by_begin: BTreeMap<Address, Arc<Mapping>>,
}

/// The memory of one device.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Live>);

impl Ledger {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many bytes there are in all.
    pub(super) fn set_total(&self, bytes: usize) {
        self.live().total = bytes;
    }

    /// Sets whose kernels use the memory that is allocated from now on.
    pub(super) fn set_core(&self, core: &'static Core) {
        self.live().core = Some(core);
    }

    /// Free and total bytes.
    pub(super) fn free_and_total(&self) -> (usize, usize) {
        let live = self.live();
        (live.total.saturating_sub(live.used), live.total)
    }

    /// New memory.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Arc<Mapping>> {
        let taken = bytes.max(1).checked_next_multiple_of(256).unwrap_or(usize::MAX);
        let mut live = self.live();
        let free = live.total.saturating_sub(live.used);
        if taken > free {
            let total = live.total;
            let found = format!("{free} of {total} are free");
            let why = format!("emulated device: no room for {bytes} bytes: {found}; ask for less or give it more");
            return Err(Error(why));
        }
        let Some(mapping) = Mapping::new(live.core.unwrap_or(&BUILT_IN), bytes.max(1)) else {
            return Err(Error(format!("emulated device: this machine has no {bytes} bytes of memory left")));
        };
        let mapping = Arc::new(mapping);
        live.used += taken;
        live.by_begin.insert(mapping.at(), Arc::clone(&mapping));
        Ok(mapping)
    }

    /// Takes an allocation off the list.
    pub(super) fn forget(&self, mapping: &Mapping) {
        let mut live = self.live();
        if live.by_begin.remove(&mapping.at()).is_some() {
            live.used -= mapping.len().next_multiple_of(256);
        }
    }

    /// The allocation that an address points into, or to the end of.
    pub(super) fn holder(&self, at: Address) -> Option<Arc<Mapping>> {
        let live = self.live();
        let (begin, mapping) = live.by_begin.range(..=at).next_back()?;
        (at - begin <= mapping.len() as u64).then(|| Arc::clone(mapping))
    }

    /// A range, which must lie in one allocation; `what` says for whom.
    pub(super) fn piece(&self, at: Address, bytes: usize, what: &str) -> Result<Piece> {
        let refuse = |why: &str| Error(format!("emulated device: {what}: {bytes} bytes at {at:#x} {why}"));
        let mapping = self.holder(at).ok_or_else(|| refuse("lie in no memory of this device"))?;
        let offset = (at - mapping.at()) as usize;
        if bytes > mapping.len() - offset {
            return Err(refuse(&format!("begin at byte {offset} of an allocation of {}", mapping.len())));
        }
        Ok(Piece { mapping, offset, bytes })
    }
}
