// Which kernel files there are. Read by the crate and, as text, by its build script.

/// A kernel file, and the ways it is compiled.
pub struct Source {
    /// Its name in `kernels/`, without `.cu`.
    pub file: &'static str,
    /// What `VARIANT` is defined as, one compilation each; empty if the file does not ask.
    pub variants: &'static [&'static str],
    /// The lowest architecture whose instructions it needs.
    pub from: u32,
}

/// Weight formats, as variants of the matrix products.
pub const QUANTISED: [&str; 13] =
    ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"];

/// Weight formats that stay floats.
pub const FLOATS: [&str; 3] = ["F32", "F16", "BF16"];

/// All kernel files.
pub const SOURCES: [Source; 9] = [
    plain("rows"),
    plain("attention"),
    plain("delta"),
    plain("moe"),
    plain("select"),
    Source { file: "product_wide", variants: &FLOATS, from: 37 },
    Source { file: "product_float", variants: &QUANTISED, from: 37 },
    Source { file: "product_dp4a", variants: &QUANTISED, from: 61 },
    Source { file: "product_mma", variants: &QUANTISED, from: 80 },
];

/// A file that is compiled once, for every architecture.
const fn plain(file: &'static str) -> Source {
    Source { file, variants: &[], from: 37 }
}
