//! Weights as they lie on a device.
//!
//! Owns: the packed form of every format, the twin of `kernels/quant.cuh`: tiles of 32 weight rows side by side, codes in bit
//! planes, scales as bytes. Refuses to know: devices, products, which tensor it is.
//!
//! F32, F16 and BF16 lie as in the file. Quantised tensors take at most 4 % more than there, and whole tiles: rows that are
//! not there are zeros.

use std::ops::Range;

use rayon::prelude::*;

use crate::backend::MatrixShape;
use crate::quant::Format;
use crate::quant::blocks::Block;
use crate::with_block;

/// Weight rows of a tile.
pub const TILE: usize = 32;
/// A packed tensor takes no more than the file and one part in so many of it.
pub const SPARED: usize = 25;
/// About as many packed bytes are made at a time.
const BATCH: usize = 16 << 20;

/// How the codes of a group of 32 weights become planes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Codes {
    /// 2 bits.
    Crumbs,
    /// 2 bits and 1.
    Three,
    /// 4 bits.
    Nibbles,
    /// 4 bits and 1.
    Five,
    /// 4 bits and 2.
    Six,
    /// 8 bits.
    Bytes,
    /// 4 bits in the order of the weights, for tables.
    Table,
}

/// What a row has of a group and of a block, in bytes.
struct Layout {
    codes: Codes,
    /// Taken from a code for the weight, unless codes go through a table.
    centre: u8,
    low: usize,
    high: usize,
    scales: usize,
    /// d, and dmin.
    head: usize,
    groups: usize,
}

impl Layout {
    const fn of(format: Format) -> Layout {
        let (codes, centre, scales, head) = match format {
            Format::Q8_0 => (Codes::Bytes, 128, 0, 2),
            Format::Q4_0 => (Codes::Nibbles, 8, 0, 2),
            Format::Q4_1 => (Codes::Nibbles, 0, 0, 4),
            Format::Q5_0 => (Codes::Five, 16, 0, 2),
            Format::Q5_1 => (Codes::Five, 0, 0, 4),
            Format::IQ4_NL => (Codes::Table, 0, 0, 2),
            Format::MXFP4 => (Codes::Table, 0, 0, 1),
            Format::Q2_K => (Codes::Crumbs, 0, 2, 4),
            Format::Q3_K => (Codes::Three, 4, 2, 2),
            Format::Q4_K => (Codes::Nibbles, 0, 2, 4),
            Format::Q5_K => (Codes::Five, 0, 2, 4),
            Format::Q6_K => (Codes::Six, 32, 2, 2),
            Format::IQ4_XS => (Codes::Table, 0, 1, 2),
            Format::F32 | Format::F16 | Format::BF16 => panic!("floats are not packed"),
        };
        let (low, high) = match codes {
            Codes::Crumbs => (8, 0),
            Codes::Three => (8, 4),
            Codes::Nibbles | Codes::Table => (16, 0),
            Codes::Five => (16, 4),
            Codes::Six => (16, 8),
            Codes::Bytes => (32, 0),
        };
        Layout { codes, centre, low, high, scales, head, groups: format.block_weights() / 32 }
    }

    /// Bytes of a group's row.
    const fn group(&self) -> usize {
        self.low + self.high + self.scales
    }

    /// Bytes of a block's row.
    const fn block(&self) -> usize {
        self.groups * self.group() + self.head
    }
}

/// Bytes of one matrix on a device, from expert to expert: `rows` rows of `cols` weights, a multiple of 16 if quantised.
pub fn matrix_bytes(format: Format, cols: usize, rows: usize) -> usize {
    match format.activation_block() {
        None => rows * cols * format.block_bytes(),
        Some(_) => rows.div_ceil(TILE) * tile_bytes(format, cols),
    }
}

/// Bytes from a tile (32 rows) of a quantised matrix to the next.
pub fn tile_bytes(format: Format, cols: usize) -> usize {
    cols / format.block_weights() * TILE * Layout::of(format).block()
}

/// Gives the packed form of rows `part` of every matrix in `bytes` to `sink`, piece by piece: where a piece goes, and the
/// piece. Together they are `count · matrix_bytes(format, cols, part.len())` bytes.
///
/// # Errors
/// What `sink` returns.
pub fn pack<E>(
    format: Format,
    shape: MatrixShape,
    part: Range<usize>,
    bytes: &[u8],
    mut sink: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let row_bytes = shape.cols / format.block_weights() * format.block_bytes();
    assert!(
        part.end <= shape.rows && bytes.len() == shape.count * shape.rows * row_bytes,
        "a tensor has its shape's bytes"
    );
    let mut at = 0;
    for matrix in bytes.chunks_exact((shape.rows * row_bytes).max(1)) {
        let rows = &matrix[part.start * row_bytes..part.end * row_bytes];
        if format.activation_block().is_none() {
            sink(at, rows)?;
            at += rows.len();
            continue;
        }
        let tile = tile_bytes(format, shape.cols);
        let tiles = (BATCH / tile.max(1)).max(1);
        let mut packed = vec![0; tile * tiles.min(part.len().div_ceil(TILE))];
        for rows in rows.chunks(tiles * TILE * row_bytes) {
            let packed = &mut packed[..rows.len().div_ceil(TILE * row_bytes) * tile];
            pack_rows(format, row_bytes, rows, packed);
            sink(at, packed)?;
            at += packed.len();
        }
    }
    Ok(())
}

/// Packs some tiles of rows.
fn pack_rows(format: Format, row_bytes: usize, rows: &[u8], packed: &mut [u8]) {
    let tile = row_bytes / format.block_bytes() * TILE * Layout::of(format).block();
    packed.par_chunks_exact_mut(tile).zip(rows.par_chunks(TILE * row_bytes)).for_each(|(tile, rows)| {
        tile.fill(0);
        with_block!(format, B => {
            for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
                pack_row::<B>(bytemuck::cast_slice(row), r, tile);
            }
        }, else => unreachable!("{format} is not packed"));
    });
}

/// Puts row `r` of a tile in its place.
fn pack_row<B: Block>(row: &[B], r: usize, tile: &mut [u8]) {
    // A constant, so that every format has code of its own, without choices in the loops.
    let layout = const { Layout::of(B::FORMAT) };
    let (mut q, mut scale, mut min) = ([0; 256], [0; 16], [0; 16]);
    let subs = B::LEN / B::SUB;
    let mut codes = [0; 32];
    for (block, mut to) in row.iter().zip(tile.chunks_exact_mut(TILE * layout.block())) {
        let scales = block.unpack(&mut q[..B::LEN], &mut scale[..subs], &mut min[..subs]);
        for (g, q) in q[..B::LEN].as_chunks::<32>().0.iter().enumerate() {
            if layout.codes == Codes::Table {
                table_codes(bytemuck::bytes_of(block), layout.groups, g, &mut codes);
            } else {
                codes = q.map(|q| (q as u8).wrapping_add(layout.centre));
            }
            let (low, high) = planes(layout.codes, &codes);
            place(&mut to, r, &low[..layout.low]);
            place(&mut to, r, &high[..layout.high]);
            let pair = match (layout.codes, subs / layout.groups) {
                (Codes::Crumbs, _) => {
                    [scale[2 * g] as u8 | min[2 * g] << 4, scale[2 * g + 1] as u8 | min[2 * g + 1] << 4]
                }
                (_, 2) => [scale[2 * g] as u8, scale[2 * g + 1] as u8],
                _ => [scale[g] as u8, min[g]],
            };
            place(&mut to, r, &pair[..layout.scales]);
        }
        let head = head(bytemuck::bytes_of(block), scales, layout.head);
        place(&mut to, r, &head[..layout.head]);
    }
}

/// Writes a row's bytes of a plane that stands for 32 rows, in pieces of up to 16 bytes a row; leaves what is behind it.
#[inline(always)]
fn place(to: &mut &mut [u8], r: usize, bytes: &[u8]) {
    for piece in bytes.chunks(16) {
        let (plane, behind) = std::mem::take(to).split_at_mut(TILE * piece.len());
        plane[r * piece.len()..][..piece.len()].copy_from_slice(piece);
        *to = behind;
    }
}

/// The codes of a group whose weights are looked up: as the file has them, which is low nibbles, then high ones.
fn table_codes(block: &[u8], groups: usize, g: usize, codes: &mut [u8; 32]) {
    let from = &block[block.len() - 16 * groups + 16 * g..][..16];
    for (j, byte) in from.iter().enumerate() {
        codes[j] = byte & 15;
        codes[j + 16] = byte >> 4;
    }
}

/// d and dmin as halves; of a block that begins with a single byte (MXFP4), that byte.
fn head(block: &[u8], (d, dmin): (f32, f32), len: usize) -> [u8; 4] {
    if len == 1 {
        return [block[0], 0, 0, 0];
    }
    let [a, b] = half::f16::from_f32(d).to_le_bytes();
    let [c, e] = half::f16::from_f32(dmin).to_le_bytes();
    [a, b, c, e]
}

/// The planes of 32 codes, four codes at a time in a word: see quant.cuh for what is where.
#[inline(always)]
fn planes(kind: Codes, codes: &[u8; 32]) -> ([u8; 32], [u8; 8]) {
    // Of every byte the lowest bits.
    const ONE: u32 = 0x0101_0101;
    const TWO: u32 = 0x0303_0303;
    const FOUR: u32 = 0x0f0f_0f0f;
    let mut word = [0; 8];
    for (word, four) in word.iter_mut().zip(codes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*four);
    }
    let (mut low, mut high) = ([0u32; 8], [0u32; 2]);
    match kind {
        Codes::Bytes => low = word,
        Codes::Table => {
            for (low, two) in low.iter_mut().zip(word.as_chunks::<2>().0) {
                let [a, b] = two.map(pairs);
                *low = a | b << 16;
            }
        }
        Codes::Crumbs | Codes::Three => {
            for (low, four) in low.iter_mut().zip(word.as_chunks::<4>().0) {
                let [a, b, c, d] = four.map(|word| word & TWO);
                *low = a | c << 2 | b << 4 | d << 6;
            }
        }
        Codes::Nibbles | Codes::Five | Codes::Six => {
            for (low, two) in low.iter_mut().zip(word.as_chunks::<2>().0) {
                let [a, b] = two.map(|word| word & FOUR);
                *low = a | b << 4;
            }
        }
    }
    for (i, word) in word.iter().enumerate() {
        match kind {
            // Word j of the nibbles takes bits 2 and 6 of byte b after a shift that brings them there.
            Codes::Three => high[0] |= (word >> 2 & ONE) << (4 * (i % 2) + [2, 3, 0, 1][i / 2]),
            Codes::Five => high[0] |= (word >> 4 & ONE) << ((4 + i) % 8),
            Codes::Six => high[i / 4] |= (word >> 4 & TWO) << ((4 + 2 * (i % 4)) % 8),
            _ => {}
        }
    }
    (bytemuck::cast(low.map(u32::to_le)), bytemuck::cast(high.map(u32::to_le)))
}

/// Four nibbles, one a byte, side by side in the lower half.
fn pairs(word: u32) -> u32 {
    let two = (word | word >> 4) & 0x00ff_00ff;
    (two | two >> 8) & 0xffff
}
