//! Routed experts: choice, grouping by expert, SwiGLU, sum in rank order.
//!
//! Owns: which rows go to which expert and in which order their outputs are added. Refuses to know: the shared expert.
//!
//! The pairs (row, rank) are sorted by expert, so that each distinct expert's weights are read once a pass. A row's sum
//! runs over its own ranks in order, whatever else the pass holds.

use std::ops::Range;

use super::matmul::{Matrix, TILE, input};
use super::rows::Rows;
use super::team::{Chunks, Grid, Parts, Phases, Several};
use crate::backend::Routing;
use crate::quant::simd::Simd;
use crate::quant::{Isa, Kernel, TileDot, canon, floats};

/// One distinct expert of a pass.
struct Group {
    expert: usize,
    /// Its places in the sorted order.
    places: Range<usize>,
}

/// The routing of a pass, and the buffers that its experts fill.
#[derive(Default)]
pub struct Routes {
    used: usize,
    /// `[rows][used]`: (expert, weight), best first.
    choices: Vec<(u32, f32)>,
    groups: Vec<Group>,
    /// For each place: (row, place), what gate and up read and where they write.
    enter: Vec<(u32, u32)>,
    /// `[rows][used]`: the place of a row's rank.
    place: Vec<u32>,
    /// Bytes of expert weights read so far.
    read: usize,
    /// Logits, hidden and output rows; made at first use, when the widths are known.
    buffers: Option<Buffers>,
}

struct Buffers {
    logits: Rows,
    /// `[places][ff]`.
    gate: Rows,
    up: Rows,
    /// `[places][width]`.
    down: Rows,
}

impl Routes {
    /// Bytes of expert weights that all passes with these routes have read.
    pub fn bytes_read(&self) -> usize {
        self.read
    }
}

/// Softmax in place: exact maximum, `exp(x - max)`, 32-lane sum, IEEE division.
struct Softmax<'a>(&'a mut [f32]);

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut max = f32::NEG_INFINITY;
        for &v in self.0.iter() {
            max = if v > max { v } else { max };
        }
        for v in self.0.iter_mut() {
            *v = canon::exp(*v - max);
        }
        let sum = floats::sum(s, self.0);
        for v in self.0.iter_mut() {
            *v /= sum;
        }
    }
}

/// The experts' outputs of one row, added in rank order: `out = Σ fma(weight, y, out)`.
struct Combine<'a> {
    choices: &'a [(u32, f32)],
    places: &'a [u32],
    down: &'a Rows,
    out: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.out.fill(0.0);
        for ((_, weight), place) in self.choices.iter().zip(self.places) {
            for (out, y) in self.out.iter_mut().zip(self.down.row(*place as usize)) {
                *out = weight.mul_add(*y, *out);
            }
        }
    }
}

/// The `used` most probable experts of one row, best first, with their weights.
fn choose(probabilities: &[f32], how: Routing, out: &mut [(u32, f32)]) {
    let mut order: Vec<u32> = (0..probabilities.len() as u32).collect();
    let p = |e: u32| probabilities[e as usize];
    let better = |a: &u32, b: &u32| p(*b).total_cmp(&p(*a)).then(a.cmp(b));
    if how.used < order.len() {
        order.select_nth_unstable_by(how.used, better);
    }
    order[..how.used].sort_unstable_by(better);
    let sum = order[..how.used].iter().fold(0.0f32, |sum, &e| sum + p(e));
    for (out, &e) in out.iter_mut().zip(&order) {
        let weight = if how.renormalize { p(e) / sum } else { p(e) };
        *out = (e, weight * how.scale);
    }
}

/// Chooses each row's experts and sorts the pairs by expert: see `Pass::route`.
pub fn route(phases: &Phases, isa: Isa, x: &mut Rows, router: &Matrix, how: Routing, routes: &mut Routes) {
    let experts = router.rows();
    assert!(how.used >= 1 && how.used <= experts, "a row uses at least one and at most all experts");
    let buffers = routes.buffers.get_or_insert_with(|| Buffers {
        logits: Rows::new(experts),
        gate: Rows::new(1),
        up: Rows::new(1),
        down: Rows::new(1),
    });
    super::matmul::project(phases, isa, x, &mut [(router, &mut buffers.logits)]);
    let rows = x.len();
    routes.used = how.used;
    routes.choices.resize(rows * how.used, (0, 0.0));
    let parts = (Chunks::new(buffers.logits.change(), experts), Chunks::new(&mut routes.choices, how.used));
    phases.each(rows, 64 * rows * experts, parts, |_, (logits, choices)| {
        isa.run(Softmax(logits));
        choose(logits, how, choices);
    });
    group(routes, experts);
}

/// Sorts the pairs (row, rank) by expert; within an expert rows ascend.
fn group(routes: &mut Routes, experts: usize) {
    let mut starts = vec![0usize; experts + 1];
    for (expert, _) in &routes.choices {
        starts[*expert as usize + 1] += 1;
    }
    routes.groups.clear();
    for expert in 0..experts {
        let count = starts[expert + 1];
        starts[expert + 1] += starts[expert];
        if count > 0 {
            routes.groups.push(Group { expert, places: starts[expert]..starts[expert + 1] });
        }
    }
    routes.enter.resize(routes.choices.len(), (0, 0));
    routes.place.resize(routes.choices.len(), 0);
    for (pair, (expert, _)) in routes.choices.iter().enumerate() {
        let place = starts[*expert as usize];
        starts[*expert as usize] += 1;
        routes.enter[place] = ((pair / routes.used) as u32, place as u32);
        routes.place[pair] = place as u32;
    }
}

/// Stacked products of one input: every expert's matrix times its rows, `pairs` telling for each place the input row.
fn grouped(
    phases: &Phases,
    isa: Isa,
    (groups, pairs): (&[Group], &[(u32, u32)]),
    x: &Rows,
    into: &mut [(&Matrix, &mut Rows)],
) {
    let mut work = 0;
    let mut grids = Vec::with_capacity(into.len());
    let mut inputs = Vec::with_capacity(into.len());
    for (matrix, out) in into.iter_mut() {
        assert_eq!((matrix.cols(), matrix.rows()), (x.width(), out.width()), "an expert's widths");
        work += pairs.len() * matrix.rows() * matrix.cols();
        let ranges: Vec<Range<usize>> = groups.iter().map(|g| g.places.clone()).collect();
        let grid = Grid::new(out.write(pairs.len()), matrix.rows(), TILE, ranges);
        inputs.push((*matrix, input(x, matrix.format())));
        grids.push(grid);
    }
    let grids = Several(grids);
    phases.each(grids.items(), work, grids, |_, (which, mut rect)| {
        let (matrix, input) = inputs[which];
        // Groups ascend and cover all places.
        let at = groups.partition_point(|g| g.places.end <= rect.rows().start);
        let group = &groups[at];
        let weights = matrix.bytes(group.expert, rect.cols());
        // After an expert's last rows come the first of the next expert that was chosen.
        let ahead = match groups.get(at + 1) {
            Some(next) if rect.cols().end == matrix.rows() => matrix.bytes(next.expert, 0..rect.cols().len()),
            _ => matrix.ahead(group.expert, rect.cols()),
        };
        let pairs = &pairs[group.places.clone()];
        TileDot { format: matrix.format(), weights, ahead, input, pairs, out: &mut rect }.run(isa);
    });
}

/// The experts' outputs, summed: see `Pass::experts`.
pub fn experts(
    phases: &Phases,
    isa: Isa,
    x: &mut Rows,
    (gate, up, down): (&Matrix, &Matrix, &Matrix),
    routes: &mut Routes,
    out: &mut Rows,
) {
    let Routes { used, choices, groups, enter, place, read, buffers } = routes;
    assert_eq!(choices.len(), x.len() * *used, "the routes are those of these rows");
    let Some(buffers) = buffers else { unreachable!("rows were routed before") };
    for (rows, width) in
        [(&mut buffers.gate, gate.rows()), (&mut buffers.up, up.rows()), (&mut buffers.down, down.rows())]
    {
        if rows.width() != width {
            *rows = Rows::new(width);
        }
    }
    for matrix in [gate, up, down] {
        *read += groups.len() * matrix.bytes(0, 0..matrix.rows()).len();
    }
    x.quantize(phases, isa, gate.format());
    x.quantize(phases, isa, up.format());
    grouped(phases, isa, (groups, enter), x, &mut [(gate, &mut buffers.gate), (up, &mut buffers.up)]);
    super::norm::swiglu(phases, isa, &mut buffers.gate, &buffers.up);
    buffers.gate.quantize(phases, isa, down.format());
    let leave: Vec<(u32, u32)> = (0..enter.len() as u32).map(|p| (p, p)).collect();
    grouped(phases, isa, (groups, &leave), &buffers.gate, &mut [(down, &mut buffers.down)]);

    let (rows, width, down) = (x.len(), out.width(), &buffers.down);
    phases.each(rows, *used * rows * width, Chunks::new(out.write(rows), width), |row, out| {
        let ranks = row * *used..(row + 1) * *used;
        isa.run(Combine { choices: &choices[ranks.clone()], places: &place[ranks], down, out });
    });
}
