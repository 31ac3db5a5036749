//! The CPU: the reference backend.
//!
//! Owns: threads, instruction set, and the mapping of every operation to its file. Refuses to know: layers.

mod attention;
mod delta;
mod matmul;
mod moe;
mod norm;
mod rows;
mod sweep;
mod team;

use std::ops::Range;

use super::profile::Profile;
use super::{
    AttentionShape, Backend, DeltaInput, DeltaShape, DeltaWeights, Demand, Experts, HeadNorms, KvFormat, MatrixShape,
    Pass, Place, Qkv, Routing,
};
use crate::Result;
use crate::gguf::Bytes;
use crate::quant::{Format, Isa, canon};
use team::{Chunks, Phases, Team};

pub use attention::SEGMENT;

/// The CPU backend: a team of threads and an instruction set.
pub struct Cpu {
    team: Team,
    isa: Isa,
}

impl Cpu {
    /// A team of `threads` threads, the caller's included, in the machine's best instruction set.
    ///
    /// # Errors
    /// If the operating system refuses the threads.
    pub fn new(threads: usize) -> Result<Cpu> {
        Cpu::with_isa(threads, Isa::best())
    }

    /// The same in a chosen instruction set.
    ///
    /// # Errors
    /// If the operating system refuses the threads.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Cpu> {
        Ok(Cpu { team: Team::new(threads)?, isa })
    }
}

impl Backend for Cpu {
    type Matrix = matmul::Matrix;
    type Vector = Vec<f32>;
    type Rows = rows::Rows;
    type Routes = moe::Routes;
    type Kv = attention::Kv;
    type Recurrent = delta::Recurrent;
    type Pass<'p> = CpuPass<'p>;

    const IMMEDIATE: bool = true;

    fn describe(&self) -> String {
        let threads = self.team.threads();
        let plural = if threads == 1 { "" } else { "s" };
        format!("cpu, {}, {threads} thread{plural}", self.isa.name())
    }

    fn bandwidth(&self) -> f64 {
        sweep::read_bandwidth(self.team.threads())
    }

    fn profile(&self) -> Option<Profile> {
        None
    }

    fn plan(&mut self, _: &Demand) -> Result<()> {
        // The operating system pages the file in, or not.
        Ok(())
    }

    fn matrix(&self, _: Place, shape: MatrixShape, format: Format, data: Bytes) -> Result<Self::Matrix> {
        Ok(matmul::Matrix::new(shape, format, data))
    }

    fn part(&self, matrix: &Self::Matrix, part: Range<usize>) -> Self::Matrix {
        matrix.part(part)
    }

    fn vector(&self, _: Place, values: &[f32]) -> Result<Self::Vector> {
        Ok(values.to_vec())
    }

    fn rows(&self, width: usize) -> Self::Rows {
        rows::Rows::new(width)
    }

    fn routes(&self) -> Self::Routes {
        moe::Routes::default()
    }

    fn matrix_bytes(&self, matrix: &Self::Matrix) -> usize {
        matrix.count() * matrix.bytes(0, 0..matrix.rows()).len()
    }

    fn expert_bytes(&self, routes: &Self::Routes) -> usize {
        routes.bytes_read()
    }

    fn kv(&self, _: Place, shape: &AttentionShape, positions: usize, format: KvFormat) -> Result<Self::Kv> {
        attention::Kv::new(shape, positions, format)
    }

    fn recurrent(&self, _: Place, shape: &DeltaShape, log_rows: usize) -> Result<Self::Recurrent> {
        Ok(delta::Recurrent::new(shape, log_rows))
    }

    fn read(&self, rows: &Self::Rows, row: usize, out: &mut Vec<f32>) {
        out.extend_from_slice(rows.row(row));
    }

    fn save_kv(&self, kv: &Self::Kv, positions: usize, out: &mut Vec<u8>) {
        kv.save(positions, out);
    }

    fn load_kv(&self, kv: &mut Self::Kv, _positions: usize, bytes: &[u8]) {
        kv.load(bytes);
    }

    fn save_recurrent(&self, recurrent: &Self::Recurrent, out: &mut Vec<u8>) {
        recurrent.save(out);
    }

    fn load_recurrent(&self, recurrent: &mut Self::Recurrent, bytes: &[u8]) {
        recurrent.load(bytes);
    }

    fn fork_recurrent(&self, from: &Self::Recurrent, to: &mut Self::Recurrent) {
        to.fork(from);
    }

    fn pass<R>(&self, body: impl FnOnce(&CpuPass<'_>) -> R) -> R {
        self.team.region(|phases| body(&CpuPass { phases, isa: self.isa }))
    }
}

/// An open pass on the CPU.
pub struct CpuPass<'p> {
    phases: &'p Phases<'p>,
    isa: Isa,
}

impl Pass<Cpu> for CpuPass<'_> {
    fn embed(&self, table: &matmul::Matrix, tokens: &[u32], out: &mut rows::Rows) {
        let width = table.cols();
        assert_eq!(width, out.width(), "an embedding has the table's width");
        let parts = Chunks::new(out.write(tokens.len()), width);
        self.phases.each(tokens.len(), 8 * tokens.len() * width, parts, |row, out| {
            let token = tokens[row] as usize;
            canon::dequantize_row(table.format(), table.bytes(0, token..token + 1), out);
        });
    }

    fn load(&self, values: &[f32], out: &mut rows::Rows) {
        let rows = values.len() / out.width();
        out.write(rows).copy_from_slice(values);
    }

    fn tail(&self, x: &rows::Rows, from: usize, out: &mut rows::Rows) {
        let rows = x.len() - from;
        out.write(rows).copy_from_slice(&x.values()[from * x.width()..]);
    }

    fn join(&self, x: &rows::Rows, y: &rows::Rows, out: &mut rows::Rows) {
        norm::join(self.phases, x, y, out);
    }

    fn add(&self, x: &mut rows::Rows, y: &rows::Rows) {
        norm::add(self.phases, x, y);
    }

    fn rms_norm(&self, x: &rows::Rows, weight: &Vec<f32>, eps: f32, out: &mut rows::Rows) {
        norm::rms_norm(self.phases, self.isa, x, (weight, eps), out);
    }

    fn project(&self, x: &mut rows::Rows, into: &mut [(&matmul::Matrix, &mut rows::Rows)]) {
        matmul::project(self.phases, self.isa, x, into);
    }

    fn attention(
        &self,
        shape: &AttentionShape,
        norms: HeadNorms<Cpu>,
        rope: &rows::Rows,
        qkv: Qkv<Cpu>,
        cache: (&mut attention::Kv, usize),
        out: &mut rows::Rows,
    ) {
        let streams = attention::Streams { q: qkv.q, k: qkv.k, v: qkv.v, rope };
        attention::Layer { shape, q_norm: norms.q, k_norm: norms.k }.run((self.phases, self.isa), streams, cache, out);
    }

    fn conv(
        &self,
        shape: &DeltaShape,
        weight: &Vec<f32>,
        x: &rows::Rows,
        state: &mut delta::Recurrent,
        out: &mut rows::Rows,
    ) {
        delta::conv(self.phases, self.isa, shape, weight, x, (state, out));
    }

    fn delta(
        &self,
        shape: &DeltaShape,
        weights: DeltaWeights<Cpu>,
        input: DeltaInput<Cpu>,
        state: &mut delta::Recurrent,
        out: &mut rows::Rows,
    ) {
        let gates = delta::Gates {
            alpha: input.alpha,
            beta: input.beta,
            z: input.z,
            a: weights.a,
            dt: weights.dt,
            norm: weights.norm,
        };
        delta::delta(self.phases, self.isa, shape, (input.qkv, gates), state, out);
    }

    fn route(&self, x: &mut rows::Rows, router: &matmul::Matrix, how: Routing, routes: &mut moe::Routes) {
        moe::route(self.phases, self.isa, x, router, how, routes);
    }

    fn experts(&self, x: &mut rows::Rows, experts: Experts<Cpu>, routes: &mut moe::Routes, out: &mut rows::Rows) {
        let Experts { gate, up, down } = experts;
        moe::experts(self.phases, self.isa, x, (gate, up, down), routes, out);
    }

    fn swiglu(&self, gate: &mut rows::Rows, up: &rows::Rows) {
        norm::swiglu(self.phases, self.isa, gate, up);
    }

    fn add_gated(&self, x: &rows::Rows, gate: &Vec<f32>, y: &rows::Rows, out: &mut rows::Rows) {
        norm::add_gated(self.phases, self.isa, (x, gate), y, out);
    }

    fn argmax(&self, x: &rows::Rows) -> Vec<u32> {
        norm::argmax(self.phases, self.isa, x)
    }

    fn confidence(&self, x: &rows::Rows) -> f32 {
        norm::confidence(self.phases, self.isa, x)
    }

    fn keep(&self, shape: &DeltaShape, state: &mut delta::Recurrent, keep: usize, of: usize) {
        delta::keep(self.phases, self.isa, shape, state, (keep, of));
    }
}
