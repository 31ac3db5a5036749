//! Routed experts: choice, grouping by expert, SwiGLU, sum in rank order.
//!
//! Owns: what a pass's routing leaves on a die, how moe.cu is launched, what of the experts' way can be put off. Refuses to know:
//! what it then goes together with (`pass`).
//!
//! The host never learns which experts were chosen: as many groups are launched as there can be, and those beyond the chosen ones
//! end at once.

use std::ops::Range;

use kernels::{Address, Allocation, Arg, Kernel};

use super::Cuda;
use super::die::{Die, Launch, Room};
use super::matmul::{Input, Matrix, Product, multiply};
use super::norm::{COMBINE, Hidden, swiglu};
use super::pass::{CudaPass, Span, flag, grid, int, kernel};
use super::product::{Job, Places};
use super::rows::{BLOCKS, Form, Rows, form_of};
use crate::backend::Routing;
use crate::quant::Format;

const ROUTE: Kernel = kernel("moe", "route");
const GROUP: Kernel = kernel("moe", "group");

/// All of them.
pub const KERNELS: [Kernel; 2] = [ROUTE, GROUP];

/// What is told of the experts' outputs, in numbers (rows.cu).
pub const MIXTURE: usize = 10;

/// Experts that `group` sorts, at most (moe.cu).
pub const EXPERTS: usize = 1024;

/// The routing of passes: what is between [`CudaPass::route_rows`] and [`CudaPass::expert_rows`].
#[derive(Default)]
pub struct Routes {
    used: usize,
    experts: usize,
    /// On each die: bytes of expert weights read so far.
    read: Vec<(usize, Allocation)>,
}

impl Routes {
    /// Bytes of expert weights that all passes with these routes have read.
    pub fn bytes_read(&self, cuda: &Cuda) -> usize {
        let of = |(die, counter): &(usize, Allocation)| {
            let mut bytes = [0; 8];
            let die = &cuda.dies[*die];
            cuda.must(die.name(die.driver().download(counter.at, &mut bytes)));
            u64::from_le_bytes(bytes) as usize
        };
        self.read.iter().map(of).sum()
    }

    fn counter(&mut self, die: &Die) -> kernels::Result<Address> {
        if let Some((_, counter)) = self.read.iter().find(|(at, _)| *at == die.index()) {
            return Ok(counter.at);
        }
        let counter = die.driver().allocate(8)?;
        die.driver().clear(counter.at, 8)?;
        let at = counter.at;
        self.read.push((die.index(), counter));
        Ok(at)
    }
}

/// How `rows` rows of a pass are routed on a die.
struct Table {
    experts: Address,
    weights: Address,
    enter: Address,
    place: Address,
    groups: Address,
    count: Address,
}

impl Table {
    /// Room for `pairs` pairs (row, rank).
    fn of(die: &Die, pairs: usize) -> kernels::Result<Table> {
        Ok(Table {
            experts: die.room(Room::Experts, 4 * pairs)?,
            weights: die.room(Room::Weights, 4 * pairs)?,
            enter: die.room(Room::Enter, 4 * pairs)?,
            place: die.room(Room::Place, 4 * pairs)?,
            groups: die.room(Room::Groups, 16 * pairs.min(EXPERTS))?,
            count: die.room(Room::Count, 4)?,
        })
    }
}

/// A router's product, choice and grouping.
#[derive(Clone, Copy)]
struct Router {
    matrix: Job,
    format: Format,
    input: Input,
    cols: usize,
    how: Routing,
    bytes: usize,
}

impl Router {
    fn run(&self, die: &Die, range: Range<usize>) -> kernels::Result<()> {
        let (rows, n, how) = (range.len(), self.matrix.rows, self.how);
        let logits = die.room(Room::Logits, 4 * rows * n)?;
        let job = Job { out: logits, ..self.matrix };
        let input = self.input.at_row(range.start, self.cols, self.format);
        let (format, cols, places) = (self.format, self.cols, Places::Dense { rows });
        multiply(die, "router", &Product { format, cols, jobs: vec![job], input, places }, self.bytes)?;
        let pairs = rows * how.used;
        let table = Table::of(die, pairs)?;
        let args = [
            Arg::At(logits),
            Arg::At(table.experts),
            Arg::At(table.weights),
            Arg::At(table.enter),
            Arg::At(table.place),
            Arg::At(table.groups),
            Arg::At(table.count),
            int(n),
            int(how.used),
            flag(how.renormalize),
            Arg::Float(how.scale),
            flag(rows == 1),
        ];
        let blocks = grid([rows, 1, 1], 256, 4 * n);
        die.launch(Launch { stage: "router", kernel: ROUTE, grid: blocks, args: &args, bytes: 0 })?;
        if rows == 1 {
            return Ok(());
        }
        let args = [
            Arg::At(table.experts),
            Arg::At(table.enter),
            Arg::At(table.place),
            Arg::At(table.groups),
            Arg::At(table.count),
            int(pairs),
            int(how.used),
        ];
        let one = grid([1, 1, 1], n.next_multiple_of(32), 0);
        die.launch(Launch { stage: "router", kernel: GROUP, grid: one, args: &args, bytes: 0 })
    }
}

/// The experts' products and activation.
#[derive(Clone, Copy)]
pub struct Mixture {
    /// Gate, up and down.
    matrices: [Job; 3],
    formats: [Format; 3],
    inputs: [Input; 2],
    width: usize,
    ff: usize,
    used: usize,
    experts: usize,
    /// Elements of an output row.
    out: usize,
}

/// A shared expert that is through.
#[derive(Clone, Copy)]
pub struct Shared {
    /// What the gate multiplies.
    pub x: Span,
    /// A vector of its width.
    pub gate: Address,
    /// The expert's output.
    pub y: Span,
}

/// The experts' outputs of a pass, not summed yet.
#[derive(Clone, Copy)]
pub struct Mixed {
    /// The die that holds them.
    pub die: usize,
    /// Rows of the pass.
    pub rows: usize,
    used: usize,
    /// Bytes of one expert.
    bytes: usize,
    counter: Address,
    /// Whether the hidden rows are still to be gone through.
    pub inside: Option<Mixture>,
    /// What is added behind them.
    pub shared: Option<Shared>,
    /// Where the sums go.
    pub out: Span,
}

impl Mixture {
    /// The groups of `rows` rows, and the input row of each place or 0 for its own.
    fn places(&self, table: &Table, enter: Address, rows: usize) -> Places {
        let (groups, count, places) = (table.groups, table.count, rows * self.used);
        Places::Grouped { groups, count, enter, most: places.min(self.experts), largest: rows, places }
    }

    /// Room for what `pairs` pairs have between the projections.
    fn hidden(&self, die: &Die, pairs: usize) -> kernels::Result<Hidden> {
        let [gate, up] = [die.room(Room::Gate, 4 * pairs * self.ff)?, die.room(Room::Up, 4 * pairs * self.ff)?];
        let [gate, up] = [gate, up].map(|at| Span { at, width: self.ff });
        Ok(Hidden { gate, up, forms: self.forms(die, pairs)? })
    }

    /// Gate and up, together where they are of one format.
    fn enter(&self, die: &Die, range: Range<usize>) -> kernels::Result<()> {
        let pairs = range.len() * self.used;
        let (table, hidden) = (Table::of(die, pairs)?, self.hidden(die, pairs)?);
        let places = self.places(&table, table.enter, range.len());
        let out = [hidden.gate.at, hidden.up.at];
        let product = |which: &[usize]| {
            let (format, cols) = (self.formats[which[0]], self.width);
            let jobs = which.iter().map(|&i| Job { out: out[i], ..self.matrices[i] }).collect();
            Product { format, cols, jobs, input: self.inputs[which[0]].at_row(range.start, cols, format), places }
        };
        if self.formats[0] == self.formats[1] {
            return self.multiply(die, product(&[0, 1]));
        }
        self.multiply(die, product(&[0]))?;
        self.multiply(die, product(&[1]))
    }

    /// SwiGLU, of a shared expert's rows as well, and the down projection.
    pub fn leave(&self, die: &Die, range: Range<usize>, shared: Hidden) -> kernels::Result<()> {
        let pairs = range.len() * self.used;
        let (table, hidden) = (Table::of(die, pairs)?, self.hidden(die, pairs)?);
        let places = self.places(&table, 0, range.len());
        let also = if shared.gate.width > 0 { range } else { 0..0 };
        swiglu(die, [(hidden, 0..pairs), (shared, also)])?;
        let (format, cols) = (self.formats[2], self.ff);
        let input = match form_of(format) {
            Some(which) => Input::Int8(hidden.forms[which]),
            None => Input::Float(hidden.gate),
        };
        let job = Job { out: die.room(Room::Down, 4 * pairs * self.out)?, ..self.matrices[2] };
        self.multiply(die, Product { format, cols, jobs: vec![job], input: input.at_row(0, cols, format), places })
    }

    fn multiply(&self, die: &Die, product: Product) -> kernels::Result<()> {
        // Of more rows than one nobody knows here how many experts they share: the most there can be.
        let Places::Grouped { most, .. } = product.places else { unreachable!("experts are grouped") };
        let bytes = product.jobs.iter().map(|job| job.stride).sum::<usize>() * most;
        multiply(die, "experts", &product, bytes)
    }

    /// Room for the int8 form of the hidden rows that the down projection reads.
    fn forms(&self, die: &Die, pairs: usize) -> kernels::Result<[Form; 2]> {
        let mut forms = [Form::default(); 2];
        if let Some(which) = form_of(self.formats[2]) {
            forms[which] = Form {
                q: die.room(Room::Int8, pairs * self.ff)?,
                d: die.room(Room::Scales, 4 * pairs * self.ff / BLOCKS[which])?,
                sums: die.room(Room::Sums, pairs * self.ff / 8)?,
            };
        }
        Ok(forms)
    }
}

impl CudaPass<'_> {
    /// Chooses each row's experts and sorts the pairs by expert: see `Pass::route`.
    pub(super) fn route_rows(&self, x: &Rows, router: &Matrix, how: Routing, routes: &mut Routes) {
        assert!(how.used >= 1 && how.used <= router.rows(), "a row uses at least one and at most all experts");
        assert!(router.rows() <= EXPERTS, "at most {EXPERTS} experts are sorted");
        // What the last choice left on the die is used up first.
        self.mix_now();
        (routes.used, routes.experts) = (how.used, router.rows());
        let (die, format) = (router.die(), router.format());
        let input = self.input(x, format, die);
        let router = Router { matrix: router.job(0), format, input, cols: x.width(), how, bytes: router.bytes() };
        self.push(die, x.len(), move |die: &Die, range: Range<usize>| router.run(die, range));
    }

    /// The experts' outputs, summed: see `Pass::experts`.
    pub(super) fn expert_rows(&self, x: &Rows, matrices: [&Matrix; 3], routes: &mut Routes, out: &mut Rows) {
        let [gate, up, down] = matrices;
        assert_eq!((gate.cols(), up.cols(), down.rows()), (x.width(), x.width(), out.width()), "the experts' widths");
        assert_eq!((gate.rows(), up.rows()), (down.cols(), down.cols()), "the experts' hidden widths");
        let (die, rows) = (gate.die(), x.len());
        self.mix_now();
        let inputs = [gate, up].map(|matrix| self.input(x, matrix.format(), die));
        let counter = self.cuda.must(self.die(die).name(routes.counter(self.die(die))));
        let mixture = Mixture {
            matrices: matrices.map(|matrix| matrix.job(0)),
            formats: matrices.map(Matrix::format),
            inputs,
            width: x.width(),
            ff: down.cols(),
            used: routes.used,
            experts: routes.experts,
            out: out.width(),
        };
        self.push(die, rows, move |die: &Die, range: Range<usize>| mixture.enter(die, range));
        let bytes = matrices.iter().map(|matrix| matrix.bytes() / matrix.count()).sum();
        let out = self.write(out, rows, die);
        self.mix_later(Mixed {
            die,
            rows,
            used: routes.used,
            bytes,
            counter,
            inside: Some(mixture),
            shared: None,
            out,
        });
    }
}

impl Mixed {
    /// Whether the sums go to `rows`.
    pub fn makes(&self, rows: &Rows) -> bool {
        rows.at(self.die) == Some(self.out.at)
    }

    /// Whether the shared expert is made of `rows`.
    pub fn reads(&self, rows: &Rows) -> bool {
        self.shared.is_some_and(|Shared { x, y, .. }| [x.at, y.at].map(Some).contains(&rows.at(self.die)))
    }

    /// What a kernel that sums them for the rows of `range` is told (`MIXTURE` in rows.cu), and the bytes that it moves.
    pub fn args(&self, die: &Die, range: &Range<usize>) -> kernels::Result<([Arg; MIXTURE], usize)> {
        let (rows, width, from) = (range.len(), self.out.width, range.start);
        let pairs = rows * self.used;
        let table = Table::of(die, pairs)?;
        let down = die.room(Room::Down, 4 * pairs * width)?;
        let [x, gate, y] = match self.shared {
            Some(Shared { x, gate, y }) => [x.row(from), Arg::At(gate), y.row(from)],
            None => [Arg::At(0); 3],
        };
        let table = [down, table.weights, table.place, table.count, self.counter].map(Arg::At);
        let [down, weights, place, count, read] = table;
        let args = [down, weights, place, count, read, x, gate, y, int(self.used), int(self.bytes)];
        Ok((args, 4 * (pairs + rows) * width))
    }

    /// Sums them by themselves.
    pub fn run(&self, die: &Die, range: Range<usize>) -> kernels::Result<()> {
        let (rows, width) = (range.len(), self.out.width);
        let (args, bytes) = self.args(die, &range)?;
        let mut args = args.to_vec();
        args.extend([self.out.row(range.start), int(width)]);
        let grid = grid([width.div_ceil(256), rows, 1], 256, 0);
        die.launch(Launch { stage: "experts", kernel: COMBINE, grid, args: &args, bytes })
    }
}
