// The gated delta rule: convolution, recurrence, replay, gated norm.
//
// S is [value_heads][key_dim][value_dim]. A column of S belongs to four neighbouring groups of lanes, each holding one quarter of
// the key dimension in registers through all rows of a pass: the quarters of the definition, so that a sum down the keys is
// four chains and two shuffles. A pass's first rows read kept S and write tentative S; its later rows go on from there.
#include "canon.cuh"

// Key elements that a lane holds: key dimensions reach 128.
#define QUARTER 32
// Columns of S that a block holds.
#define COLUMNS 32
// Taps of the convolution, at most.
#define TAPS 8
#define L2_EPS 1e-6f

// Causal convolution, taps oldest first, then silu; a thread takes a channel through all rows. `window` is [taps − 1][channels],
// oldest first; `next` may be `window` itself. Inputs go to the log where there is one. Blocks (channels / 256), threads 256.
KERNEL(256, 4)
convolve(const float *x, const float *weight, const float *window, float *next, float *log, float *out, u32 rows, u32 channels,
         u32 taps) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float held[TAPS], w[TAPS];
#pragma unroll
    for (u32 t = 0; t < TAPS; t++) {
        held[t] = t + 1 < taps ? window[t * channels + c] : 0.0f;
        w[t] = t < taps ? weight[t * channels + c] : 0.0f;
    }
    for (u32 row = 0; row < rows; row++) {
        float now = x[row * channels + c], sum = 0.0f;
        if (log) log[row * channels + c] = now;
#pragma unroll
        for (u32 t = 0; t < TAPS; t++) {
            if (t + 1 == taps) held[t] = now;
            if (t < taps) sum = fma(w[t], held[t], sum);
        }
        out[row * channels + c] = silu(sum);
#pragma unroll
        for (u32 t = 0; t + 1 < TAPS; t++) held[t] = held[t + 1];
    }
#pragma unroll
    for (u32 t = 0; t + 1 < TAPS; t++)
        if (t + 1 < taps) next[t * channels + c] = held[t];
}

// Divides every q and k head by its length: x · rsqrt(dot(x, x) + eps). Keys go to the log where there is one. Blocks
// (2 · key_heads, rows), threads 32.
KERNEL(32, 16)
normalize(float *qkv, float *log, u32 key_heads, u32 dim, u32 channels) {
    u32 head = blockIdx.x, row = blockIdx.y;
    float *x = qkv + row * channels + head * dim;
    float scale = rsqrt_of(add(dot(x, x, dim), L2_EPS));
    for (u32 i = lane(); i < dim; i += WARP) {
        float v = mul(x[i], scale);
        x[i] = v;
        if (log && head >= key_heads) log[(row * key_heads + head - key_heads) * dim + i] = v;
    }
}

// The quarters' sum, in every lane of a column.
DEVICE float quarters(float v) {
    v = add(v, __shfl_xor_sync(FULL, v, 8));
    return add(v, __shfl_xor_sync(FULL, v, 16));
}

// The recurrence over all rows, y before its norm. Logs delta [rows][value_heads][value_dim] and exp(g) [rows][value_heads] where
// there is a log. Blocks (value_dim / COLUMNS, value_heads), threads 4 · COLUMNS, shared 2 · (key_dim + rows) singles.
KERNEL(128, 4)
recur(const float *qkv, const float *alpha, const float *beta, const float *a, const float *dt, const float *s_in, float *s_out,
      float *log_delta, float *log_decay, float *y, u32 rows, u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim,
      float scale) {
    SHARED;
    float *q = (float *)shared_memory, *k = q + key_dim, *decays = k + key_dim, *rates = decays + rows;
    u32 head = blockIdx.y, quarter = key_dim / 4, part = lane() / 8;
    u32 column = blockIdx.x * COLUMNS + threadIdx.x / WARP * 8 + lane() % 8;
    bool inside = column < value_dim;
    u32 channels = 2 * key_heads * key_dim + value_heads * value_dim, key_at = head % key_heads * key_dim;
    u32 at = (head * key_dim + part * quarter) * value_dim + column;
    float s[QUARTER];
#pragma unroll
    for (u32 i = 0; i < QUARTER; i++) s[i] = inside && i < quarter ? s_in[at + i * value_dim] : 0.0f;
    for (u32 row = threadIdx.x; row < rows; row += blockDim.x) {
        decays[row] = exp_of(mul(a[head], softplus(add(alpha[row * value_heads + head], dt[head]))));
        rates[row] = sigmoid(beta[row * value_heads + head]);
    }
    for (u32 row = 0; row < rows; row++) {
        const float *x = qkv + row * channels;
        __syncthreads();
        for (u32 i = threadIdx.x; i < key_dim; i += blockDim.x) {
            q[i] = x[key_at + i];
            k[i] = x[key_heads * key_dim + key_at + i];
        }
        __syncthreads();
        float decay = decays[row], rate = rates[row];
        float v = inside ? x[2 * key_heads * key_dim + head * value_dim + column] : 0.0f;
        float read = 0.0f;
#pragma unroll
        for (u32 i = 0; i < QUARTER; i++) {
            if (i >= quarter) break;
            s[i] = mul(s[i], decay);
            read = fma(s[i], k[part * quarter + i], read);
        }
        float delta = mul(sub(v, quarters(read)), rate), out = 0.0f;
#pragma unroll
        for (u32 i = 0; i < QUARTER; i++) {
            if (i >= quarter) break;
            s[i] = fma(k[part * quarter + i], delta, s[i]);
            out = fma(s[i], q[part * quarter + i], out);
        }
        out = mul(quarters(out), scale);
        if (inside && part == 0) {
            y[(row * value_heads + head) * value_dim + column] = out;
            if (log_delta) log_delta[(row * value_heads + head) * value_dim + column] = delta;
        }
        if (log_decay && column == 0 && part == 0) log_decay[row * value_heads + head] = decay;
    }
#pragma unroll
    for (u32 i = 0; i < QUARTER; i++)
        if (inside && i < quarter) s_out[at + i * value_dim] = s[i];
}

// The logged updates of the first `rows` rows once more: S · decay, then fma(k, delta, S). Blocks and threads as for `recur`, no
// shared memory.
KERNEL(128, 4)
replay(const float *log_k, const float *log_delta, const float *log_decay, const float *s_in, float *s_out, u32 rows,
       u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim) {
    u32 head = blockIdx.y, quarter = key_dim / 4, part = lane() / 8;
    u32 column = blockIdx.x * COLUMNS + threadIdx.x / WARP * 8 + lane() % 8;
    if (column >= value_dim) return;
    u32 at = (head * key_dim + part * quarter) * value_dim + column;
    float s[QUARTER];
#pragma unroll
    for (u32 i = 0; i < QUARTER; i++) s[i] = i < quarter ? s_in[at + i * value_dim] : 0.0f;
    for (u32 row = 0; row < rows; row++) {
        const float *k = log_k + (row * key_heads + head % key_heads) * key_dim + part * quarter;
        float decay = log_decay[row * value_heads + head];
        float delta = log_delta[(row * value_heads + head) * value_dim + column];
#pragma unroll
        for (u32 i = 0; i < QUARTER; i++)
            if (i < quarter) s[i] = fma(k[i], delta, mul(s[i], decay));
    }
#pragma unroll
    for (u32 i = 0; i < QUARTER; i++)
        if (i < quarter) s_out[at + i * value_dim] = s[i];
}

// The window behind the first `rows` logged inputs. Threads over (taps − 1) · channels.
KERNEL(256, 4)
slide(const float *log, const float *window, float *next, u32 rows, u32 channels, u32 slots) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, slot = i / channels;
    if (slot >= slots) return;
    // Inputs in a line: the window, then the rows; the last `slots` of them stay.
    u32 from = rows + slot;
    next[i] = from < slots ? window[from * channels + i % channels] : log[(from - slots) * channels + i % channels];
}

// out = ((y · s) · w) · silu(z) per head. Blocks (value_heads, rows), threads 32.
KERNEL(32, 16)
gated_norm(const float *y, const float *z, const float *weight, float *out, u32 heads, u32 dim, float eps) {
    u32 at = (blockIdx.y * heads + blockIdx.x) * dim;
    float scale = rms_scale(y + at, dim, eps);
    for (u32 i = lane(); i < dim; i += WARP) out[at + i] = mul(mul(mul(y[at + i], scale), weight[i]), silu(z[at + i]));
}
