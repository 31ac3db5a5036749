//! CUDA devices: one die or several, or their emulation.
//!
//! Owns: the mapping of every operation to its file, and what stands on which die. Refuses to know: layers, and whether a driver
//! is a graphics card's.

mod attention;
mod cut;
mod delta;
mod die;
mod matmul;
mod moe;
mod norm;
mod pack;
mod pair;
mod pass;
mod product;
mod rows;
mod split;
mod tape;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kernels::{Address, Allocation, Driver};

use super::profile::Profile;
use super::{
    AttentionShape, Backend, DeltaInput, DeltaShape, DeltaWeights, Demand, Experts, HeadNorms, KvFormat, Load,
    MatrixShape, Pass, Place, Qkv, Routing,
};
use crate::gguf::Bytes;
use crate::quant::{Format, canon};
use crate::{Error, Result};
use cut::Cut;
use die::Die;
use pass::CudaPass;
use rows::Wanted;
use split::{Room, Split};
use tape::Tape;

/// Bytes of the copy that a die's memory is measured with.
const PROBE: usize = 64 << 20;

/// Dies that hold a model together.
pub struct Cuda {
    dies: Vec<Die>,
    /// Bytes per second that each die's memory moves, measured.
    rates: Vec<f64>,
    /// Layers of each die but the last, where they were asked for.
    wanted: Vec<usize>,
    split: Split,
    cut: Cut,
    /// The last pass that was run: rows, micro-blocks, and since when.
    last: Mutex<Option<(usize, usize, Instant)>>,
}

/// A small f32 vector on a die.
pub struct Vector {
    die: usize,
    len: usize,
    data: Allocation,
    /// Of a norm's weight: the int8 forms that are asked of what it makes.
    wanted: Arc<Wanted>,
}

impl Vector {
    /// Where it lies.
    fn at(&self) -> Address {
        self.data.at
    }
}

/// What a driver says, as an error of the library.
fn device_error(error: &kernels::Error) -> Error {
    Error::new(error.0.clone())
}

impl Cuda {
    /// The dies behind `drivers`, in the order in which a pass goes through them. `split` holds the layers of each die but the
    /// last; where it is empty, measured memory and time decide.
    ///
    /// # Errors
    /// If a die fails, or its kernels cannot be compiled.
    pub fn open(drivers: Vec<Arc<dyn Driver>>, split: &[usize]) -> Result<Cuda> {
        assert!(!drivers.is_empty(), "a model needs a die");
        let dies: Vec<Die> = drivers.into_iter().enumerate().map(|(i, driver)| Die::new(driver, i)).collect();
        for die in &dies {
            die.name(Cuda::prepare(die.driver()))?;
        }
        let rates = dies.iter().map(|die| die.name(rate(die.driver()))).collect::<Result<_>>()?;
        Ok(Cuda {
            dies,
            rates,
            wanted: split.to_vec(),
            split: Split::whole(),
            cut: Cut::default(),
            last: Mutex::new(None),
        })
    }

    /// The same dies, with passes cut in `blocks` micro-blocks where several dies and enough rows allow it, in place of what
    /// measuring finds fastest: for tests and measurements.
    pub fn cut_into(self, blocks: usize) -> Cuda {
        Cuda { cut: Cut::fixed(blocks), ..self }
    }

    /// Makes a device ready for what every model needs, which shows whether kernels can be compiled for it.
    ///
    /// # Errors
    /// If they cannot, or the device fails.
    pub fn prepare(driver: &dyn Driver) -> kernels::Result<()> {
        driver.prepare(&[&norm::KERNELS[..], &attention::KERNELS, &delta::KERNELS, &moe::KERNELS].concat())
    }

    /// A value that only a failed device keeps back. In the middle of a pass there is nobody to hand an error to: it unwinds as
    /// an [`Error`], past every state that the pass might have touched, to whoever runs commands.
    fn must<T>(&self, result: Result<T>) -> T {
        result.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error)))
    }

    /// Runs what was written down. Whether the caller waits for a result behind it is `awaited`: if not, and rows went from die
    /// to die, this waits, for the next pass may overwrite what a die still reads from another.
    fn run(&self, tape: Tape, awaited: bool) -> Result<()> {
        let cut = tape.stages.iter().filter(|stage| !stage.joint);
        let rows = cut.clone().map(|stage| stage.rows).min().unwrap_or(1);
        let several = self.dies.iter().filter(|die| cut.clone().any(|s| s.die == die.index())).count() > 1;
        let blocks = if several { self.cut.choose(rows) } else { 1 };
        if several {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((rows, blocks, Instant::now()));
        }
        let done = pair::run(&self.dies, &tape.stages, blocks);
        // Memory that goes now, other dies may still read as well.
        let goes = tape.held.iter().any(|memory| Arc::strong_count(memory) == 1);
        // So it does when a pass has failed: whoever is told lets everything go.
        if done.is_err() || goes || !awaited && tape.crosses() {
            let finished = self.finish();
            return done.and(finished);
        }
        done
    }

    /// Takes in that the last pass's result is there.
    fn arrived(&self) {
        if let Some((rows, blocks, since)) = self.last.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.cut.learn(rows, blocks, since.elapsed().as_secs_f64());
        }
    }

    fn finish(&self) -> Result<()> {
        // All of them, whichever has failed: what goes behind this, none may still read.
        self.dies.iter().map(|die| die.name(die.driver().finish())).fold(Ok(()), Result::and)
    }

    fn home(&self, place: Place) -> &Die {
        &self.dies[self.split.die(place)]
    }
}

/// Bytes per second that a device's memory moves: those read and those written.
fn rate(driver: &dyn Driver) -> kernels::Result<f64> {
    let bytes = PROBE.min(driver.memory()?.0 / 8);
    let (from, to) = (driver.allocate(bytes)?, driver.allocate(bytes)?);
    let mut best = f64::INFINITY;
    // The first one wakes the device up.
    for _ in 0..4 {
        let start = driver.record()?;
        driver.copy(from.at, to.at, bytes)?;
        let end = driver.record()?;
        best = best.min(driver.elapsed(&start, &end)?);
    }
    Ok(2.0 * bytes as f64 / best.max(1e-9))
}

impl Backend for Cuda {
    type Matrix = matmul::Matrix;
    type Vector = Vector;
    type Rows = rows::Rows;
    type Routes = moe::Routes;
    type Kv = attention::Kv;
    type Recurrent = delta::Recurrent;
    type Pass<'p> = CudaPass<'p>;

    const IMMEDIATE: bool = false;

    fn describe(&self) -> String {
        let names: Vec<String> = self.dies.iter().map(|die| die.driver().describe()).collect();
        let names = match names.windows(2).all(|pair| pair[0] == pair[1]) {
            true if names.len() > 1 => format!("{} x {}", names.len(), names[0]),
            _ => names.join(", "),
        };
        match &self.split.counts()[..] {
            [_] => names,
            counts => {
                let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
                format!("{names}, layers {}", counts.join(" + "))
            }
        }
    }

    fn bandwidth(&self) -> f64 {
        // A pass goes through the dies one after another.
        self.rates.iter().sum::<f64>() / self.rates.len() as f64
    }

    fn profile(&self) -> Option<Profile> {
        let entries = self.dies.iter().flat_map(|die| self.must(die.name(die.profile()))).collect();
        Some(Profile { entries })
    }

    fn plan(&mut self, demand: &Demand) -> Result<()> {
        let rooms = self.dies.iter().zip(&self.rates).map(|(die, &rate)| {
            let (free, _) = die.name(die.driver().memory())?;
            Ok(Room { free, rate })
        });
        let rooms: Vec<Room> = rooms.collect::<Result<_>>()?;
        // Packed, weights take a little more than in the file.
        let packed = |load: Load| Load { held: load.held + load.held / pack::SPARED, ..load };
        let layers = demand.layers.iter().copied().map(packed).collect();
        let demand = Demand { layers, output: packed(demand.output) };
        self.split = match &self.wanted[..] {
            [] => Split::balanced(&demand, &rooms)?,
            counts => Split::given(counts, &demand, &rooms)?,
        };
        Ok(())
    }

    fn matrix(&self, place: Place, shape: MatrixShape, format: Format, data: Bytes) -> Result<Self::Matrix> {
        match place {
            // Looked up row by row, which the host does.
            Place::Input => Ok(matmul::Matrix::on_host(shape, format, data)),
            _ => matmul::Matrix::upload(self.home(place), shape, format, data),
        }
    }

    fn part(&self, matrix: &Self::Matrix, part: Range<usize>) -> Self::Matrix {
        matrix.part(self, part)
    }

    fn vector(&self, place: Place, values: &[f32]) -> Result<Self::Vector> {
        let die = self.home(place);
        let bytes = bytemuck::cast_slice(values);
        let data = die.name(die.driver().allocate(bytes.len()))?;
        die.name(die.driver().upload(data.at, bytes))?;
        Ok(Vector { die: die.index(), len: values.len(), data, wanted: Arc::default() })
    }

    fn rows(&self, width: usize) -> Self::Rows {
        rows::Rows::new(width, self.dies.len())
    }

    fn routes(&self) -> Self::Routes {
        moe::Routes::default()
    }

    fn matrix_bytes(&self, matrix: &Self::Matrix) -> usize {
        matrix.bytes()
    }

    fn expert_bytes(&self, routes: &Self::Routes) -> usize {
        routes.bytes_read(self)
    }

    fn kv(&self, place: Place, shape: &AttentionShape, positions: usize, format: KvFormat) -> Result<Self::Kv> {
        attention::Kv::new(self.home(place), shape, positions, format)
    }

    fn recurrent(&self, place: Place, shape: &DeltaShape, log_rows: usize) -> Result<Self::Recurrent> {
        delta::Recurrent::new(self.home(place), shape, log_rows)
    }

    fn read(&self, rows: &Self::Rows, row: usize, out: &mut Vec<f32>) {
        self.must(rows.read(&self.dies, row, out));
    }

    fn save_kv(&self, kv: &Self::Kv, positions: usize, out: &mut Vec<u8>) {
        kv.save(self, positions, out);
    }

    fn load_kv(&self, kv: &mut Self::Kv, _positions: usize, bytes: &[u8]) {
        kv.load(self, bytes);
    }

    fn save_recurrent(&self, recurrent: &Self::Recurrent, out: &mut Vec<u8>) {
        recurrent.save(self, out);
    }

    fn load_recurrent(&self, recurrent: &mut Self::Recurrent, bytes: &[u8]) {
        recurrent.load(self, bytes);
    }

    fn fork_recurrent(&self, from: &Self::Recurrent, to: &mut Self::Recurrent) {
        to.fork(self, from);
    }

    fn pass<R>(&self, body: impl FnOnce(&CudaPass<'_>) -> R) -> R {
        let pass = CudaPass::new(self);
        let result = body(&pass);
        pass.run(false);
        result
    }
}

impl Pass<Cuda> for CudaPass<'_> {
    fn embed(&self, table: &matmul::Matrix, tokens: &[u32], out: &mut rows::Rows) {
        assert_eq!(table.cols(), out.width(), "an embedding has the table's width");
        let mut values = vec![0.0; tokens.len() * table.cols()];
        for (token, row) in tokens.iter().zip(values.chunks_exact_mut(table.cols())) {
            canon::dequantize_row(table.format(), table.host_row(*token as usize), row);
        }
        self.mix_if(out);
        out.load(values);
    }

    fn load(&self, values: &[f32], out: &mut rows::Rows) {
        self.mix_if(out);
        out.load(values.to_vec());
    }

    fn tail(&self, x: &rows::Rows, from: usize, out: &mut rows::Rows) {
        self.tail_rows(x, from, out);
    }

    fn join(&self, x: &rows::Rows, y: &rows::Rows, out: &mut rows::Rows) {
        self.join_sides(x, y, out);
    }

    fn add(&self, x: &mut rows::Rows, y: &rows::Rows) {
        self.add_rows(x, y);
    }

    fn rms_norm(&self, x: &rows::Rows, weight: &Vector, eps: f32, out: &mut rows::Rows) {
        self.norm_rows(x, weight, eps, out);
    }

    fn project(&self, x: &mut rows::Rows, into: &mut [(&matmul::Matrix, &mut rows::Rows)]) {
        self.project_rows(x, into);
    }

    fn attention(
        &self,
        shape: &AttentionShape,
        norms: HeadNorms<Cuda>,
        rope: &rows::Rows,
        qkv: Qkv<Cuda>,
        cache: (&mut attention::Kv, usize),
        out: &mut rows::Rows,
    ) {
        let streams = attention::Streams { q: qkv.q, k: qkv.k, v: qkv.v, rope };
        self.attend_rows(shape, [norms.q, norms.k], streams, cache, out);
    }

    fn conv(
        &self,
        shape: &DeltaShape,
        weight: &Vector,
        x: &rows::Rows,
        state: &mut delta::Recurrent,
        out: &mut rows::Rows,
    ) {
        self.conv_rows(shape, weight, x, state, out);
    }

    fn delta(
        &self,
        shape: &DeltaShape,
        weights: DeltaWeights<Cuda>,
        input: DeltaInput<Cuda>,
        state: &mut delta::Recurrent,
        out: &mut rows::Rows,
    ) {
        let gates = delta::Gates { a: weights.a, dt: weights.dt, norm: weights.norm };
        let streams = delta::Streams { qkv: input.qkv, alpha: input.alpha, beta: input.beta, z: input.z };
        self.recur_rows(shape, gates, streams, state, out);
    }

    fn route(&self, x: &mut rows::Rows, router: &matmul::Matrix, how: Routing, routes: &mut moe::Routes) {
        self.route_rows(x, router, how, routes);
    }

    fn experts(&self, x: &mut rows::Rows, experts: Experts<Cuda>, routes: &mut moe::Routes, out: &mut rows::Rows) {
        self.expert_rows(x, [experts.gate, experts.up, experts.down], routes, out);
    }

    fn swiglu(&self, gate: &mut rows::Rows, up: &rows::Rows) {
        self.swiglu_rows(gate, up);
    }

    fn add_gated(&self, x: &rows::Rows, gate: &Vector, y: &rows::Rows, out: &mut rows::Rows) {
        self.add_gated_rows(x, gate, y, out);
    }

    fn argmax(&self, x: &rows::Rows) -> Vec<u32> {
        self.best(x)
    }

    fn confidence(&self, x: &rows::Rows) -> f32 {
        self.confidence_of(x)
    }

    fn keep(&self, shape: &DeltaShape, state: &mut delta::Recurrent, keep: usize, of: usize) {
        self.keep_rows(shape, state, (keep, of));
    }
}
