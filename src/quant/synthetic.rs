//! Random weights in any format, for tests and for models made of nothing.
//!
//! Owns: what a plausible random block is. Refuses to know: tensors, and quantising given weights.

use super::blocks::Block;
use super::formats::Format;
use crate::with_block;
use half::{bf16, f16};
use rand::Rng;

/// The bytes of `n` blocks of `format` with random codes and sub-block scales. In each block the dequantised weights
/// have the standard deviation `std`, up to the precision of the stored scale (for MXFP4, a power of two), and about zero mean over many blocks.
///
/// F32, F16 and BF16 (blocks of one weight) are uniform with that standard deviation.
pub fn random_blocks<R: Rng + ?Sized>(format: Format, rng: &mut R, n: usize, std: f32) -> Vec<u8> {
    let mut bytes = vec![0; n * format.block_bytes()];
    with_block!(format, B => random_quantised::<B, R>(bytemuck::cast_slice_mut(&mut bytes), rng, std), else => {
        for weight in bytes.chunks_exact_mut(format.block_bytes()) {
            let value = uniform(rng, std);
            match format {
                Format::F16 => weight.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
                Format::BF16 => weight.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
                _ => weight.copy_from_slice(&value.to_le_bytes()),
            }
        }
    });
    bytes
}

/// Uniform around zero: the interval of width √12 has standard deviation 1.
fn uniform<R: Rng + ?Sized>(rng: &mut R, std: f32) -> f32 {
    (rng.random::<f32>() - 0.5) * 12f32.sqrt() * std
}

/// Random bits first; then `d` and `dmin` are chosen so that the block's mean is zero, if it has minima, and its
/// deviation is `std`.
fn random_quantised<B: Block, R: Rng + ?Sized>(blocks: &mut [B], rng: &mut R, std: f32) {
    let (mut q, mut scale, mut min) = (vec![0; B::LEN], vec![0; B::LEN / B::SUB], vec![0; B::LEN / B::SUB]);
    for block in blocks {
        rng.fill_bytes(bytemuck::bytes_of_mut(block));
        block.unpack(&mut q, &mut scale, &mut min);
        let product = |i: usize| f32::from(scale[i / B::SUB]) * f32::from(q[i]);
        let minimum = |i: usize| f32::from(min[i / B::SUB]);
        let sum = |f: &dyn Fn(usize) -> f32| (0..B::LEN).map(f).sum::<f32>();
        let ratio = if B::HAS_MIN { sum(&product) / sum(&minimum).max(1.0) } else { 0.0 };
        let square = sum(&|i| (product(i) - ratio * minimum(i)).powi(2));
        let d = std / (square / B::LEN as f32).sqrt().max(1.0);
        // Codes without a minimum reach one further down than up; a random sign keeps that from adding up over blocks.
        let flip = !B::HAS_MIN && rng.random();
        block.set_scales(if flip { -d } else { d }, d * ratio);
    }
}
