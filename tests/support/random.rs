//! Random numbers and random weights in every format, by seed.
//!
//! Owns: where a format keeps its scales, so that random blocks come out finite and of a wanted size. Refuses to know:
//! models.

use verbatim::quant::{Format, canon};

/// A 64-bit generator (splitmix64; Steele, Lea, Flood 2014).
#[derive(Clone)]
pub struct Random(u64);

/// Where a block keeps its scale and its minimum (f16 both), and the ratio of the two that centres its weights.
fn scales(format: Format) -> (usize, Option<(usize, f32)>) {
    match format {
        Format::Q4_1 => (0, Some((2, -7.5))),
        Format::Q5_1 => (0, Some((2, -15.5))),
        Format::Q2_K => (80, Some((82, 1.5))),
        Format::Q3_K => (108, None),
        Format::Q4_K => (0, Some((2, 7.5))),
        Format::Q5_K => (0, Some((2, 15.5))),
        Format::Q6_K => (208, None),
        _ => (0, None),
    }
}

/// Makes the integers of quantised blocks as large as they get while they stay odd, their scales as they are: sums then leave
/// what a single holds exactly.
pub fn enlarge(format: Format, bytes: &mut [u8]) {
    if format.activation_block().is_none() || format == Format::MXFP4 {
        return;
    }
    let (d, min) = scales(format);
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for (at, byte) in block.iter_mut().enumerate() {
            let kept = [Some(d), min.map(|(m, _)| m)].into_iter().flatten().any(|s| (s..s + 2).contains(&at));
            *byte = match format {
                _ if kept => *byte,
                // Codes of -31, scales of -127.
                Format::Q6_K if at < 128 => 0x11,
                Format::Q6_K if at < 192 => 0,
                Format::Q6_K => 0x81,
                _ => 0xff,
            };
        }
    }
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A stream of its own for each name.
    pub fn named(seed: u64, name: &str) -> Random {
        // FNV-1a: names that differ in one digit start far apart after the generator's own mixing.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Random(hash ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next() >> 40) as f32 / (1u64 << 24) as f32)
    }

    /// `n` tokens below `vocab`.
    pub fn tokens(&mut self, n: usize, vocab: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(vocab) as u32).collect()
    }

    /// `n` numbers around 0, mostly of size 1, now and then larger.
    pub fn activations(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let x = self.between(-1.0, 1.0);
                if self.below(50) == 0 { 8.0 * x } else { x }
            })
            .collect()
    }

    /// `n` weights of a root mean square of about `rms`, as the bytes of `format`.
    pub fn weights(&mut self, format: Format, n: usize, rms: f32) -> Vec<u8> {
        let side = rms * 3f32.sqrt();
        match format {
            Format::F32 => (0..n).flat_map(|_| self.between(-side, side).to_le_bytes()).collect(),
            Format::F16 => (0..n).flat_map(|_| half::f16::from_f32(self.between(-side, side)).to_le_bytes()).collect(),
            Format::BF16 => {
                (0..n).flat_map(|_| half::bf16::from_f32(self.between(-side, side)).to_le_bytes()).collect()
            }
            _ => (0..n / format.block_weights()).flat_map(|_| self.block(format, rms)).collect(),
        }
    }

    /// A block of random bits, its scale set so that its weights have about the wanted size.
    fn block(&mut self, format: Format, rms: f32) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..format.block_bytes()).map(|_| self.next() as u8).collect();
        if format == Format::MXFP4 {
            // A power of two; the 4-bit floats have a root mean square of about 3.
            bytes[0] = (127.0 + (rms / 3.0).log2()).round() as u8;
            return bytes;
        }
        let (d, min) = scales(format);
        let mut set =
            |at: usize, value: f32| bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
        set(d, 1.0);
        if let Some((m, ratio)) = min {
            set(m, ratio);
        }
        let mut values = vec![0.0; format.block_weights()];
        canon::dequantize_row(format, &bytes, &mut values);
        let size = (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
        let scale = rms * self.between(0.6, 1.4) / size;
        let mut set =
            |at: usize, value: f32| bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
        set(d, scale);
        if let Some((m, ratio)) = min {
            set(m, ratio * scale);
        }
        bytes
    }
}
