//! What a file announces about a tensor.
//!
//! Owns: a tensor's name, shape, format, size and place. Refuses to know: what the tensor is for.

use std::ops::Range;

use crate::quant::Format;
use crate::{Error, Result};

/// The most dimensions a tensor may have.
pub(super) const MAX_DIMS: usize = 4;

/// A tensor as its file announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// 1 to 4 sizes, none of them 0, in ggml's order: `dims[0]` is the width of a row.
    pub dims: Vec<usize>,
    /// The format, or the file's type number (`ggml_type`) where that is not supported.
    pub format: std::result::Result<Format, u32>,
    /// Where the data begins, in bytes from the start of its file.
    pub(super) start: usize,
    /// Bytes of data; `None` where the format is not supported.
    pub(super) bytes: Option<usize>,
    /// Which of the model's files holds the data.
    pub(super) part: usize,
}

impl TensorInfo {
    /// Bytes of data; `None` where the format is not supported.
    pub fn bytes(&self) -> Option<usize> {
        self.bytes
    }

    /// The number of weights: the product of the dimensions.
    pub fn weights(&self) -> usize {
        self.dims.iter().product()
    }

    /// The format's name, supported or not.
    pub fn format_name(&self) -> &'static str {
        match self.format {
            Ok(format) => format.name(),
            Err(number) => Format::ggml_name(number),
        }
    }

    /// Where the data lies in its file; an error names the format if that is not supported.
    pub(super) fn range(&self) -> Result<Range<usize>> {
        match (self.format, self.bytes) {
            (Ok(_), Some(bytes)) => Ok(self.start..self.start + bytes),
            (format, _) => {
                let number = format.map_or_else(|number| number, Format::ggml);
                let supported: Vec<_> = Format::all().map(Format::name).collect();
                let message = format!(
                    "its format {} (type {number}) is not supported; supported: {}",
                    Format::ggml_name(number),
                    supported.join(", ")
                );
                Err(Error::new(message).about(clip(&self.name)))
            }
        }
    }
}

/// Checks `dims` and returns the bytes that a tensor of them takes in `format`: `Ok(None)` if that is not supported.
/// The error says what is wrong with the dimensions, but not of which tensor.
pub(super) fn size(dims: &[usize], format: std::result::Result<Format, u32>) -> Result<Option<usize>> {
    let Some((&width, rest)) = dims.split_first().filter(|_| dims.len() <= MAX_DIMS) else {
        return Err(Error::new(format!("expected 1 to {MAX_DIMS} dimensions, found {}", dims.len())));
    };
    if let Some(i) = dims.iter().position(|&dim| dim == 0) {
        return Err(Error::new(format!("expected positive dimensions, found dimension {i} of 0")));
    }
    let product = |first: usize| rest.iter().try_fold(first, |product, &dim| product.checked_mul(dim));
    let too_large = || Error::new(format!("dimensions {dims:?} are more than this machine can count"));
    product(width).ok_or_else(too_large)?;
    let Ok(format) = format else {
        return Ok(None);
    };
    let block = format.block_weights();
    if !width.is_multiple_of(block) {
        return Err(Error::new(format!(
            "expected rows of a multiple of {block} weights, as {format} has blocks of, found {width}"
        )));
    }
    let row = format.row_bytes(width).ok_or_else(too_large)?;
    product(row).map(Some).ok_or_else(too_large)
}

/// A name from a file, short enough for a message.
pub(super) fn clip(name: &str) -> String {
    const MOST: usize = 80;
    match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
