// The kernels that the seed document describes, written after its words to be counted, not run: a warp per weight row,
// 32 lanes on each 256 weights, weights repacked so that a lane's codes are one coalesced word, scales unpacked,
// activations in shared memory. COLUMNS activation rows share a decoded weight: 1 for decoding, 4 for batched prefill.
//
// A lane holds weights lane, lane + 32, .. of a block of 256, so that activations are read 32 side by side.
typedef unsigned int u32;
typedef unsigned char u8;
#ifndef COLUMNS
#define COLUMNS 1
#endif
#define WARPS 8
#define CHUNK 2048

extern __shared__ float staged[];

struct Matrix {
    const u32 *__restrict__ codes;
    const u32 *__restrict__ more;
    const u32 *__restrict__ scales;
    const float2 *__restrict__ d;
};

static __device__ __forceinline__ u32 byte_of(u32 w, int i) { return w >> 8 * i & 0xff; }
static __device__ __forceinline__ float signed_byte(u32 w, int i) { return (float)(signed char)(w >> 8 * i); }

// Decodes the 8 weights that lane `l` has of block `b`.
struct Q3_K {
    static __device__ __forceinline__ void decode(const Matrix &m, u32 b, u32 l, float (&w)[8]) {
        u32 code = m.codes[b * 32 + l];
        u32 low = m.scales[b * 4 + (l >> 4)], high = m.scales[b * 4 + 2 + (l >> 4)];
        float d = m.d[b].x;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int q = (int)(code >> (8 * (i / 4) + 2 * (i % 4)) & 3) - ((code >> (16 + i) & 1) ? 0 : 4);
            w[i] = d * signed_byte(i < 4 ? low : high, i % 4) * (float)q;
        }
    }
};

struct Q4_K {
    static __device__ __forceinline__ void decode(const Matrix &m, u32 b, u32 l, float (&w)[8]) {
        u32 code = m.codes[b * 32 + l];
        float2 d = m.d[b];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float scale = d.x * (float)byte_of(m.scales[b * 4 + i / 4], i % 4);
            float least = d.y * (float)byte_of(m.scales[b * 4 + 2 + i / 4], i % 4);
            w[i] = scale * (float)(code >> (8 * (i / 2) + 4 * (i % 2)) & 15) - least;
        }
    }
};

struct Q5_K {
    static __device__ __forceinline__ void decode(const Matrix &m, u32 b, u32 l, float (&w)[8]) {
        u32 code = m.codes[b * 32 + l];
        u32 fifth = ((const u8 *)m.more)[b * 32 + l];
        float2 d = m.d[b];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float scale = d.x * (float)byte_of(m.scales[b * 4 + i / 4], i % 4);
            float least = d.y * (float)byte_of(m.scales[b * 4 + 2 + i / 4], i % 4);
            u32 q = (code >> (8 * (i / 2) + 4 * (i % 2)) & 15) + ((fifth >> i & 1) ? 16 : 0);
            w[i] = scale * (float)q - least;
        }
    }
};

struct Q6_K {
    static __device__ __forceinline__ void decode(const Matrix &m, u32 b, u32 l, float (&w)[8]) {
        u32 code = m.codes[b * 32 + l];
        u32 two = ((const unsigned short *)m.more)[b * 32 + l];
        u32 low = m.scales[b * 4 + (l >> 4)], high = m.scales[b * 4 + 2 + (l >> 4)];
        float d = m.d[b].x;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int q = (int)((code >> (8 * (i / 2) + 4 * (i % 2)) & 15) | (two >> 2 * i & 3) << 4) - 32;
            w[i] = d * signed_byte(i < 4 ? low : high, i % 4) * (float)q;
        }
    }
};

struct Q8_0 {
    static __device__ __forceinline__ void decode(const Matrix &m, u32 b, u32 l, float (&w)[8]) {
        u32 low = m.codes[b * 64 + l], high = m.codes[b * 64 + 32 + l];
        const float *d = (const float *)m.d + b * 8;
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = d[i] * signed_byte(i < 4 ? low : high, i % 4);
    }
};

struct F32 {
    static __device__ __forceinline__ void decode(const Matrix &m, u32 b, u32 l, float (&w)[8]) {
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = ((const float *)m.codes)[b * 256 + i * 32 + l];
    }
};

static __device__ __forceinline__ float sum(float v) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) v += __shfl_xor_sync(0xffffffffu, v, half);
    return v;
}

// A row's products with COLUMNS staged activation rows, over the blocks of this chunk.
template <class F>
static __device__ __forceinline__ void row(const Matrix &m, u32 first, int blocks, float (&acc)[COLUMNS]) {
    u32 l = threadIdx.x & 31;
    for (int b = 0; b < blocks; b++) {
        float w[8];
        F::decode(m, first + b, l, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) acc[c] += w[i] * staged[c * CHUNK + b * 256 + i * 32 + l];
    }
}

static __device__ __forceinline__ void stage(const float *__restrict__ x, int cols, int from, int count) {
    for (int c = 0; c < COLUMNS; c++)
        for (int i = threadIdx.x; i < count; i += WARPS * 32) staged[c * CHUNK + i] = x[c * cols + from + i];
}

// y = W x. A warp a row; blockIdx.y counts tiles of COLUMNS activation rows.
template <class F>
static __device__ __forceinline__ void
product(const Matrix &m, const float *__restrict__ x, float *y, int cols, int rows) {
    int r = blockIdx.x * WARPS + (threadIdx.x >> 5);
    x += blockIdx.y * COLUMNS * cols;
    y += blockIdx.y * COLUMNS * rows;
    float acc[COLUMNS] = {};
    for (int from = 0; from < cols; from += CHUNK) {
        int count = min(CHUNK, cols - from);
        __syncthreads();
        stage(x, cols, from, count);
        __syncthreads();
        if (r < rows) row<F>(m, (r * cols + from) / 256, count / 256, acc);
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        float v = sum(acc[c]);
        if ((threadIdx.x & 31) == 0 && r < rows) y[c * rows + r] = v;
    }
}

#define PARAMETERS                                                                                                     \
    const u32 *__restrict__ codes, const u32 *__restrict__ more, const u32 *__restrict__ scales,                       \
        const float2 *__restrict__ d
#define PRODUCT(F)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        product_##F(PARAMETERS, const float *__restrict__ x, float *y, int cols, int rows) {                           \
        Matrix m = {codes, more, scales, d};                                                                           \
        product<F>(m, x, y, cols, rows);                                                                               \
    }
PRODUCT(Q3_K)
PRODUCT(Q4_K)
PRODUCT(Q5_K)
PRODUCT(Q6_K)
PRODUCT(Q8_0)
PRODUCT(F32)

#if COLUMNS == 1
// All chosen experts' gate, up and SwiGLU in one launch: blockIdx.y is a (token, rank), a warp does a hidden unit's two
// rows.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    gate_up_Q3_K(PARAMETERS, const u32 *__restrict__ codes_up, const u32 *__restrict__ scales_up,
                 const float2 *__restrict__ d_up, const int *chosen, const float *__restrict__ x, float *y, int cols,
                 int rows, int used) {
    Matrix gate = {codes, more, scales, d}, up = {codes_up, more, scales_up, d_up};
    int r = blockIdx.x * WARPS + (threadIdx.x >> 5);
    int first = (chosen[blockIdx.y] * rows + r) * cols / 256;
    stage(x + blockIdx.y / used * cols, cols, 0, cols);
    __syncthreads();
    float g[1] = {}, u[1] = {};
    row<Q3_K>(gate, first, cols / 256, g);
    row<Q3_K>(up, first, cols / 256, u);
    float a = sum(g[0]), b = sum(u[0]);
    if ((threadIdx.x & 31) == 0) y[blockIdx.y * rows + r] = a / (1.0f + expf(-a)) * b;
}

// The chosen experts' down and their weighted sum: a warp a row of the output, expert after expert.
template <class F>
static __device__ __forceinline__ void experts_down(const Matrix &m, const int *chosen, const float *weights,
                                                    const float *__restrict__ h, float *y, int cols, int rows,
                                                    int used) {
    int r = blockIdx.x * WARPS + (threadIdx.x >> 5);
    float total = 0.0f;
    for (int e = 0; e < used; e++) {
        int place = blockIdx.y * used + e;
        __syncthreads();
        stage(h + place * cols, cols, 0, cols);
        __syncthreads();
        float acc[1] = {};
        row<F>(m, (chosen[place] * rows + r) * cols / 256, cols / 256, acc);
        total += weights[place] * sum(acc[0]);
    }
    if ((threadIdx.x & 31) == 0) y[blockIdx.y * rows + r] = total;
}

#define DOWN(F)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        down_##F(PARAMETERS, const int *chosen, const float *weights, const float *__restrict__ h, float *y, int cols, \
                 int rows, int used) {                                                                                 \
        Matrix m = {codes, more, scales, d};                                                                           \
        experts_down<F>(m, chosen, weights, h, y, cols, rows, used);                                                   \
    }
DOWN(Q3_K)
DOWN(Q4_K)
DOWN(Q5_K)
#endif
