// The gated delta rule: convolution, recurrence, replay, gated norm.
//
// S is [value_heads][key_dim][value_dim]. A column of S belongs to four neighbouring groups of lanes, each holding one
// quarter of the key dimension in registers through all rows of a pass: the quarters of the definition, so that a sum
// down the keys is four chains and two shuffles. A pass's first rows read kept S and write tentative S; its later rows
// go on from there.
#include "forms.cuh"

// Key elements that a lane holds: key dimensions reach 128.
#define QUARTER 32
// Columns of S that a block holds.
#define COLUMNS 32
// Taps of the convolution, at most.
#define TAPS 8
#define L2_EPS 1e-6f

// Causal convolution, taps oldest first, then silu, then every q and k head divided by its length:
// x · rsqrt(dot(x, x) + eps). A thread takes a channel through all rows, a block whole heads. `window` is
// [taps − 1][channels], oldest first; `next` may be `window` itself. Inputs and keys go to the log where there is one.
// Blocks (channels / (256 / key_dim · key_dim)), threads 256.
KERNEL(256, 4)
convolve(const float *x, const float *weight, const float *window, float *next, float *log, float *log_k, float *out,
         u32 rows, u32 channels, u32 taps, u32 key_width, u32 key_dim) {
    __shared__ float values[2][256];
    u32 heads = 256 / key_dim, from = blockIdx.x * heads * key_dim, c = from + threadIdx.x;
    bool inside = threadIdx.x < heads * key_dim && c < channels;
    float held[TAPS], w[TAPS];
#pragma unroll
    for (u32 t = 0; t < TAPS; t++) {
        held[t] = inside && t + 1 < taps ? window[t * channels + c] : 0.0f;
        w[t] = inside && t < taps ? weight[t * channels + c] : 0.0f;
    }
    for (u32 row = 0; row < rows; row++) {
        float now = inside ? x[row * channels + c] : 0.0f, sum = 0.0f;
        if (log && inside) log[row * channels + c] = now;
#pragma unroll
        for (u32 t = 0; t < TAPS; t++) {
            if (t + 1 == taps) held[t] = now;
            if (t < taps) sum = fma(w[t], held[t], sum);
        }
#pragma unroll
        for (u32 t = 0; t + 1 < TAPS; t++) held[t] = held[t + 1];
        float v = silu(sum);
        if (inside && c >= 2 * key_width) out[row * channels + c] = v;
        if (from >= 2 * key_width) continue;
        // Two buffers: a warp that is ahead writes the next row's while others still read this one's.
        float *mine = values[row % 2];
        mine[threadIdx.x] = v;
        __syncthreads();
        for (u32 h = threadIdx.x / WARP; h < heads && from + h * key_dim < 2 * key_width; h += blockDim.x / WARP) {
            u32 at = from + h * key_dim;
            float scale = rsqrt_of(add(dot(mine + h * key_dim, mine + h * key_dim, key_dim), L2_EPS));
            for (u32 i = lane(); i < key_dim; i += WARP) {
                float normed = mul(mine[h * key_dim + i], scale);
                out[row * channels + at + i] = normed;
                if (log_k && at >= key_width) log_k[row * key_width + at - key_width + i] = normed;
            }
        }
    }
#pragma unroll
    for (u32 t = 0; t + 1 < TAPS; t++)
        if (inside && t + 1 < taps) next[t * channels + c] = held[t];
}

// The quarters' sum, in every lane of a column.
DEVICE float quarters(float v) {
    v = add(v, __shfl_xor_sync(FULL, v, 8));
    return add(v, __shfl_xor_sync(FULL, v, 16));
}

// The recurrence over all rows, y before its norm. Logs delta [rows][value_heads][value_dim] and exp(g)
// [rows][value_heads] where there is a log. Blocks (value_dim / COLUMNS, value_heads), threads 4 · COLUMNS, shared
// 2 · (key_dim + rows) singles.
KERNEL(128, 4)
recur(const float *qkv, const float *alpha, const float *beta, const float *a, const float *dt, const float *s_in,
      float *s_out, float *log_delta, float *log_decay, float *y, u32 rows, u32 key_heads, u32 value_heads, u32 key_dim,
      u32 value_dim, float scale) {
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

// The logged updates of the first `rows` rows once more: S · decay, then fma(k, delta, S). Blocks and threads as for
// `recur`, no shared memory.
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

// out = ((y · s) · w) · silu(z) per head, and its int8 forms. A block takes `each` heads, which fill whole blocks of
// 256 or the row. Blocks (heads / each, rows), threads 32 · each, 256 at most.
KERNEL(256, 4)
gated_norm(const float *y, const float *z, const float *weight, float *out, u32 heads, u32 dim, u32 each, float eps,
           FORMS) {
    u32 row = blockIdx.y, width = heads * dim, first = blockIdx.x * each, count = min(heads - first, each);
    for (u32 head = threadIdx.x / WARP; head < count; head += blockDim.x / WARP) {
        u32 at = row * width + (first + head) * dim;
        float scale = rms_scale(y + at, dim, eps);
        for (u32 i = lane(); i < dim; i += WARP)
            out[at + i] = mul(mul(mul(y[at + i], scale), weight[i]), silu(z[at + i]));
    }
    __syncthreads();
    quantize_forms(out + row * width + first * dim, row, first * dim, count * dim, width, GIVEN_FORMS);
}
