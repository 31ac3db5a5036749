//! The table of weight formats: names, GGUF type numbers, block sizes.
//!
//! Owns: what a format is called and how many bytes it takes. Refuses to know: what its bits mean (`blocks`).

use std::fmt;

/// A tensor's number format, as numbered by the GGUF file format (`ggml_type`).
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    BF16,
    /// 32 weights of 8 bits, one scale.
    Q8_0,
    /// 32 weights of 4 bits, one scale, offset 8.
    Q4_0,
    /// 32 weights of 4 bits, scale and minimum.
    Q4_1,
    /// 32 weights of 5 bits, one scale, offset 16.
    Q5_0,
    /// 32 weights of 5 bits, scale and minimum.
    Q5_1,
    /// 256 weights of 2 bits; 16 sub-blocks with 4-bit scale and minimum.
    Q2_K,
    /// 256 weights of 3 bits; 16 sub-blocks with 6-bit scale.
    Q3_K,
    /// 256 weights of 4 bits; 8 sub-blocks with 6-bit scale and minimum.
    Q4_K,
    /// 256 weights of 5 bits; 8 sub-blocks with 6-bit scale and minimum.
    Q5_K,
    /// 256 weights of 6 bits; 16 sub-blocks with 8-bit scale.
    Q6_K,
    /// 32 weights of 4 bits into a fixed table of 16 values, one scale.
    IQ4_NL,
    /// 256 weights of 4 bits into the same table; 8 sub-blocks with 6-bit scale.
    IQ4_XS,
    /// 32 weights of 4-bit floats (E2M1), one power-of-two scale (E8M0).
    MXFP4,
}

/// One row of the table.
struct Entry {
    format: Format,
    name: &'static str,
    ggml: u32,
    weights: usize,
    bytes: usize,
}

const fn entry(format: Format, name: &'static str, ggml: u32, weights: usize, bytes: usize) -> Entry {
    Entry { format, name, ggml, weights, bytes }
}

/// In the order of the enum, so that a format indexes its own row.
const TABLE: [Entry; 16] = [
    entry(Format::F32, "F32", 0, 1, 4),
    entry(Format::F16, "F16", 1, 1, 2),
    entry(Format::BF16, "BF16", 30, 1, 2),
    entry(Format::Q8_0, "Q8_0", 8, 32, 34),
    entry(Format::Q4_0, "Q4_0", 2, 32, 18),
    entry(Format::Q4_1, "Q4_1", 3, 32, 20),
    entry(Format::Q5_0, "Q5_0", 6, 32, 22),
    entry(Format::Q5_1, "Q5_1", 7, 32, 24),
    entry(Format::Q2_K, "Q2_K", 10, 256, 84),
    entry(Format::Q3_K, "Q3_K", 11, 256, 110),
    entry(Format::Q4_K, "Q4_K", 12, 256, 144),
    entry(Format::Q5_K, "Q5_K", 13, 256, 176),
    entry(Format::Q6_K, "Q6_K", 14, 256, 210),
    entry(Format::IQ4_NL, "IQ4_NL", 20, 32, 18),
    entry(Format::IQ4_XS, "IQ4_XS", 23, 256, 136),
    entry(Format::MXFP4, "MXFP4", 39, 32, 17),
];

impl Format {
    /// Every supported format, in the table's order.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(|e| e.format)
    }

    const fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// The format that GGUF numbers `ggml`, if it is supported.
    pub fn from_ggml(ggml: u32) -> Option<Format> {
        TABLE.iter().find(|e| e.ggml == ggml).map(|e| e.format)
    }

    /// The number GGUF gives this format.
    pub fn ggml(self) -> u32 {
        self.entry().ggml
    }

    /// The name users know, e.g. `Q4_K`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Weights in one block; a row's length is a multiple of it.
    pub const fn block_weights(self) -> usize {
        self.entry().weights
    }

    /// Bytes in one block.
    pub const fn block_bytes(self) -> usize {
        self.entry().bytes
    }

    /// Activations that share one scale when a row meets weights of this format: 256 or 32, the format's own block.
    /// `None` for F32, F16 and BF16, whose dot products stay in floats.
    pub const fn activation_block(self) -> Option<usize> {
        match self.block_weights() {
            1 => None,
            weights => Some(weights),
        }
    }

    /// Bytes of a row of `width` weights; `None` if `width` is not a whole number of blocks or overflows.
    pub fn row_bytes(self, width: usize) -> Option<usize> {
        if !width.is_multiple_of(self.block_weights()) {
            return None;
        }
        (width / self.block_weights()).checked_mul(self.block_bytes())
    }

    /// What an unsupported GGUF type number is called, for error messages.
    pub fn ggml_name(ggml: u32) -> &'static str {
        const NAMES: [(u32, &str); 16] = [
            (9, "Q8_1"),
            (15, "Q8_K"),
            (16, "IQ2_XXS"),
            (17, "IQ2_XS"),
            (18, "IQ3_XXS"),
            (19, "IQ1_S"),
            (21, "IQ3_S"),
            (22, "IQ2_S"),
            (24, "I8"),
            (25, "I16"),
            (26, "I32"),
            (27, "I64"),
            (28, "F64"),
            (29, "IQ1_M"),
            (34, "TQ1_0"),
            (35, "TQ2_0"),
        ];
        match Format::from_ggml(ggml) {
            Some(format) => format.name(),
            None => NAMES.iter().find(|n| n.0 == ggml).map_or("unknown", |n| n.1),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (i, format) in Format::all().enumerate() {
            assert_eq!(format as usize, i);
            assert_eq!(Format::from_ggml(format.ggml()), Some(format));
        }
    }
}
