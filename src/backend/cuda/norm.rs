//! Row-wise operations: norms, sums, gates, the largest element.
//!
//! Owns: how these reach their kernels (rows.cu, select.cu). Refuses to know: where in a layer they stand.

use std::ops::Range;

use kernels::{Address, Arg, Kernel};

use super::Vector;
use super::die::{Die, Launch, Room};
use super::moe::{MIXTURE, Shared};
use super::pass::{CudaPass, Span, Sum, flag, form_args, grid, int, kernel};
use super::rows::{BLOCKS, Form, Rows};

/// `x += y`.
pub const ADD: Kernel = kernel("rows", "add_rows");
const RMS_NORM: Kernel = kernel("rows", "rms_norm");
const JOIN: Kernel = kernel("rows", "join_rows");
const SWIGLU: Kernel = kernel("rows", "swiglu");
const QUANTIZE: Kernel = kernel("rows", "quantize");
const ADD_GATED: Kernel = kernel("rows", "add_gated");
/// The sum of experts' outputs.
pub const COMBINE: Kernel = kernel("rows", "combine");
const BEST_OF_PARTS: Kernel = kernel("select", "best_of_parts");
const BEST_OF_ROW: Kernel = kernel("select", "best_of_row");
const MASSES: Kernel = kernel("select", "masses_of_parts");

/// All of them.
pub const KERNELS: [Kernel; 10] =
    [ADD, RMS_NORM, JOIN, SWIGLU, QUANTIZE, ADD_GATED, COMBINE, BEST_OF_PARTS, BEST_OF_ROW, MASSES];

/// Elements of a row of logits that one block looks through (select.cu).
const PART: usize = 4096;

/// Columns that a block takes where a row is cut (rows.cu).
const SPAN: usize = 2048;

/// Threads for a row's norm (rows.cu).
const NORM: usize = 512;

/// Rows up to so many elements are staged in shared memory.
const STAGED: usize = 10 << 10;

/// What `rms_norm` is told of experts where there are none.
const NO_MIXTURE: [Arg; MIXTURE] = {
    let [nothing, zero] = [Arg::At(0), Arg::Int(0)];
    [nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, zero, zero]
};

/// Both int8 forms of row `row`, as the kernels of rows.cu take them: 256, then 32.
pub(super) fn both(forms: [Form; 2], width: usize, row: usize) -> [Arg; 6] {
    let [a, b, c] = form_args(forms[1], BLOCKS[1], width, row);
    let [d, e, f] = form_args(forms[0], BLOCKS[0], width, row);
    [a, b, c, d, e, f]
}

/// Rows between two projections, and the int8 forms that they get.
#[derive(Clone, Copy, Default)]
pub(super) struct Hidden {
    /// Becomes the product.
    pub gate: Span,
    /// What it is multiplied by.
    pub up: Span,
    /// Forms of the product.
    pub forms: [Form; 2],
}

impl Hidden {
    fn args(self, from: usize) -> impl Iterator<Item = Arg> {
        let width = self.gate.width;
        [self.gate.row(from), self.up.row(from), int(width)].into_iter().chain(both(self.forms, width, from))
    }
}

/// `gate = silu(gate) · up` and the int8 forms in some rows, and in some of another width.
pub(super) fn swiglu(die: &Die, sides: [(Hidden, Range<usize>); 2]) -> kernels::Result<()> {
    let mut args: Vec<Arg> = sides.iter().flat_map(|(hidden, range)| hidden.args(range.start)).collect();
    let [(rows, width), (more, other)] = sides.map(|(hidden, range)| (range.len(), hidden.gate.width));
    args.push(int(rows));
    let grid = grid([width.max(other).div_ceil(SPAN), rows + more, 1], 256, 4 * SPAN);
    let bytes = 12 * (rows * width + more * other);
    die.launch(Launch { stage: "swiglu", kernel: SWIGLU, grid, args: &args, bytes })
}

impl CudaPass<'_> {
    pub(super) fn add_rows(&self, x: &mut Rows, y: &Rows) {
        assert_eq!((x.width(), x.len()), (y.width(), y.len()), "sums are of one shape");
        let (die, rows) = (y.last(), x.len());
        self.read(x, die);
        // The experts' sum waits as well.
        let y = self.mixed_in(y, die).unwrap_or_else(|| self.read(y, die));
        let x = self.write(x, rows, die);
        self.put_off(Sum { die, rows, x, y });
    }

    pub(super) fn norm_rows(&self, x: &Rows, weight: &Vector, eps: f32, out: &mut Rows) {
        assert_eq!((x.width(), out.width()), (weight.len, weight.len), "a norm keeps the width");
        let (die, rows, width) = (weight.die, x.len(), x.width());
        let x = self.read_for_norm(x, die);
        if width > STAGED {
            self.mix_now();
        }
        let (sum, mixed) = self.take_sum(x, die).unzip();
        let (y, mixed) = (sum.map_or(Span { at: 0, width }, |sum| sum.y), mixed.flatten());
        let out_span = self.write(out, rows, die);
        out.made_by(&weight.wanted);
        let (forms, weight) = (self.forms(out, die), weight.at());
        self.push(die, rows, move |die: &Die, range: Range<usize>| {
            let from = range.start;
            let y = if y.at == 0 { Arg::At(0) } else { y.row(from) };
            let staged = width <= STAGED;
            let (mixture, more) = match mixed {
                Some(mixed) => mixed.args(die, &range)?,
                None => (NO_MIXTURE, 0),
            };
            let mut args = mixture.to_vec();
            args.extend([x.row(from), y, Arg::At(weight), out_span.row(from), int(width), flag(staged)]);
            args.push(Arg::Float(eps));
            args.extend(both(forms, width, from));
            let shared = if staged { 4 * width } else { 0 };
            let (grid, bytes) = (grid([range.len(), 1, 1], NORM, shared), 8 * range.len() * width + more);
            die.launch(Launch { stage: "norm", kernel: RMS_NORM, grid, args: &args, bytes })
        });
    }

    pub(super) fn join_sides(&self, x: &Rows, y: &Rows, out: &mut Rows) {
        assert_eq!((x.len(), x.width() + y.width()), (y.len(), out.width()), "joined rows stand side by side");
        let (die, rows) = (y.last(), x.len());
        let (x, y, out) = (self.read(x, die), self.read(y, die), self.write(out, rows, die));
        self.push(die, rows, move |die: &Die, range: Range<usize>| {
            let from = range.start;
            let args = [x.row(from), y.row(from), out.row(from), int(x.width), int(y.width)];
            let grid = grid([range.len(), 1, 1], 256, 0);
            die.launch(Launch { stage: "join", kernel: JOIN, grid, args: &args, bytes: 8 * range.len() * out.width })
        });
    }

    pub(super) fn tail_rows(&self, x: &Rows, from: usize, out: &mut Rows) {
        let (die, rows) = (x.last(), x.len() - from);
        let x = self.read(x, die);
        self.go_together();
        let out = self.write(out, rows, die);
        self.push(die, rows, move |die: &Die, _: Range<usize>| {
            let skipped = (4 * from * x.width) as Address;
            die.driver().copy(x.at + skipped, out.at, 4 * rows * x.width)
        });
    }

    pub(super) fn quantize(&self, x: Span, forms: [Form; 2], rows: usize, die: usize) {
        self.push(die, rows, move |die: &Die, range: Range<usize>| {
            let mut args = vec![x.row(range.start), int(x.width)];
            args.extend(both(forms, x.width, range.start));
            let grid = grid([x.width.div_ceil(SPAN), range.len(), 1], 256, 0);
            die.launch(Launch {
                stage: "quantize",
                kernel: QUANTIZE,
                grid,
                args: &args,
                bytes: 5 * range.len() * x.width,
            })
        });
    }

    pub(super) fn swiglu_rows(&self, gate: &mut Rows, up: &Rows) {
        assert_eq!((gate.width(), gate.len()), (up.width(), up.len()), "gate and up are of one shape");
        let (die, rows) = (up.last(), gate.len());
        let (_, up) = (self.read(gate, die), self.read(up, die));
        let span = self.write(gate, rows, die);
        let hidden = Hidden { gate: span, up, forms: self.forms(gate, die) };
        if !self.leave_with(die, rows, hidden) {
            self.push(die, rows, move |die: &Die, range: Range<usize>| {
                swiglu(die, [(hidden, range), (Hidden::default(), 0..0)])
            });
        }
    }

    pub(super) fn add_gated_rows(&self, x: &Rows, gate: &Vector, y: &Rows, out: &mut Rows) {
        assert_eq!((x.len(), y.width(), x.width()), (out.len(), out.width(), gate.len), "a gated sum keeps its shape");
        let (die, rows) = (gate.die, out.len());
        let (x, y) = (self.read(x, die), self.read(y, die));
        if self.mix_with(out, die, Shared { x, gate: gate.at(), y }) {
            return assert!(x.width == y.width, "a mixture's widths");
        }
        self.read(out, die);
        let (out, gate) = (self.write(out, rows, die), gate.at());
        self.push(die, rows, move |die: &Die, range: Range<usize>| {
            let from = range.start;
            let args = [x.row(from), Arg::At(gate), y.row(from), out.row(from), int(x.width), int(out.width)];
            let (grid, bytes) = (grid([range.len(), 1, 1], 256, 0), 16 * range.len() * out.width);
            die.launch(Launch { stage: "shared gate", kernel: ADD_GATED, grid, args: &args, bytes })
        });
    }

    /// The best element of each row, downloaded: token ids, not logits.
    pub(super) fn best(&self, x: &Rows) -> Vec<u32> {
        let (die, rows, width) = (x.last(), x.len(), x.width());
        let x = self.read(x, die);
        self.push(die, rows, move |die: &Die, range: Range<usize>| best_of(die, x, range, width));
        self.run(true);
        let mut best = vec![0; rows];
        let holder = self.die(die);
        let got = holder
            .room(Room::Best, 4 * rows)
            .and_then(|at| holder.driver().download(at, bytemuck::cast_slice_mut(&mut best)));
        self.cuda.must(holder.name(got));
        self.cuda.arrived();
        best
    }

    /// The softmax's largest probability in the only row.
    pub(super) fn confidence_of(&self, x: &Rows) -> f32 {
        assert_eq!(x.len(), 1, "the confidence of one row");
        let (die, width) = (x.last(), x.width());
        let x = self.read(x, die);
        let parts = width.div_ceil(PART);
        self.push(die, 1, move |die: &Die, range: Range<usize>| {
            best_of(die, x, range, width)?;
            let (best, masses) = (die.room(Room::Best, 4)?, die.room(Room::Masses, 4 * parts)?);
            let args = [x.row(0), Arg::At(best), Arg::At(masses), int(width)];
            let grid = grid([parts, 1, 1], 256, 0);
            die.launch(Launch { stage: "confidence", kernel: MASSES, grid, args: &args, bytes: 4 * width })
        });
        self.run(true);
        let mut masses = vec![0.0f32; parts];
        let holder = self.die(die);
        let got = holder
            .room(Room::Masses, 4 * parts)
            .and_then(|at| holder.driver().download(at, bytemuck::cast_slice_mut(&mut masses)));
        self.cuda.must(holder.name(got));
        1.0 / masses.iter().sum::<f32>()
    }
}

/// The best place of each row of `range`, in the die's room for it.
fn best_of(die: &Die, x: Span, range: Range<usize>, width: usize) -> kernels::Result<()> {
    let (rows, parts) = (range.len(), width.div_ceil(PART));
    let words = die.room(Room::Words, 4 * rows * parts)?;
    let places = die.room(Room::Places, 4 * rows * parts)?;
    let best = die.room(Room::Best, 4 * rows)?;
    let args = [x.row(range.start), Arg::At(words), Arg::At(places), int(width)];
    let blocks = grid([parts, rows, 1], 256, 0);
    die.launch(Launch { stage: "argmax", kernel: BEST_OF_PARTS, grid: blocks, args: &args, bytes: 4 * rows * width })?;
    let args = [Arg::At(words), Arg::At(places), Arg::At(best), int(parts)];
    die.launch(Launch { stage: "argmax", kernel: BEST_OF_ROW, grid: grid([rows, 1, 1], 256, 0), args: &args, bytes: 0 })
}
