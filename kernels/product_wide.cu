// Products with weights in floats: y[place][row] = w[expert][row] · x[enter[place]], 32 lanes and the tree.
//
// w [expert][row][cols] as in the file, `stride` weights from expert to expert. Matrices, groups and places as in
// product.cuh.
// Launch: 64 threads; blocks (Σ rows / (2 · W), groups, tiles of 8 places); a warp has W weight rows, lanes go along
// them.
#include "canon.cuh"

#define WARPS 2

#define MATRIX(i) const void *w##i, float *y##i, u32 rows##i, u32 stride##i
#define PRODUCT                                                                                                        \
    MATRIX(0), MATRIX(1), MATRIX(2), MATRIX(3), const float *x, const uint4 *groups, const u32 *count,                 \
        const u32 *enter, u32 rows, u32 cols
#define GIVEN                                                                                                          \
    w0, y0, rows0, stride0, w1, y1, rows1, stride1, w2, y2, rows2, stride2, w3, y3, rows3, stride3, x, groups, count,  \
        enter, rows, cols

struct F32 {
    typedef float Bits;
    static __device__ __forceinline__ float widen(float bits) { return bits; }
};
struct F16 {
    typedef u16 Bits;
    static __device__ __forceinline__ float widen(u16 bits) { return half_to_float(bits); }
};
struct BF16 {
    typedef u16 Bits;
    static __device__ __forceinline__ float widen(u16 bits) { return __uint_as_float((u32)bits << 16); }
};
typedef VARIANT F;

// The matrix of a block of threads, and its first row there.
struct Matrix {
    const F::Bits *w;
    float *y;
    u32 rows, row;
};

DEVICE bool claim(Matrix &m, u32 &block, const void *w, float *y, u32 rows, u32 stride, u32 expert, u32 per) {
    u32 blocks = (rows + per - 1) / per;
    if (block >= blocks) {
        block -= blocks;
        return false;
    }
    m.w = (const F::Bits *)w + (u64)expert * stride;
    m.y = y;
    m.rows = rows;
    m.row = block * per;
    return true;
}

// The lane's elements `from` + 32 u of every row, for u < U, joined to the chains.
template <int N, int W, int U>
DEVICE void step(const F::Bits *const (&w)[W], const float *const (&in)[N], u32 from, float (&acc)[W][N]) {
    float weight[U][W], value[U][N];
#pragma unroll
    for (int u = 0; u < U; u++) {
#pragma unroll
        for (int v = 0; v < W; v++) weight[u][v] = F::widen(__ldg(w[v] + from + u * WARP));
#pragma unroll
        for (int n = 0; n < N; n++) value[u][n] = __ldg(in[n] + from + u * WARP);
    }
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) acc[v][n] = fma(weight[u][v], value[u][n], acc[v][n]);
}

// N places from `place` on, of which `there` exist; the warp's weight rows begin at `row`.
template <int N, int W>
DEVICE void warp_rows(const Matrix &m, u32 row, const float *x, const u32 *enter, u32 place, u32 there, u32 cols) {
    const int U = N * W == 1 ? 16 : N * W <= 8 ? 8 : 4;
    const F::Bits *w[W];
    const float *in[N];
    float acc[W][N];
#pragma unroll
    for (int v = 0; v < W; v++) w[v] = m.w + (u64)min(row + v, m.rows - 1) * cols;
#pragma unroll
    for (int n = 0; n < N; n++) {
        u32 at = place + min((u32)n, there - 1);
        in[n] = x + (u64)(enter ? __ldg(enter + at) : at) * cols;
    }
#pragma unroll
    for (int v = 0; v < W; v++)
#pragma unroll
        for (int n = 0; n < N; n++) acc[v][n] = 0.0f;
    u32 i = lane();
    for (; i + (U - 1) * WARP < cols; i += U * WARP) step<N, W, U>(w, in, i, acc);
    for (; i < cols; i += WARP) step<N, W, 1>(w, in, i, acc);
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
        u32 there = __ldg(count);
        group = __ldg(groups + blockIdx.y);
        if (blockIdx.y >= there) return;
    }
    u32 block = blockIdx.x;
    Matrix m;
    if (!claim(m, block, w0, y0, rows0, stride0, group.x, WARPS * W))
        if (!claim(m, block, w1, y1, rows1, stride1, group.x, WARPS * W))
            if (!claim(m, block, w2, y2, rows2, stride2, group.x, WARPS * W))
                claim(m, block, w3, y3, rows3, stride3, group.x, WARPS * W);
    u32 row = m.row + threadIdx.x / WARP * W;
    if (row >= m.rows) return;
    if (ONE) return warp_rows<1, W>(m, row, x, enter, group.y, 1, cols);
    for (u32 from = blockIdx.z * 8; from < group.z; from += gridDim.z * 8) {
        u32 place = group.y + from, there = min(8u, group.z - from);
        if (there == 1) warp_rows<1, W>(m, row, x, enter, place, there, cols);
        else if (there == 2) warp_rows<2, W>(m, row, x, enter, place, there, cols);
        else if (there <= 4) warp_rows<4, W>(m, row, x, enter, place, there, cols);
        else warp_rows<8, W>(m, row, x, enter, place, there, cols);
    }
}

// Groups of one place.
KERNEL(64, 16) product_1(PRODUCT) { run<true>(GIVEN); }

// Groups of any size.
KERNEL(64, 8) product_n(PRODUCT) { run<false>(GIVEN); }
