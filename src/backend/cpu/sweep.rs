//! How fast this machine reads memory.
//!
//! Owns: the buffer and the threads that add it up. Refuses to know: what a pass reads.

use std::hint::black_box;
use std::time::Instant;

/// Bytes that are read: more than any cache holds.
const BYTES: usize = 256 << 20;

/// Sweeps; the fastest counts.
const SWEEPS: usize = 5;

/// The sum of `words`, in lanes, so that additions do not wait for each other.
fn sum(words: &[u64]) -> u64 {
    let (chunks, _) = words.as_chunks::<16>();
    let mut lanes = [0u64; 16];
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().fold(0, |all, lane| all.wrapping_add(*lane))
}

/// Bytes per second that `threads` threads read together.
pub fn read_bandwidth(threads: usize) -> f64 {
    let words: Vec<u64> = (0..(BYTES / 8) as u64).collect();
    let part = words.len().div_ceil(threads);
    let sweep = || {
        let clock = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks(part) {
                scope.spawn(move || black_box(sum(part)));
            }
        });
        clock.elapsed().as_secs_f64()
    };
    let fastest = (0..SWEEPS).map(|_| sweep()).fold(f64::INFINITY, f64::min);
    BYTES as f64 / fastest
}
