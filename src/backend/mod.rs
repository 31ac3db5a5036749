//! What a device must be able to do: hold weights, activations and state, and run the model's operations over rows.
//!
//! Owns: the two traits that every device implements, and the shapes they speak in. Refuses to know: models; there are
//! no layers here, only operations. Every operation takes rows `1..=N` and gives each row the bits it would get alone.

pub mod cpu;
pub mod cuda;
pub mod profile;

use std::ops::Range;

use crate::Result;
use crate::gguf::Bytes;
use crate::quant::Format;
use profile::Profile;

/// The shape of a weight tensor: `count` matrices (experts) of `rows` outputs by `cols` inputs, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixShape {
    /// Inputs: the length of a row.
    pub cols: usize,
    /// Outputs of one matrix.
    pub rows: usize,
    /// Matrices stacked in the tensor; 1 but for experts.
    pub count: usize,
}

/// Gated attention with partial rotary embedding; widths in elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; query head `h` reads head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Elements of one head of Q, K and V.
    pub head_dim: usize,
    /// Leading elements of a head that are rotated, in pairs `(i, i + rope_dim / 2)`.
    pub rope_dim: usize,
    /// Added to the mean square in the norms of Q and K.
    pub eps: f32,
}

impl AttentionShape {
    /// Elements of a K (or V) row: all heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of the attention's output row.
    pub fn out_width(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// A gated delta net; widths in elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeltaShape {
    /// Heads of q and k (`ssm.group_count`); value head `h` uses key head `h % key_heads`.
    pub key_heads: usize,
    /// Heads of v (`ssm.time_step_rank`).
    pub value_heads: usize,
    /// Elements of a q or k head (`ssm.state_size`).
    pub key_dim: usize,
    /// Elements of a v head.
    pub value_dim: usize,
    /// Taps of the causal convolution (`ssm.conv_kernel`).
    pub taps: usize,
    /// Added to the mean square in the output norm.
    pub eps: f32,
}

impl DeltaShape {
    /// Elements of all q heads (or all k heads).
    pub fn key_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Elements of all v heads.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolution: q, k and v side by side.
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Elements of S: `[value_heads][key_dim][value_dim]`.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }

    /// Elements of the convolution's window: the last `taps - 1` inputs.
    pub fn window_len(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    /// f32 elements that the log keeps for one row: conv input, k, delta, exp(g).
    pub fn log_len(&self) -> usize {
        self.channels() + self.key_width() + self.value_width() + self.value_heads
    }
}

/// Where in the model something stands. A device of several parts keeps it on the part that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before the layers: embeddings, which are looked up.
    Input,
    /// In a layer, counted from 0; what drafts behind the last layer counts on.
    Layer(usize),
    /// Behind the layers.
    Output,
}

/// What a model will ask of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Of each layer, those that only draft included.
    pub layers: Vec<Load>,
    /// Behind the layers.
    pub output: Load,
}

/// Bytes of weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Held in memory.
    pub held: usize,
    /// Read by a pass of one row.
    pub read: usize,
}

/// How K and V are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvFormat {
    /// Half precision, rounded to nearest even.
    #[default]
    F16,
    /// Single precision.
    F32,
}

impl KvFormat {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            KvFormat::F16 => 2,
            KvFormat::F32 => 4,
        }
    }

    /// The name users see.
    pub fn name(self) -> &'static str {
        match self {
            KvFormat::F16 => "f16",
            KvFormat::F32 => "f32",
        }
    }
}

/// How a router chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// Experts per row.
    pub used: usize,
    /// Whether the chosen probabilities are divided by their sum.
    pub renormalize: bool,
    /// Multiplies the weights; 1 for most models.
    pub scale: f32,
}

/// A device: it allocates, uploads and downloads, and opens passes.
pub trait Backend: Sized + Send + Sync + 'static {
    /// A weight tensor on the device.
    type Matrix: Send + Sync;
    /// A small f32 vector on the device.
    type Vector: Send + Sync;
    /// Activations: up to a pass's rows of a fixed width.
    type Rows: Send;
    /// A pass's routing: each row's experts and weights, and each expert's rows.
    type Routes: Send;
    /// K and V of one attention layer.
    type Kv: Send;
    /// Kept and tentative S, the conv window and the log of one recurrent layer.
    type Recurrent: Send;
    /// An open pass.
    type Pass<'p>: Pass<Self>;

    /// Whether an operation is done when its call returns; else it is only written down, and done when a result is asked for.
    const IMMEDIATE: bool;

    /// What runs, for users: device, instruction set, threads.
    fn describe(&self) -> String;

    /// Measures the bytes per second that the device moves in its own memory; takes a moment.
    fn bandwidth(&self) -> f64;

    /// Where the time went since the last call; the first call begins, and finds nothing. `None` if the device cannot
    /// tell. Passes may be slower while it is measured.
    fn profile(&self) -> Option<Profile>;

    /// Told once, before anything is put on the device: it decides here what stands where.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    fn plan(&mut self, demand: &Demand) -> Result<()>;

    /// A weight tensor from its bytes in the file; the CPU keeps the file's own pages.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    fn matrix(&self, place: Place, shape: MatrixShape, format: Format, data: Bytes) -> Result<Self::Matrix>;

    /// Rows `part` of every matrix in the stack, without a copy: half of a fused tensor.
    fn part(&self, matrix: &Self::Matrix, part: Range<usize>) -> Self::Matrix;

    /// A small vector.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    fn vector(&self, place: Place, values: &[f32]) -> Result<Self::Vector>;

    /// Room for rows of `width` elements; grows with the passes.
    fn rows(&self, width: usize) -> Self::Rows;

    /// Room for routing.
    fn routes(&self) -> Self::Routes;

    /// Bytes that one read of the whole tensor takes; of a part, the part's.
    fn matrix_bytes(&self, matrix: &Self::Matrix) -> usize;

    /// Bytes of expert weights read with these routes so far: in each pass, those of the distinct experts.
    fn expert_bytes(&self, routes: &Self::Routes) -> usize;

    /// An empty cache of `positions` K and V rows.
    ///
    /// # Errors
    /// If the memory does not suffice.
    fn kv(&self, place: Place, shape: &AttentionShape, positions: usize, format: KvFormat) -> Result<Self::Kv>;

    /// A zero state whose log holds passes of up to `log_rows` rows.
    ///
    /// # Errors
    /// If the memory does not suffice.
    fn recurrent(&self, place: Place, shape: &DeltaShape, log_rows: usize) -> Result<Self::Recurrent>;

    /// Row `row` as f32, appended to `out`.
    fn read(&self, rows: &Self::Rows, row: usize, out: &mut Vec<f32>);

    /// The first `positions` K and V rows as bytes, appended to `out`.
    fn save_kv(&self, kv: &Self::Kv, positions: usize, out: &mut Vec<u8>);

    /// Takes back what [`Backend::save_kv`] gave. `bytes` has the right length (see `state::snapshot`).
    fn load_kv(&self, kv: &mut Self::Kv, positions: usize, bytes: &[u8]);

    /// Kept S (`[value_heads][key_dim][value_dim]`) and window (`[taps - 1][channels]`, oldest first) as f32 bytes.
    fn save_recurrent(&self, recurrent: &Self::Recurrent, out: &mut Vec<u8>);

    /// Takes back what [`Backend::save_recurrent`] gave.
    fn load_recurrent(&self, recurrent: &mut Self::Recurrent, bytes: &[u8]);

    /// Makes kept S and window of `to` those of `from`.
    fn fork_recurrent(&self, from: &Self::Recurrent, to: &mut Self::Recurrent);

    /// Opens a pass; the operations inside it share one parallel region.
    fn pass<R>(&self, body: impl FnOnce(&Self::Pass<'_>) -> R) -> R;
}

/// Q, K and V of one attention layer, as projected.
pub struct Qkv<'a, B: Backend> {
    /// `[rows][heads][2 * head_dim]`: each head's query, then its output gate. Normed and rotated in place.
    pub q: &'a mut B::Rows,
    /// `[rows][kv_heads][head_dim]`. Normed and rotated in place.
    pub k: &'a mut B::Rows,
    /// `[rows][kv_heads][head_dim]`.
    pub v: &'a B::Rows,
}

/// The norms of an attention layer's heads.
pub struct HeadNorms<'a, B: Backend> {
    /// `[head_dim]`.
    pub q: &'a B::Vector,
    /// `[head_dim]`.
    pub k: &'a B::Vector,
}

/// The streams that enter a gated delta rule.
pub struct DeltaInput<'a, B: Backend> {
    /// `[rows][channels]`: q, k and v after [`Pass::conv`].
    pub qkv: &'a B::Rows,
    /// `[rows][value_heads]`, before its bias and softplus.
    pub alpha: &'a B::Rows,
    /// `[rows][value_heads]`, before its sigmoid.
    pub beta: &'a B::Rows,
    /// `[rows][value_width]`: the output gate, before its silu.
    pub z: &'a B::Rows,
}

/// The small weights of a gated delta rule.
pub struct DeltaWeights<'a, B: Backend> {
    /// `[value_heads]`: minus exp(A).
    pub a: &'a B::Vector,
    /// `[value_heads]`: added to alpha.
    pub dt: &'a B::Vector,
    /// `[value_dim]`: the output norm.
    pub norm: &'a B::Vector,
}

/// A stack of SwiGLU experts.
pub struct Experts<'a, B: Backend> {
    /// `[count][ff][width]`.
    pub gate: &'a B::Matrix,
    /// `[count][ff][width]`.
    pub up: &'a B::Matrix,
    /// `[count][width][ff]`.
    pub down: &'a B::Matrix,
}

/// The operations of an open pass. `x`, `out` and the like are `[rows][width]`; an output takes its input's rows.
pub trait Pass<B: Backend> {
    /// `out[r] = table[tokens[r]]`.
    fn embed(&self, table: &B::Matrix, tokens: &[u32], out: &mut B::Rows);

    /// Copies `values` (whole rows) from the host.
    fn load(&self, values: &[f32], out: &mut B::Rows);

    /// `out = x[from..]`.
    fn tail(&self, x: &B::Rows, from: usize, out: &mut B::Rows);

    /// `out = [x | y]`, row by row.
    fn join(&self, x: &B::Rows, y: &B::Rows, out: &mut B::Rows);

    /// `x += y`.
    fn add(&self, x: &mut B::Rows, y: &B::Rows);

    /// `out = x / sqrt(mean(x²) + eps) * weight`.
    fn rms_norm(&self, x: &B::Rows, weight: &B::Vector, eps: f32, out: &mut B::Rows);

    /// `out = matrix · x` for several matrices with one input. (`x` is mutable for its cached int8 form only.)
    fn project(&self, x: &mut B::Rows, into: &mut [(&B::Matrix, &mut B::Rows)]);

    /// Norms and rotates Q and K, appends K and V at positions `start..`, attends causally, and gates:
    /// `out = softmax(q·k / sqrt(head_dim))·v * sigmoid(gate)`. `rope` is `[rows][cos.. | sin..]` of `rope_dim`.
    fn attention(
        &self,
        shape: &AttentionShape,
        norms: HeadNorms<B>,
        rope: &B::Rows,
        qkv: Qkv<B>,
        cache: (&mut B::Kv, usize),
        out: &mut B::Rows,
    );

    /// Causal convolution over the window and `x`, silu, then L2 norm of every q and k head. Logs `x`.
    fn conv(&self, shape: &DeltaShape, weight: &B::Vector, x: &B::Rows, state: &mut B::Recurrent, out: &mut B::Rows);

    /// The gated delta rule, row after row, from kept S into tentative S, then the gated norm. Logs the updates.
    fn delta(
        &self,
        shape: &DeltaShape,
        weights: DeltaWeights<B>,
        input: DeltaInput<B>,
        state: &mut B::Recurrent,
        out: &mut B::Rows,
    );

    /// Softmax over the router's logits and each row's best experts: probability descending, index ascending.
    fn route(&self, x: &mut B::Rows, router: &B::Matrix, how: Routing, routes: &mut B::Routes);

    /// The routed experts' SwiGLU, summed in rank order with the routes' weights.
    fn experts(&self, x: &mut B::Rows, experts: Experts<B>, routes: &mut B::Routes, out: &mut B::Rows);

    /// `gate = silu(gate) * up`.
    fn swiglu(&self, gate: &mut B::Rows, up: &B::Rows);

    /// `out += sigmoid(gate · x) * y`.
    fn add_gated(&self, x: &B::Rows, gate: &B::Vector, y: &B::Rows, out: &mut B::Rows);

    /// The index of each row's largest element; the lowest index wins a tie.
    fn argmax(&self, x: &B::Rows) -> Vec<u32>;

    /// The probability that the softmax of the only row gives to its largest element.
    fn confidence(&self, x: &B::Rows) -> f32;

    /// Makes the first `keep` of the `of` rows of the last pass permanent in `state`; `keep < of` replays the log.
    fn keep(&self, shape: &DeltaShape, state: &mut B::Recurrent, keep: usize, of: usize);
}
