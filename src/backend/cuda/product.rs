//! Launches of the matrix products.
//!
//! Owns: which kernel runs a product on which architecture, with how many threads and which arguments: the twin of
//! `kernels/product.cuh` and `kernels/product_wide.cu`. Refuses to know: devices, what the matrices are for.

use kernels::{Address, Arg, Grid, Kernel};

use super::pack;
use super::pass::int;
use crate::quant::Format;

/// Matrices that one launch can multiply.
pub const JOBS: usize = 4;

/// Threads of a block.
const THREADS: u32 = 256;
/// Threads of a block where weights are floats.
const THREADS_WIDE: u32 = 64;
/// Warps of a block.
const WARPS: usize = 8;
/// Places of a group from which on tensor cores pay.
const MANY: usize = 8;

/// A matrix of a product and where its result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Packed weights (`pack`); of a stack, the first matrix.
    pub weights: Address,
    /// Bytes from one matrix of the stack to the next.
    pub stride: usize,
    /// Weight rows: the result's width.
    pub rows: usize,
    /// `[places][rows]` f32.
    pub out: Address,
}

/// Where the rows that enter lie, `[rows][cols]` in the form that [`Format::activation_block`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Int8, a scale per block, a sum per 16.
    Int8 {
        /// `[rows][cols]` i8.
        q: Address,
        /// `[rows][cols / block]` f32.
        d: Address,
        /// `[rows][cols / 16]` i16.
        sums: Address,
    },
    /// For F32, F16 and BF16 weights: f32.
    Float(Address),
}

/// Which rows meet which matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// All rows meet the first matrix of each stack.
    Dense {
        /// How many.
        rows: usize,
    },
    /// Each group meets its own matrix.
    Grouped {
        /// `[groups]` of four u32: matrix, first place, places, 0.
        groups: Address,
        /// One u32: how many groups there are.
        count: Address,
        /// `[places]` u32: the row that enters at a place; 0 if it is the place's own.
        enter: Address,
        /// Groups at most.
        most: usize,
        /// Places of all groups together.
        places: usize,
        /// Places of one group at most: a row meets a matrix once, so the rows that enter.
        largest: usize,
    },
}

/// A launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Its threads.
    pub grid: Grid,
    /// Its arguments.
    pub args: Vec<Arg>,
}

/// A way to multiply quantised weights: a kernel file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// By single-precision fma.
    Float,
    /// By dp4a.
    Dp4a,
    /// On tensor cores; for many rows only.
    Mma,
}

impl Path {
    /// The way for groups of `average` places.
    fn of(architecture: u32, average: usize) -> Path {
        match architecture {
            ..61 => Path::Float,
            80.. if average >= MANY => Path::Mma,
            _ => Path::Dp4a,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Path::Float => "product_float",
            Path::Dp4a => "product_dp4a",
            Path::Mma => "product_mma",
        }
    }
}

/// The kernels that products with `format` may need on `architecture`.
pub fn kernels(format: Format, architecture: u32) -> Vec<Kernel> {
    let named = |file, name| Kernel { file, variant: format.name(), name };
    let few = match format.activation_block() {
        None => "product_wide",
        Some(_) => Path::of(architecture, 1).file(),
    };
    let mut kernels = vec![named(few, "product_1"), named(few, "product_n")];
    if format.activation_block().is_some() {
        kernels.push(named(few, "product_2"));
        if Path::of(architecture, MANY) == Path::Mma {
            kernels.push(named(Path::Mma.file(), "product_n"));
        }
    }
    kernels
}

/// The product of up to [`JOBS`] matrices of one format and width with the same rows.
pub fn plan(architecture: u32, format: Format, cols: usize, jobs: &[Job], input: Input, places: Places) -> Launch {
    assert!(!jobs.is_empty() && jobs.len() <= JOBS, "a launch multiplies 1 to {JOBS} matrices");
    match (input, format.activation_block()) {
        (Input::Float(x), None) => plan_wide(format, cols, jobs, x, places),
        (Input::Int8 { q, d, sums }, Some(_)) => {
            let shape = Shape::of(architecture, format, cols, jobs, places);
            let mut args = matrices(jobs, 16);
            args.extend([q, d, sums].map(Arg::At));
            args.extend(which(places));
            args.extend([cols / format.block_weights(), shape.split, shape.tile].map(int));
            let grid = Grid { blocks: shape.blocks, threads: [THREADS, 1], shared: shape.shared as u32 };
            Launch { kernel: Kernel { file: shape.file, variant: format.name(), name: shape.name }, grid, args }
        }
        _ => panic!("the rows that enter are not in the form that {format} asks for"),
    }
}

/// How a product is cut into blocks of threads.
struct Shape {
    file: &'static str,
    name: &'static str,
    blocks: [u32; 3],
    split: usize,
    tile: usize,
    shared: usize,
}

impl Shape {
    fn of(architecture: u32, format: Format, cols: usize, jobs: &[Job], places: Places) -> Shape {
        let Sizes { groups, largest, average } = Sizes::of(places);
        let (one, path) = (largest == 1, Path::of(architecture, average));
        // Places at a time: twice what a group has on average, so that few groups need two turns.
        let most = if path == Path::Mma { 16 } else { 8 };
        let wanted = (2 * average).next_power_of_two().min(largest.next_power_of_two());
        let tile = if one { 1 } else { wanted.clamp(2, most) };
        let lane_rows = if one || path == Path::Mma { 1 } else { 2 };
        let blocks = cols / format.block_weights();
        let split = blocks.div_ceil(unit_blocks(path, format, tile)).next_power_of_two().ilog2().min(3) as usize;
        let set = (WARPS >> split) * lane_rows * pack::TILE;
        let sets: usize = jobs.iter().map(|job| job.rows.div_ceil(set)).sum();
        let tiles = match places {
            Places::Dense { rows } => rows.div_ceil(tile),
            Places::Grouped { .. } => 1,
        };
        // A last tile of fewer places comes in other units, and may need more room.
        let sizes: &[usize] = if path == Path::Mma { &[8, 16] } else { &[1, 2, 4, 8] };
        let up_to = sizes.iter().take_while(|&&n| n < 2 * tile);
        let shared = up_to.map(|&n| 4 * WARPS * area(path, format, n, lane_rows)).max().unwrap_or(0);
        let name = match tile {
            1 => "product_1",
            2 => "product_2",
            _ => "product_n",
        };
        Shape { file: path.file(), name, blocks: [sets as u32, groups as u32, tiles as u32], split, tile, shared }
    }
}

/// How many groups there are at most, and places of one: at most, and on average.
struct Sizes {
    groups: usize,
    largest: usize,
    average: usize,
}

impl Sizes {
    fn of(places: Places) -> Sizes {
        match places {
            Places::Dense { rows } => Sizes { groups: 1, largest: rows, average: rows },
            Places::Grouped { most, places, largest, .. } => {
                Sizes { groups: most, largest, average: places.div_ceil(most) }
            }
        }
    }
}

/// Blocks of weights that a warp takes at a time (`BLOCKS` of the kernel files).
fn unit_blocks(path: Path, format: Format, tile: usize) -> usize {
    match (format.block_weights(), path, tile) {
        (256, _, _) => 1,
        (_, Path::Mma, _) => 32 / tile.next_power_of_two().max(8),
        (_, _, 1 | 2) => 4,
        _ => 8 / tile,
    }
}

/// Singles of a warp's shared memory for `n` places (`Record` and `AREA` of the kernel files).
fn area(path: Path, format: Format, n: usize, lane_rows: usize) -> usize {
    let wide = format.block_weights() == 256;
    let (rows, blocks) = (lane_rows * pack::TILE, unit_blocks(path, format, n));
    let minimum = usize::from(has_min(format));
    let record = n * rows * (1 + if wide { minimum } else { 0 }) + rows * (1 + minimum) + 2 * n;
    let groups = if wide { 8 } else { blocks };
    let (step, words) = match path {
        Path::Float => (if n == 8 { groups.min(4) } else { groups }, 32),
        Path::Dp4a => (groups, 8),
        Path::Mma => (groups, 0),
    };
    let staged = n * step * (words + 32 / sub(format));
    let both = if wide && path != Path::Mma { record.max(staged) } else { record * blocks + staged };
    both.next_multiple_of(4)
}

/// Whether the format has a minimum.
fn has_min(format: Format) -> bool {
    matches!(format, Format::Q4_1 | Format::Q5_1 | Format::Q2_K | Format::Q4_K | Format::Q5_K)
}

/// Weights that share a scale.
fn sub(format: Format) -> usize {
    if matches!(format, Format::Q2_K | Format::Q3_K | Format::Q6_K) { 16 } else { 32 }
}

/// The matrices as arguments, strides in `unit` bytes; those that are not there have no rows.
fn matrices(jobs: &[Job], unit: usize) -> Vec<Arg> {
    let none = Job { weights: 0, stride: 0, rows: 0, out: 0 };
    let all = jobs.iter().chain(std::iter::repeat(&none)).take(JOBS);
    all.flat_map(|job| [Arg::At(job.weights), Arg::At(job.out), int(job.rows), int(job.stride / unit)]).collect()
}

/// Groups, count, enter, rows.
fn which(places: Places) -> [Arg; 4] {
    match places {
        Places::Dense { rows } => [Arg::At(0), Arg::At(0), Arg::At(0), int(rows)],
        Places::Grouped { groups, count, enter, .. } => [Arg::At(groups), Arg::At(count), Arg::At(enter), int(0)],
    }
}

/// Products of F32, F16 and BF16.
fn plan_wide(format: Format, cols: usize, jobs: &[Job], x: Address, places: Places) -> Launch {
    let Sizes { groups, largest, .. } = Sizes::of(places);
    let (name, lane_rows) = if largest == 1 { ("product_1", 1) } else { ("product_n", 2) };
    let blocks: usize = jobs.iter().map(|job| job.rows.div_ceil(lane_rows * THREADS_WIDE as usize / 32)).sum();
    let tiles = match places {
        Places::Dense { rows } => rows.div_ceil(8),
        Places::Grouped { .. } => 1,
    };
    let mut args = matrices(jobs, format.block_bytes());
    args.push(Arg::At(x));
    args.extend(which(places));
    args.push(int(cols));
    let grid = Grid { blocks: [blocks as u32, groups as u32, tiles as u32], threads: [THREADS_WIDE, 1], shared: 0 };
    Launch { kernel: Kernel { file: "product_wide", variant: format.name(), name }, grid, args }
}

#[cfg(test)]
mod tests;
