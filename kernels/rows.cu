// Row-wise operations: norms, sums, gates.
#include "forms.cuh"

// Columns that a block takes where a row is cut.
#define SPAN 2048

// x += y where y is given; out = (x · rsqrt(mean(x²) + eps)) · weight, and its int8 forms. Blocks (rows), threads 256,
// shared `width` singles, or none where rows are too long for it: then the row is read again.
KERNEL(256, 4)
rms_norm(float *x, const float *y, const float *weight, float *out, u32 width, u32 staged, float eps, FORMS) {
    SHARED;
    u32 row = blockIdx.x;
    x += row * width;
    out += row * width;
    float *values = staged ? (float *)shared_memory : out;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        float v = x[i];
        if (y) {
            v = add(v, y[row * width + i]);
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

// gate = silu(gate) · up, and its int8 forms. Blocks (width / SPAN, rows), threads 256, shared SPAN singles.
KERNEL(256, 4)
swiglu(float *gate, const float *up, u32 width, FORMS) {
    SHARED;
    float *values = (float *)shared_memory;
    u32 row = blockIdx.y, from = blockIdx.x * SPAN, count = min(width - from, (u32)SPAN);
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
