//! One die: its driver, and the room that operations use for a moment.
//!
//! Owns: launches and their profile, scratch memory that grows and never shrinks. Refuses to know: other dies, the order of
//! operations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernels::{Address, Allocation, Arg, Driver, Event, Grid, Kernel};

use super::device_error;
use crate::Result;
use crate::backend::profile::Entry;

/// What scratch memory is for. What one operation leaves for the next has a room of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// Maxima of attention's scores.
    Maxima,
    /// Attention's scores.
    Scores,
    /// Σ p·v of each segment.
    Partial,
    /// Σ p of each segment; of each part of a row of logits.
    Masses,
    /// y of the delta rule before its norm.
    Readout,
    /// A router's logits.
    Logits,
    /// The chosen experts.
    Experts,
    /// Their weights.
    Weights,
    /// The input row of each place.
    Enter,
    /// The place of each row's rank.
    Place,
    /// The distinct experts.
    Groups,
    /// How many.
    Count,
    /// The experts' gate, and then their hidden rows.
    Gate,
    /// The experts' up.
    Up,
    /// The experts' output.
    Down,
    /// The int8 form of the hidden rows: integers.
    Int8,
    /// Its scales.
    Scales,
    /// Its sums.
    Sums,
    /// The best words of the parts of a row.
    Words,
    /// Where they stand.
    Places,
    /// The best place of each row.
    Best,
}

/// A die.
pub struct Die {
    driver: Arc<dyn Driver>,
    index: usize,
    rooms: Mutex<HashMap<Room, Allocation>>,
    /// Launches under the clock since they were last asked for; nothing before they ever were.
    profile: Mutex<Option<Vec<Timed>>>,
}

/// A launch under the clock.
struct Timed {
    stage: &'static str,
    kernel: Kernel,
    bytes: usize,
    from: Event,
    to: Event,
}

/// A launch: a kernel, its threads, its arguments.
pub struct Launch<'a> {
    /// What the operation is called in a profile.
    pub stage: &'static str,
    /// The kernel.
    pub kernel: Kernel,
    /// Its threads.
    pub grid: Grid,
    /// Its arguments.
    pub args: &'a [Arg],
    /// Bytes of weights and state that it reads and writes.
    pub bytes: usize,
}

impl Die {
    /// A die behind `driver`, the `index`-th of its backend.
    pub fn new(driver: Arc<dyn Driver>, index: usize) -> Die {
        Die { driver, index, rooms: Mutex::new(HashMap::new()), profile: Mutex::new(None) }
    }

    /// Its driver.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Its place among the dies.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Puts its name in front of what a driver says.
    pub fn name<T>(&self, result: kernels::Result<T>) -> Result<T> {
        result.map_err(|e| device_error(&e).about(format!("die {}", self.index)))
    }

    /// At least `bytes` bytes of scratch memory. What was in them is gone if they had to grow.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn room(&self, room: Room, bytes: usize) -> kernels::Result<Address> {
        let mut rooms = lock(&self.rooms);
        if let Some(held) = rooms.get(&room)
            && held.len >= bytes
        {
            return Ok(held.at);
        }
        let new = self.driver.allocate((bytes + bytes / 2).next_multiple_of(256))?;
        let at = new.at;
        rooms.insert(room, new);
        Ok(at)
    }

    /// Runs a kernel.
    ///
    /// # Errors
    /// If the device failed.
    pub fn launch(&self, launch: Launch) -> kernels::Result<()> {
        let Launch { stage, kernel, grid, args, bytes } = launch;
        if lock(&self.profile).is_none() {
            return self.driver.launch(&kernel, grid, args);
        }
        let from = self.driver.record()?;
        self.driver.launch(&kernel, grid, args)?;
        let to = self.driver.record()?;
        lock(&self.profile).get_or_insert_default().push(Timed { stage, kernel, bytes, from, to });
        Ok(())
    }

    /// The time of all launches since the last call, by stage and kernel; from the first call on launches are timed.
    ///
    /// # Errors
    /// If the device failed.
    pub fn profile(&self) -> kernels::Result<Vec<Entry>> {
        let timed = lock(&self.profile).replace(Vec::new()).unwrap_or_default();
        let mut entries: Vec<Entry> = Vec::new();
        for Timed { stage, kernel, bytes, from, to } in timed {
            let seconds = self.driver.elapsed(&from, &to)?;
            let (die, kernel, bytes) = (self.index, kernel.to_string(), bytes as u64);
            match entries.iter_mut().find(|e| e.stage == stage && e.kernel == kernel) {
                Some(entry) => {
                    entry.launches += 1;
                    entry.seconds += seconds;
                    entry.bytes += bytes;
                }
                None => entries.push(Entry { die, stage, kernel, launches: 1, seconds, bytes }),
            }
        }
        Ok(entries)
    }
}

/// A panic elsewhere does not make scratch memory wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
