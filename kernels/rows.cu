// Row-wise operations: norms, sums, gates, the sum of the experts' outputs.
#include "forms.cuh"

// Columns that a block takes where a row is cut.
#define SPAN 2048

// A row's experts: down [places][width], weights and place [rows][used] (moe.cu); a shared expert's output, with the
// input row and the vector that gate it, or none; the bytes of an expert, and those that all groups have read.
#define MIXTURE                                                                                                        \
    const float *down, const float *weights, const u32 *place, const u32 *count, u64 *read, const float *h,            \
        const float *gate, const float *shared, u32 used, u32 bytes

// How far the shared expert is open in row `row`, in every lane.
DEVICE float opening(const float *h, const float *gate, const float *shared, u32 row, u32 width) {
    return shared ? sigmoid(dot(gate, h + row * width, width)) : 0.0f;
}

// Element i of row `row`: Σ fma(weight, down, sum) over the row's ranks in order, from 0; then fma(open, shared, sum).
DEVICE float mixed(const float *down, const float *weights, const u32 *place, const float *shared, u32 row, u32 i,
                   u32 width, u32 used, float open) {
    float sum = 0.0f;
#pragma unroll 8
    for (u32 rank = row * used; rank < (row + 1) * used; rank++)
        sum = fma(weights[rank], down[place[rank] * width + i], sum);
    return shared ? fma(open, shared[row * width + i], sum) : sum;
}

// out = the experts' sum. Blocks (width / 256, rows), threads 256.
KERNEL(256, 4)
combine(MIXTURE, float *out, u32 width) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (i == 0 && row == 0) read[0] += (u64)count[0] * bytes;
    float open = opening(h, gate, shared, row, width);
    if (i < width) out[row * width + i] = mixed(down, weights, place, shared, row, i, width, used, open);
}

// y = the experts' sum where `down` is given; x += y where y is; out = (x · rsqrt(mean(x²) + eps)) · weight, and its
// int8 forms. Blocks (rows), threads 512, shared `width` singles, or none where rows are too long for it: then the row
// is read again. With experts there is shared memory, and `out` may be `h`.
KERNEL(512, 2)
rms_norm(MIXTURE, float *x, float *y, const float *weight, float *out, u32 width, u32 staged, float eps, FORMS) {
    SHARED;
    u32 row = blockIdx.x;
    float open = 0.0f;
    if (down) {
        if (threadIdx.x == 0 && row == 0) read[0] += (u64)count[0] * bytes;
        open = opening(h, gate, shared, row, width);
    }
    x += row * width;
    out += row * width;
    float *values = staged ? (float *)shared_memory : out;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        float v = x[i];
        if (y) {
            float more = down ? mixed(down, weights, place, shared, row, i, width, used, open) : y[row * width + i];
            if (down) y[row * width + i] = more;
            v = add(v, more);
            x[i] = v;
        }
        values[i] = v;
    }
    __syncthreads();
    // Every warp computes the row's scale for itself: less than handing it around.
    float scale = rms_scale(values, width, eps);
    __syncthreads();
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        float v = mul(mul(values[i], scale), weight[i]);
        out[i] = v;
        values[i] = v;
    }
    __syncthreads();
    quantize_forms(values, row, 0, width, width, GIVEN_FORMS);
}

// x += y. Threads over all elements.
KERNEL(256, 4)
add_rows(float *x, const float *y, u32 count) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = add(x[i], y[i]);
}

// out = [x | y]. Blocks (rows).
KERNEL(256, 4)
join_rows(const float *x, const float *y, float *out, u32 x_width, u32 y_width) {
    u32 row = blockIdx.x, width = x_width + y_width;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x)
        out[row * width + i] = i < x_width ? x[row * x_width + i] : y[row * y_width + i - x_width];
}

// gate = silu(gate) · up of a span of row `row`, and its int8 forms.
DEVICE void activate(u32 row, float *gate, const float *up, u32 width, FORMS) {
    SHARED;
    float *values = (float *)shared_memory;
    u32 from = blockIdx.x * SPAN;
    if (from >= width) return;
    u32 count = min(width - from, (u32)SPAN);
    gate += row * width + from;
    up += row * width + from;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        float v = mul(silu(gate[i]), up[i]);
        gate[i] = v;
        values[i] = v;
    }
    __syncthreads();
    quantize_forms(values, row, from, count, width, GIVEN_FORMS);
}

#define SIDE(i)                                                                                                        \
    float *gate##i, const float *up##i, u32 width##i, i8 *q256_##i, float *d256_##i, i16 *sums256_##i, i8 *q32_##i,    \
        float *d32_##i, i16 *sums32_##i
#define GIVEN_SIDE(i) gate##i, up##i, width##i, q256_##i, d256_##i, sums256_##i, q32_##i, d32_##i, sums32_##i

// gate = silu(gate) · up for `rows` rows of one width, and then for rows of another. Blocks (wider / SPAN, rows of
// both), threads 256, shared SPAN singles.
KERNEL(256, 4)
swiglu(SIDE(0), SIDE(1), u32 rows) {
    if (blockIdx.y < rows) activate(blockIdx.y, GIVEN_SIDE(0));
    else activate(blockIdx.y - rows, GIVEN_SIDE(1));
}

// The int8 forms of x. Blocks (width / SPAN, rows), threads 256.
KERNEL(256, 4)
quantize(const float *x, u32 width, FORMS) {
    u32 row = blockIdx.y, from = blockIdx.x * SPAN, count = min(width - from, (u32)SPAN);
    quantize_forms(x + row * width + from, row, from, count, width, GIVEN_FORMS);
}

// out = fma(sigmoid(gate · x), y, out). Blocks (rows), threads 256.
KERNEL(256, 4)
add_gated(const float *x, const float *gate, const float *y, float *out, u32 x_width, u32 width) {
    u32 row = blockIdx.x;
    float open = sigmoid(dot(gate, x + row * x_width, x_width));
    for (u32 i = threadIdx.x; i < width; i += blockDim.x)
        out[row * width + i] = fma(open, y[row * width + i], out[row * width + i]);
}
