//! What is done in the cases.
//!
//! Owns: every operation as a user of the backend calls it, alone and with what follows it, on any device. Refuses to know:
//! the sizes that are tried.

use verbatim::backend::{
    AttentionShape, Backend, DeltaInput, DeltaShape, DeltaWeights, Experts, HeadNorms, KvFormat, MatrixShape, Pass,
    Place, Qkv, Routing,
};
use verbatim::gguf::Bytes;
use verbatim::quant::Format;

use super::super::random::{self, Random};

/// Something to do on any device.
pub trait Work: Clone + 'static {
    fn name(&self) -> String;
    /// What it gives, as bits.
    fn on<B: Backend>(&self, b: &B) -> Vec<u32>;
}

/// The places at which cases stand: with two dies, one on each.
const PLACES: [Place; 2] = [Place::Layer(0), Place::Layer(1)];

/// The bits of all rows.
fn bits<B: Backend>(b: &B, rows: &B::Rows, count: usize, out: &mut Vec<u32>) {
    for row in 0..count {
        let mut values = Vec::new();
        b.read(rows, row, &mut values);
        // NaN is NaN, whatever its payload.
        out.extend(values.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }));
    }
}

/// Random rows on the device.
fn load<B: Backend>(b: &B, pass: &B::Pass<'_>, random: &mut Random, (rows, width): (usize, usize)) -> B::Rows {
    let mut out = b.rows(width);
    pass.load(&random.activations(rows * width), &mut out);
    out
}

fn matrix<B: Backend>(b: &B, place: Place, random: &mut Random, format: Format, shape: MatrixShape) -> B::Matrix {
    let bytes = random.weights(format, shape.cols * shape.rows * shape.count, 0.1);
    b.matrix(place, shape, format, Bytes::from_vec(bytes)).unwrap()
}

/// Rows that an operation writes, and products with them: from the second pass on their int8 forms are made on the way.
struct Onward<B: Backend> {
    rows: B::Rows,
    products: Vec<(B::Matrix, B::Rows)>,
}

impl<B: Backend> Onward<B> {
    /// Products in formats whose blocks the width holds.
    fn new(b: &B, place: Place, random: &mut Random, cols: usize) -> Self {
        let fits = |format: &Format| format.activation_block().is_some_and(|block| cols.is_multiple_of(block));
        let formats = [Format::Q4_K, Format::Q4_1].into_iter().filter(fits);
        let shape = MatrixShape { cols, rows: 33, count: 1 };
        let products = formats.map(|format| (matrix(b, place, random, format, shape), b.rows(33))).collect();
        Onward { rows: b.rows(cols), products }
    }

    fn go(&mut self, pass: &B::Pass<'_>) {
        let mut into: Vec<_> = self.products.iter_mut().map(|(matrix, rows)| (&*matrix, rows)).collect();
        if !into.is_empty() {
            pass.project(&mut self.rows, &mut into);
        }
    }

    fn bits(&self, b: &B, count: usize, out: &mut Vec<u32>) {
        bits(b, &self.rows, count, out);
        self.products.iter().for_each(|(_, rows)| bits(b, rows, count, out));
    }
}

/// Norms, sums, gates, joins, tails.
#[derive(Clone)]
pub struct RowWise {
    pub width: usize,
    pub rows: usize,
}

impl Work for RowWise {
    fn name(&self) -> String {
        format!("row-wise operations, {} x {}", self.rows, self.width)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(1, &self.name());
        let size = (self.rows, self.width);
        let weight = PLACES.map(|place| b.vector(place, &random.activations(self.width)).unwrap());
        let rows = || b.rows(self.width);
        let (mut h, mut joined, mut last) = (rows(), b.rows(2 * self.width), b.rows(2 * self.width));
        let (x, y, gate) = b.pass(|pass| {
            let mut x = load(b, pass, &mut random, size);
            let mut y = load(b, pass, &mut random, size);
            let mut gate = load(b, pass, &mut random, size);
            pass.rms_norm(&x, &weight[0], 1e-6, &mut h);
            pass.add(&mut x, &h);
            pass.rms_norm(&x, &weight[1], 1e-6, &mut h);
            pass.add(&mut x, &y);
            pass.add_gated(&h, &weight[0], &x, &mut y);
            pass.swiglu(&mut gate, &y);
            pass.join(&gate, &x, &mut joined);
            pass.tail(&joined, self.rows / 2, &mut last);
            (x, y, gate)
        });
        let mut out = Vec::new();
        [&x, &y, &gate, &h, &joined].iter().for_each(|rows| bits(b, rows, self.rows, &mut out));
        bits(b, &last, self.rows - self.rows / 2, &mut out);
        out
    }
}

/// Rows that are loaded anew while what was done with them may still wait.
#[derive(Clone)]
pub struct Reload {
    pub width: usize,
    pub rows: usize,
}

impl Work for Reload {
    fn name(&self) -> String {
        format!("rows loaded anew, {} x {}", self.rows, self.width)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(8, &self.name());
        let weight = PLACES.map(|place| b.vector(place, &random.activations(self.width)).unwrap());
        let [mut x, mut y, mut h, mut sum, mut last] = [0; 5].map(|_| b.rows(self.width));
        b.pass(|pass| {
            let mut load = |rows: &mut B::Rows| pass.load(&random.activations(self.rows * self.width), rows);
            load(&mut x);
            pass.rms_norm(&x, &weight[0], 1e-6, &mut y);
            load(&mut x);
            pass.rms_norm(&x, &weight[0], 1e-6, &mut h);
            load(&mut sum);
            pass.add(&mut sum, &h);
            // The sum may wait: neither what is added nor the sum itself is what is loaded now.
            load(&mut h);
            pass.rms_norm(&h, &weight[1], 1e-6, &mut last);
            pass.add(&mut x, &last);
            load(&mut x);
            pass.add(&mut x, &h);
            pass.rms_norm(&x, &weight[1], 1e-6, &mut h);
        });
        let mut out = Vec::new();
        [&x, &y, &h, &sum, &last].iter().for_each(|rows| bits(b, rows, self.rows, &mut out));
        out
    }
}

/// Rows whose int8 forms are made by whoever writes them, once they were asked for.
#[derive(Clone)]
pub struct Formed {
    pub width: usize,
    pub rows: usize,
}

impl Work for Formed {
    fn name(&self) -> String {
        format!("rows and their int8 forms, {} x {}", self.rows, self.width)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(7, &self.name());
        let (place, size) = (Place::Layer(1), (self.rows, self.width));
        let weight = b.vector(place, &random.activations(self.width)).unwrap();
        let [mut h, mut gate] = [0; 2].map(|_| Onward::new(b, place, &mut random, self.width));
        let mut out = Vec::new();
        for _ in 0..2 {
            b.pass(|pass| {
                let x = load(b, pass, &mut random, size);
                pass.load(&random.activations(self.rows * self.width), &mut gate.rows);
                pass.rms_norm(&x, &weight, 1e-6, &mut h.rows);
                pass.swiglu(&mut gate.rows, &h.rows);
                h.go(pass);
                gate.go(pass);
            });
            [&h, &gate].iter().for_each(|onward| onward.bits(b, self.rows, &mut out));
        }
        out
    }
}

/// The best element, with ties, NaN and infinities.
#[derive(Clone)]
pub struct Largest {
    pub n: usize,
}

impl Work for Largest {
    fn name(&self) -> String {
        format!("the largest of {}", self.n)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(2, &self.name());
        let specials = [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0, 1.0, f32::INFINITY];
        let mut values = random.activations(self.n);
        for kinds in 1..=specials.len() {
            values.extend((0..self.n).map(|_| specials[random.below(kinds)]));
        }
        // The best at the ends of the row and of a part of it.
        for best in [0, 4095, 4096, self.n - 1].into_iter().filter(|&best| best < self.n) {
            values.extend(random.activations(self.n));
            let from = values.len() - self.n;
            values[from + best] = 100.0;
        }
        let mut rows = b.rows(self.n);
        b.pass(|pass| {
            pass.load(&values, &mut rows);
            pass.argmax(&rows)
        })
    }
}

/// A product with one matrix, and with three of one input.
#[derive(Clone)]
pub struct Product {
    pub format: Format,
    pub rows: usize,
    pub n: usize,
    pub blocks: usize,
}

impl Work for Product {
    fn name(&self) -> String {
        format!("{} product, {} blocks, {} outputs, {} rows", self.format, self.blocks, self.rows, self.n)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(3, &self.name());
        let cols = self.blocks * self.format.activation_block().unwrap_or(32);
        let sizes = [self.rows, 1, self.rows + 7];
        let matrices: Vec<_> = sizes
            .iter()
            .map(|&rows| {
                let mut bytes = random.weights(self.format, cols * rows, 0.1);
                // Half of the rows as large as they get.
                let from = bytes.len() / rows * rows.div_ceil(2);
                random::enlarge(self.format, &mut bytes[from..]);
                let shape = MatrixShape { cols, rows, count: 1 };
                b.matrix(Place::Layer(0), shape, self.format, Bytes::from_vec(bytes)).unwrap()
            })
            .collect();
        let other = matrix(b, Place::Layer(1), &mut random, Format::F32, MatrixShape { cols, rows: 5, count: 1 });
        let mut outs: Vec<_> = sizes.iter().map(|&rows| b.rows(rows)).collect();
        let mut five = b.rows(5);
        b.pass(|pass| {
            let mut values = random.activations(self.n * cols);
            // A block of zeros; a row whose sums become as large as they get.
            values[..cols.min(32)].fill(0.0);
            values[(self.n - 1) * cols..].iter_mut().skip(256).for_each(|v| *v = random.between(0.9, 1.0));
            let mut x = b.rows(cols);
            pass.load(&values, &mut x);
            let mut into: Vec<_> = matrices.iter().zip(&mut outs).collect();
            into.push((&other, &mut five));
            pass.project(&mut x, &mut into);
        });
        let mut out = Vec::new();
        outs.iter().for_each(|rows| bits(b, rows, self.n, &mut out));
        bits(b, &five, self.n, &mut out);
        out
    }
}

/// Passes of attention, one behind another.
#[derive(Clone)]
pub struct Attend {
    pub shape: AttentionShape,
    pub kv: KvFormat,
    pub passes: &'static [usize],
}

impl Work for Attend {
    fn name(&self) -> String {
        let s = self.shape;
        format!(
            "attention {} on {}, {} wide, {}, {:?} rows",
            s.heads,
            s.kv_heads,
            s.head_dim,
            self.kv.name(),
            self.passes
        )
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(4, &self.name());
        let (s, place) = (self.shape, Place::Layer(1));
        let positions = self.passes.iter().sum();
        let mut kv = b.kv(place, &s, positions, self.kv).unwrap();
        let norms = [0; 2].map(|_| b.vector(place, &random.activations(s.head_dim)).unwrap());
        let mut result = Onward::new(b, place, &mut random, s.out_width());
        let (mut out, mut start) = (Vec::new(), 0);
        for &rows in self.passes {
            b.pass(|pass| {
                let mut q = load(b, pass, &mut random, (rows, 2 * s.out_width()));
                let mut k = load(b, pass, &mut random, (rows, s.kv_width()));
                let v = load(b, pass, &mut random, (rows, s.kv_width()));
                let rope = load(b, pass, &mut random, (rows, s.rope_dim));
                let norms = HeadNorms { q: &norms[0], k: &norms[1] };
                let qkv = Qkv { q: &mut q, k: &mut k, v: &v };
                pass.attention(&s, norms, &rope, qkv, (&mut kv, start), &mut result.rows);
                result.go(pass);
            });
            result.bits(b, rows, &mut out);
            start += rows;
        }
        let mut saved = Vec::new();
        b.save_kv(&kv, positions, &mut saved);
        out.extend(saved.iter().map(|&byte| u32::from(byte)));
        out
    }
}

/// Passes of the delta rule of which some rows are kept, and a fork.
#[derive(Clone)]
pub struct Recur {
    pub shape: DeltaShape,
    pub passes: &'static [(usize, usize)],
}

impl Recur {
    fn pass<B: Backend>(
        &self,
        b: &B,
        random: &mut Random,
        weights: &[B::Vector],
        rows: usize,
        (state, y): (&mut B::Recurrent, &mut Onward<B>),
    ) {
        let s = self.shape;
        b.pass(|pass| {
            let x = load(b, pass, random, (rows, s.channels()));
            let mut conv = b.rows(s.channels());
            let alpha = load(b, pass, random, (rows, s.value_heads));
            let beta = load(b, pass, random, (rows, s.value_heads));
            let z = load(b, pass, random, (rows, s.value_width()));
            pass.conv(&s, &weights[0], &x, state, &mut conv);
            let input = DeltaInput { qkv: &conv, alpha: &alpha, beta: &beta, z: &z };
            let small = DeltaWeights { a: &weights[1], dt: &weights[2], norm: &weights[3] };
            pass.delta(&s, small, input, state, &mut y.rows);
            y.go(pass);
        });
    }
}

impl Work for Recur {
    fn name(&self) -> String {
        format!("delta rule {:?}, (rows, kept) {:?}", self.shape, self.passes)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        let mut random = Random::named(5, &self.name());
        let (s, place) = (self.shape, Place::Layer(1));
        let negative: Vec<f32> = (0..s.value_heads).map(|_| -random.between(0.01, 4.0)).collect();
        let weights = [
            random.activations(s.taps * s.channels()),
            negative,
            random.activations(s.value_heads),
            random.activations(s.value_dim),
        ]
        .map(|values| b.vector(place, &values).unwrap());
        let mut y = Onward::new(b, place, &mut random, s.value_width());
        let mut state = b.recurrent(place, &s, 10).unwrap();
        let mut out = Vec::new();
        for &(rows, kept) in self.passes {
            self.pass(b, &mut random, &weights, rows, (&mut state, &mut y));
            y.bits(b, rows, &mut out);
            b.pass(|pass| pass.keep(&s, &mut state, kept, rows));
        }
        let mut fork = b.recurrent(place, &s, 0).unwrap();
        b.fork_recurrent(&state, &mut fork);
        self.pass(b, &mut random, &weights, 2, (&mut fork, &mut y));
        y.bits(b, 2, &mut out);
        b.pass(|pass| pass.keep(&s, &mut fork, 2, 2));
        for state in [&state, &fork] {
            let mut saved = Vec::new();
            b.save_recurrent(state, &mut saved);
            out.extend(saved.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)));
        }
        out
    }
}

/// Routing and experts.
#[derive(Clone)]
pub struct Route {
    pub experts: usize,
    pub used: usize,
    pub n: usize,
    pub format: Format,
    pub down: Format,
    pub fused: bool,
}

impl Work for Route {
    fn name(&self) -> String {
        let fused = if self.fused { ", gate and up fused" } else { "" };
        format!("{} of {} experts, {} rows, {}{fused}", self.used, self.experts, self.n, self.format)
    }

    fn on<B: Backend>(&self, b: &B) -> Vec<u32> {
        const WIDTH: usize = 256;
        const FF: usize = 256;
        const SHARED: usize = 288;
        let mut random = Random::named(6, &self.name());
        let place = Place::Layer(1);
        let shape = |rows, cols, count| MatrixShape { cols, rows, count };
        let router = matrix(b, place, &mut random, Format::F32, shape(self.experts, WIDTH, 1));
        // Experts 16 apart are equally good.
        let distinct = random.weights(Format::F32, 16 * WIDTH, 0.1);
        let bytes = distinct.iter().copied().cycle().take(4 * self.experts * WIDTH).collect();
        let ties = b.matrix(place, shape(self.experts, WIDTH, 1), Format::F32, Bytes::from_vec(bytes)).unwrap();
        let (gate, up) = if self.fused {
            let both = matrix(b, place, &mut random, self.format, shape(2 * FF, WIDTH, self.experts));
            (b.part(&both, 0..FF), b.part(&both, FF..2 * FF))
        } else {
            let mut one = || matrix(b, place, &mut random, self.format, shape(FF, WIDTH, self.experts));
            (one(), one())
        };
        let down = matrix(b, place, &mut random, self.down, shape(WIDTH, FF, self.experts));
        let [shared, weight] = [0; 2].map(|_| b.vector(place, &random.activations(WIDTH)).unwrap());
        let (last, mut hidden) = (matrix(b, place, &mut random, Format::Q8_0, shape(WIDTH, SHARED, 1)), b.rows(SHARED));
        let (mut routes, mut z) = (b.routes(), b.rows(WIDTH));
        let mut out = Vec::new();
        for (renormalize, router) in [(true, &router), (false, &ties)] {
            let mut y = b.rows(WIDTH);
            let size = (self.n, WIDTH);
            let (x, stream) = b.pass(|pass| {
                let [mut x, mut stream] = [0; 2].map(|_| load(b, pass, &mut random, size));
                let how = Routing { used: self.used, renormalize, scale: if renormalize { 1.0 } else { 2.5 } };
                pass.route(&mut x, router, how, &mut routes);
                pass.experts(&mut x, Experts { gate: &gate, up: &up, down: &down }, &mut routes, &mut y);
                pass.load(&random.activations(self.n * SHARED), &mut hidden);
                pass.swiglu(&mut hidden, &load(b, pass, &mut random, (self.n, SHARED)));
                pass.project(&mut hidden, &mut [(&last, &mut z)]);
                if renormalize {
                    pass.add_gated(&x, &shared, &z, &mut y);
                }
                // As a layer ends, and the next one begins.
                if renormalize != self.fused {
                    pass.add(&mut stream, &y);
                    pass.rms_norm(&stream, &weight, 1e-6, &mut x);
                }
                (x, stream)
            });
            [&y, &x, &z, &stream].iter().for_each(|rows| bits(b, rows, self.n, &mut out));
        }
        out.push(b.expert_bytes(&routes) as u32);
        out
    }
}
