use kernels::{Allocation, Arg, Driver, Emulator, Grid, Kernel};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Input, Job, Places, kernels, plan};
use crate::backend::MatrixShape;
use crate::backend::cuda::pack;
use crate::quant::blocks::{Block, Float};
use crate::quant::{Format, canon, synthetic};
use crate::with_block;

/// One architecture for each way to multiply.
const ARCHITECTURES: [u32; 3] = [37, 61, 80];

/// A stack of random matrices, in the file's form and on a device.
struct Stack {
    format: Format,
    shape: MatrixShape,
    bytes: Vec<u8>,
    memory: Allocation,
}

impl Stack {
    fn new(device: &dyn Driver, format: Format, (cols, rows, count): (usize, usize, usize), rng: &mut StdRng) -> Stack {
        let bytes = synthetic::random_blocks(format, rng, count * rows * cols / format.block_weights(), 0.1);
        Stack::of(device, format, MatrixShape { cols, rows, count }, bytes)
    }

    fn of(device: &dyn Driver, format: Format, shape: MatrixShape, bytes: Vec<u8>) -> Stack {
        let MatrixShape { cols, rows, count } = shape;
        let memory = device.allocate(count * pack::matrix_bytes(format, cols, rows)).unwrap();
        pack::pack(format, shape, 0..rows, &bytes, |at, piece| device.upload(memory.at + at as u64, piece)).unwrap();
        Stack { format, shape, bytes, memory }
    }

    fn job(&self, out: &Allocation) -> Job {
        let stride = pack::matrix_bytes(self.format, self.shape.cols, self.shape.rows);
        Job { weights: self.memory.at, stride, rows: self.shape.rows, out: out.at }
    }

    /// The canonical product of one row of activations with row `row` of matrix `matrix`.
    fn dot(&self, matrix: usize, row: usize, x: &Row) -> f32 {
        let bytes = self.format.row_bytes(self.shape.cols).unwrap();
        let from = (matrix * self.shape.rows + row) * bytes;
        let w = &self.bytes[from..from + bytes];
        let activations = canon::Activations { q: &x.q, d: &x.d, sums: &x.sums };
        with_block!(self.format, B => canon::dot_row::<B>(bytemuck::cast_slice(w), activations), else => match self.format {
            Format::F16 => float_dot::<crate::quant::blocks::F16>(w, &x.x),
            Format::BF16 => float_dot::<crate::quant::blocks::BF16>(w, &x.x),
            _ => float_dot::<crate::quant::blocks::F32>(w, &x.x),
        })
    }
}

fn float_dot<W: Float>(w: &[u8], x: &[f32]) -> f32 {
    canon::dot_float::<W>(bytemuck::cast_slice(w), x)
}

/// A row of activations.
struct Row {
    x: Vec<f32>,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

impl Row {
    /// The row in the form that meets `format`.
    fn new(format: Format, x: Vec<f32>) -> Row {
        let len = format.activation_block().unwrap_or(x.len());
        let (mut q, mut d, mut sums) = (vec![0; x.len()], vec![0.0; x.len() / len], vec![0; x.len() / 16]);
        if format.activation_block().is_some() {
            canon::quantize_row(&x, len, &mut q, &mut d, &mut sums);
        }
        Row { x, q, d, sums }
    }
}

/// Random rows of every kind: large and small, with blocks of zeros, of extremes.
fn random_rows(format: Format, cols: usize, rows: usize, rng: &mut StdRng) -> Vec<Row> {
    let value = |kind: usize, rng: &mut StdRng| match kind % 7 {
        3 => 0.0,
        5 => [-1.0, 1.0][rng.random_range(0..2)],
        _ => rng.random::<f32>() - 0.5,
    };
    (0..rows).map(|r| Row::new(format, (0..cols).map(|i| value(r + i / 32, rng)).collect())).collect()
}

/// The rows on a device.
struct Uploaded {
    input: Input,
    _memory: Vec<Allocation>,
}

fn upload(device: &dyn Driver, bytes: &[u8]) -> Allocation {
    let memory = device.allocate(bytes.len()).unwrap();
    device.upload(memory.at, bytes).unwrap();
    memory
}

fn upload_rows(device: &dyn Driver, format: Format, rows: &[Row]) -> Uploaded {
    fn all<'a, T: bytemuck::Pod>(parts: impl Iterator<Item = &'a Vec<T>>) -> Vec<u8> {
        parts.flat_map(|part| bytemuck::cast_slice(part).to_vec()).collect()
    }
    if format.activation_block().is_none() {
        let x = upload(device, &all(rows.iter().map(|r| &r.x)));
        return Uploaded { input: Input::Float(x.at), _memory: vec![x] };
    }
    let q = upload(device, &all(rows.iter().map(|r| &r.q)));
    let d = upload(device, &all(rows.iter().map(|r| &r.d)));
    let sums = upload(device, &all(rows.iter().map(|r| &r.sums)));
    Uploaded { input: Input::Int8 { q: q.at, d: d.at, sums: sums.at }, _memory: vec![q, d, sums] }
}

fn download(device: &dyn Driver, memory: &Allocation) -> Vec<f32> {
    let mut values = vec![0.0f32; memory.len / 4];
    device.download(memory.at, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

fn assert_bits(got: f32, want: f32, what: &dyn Fn() -> String) {
    assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{}: {got:e}, not {want:e}", what());
}

/// Dense products of `n` random rows with random matrices of these numbers of weight rows.
fn check_dense(device: &dyn Driver, format: Format, cols: usize, weights: &[usize], n: usize, rng: &mut StdRng) {
    let stacks: Vec<Stack> = weights.iter().map(|&rows| Stack::new(device, format, (cols, rows, 1), rng)).collect();
    check(device, &stacks, &random_rows(format, cols, n, rng));
}

/// One launch of these matrices with these rows, against the canonical products.
fn check(device: &dyn Driver, stacks: &[Stack], rows: &[Row]) {
    let (format, cols) = (stacks[0].format, stacks[0].shape.cols);
    let uploaded = upload_rows(device, format, rows);
    let out = |stack: &Stack| device.allocate(4 * rows.len() * stack.shape.rows).unwrap();
    let outs: Vec<Allocation> = stacks.iter().map(out).collect();
    let jobs: Vec<Job> = stacks.iter().zip(&outs).map(|(stack, out)| stack.job(out)).collect();
    let launch = plan(device.architecture(), format, cols, &jobs, uploaded.input, Places::Dense { rows: rows.len() });
    device.launch(&launch.kernel, launch.grid, &launch.args).unwrap();
    for (stack, out) in stacks.iter().zip(&outs) {
        let got = download(device, out);
        for (i, got) in got.iter().enumerate() {
            let (r, row) = (i / stack.shape.rows, i % stack.shape.rows);
            let what = || {
                let (of, all) = (stack.shape.rows, rows.len());
                format!("{} {cols} cols, row {r} of {all}, weight row {row} of {of}", launch.kernel)
            };
            assert_bits(*got, stack.dot(0, row, &rows[r]), &what);
        }
    }
}

/// Every format that is compiled.
fn formats() -> impl Iterator<Item = Format> {
    Format::all()
}

fn cols_of(format: Format, blocks: usize) -> usize {
    match format.activation_block() {
        Some(len) => len * blocks,
        None => [1, 31, 32, 33, 300, 257, 64, 96, 2048][blocks % 9],
    }
}

#[test]
fn products_of_every_shape_have_the_canonical_bits() {
    let mut rng = StdRng::seed_from_u64(1);
    for architecture in ARCHITECTURES {
        let device = Emulator::new(architecture, 0).unwrap();
        for format in formats() {
            device.prepare(&kernels(format, architecture)).unwrap();
            for blocks in [1, 2, 3, 4, 5, 8, 9] {
                for n in [1, 2, 3, 4, 5, 8, 9, 16, 17] {
                    let rows = [1, 31, 32, 33, 64][(blocks + n) % 5];
                    check_dense(&device, format, cols_of(format, blocks), &[rows], n, &mut rng);
                }
            }
            for rows in [1, 31, 32, 33, 64, 65, 200] {
                check_dense(&device, format, cols_of(format, 2), &[rows], 1, &mut rng);
                check_dense(&device, format, cols_of(format, 2), &[rows], 3, &mut rng);
            }
        }
    }
}

/// Blocks whose bytes are nearly all the same, and activations of ±127 and ±126 with the signs of a weight row: sums as large as
/// they get, and odd ones among them.
#[test]
fn the_largest_sums_are_exact() {
    let mut rng = StdRng::seed_from_u64(6);
    for architecture in ARCHITECTURES {
        let device = Emulator::new(architecture, 0).unwrap();
        for format in formats().filter(|f| f.activation_block().is_some()) {
            let (cols, rows) = (cols_of(format, 2), 8);
            let mut bytes = Vec::new();
            for byte in [0x00, 0xff, 0x7f, 0x80, 0xf0, 0x0f, 0x3f, 0xc0] {
                let nearly = |rng: &mut StdRng| byte ^ [0, 0, 0, 0x11, 0x01, 0x10][rng.random_range(0..6)];
                let mut row: Vec<u8> = (0..format.row_bytes(cols).unwrap()).map(|_| nearly(&mut rng)).collect();
                with_block!(format, B => {
                    bytemuck::cast_slice_mut::<u8, B>(&mut row).iter_mut().for_each(|block| block.set_scales(0.01, 0.01));
                }, else => unreachable!());
                bytes.extend(row);
            }
            let stack = Stack::of(&device, format, MatrixShape { cols, rows, count: 1 }, bytes);
            let mut signs = |row: &[u8]| {
                let mut x = vec![0.0; cols];
                canon::dequantize_row(format, row, &mut x);
                let large = |w: &f32| if *w < 0.0 { -1.0 } else { 1.0 } * [1.0, 1.0, 0.99][rng.random_range(0..3)];
                Row::new(format, x.iter().map(large).collect())
            };
            let inputs: Vec<Row> = stack.bytes.chunks(stack.bytes.len() / rows).map(&mut signs).collect();
            for n in [1, 2, 4, 8] {
                check(&device, std::slice::from_ref(&stack), &inputs[inputs.len() - n..]);
                check(&device, std::slice::from_ref(&stack), &inputs[..n]);
            }
        }
    }
}

#[test]
fn odd_activations_give_what_they_give_elsewhere() {
    let mut rng = StdRng::seed_from_u64(5);
    for architecture in ARCHITECTURES {
        let device = Emulator::new(architecture, 0).unwrap();
        for format in formats() {
            let cols = cols_of(format, 3);
            let odd = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-40, -1e-45, -0.0, 3e-38];
            let row = |&value: &f32| {
                let mut x: Vec<f32> = (0..cols).map(|_| value * rng.random::<f32>()).collect();
                x[cols / 2] = value;
                Row::new(format, x)
            };
            let rows: Vec<Row> = odd.iter().map(row).collect();
            let stack = Stack::new(&device, format, (cols, 33, 1), &mut rng);
            check(&device, std::slice::from_ref(&stack), &rows);
            check(&device, &[stack], &rows[..1]);
        }
    }
}

#[test]
fn several_matrices_go_in_one_launch() {
    let mut rng = StdRng::seed_from_u64(2);
    for architecture in ARCHITECTURES {
        let device = Emulator::new(architecture, 1).unwrap();
        for format in formats() {
            for n in [1, 3] {
                check_dense(&device, format, cols_of(format, 5), &[70, 33, 300, 1], n, &mut rng);
                check_dense(&device, format, cols_of(format, 1), &[33, 600], n, &mut rng);
            }
        }
    }
}

/// Groups of these sizes, matrices and rows shuffled.
fn check_grouped(device: &dyn Driver, format: Format, cols: usize, sizes: &[usize], rng: &mut StdRng) {
    let (experts, weight_rows, input_rows) = (sizes.len() + 3, 40, 7);
    let stack = Stack::new(device, format, (cols, weight_rows, experts), rng);
    let rows = random_rows(format, cols, input_rows, rng);
    let uploaded = upload_rows(device, format, &rows);
    let places: usize = sizes.iter().sum();
    let enter: Vec<u32> = (0..places).map(|_| rng.random_range(0..input_rows as u32)).collect();
    let mut order: Vec<u32> = (0..experts as u32).collect();
    for i in (1..experts).rev() {
        order.swap(i, rng.random_range(0..=i));
    }
    let mut groups: Vec<[u32; 4]> = Vec::new();
    for (&size, &expert) in sizes.iter().zip(&order) {
        groups.push([expert, groups.last().map_or(0, |g| g[1] + g[2]), size as u32, 0]);
    }
    // Room for more groups than there are: what lies there is never looked at.
    let most = groups.len() + 2;
    let mut table = groups.clone();
    table.resize(most, [u32::MAX; 4]);
    let table = upload(device, bytemuck::cast_slice(&table));
    let (count, entered) =
        (upload(device, &(groups.len() as u32).to_le_bytes()), upload(device, bytemuck::cast_slice(&enter)));
    let out = device.allocate(4 * places * weight_rows).unwrap();
    let largest = sizes.iter().copied().max().unwrap();
    let places = Places::Grouped { groups: table.at, count: count.at, enter: entered.at, most, places, largest };
    let launch = plan(device.architecture(), format, cols, &[stack.job(&out)], uploaded.input, places);
    device.launch(&launch.kernel, launch.grid, &launch.args).unwrap();
    let got = download(device, &out);
    for [expert, first, size, _] in groups {
        for place in first as usize..(first + size) as usize {
            for row in 0..weight_rows {
                let what = || {
                    format!("{} {format} {cols} cols, groups {sizes:?}, place {place}, weight row {row}", launch.kernel)
                };
                let want = stack.dot(expert as usize, row, &rows[enter[place] as usize]);
                assert_bits(got[place * weight_rows + row], want, &what);
            }
        }
    }
}

#[test]
fn groups_meet_their_own_matrices() {
    let mut rng = StdRng::seed_from_u64(3);
    for architecture in ARCHITECTURES {
        for seed in [0, 5] {
            let device = Emulator::new(architecture, seed).unwrap();
            for format in formats() {
                check_grouped(&device, format, cols_of(format, 2), &[1, 1, 1, 1], &mut rng);
                check_grouped(&device, format, cols_of(format, 4), &[2, 1, 5, 3], &mut rng);
                check_grouped(&device, format, cols_of(format, 8), &[1, 17, 8, 2, 9], &mut rng);
                check_grouped(&device, format, cols_of(format, 3), &[20, 1, 33, 16], &mut rng);
            }
        }
    }
}

#[test]
fn a_part_of_a_matrix_is_its_rows() {
    let mut rng = StdRng::seed_from_u64(4);
    let device = Emulator::new(ARCHITECTURES[0], 0).unwrap();
    for format in formats() {
        let (cols, count, part) = (cols_of(format, 2), 3, 17..80);
        let whole = Stack::new(&device, format, (cols, 96, count), &mut rng);
        let stride = pack::matrix_bytes(format, cols, part.len());
        let memory = device.allocate(count * stride).unwrap();
        pack::pack(format, whole.shape, part.clone(), &whole.bytes, |at, piece| {
            device.upload(memory.at + at as u64, piece)
        })
        .unwrap();
        let out = device.allocate(4 * part.len()).unwrap();
        let rows = random_rows(format, cols, 1, &mut rng);
        let uploaded = upload_rows(&device, format, &rows);
        let job = Job { weights: memory.at + 2 * stride as u64, stride, rows: part.len(), out: out.at };
        let launch = plan(device.architecture(), format, cols, &[job], uploaded.input, Places::Dense { rows: 1 });
        device.launch(&launch.kernel, launch.grid, &launch.args).unwrap();
        for (got, row) in download(&device, &out).iter().zip(part) {
            assert_bits(*got, whole.dot(2, row, &rows[0]), &|| format!("{format} weight row {row}"));
        }
    }
}

/// Values that rounding, limits and special cases care about.
fn odd_value(kind: usize, rng: &mut StdRng) -> f32 {
    let random = rng.random::<f32>() - 0.5;
    match kind % 9 {
        0 => 0.0,
        1 => -0.0,
        2 => random * 1e-40,
        3 => random * f32::MAX,
        // Ties between two integers, where the block's largest value is 127.
        4 => (random * 200.0).round() + 0.5,
        5 => [127.0, -127.0][rng.random_range(0..2)],
        6 if rng.random_range(0..64) == 0 => [f32::INFINITY, f32::NEG_INFINITY, f32::NAN][rng.random_range(0..3)],
        _ => random,
    }
}

#[test]
fn the_int8_forms_are_the_canonical_ones() {
    let (rows, width, mut rng) = (40, 512, StdRng::seed_from_u64(7));
    let device = Emulator::new(37, 0).unwrap();
    // Rows of one kind and rows of all kinds.
    let kind = |r: usize, i: usize| if r < 9 { r } else { i * r + i / 7 };
    let x: Vec<f32> = (0..rows * width).map(|at| odd_value(kind(at / width, at % width), &mut rng)).collect();
    let (from, room) = (upload(&device, bytemuck::cast_slice(&x)), rows * width);
    let forms = [256, 32].map(|len| [room, 4 * room / len, 2 * room / 16].map(|bytes| device.allocate(bytes).unwrap()));
    let mut args = vec![Arg::At(from.at), Arg::Int(width as i32)];
    args.extend(forms.iter().flatten().map(|memory| Arg::At(memory.at)));
    let grid = Grid { blocks: [width.div_ceil(2048) as u32, rows as u32, 1], threads: [256, 1], shared: 0 };
    device.launch(&Kernel { file: "rows", variant: "", name: "quantize" }, grid, &args).unwrap();
    for (len, [q_at, d_at, sums_at]) in [256, 32].into_iter().zip(&forms) {
        let (mut q, mut d, mut sums) = (vec![0i8; room], vec![0.0f32; room / len], vec![0i16; room / 16]);
        device.download(q_at.at, bytemuck::cast_slice_mut(&mut q)).unwrap();
        device.download(d_at.at, bytemuck::cast_slice_mut(&mut d)).unwrap();
        device.download(sums_at.at, bytemuck::cast_slice_mut(&mut sums)).unwrap();
        let (mut want_q, mut want_d, mut want_sums) = (q.clone(), d.clone(), sums.clone());
        canon::quantize_row(&x, len, &mut want_q, &mut want_d, &mut want_sums);
        assert!(q == want_q && sums == want_sums, "integers of blocks of {len}");
        for (got, want) in d.iter().zip(want_d) {
            assert_bits(*got, want, &|| format!("a scale of blocks of {len}"));
        }
    }
}

#[test]
fn packed_weights_take_little_more_than_the_file() {
    for format in Format::all() {
        let cols = 2048;
        let (packed, file) = (pack::matrix_bytes(format, cols, 512), 512 * format.row_bytes(cols).unwrap());
        assert!(packed >= file && packed * 100 <= file * 104, "{format}: {packed} bytes for {file}");
    }
}
