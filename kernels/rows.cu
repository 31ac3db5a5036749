// Row-wise operations: norms, sums, gates.
//
// A row is one block's. What the next product will read as int8 is quantised on the way where its addresses are given
// (quant.cuh); an address of 0 means that nobody wants it.
#include "quant.cuh"

// The row's int8 forms, by blocks of 256 and of 32.
#define FORMS i8 *q256, float *d256, i16 *sums256, i8 *q32, float *d32, i16 *sums32

// Quantises the row that all of the block's threads have written to `values`; whole warps take whole blocks.
DEVICE void quantize_forms(const float *values, u32 row, u32 width, FORMS) {
    u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    if (q256) {
        for (u32 at = warp * 256; at < width; at += warps * 256) {
            u32 to = row * width + at;
            quantize_256(values + at, q256 + to, d256 + to / 256, sums256 + to / 16);
        }
    }
    if (q32) {
        for (u32 at = warp * 32; at < width; at += warps * 32) {
            u32 to = row * width + at;
            quantize_32(values + at, q32 + to, d32 + to / 32, sums32 + to / 16);
        }
    }
}

// x += y where y is given; out = (x · rsqrt(mean(x²) + eps)) · weight, and its int8 forms. Blocks (rows), threads 256, shared
// `width` singles.
KERNEL(256, 4)
rms_norm(float *x, const float *y, const float *weight, float *out, u32 width, float eps, FORMS) {
    SHARED;
    float *values = (float *)shared_memory;
    u32 row = blockIdx.x;
    x += row * width;
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
        out[row * width + i] = v;
        values[i] = v;
    }
    __syncthreads();
    quantize_forms(values, row, width, q256, d256, sums256, q32, d32, sums32);
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

// gate = silu(gate) · up, and its int8 forms. Blocks (rows), threads 256, shared `width` singles.
KERNEL(256, 4)
swiglu(float *gate, const float *up, u32 width, FORMS) {
    SHARED;
    float *values = (float *)shared_memory;
    u32 row = blockIdx.x;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        float v = mul(silu(gate[row * width + i]), up[row * width + i]);
        gate[row * width + i] = v;
        values[i] = v;
    }
    __syncthreads();
    quantize_forms(values, row, width, q256, d256, sums256, q32, d32, sums32);
}

// The int8 forms of x. Blocks (rows), threads 256.
KERNEL(256, 4)
quantize(const float *x, u32 width, FORMS) {
    quantize_forms(x + blockIdx.x * width, blockIdx.x, width, q256, d256, sums256, q32, d32, sums32);
}

// out = fma(sigmoid(gate · x), y, out). Blocks (rows), threads 256.
KERNEL(256, 4)
add_gated(const float *x, const float *gate, const float *y, float *out, u32 x_width, u32 width) {
    u32 row = blockIdx.x;
    float open = sigmoid(dot(gate, x + row * x_width, x_width));
    for (u32 i = threadIdx.x; i < width; i += blockDim.x)
        out[row * width + i] = fma(open, y[row * width + i], out[row * width + i]);
}
