//! Where a device's time went.
//!
//! Owns: the form in which a device tells it. Refuses to know: how it is measured and how it is shown.

/// What a device was measured to do, in no particular order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// One for each kernel in each stage on each die.
    pub entries: Vec<Entry>,
}

/// A kernel's launches in one stage on one die.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The part of the device, counted from 0.
    pub die: usize,
    /// The operation that it served.
    pub stage: &'static str,
    /// Its name.
    pub kernel: String,
    /// How often it ran.
    pub launches: usize,
    /// Seconds of all launches together, by the device's clock.
    pub seconds: f64,
    /// Bytes of weights and state that all launches together read and wrote; 0 where they are not worth counting.
    pub bytes: u64,
}

impl Entry {
    /// Bytes per second; nothing where there is nothing to divide.
    pub fn rate(&self) -> Option<f64> {
        (self.bytes > 0 && self.seconds > 0.0).then(|| self.bytes as f64 / self.seconds)
    }
}
