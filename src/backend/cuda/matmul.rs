//! Weight tensors, and products with them.
//!
//! Owns: which matrices of an input share a launch. Refuses to know: how weights are packed (`pack`) and how a product is cut into
//! blocks of threads (`product`).

use std::ops::Range;
use std::sync::Arc;

use kernels::{Address, Allocation};

use super::Cuda;
use super::die::{Die, Launch};
use super::moe::EXPERTS;
use super::pack;
use super::pass::{CudaPass, Span};
use super::product::{self, Job, Places};
use super::rows::{BLOCKS, Form, Rows, form_of};
use crate::backend::MatrixShape;
use crate::gguf::Bytes;
use crate::quant::Format;
use crate::{Error, Result};

/// A weight tensor: the file's pages, and, unless it is only looked up, its packed form on a die.
pub struct Matrix {
    shape: MatrixShape,
    format: Format,
    data: Bytes,
    /// Rows of each stacked matrix that this view covers; all but for a half of a fused tensor.
    view: Range<usize>,
    packed: Option<Packed>,
}

/// Where a tensor lies on a die.
#[derive(Clone)]
struct Packed {
    die: usize,
    memory: Arc<Allocation>,
    /// From the memory's begin to the view's.
    offset: usize,
    /// From a stacked matrix to the next.
    stride: usize,
}

impl Matrix {
    /// A tensor whose rows are looked up on the host.
    pub fn on_host(shape: MatrixShape, format: Format, data: Bytes) -> Matrix {
        Matrix { shape, format, data, view: 0..shape.rows, packed: None }
    }

    /// A tensor on `die`.
    ///
    /// # Errors
    /// If the die's memory does not suffice, or there are more experts than can be sorted.
    pub fn upload(die: &Die, shape: MatrixShape, format: Format, data: Bytes) -> Result<Matrix> {
        if shape.count > EXPERTS {
            return Err(Error::new(format!("{} experts: CUDA devices take up to {EXPERTS}", shape.count)));
        }
        die.name(die.driver().prepare(&product::kernels(format, die.driver().architecture())))?;
        let mut matrix = Matrix::on_host(shape, format, data);
        matrix.pack(die)?;
        Ok(matrix)
    }

    fn pack(&mut self, die: &Die) -> Result<()> {
        let stride = pack::matrix_bytes(self.format, self.shape.cols, self.view.len());
        let memory = die.name(die.driver().allocate(stride * self.shape.count))?;
        let sink = |at: usize, piece: &[u8]| die.driver().upload(memory.at + at as Address, piece);
        die.name(pack::pack(self.format, self.shape, self.view.clone(), &self.data, sink))?;
        self.packed = Some(Packed { die: die.index(), memory: Arc::new(memory), offset: 0, stride });
        Ok(())
    }

    /// Rows `part` of every stacked matrix.
    pub fn part(&self, cuda: &Cuda, part: Range<usize>) -> Matrix {
        assert!(part.start < part.end && part.end <= self.rows(), "a part lies inside its matrix");
        let view = self.view.start + part.start..self.view.start + part.end;
        let mut matrix = Matrix { data: self.data.clone(), view, packed: None, ..*self };
        let Some(packed) = &self.packed else { return matrix };
        match self.offset(part.start) {
            Some(offset) => matrix.packed = Some(Packed { offset: packed.offset + offset, ..packed.clone() }),
            // Between two tiles there is no view: the part is packed by itself.
            None => cuda.must(matrix.pack(&cuda.dies[packed.die])),
        }
        matrix
    }

    /// Bytes from the packed view's begin to its row `row`, where a view can begin there.
    fn offset(&self, row: usize) -> Option<usize> {
        match self.format.activation_block() {
            None => Some(pack::matrix_bytes(self.format, self.shape.cols, row)),
            Some(_) if row.is_multiple_of(pack::TILE) => {
                Some(row / pack::TILE * pack::tile_bytes(self.format, self.shape.cols))
            }
            Some(_) => None,
        }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.view.len()
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.shape.cols
    }

    /// Stacked matrices.
    pub fn count(&self) -> usize {
        self.shape.count
    }

    /// Number format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes that one read of all of it takes in the file.
    pub fn bytes(&self) -> usize {
        self.data.len() / self.shape.rows * self.rows()
    }

    /// Row `row` of the only matrix, as it is in the file.
    pub fn host_row(&self, row: usize) -> &[u8] {
        let bytes = self.data.len() / (self.shape.rows * self.shape.count);
        &self.data[row * bytes..][..bytes]
    }

    fn packed(&self) -> &Packed {
        match &self.packed {
            Some(packed) => packed,
            None => panic!("a tensor that is multiplied with is on a die"),
        }
    }

    /// The die that holds it.
    pub fn die(&self) -> usize {
        self.packed().die
    }

    /// The product with it, written to `out`.
    pub fn job(&self, out: Address) -> Job {
        let packed = self.packed();
        let weights = packed.memory.at + packed.offset as Address;
        Job { weights, out, rows: self.rows(), stride: packed.stride }
    }
}

/// What matrices of a format multiply.
#[derive(Clone, Copy)]
pub(super) enum Input {
    /// Rows of singles.
    Float(Span),
    /// Their int8 form.
    Int8(Form),
}

impl Input {
    /// The same from row `row` on; `cols` elements to a row, `format` of the matrix.
    pub fn at_row(self, row: usize, cols: usize, format: Format) -> product::Input {
        match self {
            Input::Float(span) => product::Input::Float(span.at + (4 * row * span.width) as Address),
            Input::Int8(form) => {
                let block = BLOCKS[form_of(format).unwrap_or(0)];
                let at = |base: Address, bytes: usize| base + (row * bytes) as Address;
                product::Input::Int8 {
                    q: at(form.q, cols),
                    d: at(form.d, 4 * cols / block),
                    sums: at(form.sums, cols / 8),
                }
            }
        }
    }
}

/// A product about to be launched.
pub(super) struct Product {
    /// Of the weights.
    pub format: Format,
    /// Their width.
    pub cols: usize,
    /// Up to [`product::JOBS`] matrices.
    pub jobs: Vec<Job>,
    /// What they multiply.
    pub input: product::Input,
    /// Which rows of it meet which matrix.
    pub places: Places,
}

/// Launches a product that reads `bytes` bytes of weights.
pub(super) fn multiply(die: &Die, stage: &'static str, product: &Product, bytes: usize) -> kernels::Result<()> {
    let Product { format, cols, jobs, input, places } = product;
    let planned = product::plan(die.driver().architecture(), *format, *cols, jobs, *input, *places);
    die.launch(Launch { stage, kernel: planned.kernel, grid: planned.grid, args: &planned.args, bytes })
}

impl CudaPass<'_> {
    /// What matrices of `format` on `die` multiply in place of `x`.
    pub(super) fn input(&self, x: &Rows, format: Format, die: usize) -> Input {
        match form_of(format) {
            Some(which) => Input::Int8(self.form(x, which, die)),
            None => Input::Float(self.read(x, die)),
        }
    }

    /// `out = matrix · x` for each of `into`; matrices of one format go together.
    pub(super) fn project_rows(&self, x: &Rows, into: &mut [(&Matrix, &mut Rows)]) {
        let rows = x.len();
        let mut todo: Vec<usize> = (0..into.len()).collect();
        while let Some(&first) = todo.first() {
            let (die, format) = (into[first].0.die(), into[first].0.format());
            let alike = |i: &usize| into[*i].0.die() == die && into[*i].0.format() == format;
            let mut these: Vec<usize> = todo.iter().copied().filter(alike).collect();
            these.truncate(product::JOBS);
            todo.retain(|i| !these.contains(i));
            let mut jobs = Vec::with_capacity(these.len());
            let mut bytes = 0;
            for i in these {
                let (matrix, out) = &mut into[i];
                assert_eq!((matrix.cols(), matrix.rows()), (x.width(), out.width()), "a matrix's widths");
                bytes += matrix.bytes();
                jobs.push(matrix.job(self.write(out, rows, die).at));
            }
            let (input, cols) = (self.input(x, format, die), x.width());
            self.push(die, rows, move |die: &Die, range: Range<usize>| {
                let out = |job: &Job| job.out + (4 * range.start * job.rows) as Address;
                let jobs: Vec<Job> = jobs.iter().map(|job| Job { out: out(job), ..*job }).collect();
                let input = input.at_row(range.start, cols, format);
                multiply(
                    die,
                    "product",
                    &Product { format, cols, jobs, input, places: Places::Dense { rows: range.len() } },
                    bytes,
                )
            });
        }
    }
}
