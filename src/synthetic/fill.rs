//! Filling tensors with random weights, as fast as memory can be written.
//!
//! Owns: the random numbers, the pools of ready-made runs and how tensors are put together from them. Refuses to know:
//! names and shapes beyond a tensor's own.
//!
//! A pool holds some thousands of runs of 256 weights of one format and size. A tensor is run after run drawn from its
//! pool: as random as its products need, without making every weight. Pieces of a tensor have random numbers of their
//! own, so that threads can share the work and the bytes do not depend on them.

use std::collections::HashMap;

use rand::RngCore;
use rayon::prelude::*;

use crate::quant::{Format, synthetic};

use super::layout::Tensor;

/// Weights that are drawn together: the largest block there is.
const RUN: usize = 256;
/// Runs in a pool: it fits the second-level cache, and two runs in a row hardly ever come twice.
const POOL: usize = 4096;
/// Runs in a piece.
const PIECE: usize = 4096;

/// What a tensor is filled with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Random weights of this standard deviation.
    Weights {
        /// The standard deviation.
        std: f32,
    },
    /// Ones, in F32.
    Ones,
    /// Uniform between two numbers, in F32.
    Between(f32, f32),
}

/// Random numbers that are the same on every machine and in every version (SplitMix64: Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream number `piece` of the streams called `name`.
    pub fn new(name: &str, piece: u64) -> Random {
        let seed = name.bytes().fold(0, |seed, byte| Random(seed ^ u64::from(byte)).next_u64());
        Random(Random(seed ^ piece).next_u64())
    }

    /// A number below `bound`, which is at least 1 and at most 2³².
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Uniform between two numbers.
    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next_u64() >> 40) as f32 / (1u32 << 24) as f32)
    }
}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}

/// The pools of a file in the making, by format and the bits of the standard deviation.
#[derive(Default)]
pub struct Pools(HashMap<(Format, u32), Vec<u8>>);

impl Pools {
    fn get(&mut self, format: Format, std: f32) -> &[u8] {
        self.0.entry((format, std.to_bits())).or_insert_with(|| {
            let mut random = Random::new(format.name(), u64::from(std.to_bits()));
            synthetic::random_blocks(format, &mut random, POOL * RUN / format.block_weights(), std)
        })
    }
}

impl Tensor {
    /// Fills `data`, the tensor's bytes.
    pub fn fill(&self, pools: &mut Pools, data: &mut [u8]) {
        assert_eq!(data.len(), self.bytes(), "the data is the tensor's");
        match self.content {
            Content::Ones => values(data, || 1.0),
            Content::Between(low, high) => {
                let mut random = Random::new(&self.name, 0);
                values(data, || random.between(low, high));
            }
            Content::Weights { std } => self.draw(pools.get(self.format, std), data),
        }
    }

    fn draw(&self, pool: &[u8], data: &mut [u8]) {
        let run = pool.len() / POOL;
        data.par_chunks_mut(PIECE * run).enumerate().for_each(|(piece, data)| {
            let mut random = Random::new(&self.name, piece as u64);
            for part in data.chunks_mut(run) {
                let at = random.below(POOL) * run;
                part.copy_from_slice(&pool[at..][..part.len()]);
            }
        });
    }
}

fn values(data: &mut [u8], mut next: impl FnMut() -> f32) {
    for value in data.chunks_exact_mut(size_of::<f32>()) {
        value.copy_from_slice(&next().to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(format: Format, weights: usize, content: Content) -> Tensor {
        Tensor { name: "t".to_owned(), dims: vec![weights], format, content }
    }

    fn filled(tensor: &Tensor) -> Vec<u8> {
        let mut data = vec![0; tensor.bytes()];
        tensor.fill(&mut Pools::default(), &mut data);
        data
    }

    #[test]
    fn the_random_numbers_are_those_of_the_paper() {
        let mut random = Random(1_234_567);
        let first = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }

    #[test]
    fn weights_have_the_wanted_size_in_every_format_and_do_not_depend_on_threads() {
        for format in Format::all() {
            // More than a piece, and not whole runs.
            let t = tensor(format, PIECE * RUN + 3 * RUN + format.block_weights(), Content::Weights { std: 0.05 });
            let data = filled(&t);
            let mut weights = vec![0.0; t.dims[0]];
            crate::quant::canon::dequantize_row(format, &data, &mut weights);
            let n = weights.len() as f64;
            let mean = weights.iter().map(|&w| f64::from(w)).sum::<f64>() / n;
            let std = (weights.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>() / n).sqrt();
            assert!(mean.abs() < 0.002 && (0.03..0.08).contains(&std), "{format}: {mean} {std}");
            let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            assert!(data == alone.install(|| filled(&t)), "{format}");
        }
    }

    #[test]
    fn small_tensors_hold_what_they_are_told_to() {
        let ones = filled(&tensor(Format::F32, 5, Content::Ones));
        assert_eq!(ones, [1f32; 5].map(f32::to_le_bytes).concat());
        let data = filled(&tensor(Format::F32, 1000, Content::Between(-3.0, 0.5)));
        let values: Vec<f32> = data.chunks(4).map(|v| f32::from_le_bytes(v.try_into().unwrap())).collect();
        assert!(values.iter().all(|v| (-3.0..0.5).contains(v)) && values.iter().any(|&v| v > 0.0));
    }
}
