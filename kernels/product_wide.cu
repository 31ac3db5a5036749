// Products with weights in floats: y[place][row] = w[expert][row] · x[enter[place]], 32 lanes and the tree.
//
// w [expert][row][cols] as in the file, `stride` weights from expert to expert. Matrices, groups and places as in product.cuh.
// Launch: 256 threads; blocks (Σ rows / (8 · W), groups, tiles of 8 places); a warp has W weight rows, lanes go along them.
#include "canon.cuh"

#define MATRIX(i) const void *w##i, float *y##i, u32 rows##i, u32 stride##i
#define PRODUCT                                                                                                                \
    MATRIX(0), MATRIX(1), MATRIX(2), MATRIX(3), const float *x, const uint4 *groups, const u32 *count, const u32 *enter,       \
        u32 rows, u32 cols
#define GIVEN                                                                                                                  \
    w0, y0, rows0, stride0, w1, y1, rows1, stride1, w2, y2, rows2, stride2, w3, y3, rows3, stride3, x, groups, count, enter,   \
        rows, cols

struct F32 {
    float bits;
    __device__ __forceinline__ float widen() const { return bits; }
};
struct F16 {
    u16 bits;
    __device__ __forceinline__ float widen() const { return half_to_float(bits); }
};
struct BF16 {
    u16 bits;
    __device__ __forceinline__ float widen() const { return __uint_as_float((u32)bits << 16); }
};
typedef VARIANT F;

// The matrix of a block of threads, and its first row there.
struct Matrix {
    const F *w;
    float *y;
    u32 rows, row;
};

DEVICE void claim(Matrix &m, u32 &block, const void *w, float *y, u32 rows, u32 stride, u32 expert, u32 per) {
    u32 blocks = (rows + per - 1) / per;
    if (block < blocks) {
        m.w = (const F *)w + (u64)expert * stride;
        m.y = y;
        m.rows = rows;
        m.row = block * per;
    }
    block -= blocks;
}

// STEPS elements of each lane's chain.
template <int N, int W, int STEPS> DEVICE void warp_steps(const F *(&w)[W], const float *(&in)[N], float (&acc)[W][N]) {
    F weight[W][STEPS];
    float value[N][STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
#pragma unroll
        for (int v = 0; v < W; v++) weight[v][k].bits = __ldg(&w[v][k * WARP].bits);
#pragma unroll
        for (int n = 0; n < N; n++) value[n][k] = in[n][k * WARP];
    }
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) acc[v][n] = fma(weight[v][k].widen(), value[n][k], acc[v][n]);
#pragma unroll
    for (int v = 0; v < W; v++) w[v] += STEPS * WARP;
#pragma unroll
    for (int n = 0; n < N; n++) in[n] += STEPS * WARP;
}

// N places from `place` on, of which `there` exist; the warp's weight rows begin at `row`.
template <int N, int W> DEVICE void warp_rows(const Matrix &m, u32 row, const float *x, const u32 *enter, u32 place, u32 there, u32 cols) {
    const u32 AHEAD = N == 8 ? 2 : N == 4 ? 4 : 8;
    const F *w[W];
    const float *in[N];
#pragma unroll
    for (int v = 0; v < W; v++) w[v] = m.w + (u64)min(row + v, m.rows - 1) * cols;
#pragma unroll
    for (int n = 0; n < N; n++) {
        u32 at = place + min((u32)n, there - 1);
        in[n] = x + (u64)(enter ? __ldg(enter + at) : at) * cols;
    }
    float acc[W][N];
#pragma unroll
    for (int v = 0; v < W; v++)
#pragma unroll
        for (int n = 0; n < N; n++) acc[v][n] = 0.0f;
#pragma unroll
    for (int v = 0; v < W; v++) w[v] += lane();
#pragma unroll
    for (int n = 0; n < N; n++) in[n] += lane();
    // Steps are read ahead, since a chain that waits for each of its terms does nothing else.
    u32 left = cols - min(lane(), cols);
    for (; left > (AHEAD - 1) * WARP; left -= min(left, AHEAD * WARP)) warp_steps<N, W, AHEAD>(w, in, acc);
    for (; left > 0; left -= min(left, (u32)WARP)) warp_steps<N, W, 1>(w, in, acc);
#pragma unroll
    for (int v = 0; v < W; v++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float sum = tree(acc[v][n]);
            if (lane() == 0 && row + v < m.rows && n < there) m.y[(u64)(place + n) * m.rows + row + v] = sum;
        }
}

template <bool ONE> DEVICE void run(PRODUCT) {
    const int W = ONE ? 1 : 2;
    uint4 group = make_uint4(0, 0, rows, 0);
    if (groups) {
        if (blockIdx.y >= count[0]) return;
        group = groups[blockIdx.y];
    }
    u32 block = blockIdx.x;
    Matrix m;
    claim(m, block, w0, y0, rows0, stride0, group.x, 8 * W);
    claim(m, block, w1, y1, rows1, stride1, group.x, 8 * W);
    claim(m, block, w2, y2, rows2, stride2, group.x, 8 * W);
    claim(m, block, w3, y3, rows3, stride3, group.x, 8 * W);
    u32 row = m.row + threadIdx.x / WARP * W;
    if (row >= m.rows) return;
    if (ONE) return warp_rows<1, 1>(m, row, x, enter, group.y, 1, cols);
    for (u32 from = blockIdx.z * 8; from < group.z; from += gridDim.z * 8) {
        u32 place = group.y + from, there = min(8u, group.z - from);
        if (there == 1) warp_rows<1, W>(m, row, x, enter, place, there, cols);
        else if (there == 2) warp_rows<2, W>(m, row, x, enter, place, there, cols);
        else if (there <= 4) warp_rows<4, W>(m, row, x, enter, place, there, cols);
        else warp_rows<8, W>(m, row, x, enter, place, there, cols);
    }
}

// Groups of one place.
KERNEL(256, 4) product_1(PRODUCT) { run<true>(GIVEN); }

// Groups of any size.
KERNEL(256, 2) product_n(PRODUCT) { run<false>(GIVEN); }
