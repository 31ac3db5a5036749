// What the quantised products share: which threads do what, the rows that enter, the chain over blocks.
//
//   y[place][row] = w[expert][row] · x[enter[place]], a chain over the weights' blocks in ascending order:
//   acc = fma(d · dx, I, acc), and with a minimum acc = fma(-(dmin · dx), M, acc)
//
// Up to four matrices of one width and format have one input: w [expert][tile][block] (quant.cuh), `stride` 16-byte units from
// expert to expert, y [place][rows]; a matrix that is not there has 0 rows. Activations: q [row][width], d [row][blocks], sums
// [row][width / 16]. Without `groups` there is one group: expert 0, places 0..rows. With them, groups [group] = {expert, first
// place, places, 0}, count[0] of them. enter [place] = input row, or 0 for the place itself.
//
// Launch: 256 threads; blocks (Σ sets of a matrix / (8 >> split), groups, tiles of places at a time); `tile` places at most at a
// time. A set is 32 · W weight rows, a lane having W of them; the 8 warps are 8 >> split sets, 1 << split warps taking turns in
// a set's units (BLOCKS blocks). If they do not cover the width at once, split is 3. A warp leaves its integers in its area of
// shared memory; then the warps chain. Shared: 8 areas, and 32 · W · N singles of unfinished chains where there are several turns.
#pragma once
#include "quant.cuh"

typedef VARIANT F;

#define WARPS 8
#define MATRIX(i) const u8 *w##i, float *y##i, u32 rows##i, u32 stride##i
#define PRODUCT                                                                                                                \
    MATRIX(0), MATRIX(1), MATRIX(2), MATRIX(3), const i8 *q, const float *d, const i16 *sums, const uint4 *groups,             \
        const u32 *count, const u32 *enter, u32 rows, u32 blocks, u32 split, u32 tile

// The matrix of a block of threads, and its first set there.
struct Matrix {
    const u8 *w;
    float *y;
    u32 rows, set;
};

// The places of a tile, the activations they see and, of each, its row.
struct Input {
    const i8 *q;
    const float *d;
    const i16 *sums;
    const u32 *row;
    u32 blocks, place, rows;
};

// What a warp leaves of a block of weights, in singles: I [N][32 W], M likewise, d and dmin [32 W], dx [N]. Where a block is its
// own sub-block, M is the same for all weights: MX [N].
template <int N, int W> struct Record {
    static const int ROWS = 32 * W, I = 0, M = N * ROWS, D = M + (F::MIN && F::LEN == 256 ? N * ROWS : 0);
    static const int DMIN = D + ROWS, DX = DMIN + (F::MIN ? ROWS : 0), MX = DX + N, SIZE = MX + N;
    // Blocks of a unit.
    static const int BLOCKS = F::LEN == 256 ? 1 : N <= 2 ? 4 : 8 / N;
};

// Takes the block of threads if it is one of this matrix's; counts on to the next if not.
DEVICE void claim(Matrix &m, u32 &block, const u8 *w, float *y, u32 rows, u32 stride, u32 expert, u32 shift, u32 split) {
    u32 blocks = (rows + (1u << shift) - 1) >> shift;
    if (block < blocks) {
        m.w = w + (u64)expert * stride * 16;
        m.y = y;
        m.rows = rows;
        m.set = block << (3 - split);
    }
    // Behind its matrix a block's number is negative, hence large.
    block -= blocks;
}

// Writes the record's dx (and MX) for the rows of a tile.
template <int N, int W> DEVICE void record_rows(const Input &in, u32 block, float *record) {
    typedef Record<N, W> R;
    if (lane() >= N) return;
    bool there = lane() < in.rows;
    u32 row = there ? in.row[lane()] : 0;
    record[R::DX + lane()] = there ? __ldg(in.d + row * in.blocks + block) : 0.0f;
    if (F::MIN && F::LEN == 32) {
        u32 both = there ? __ldg((const u32 *)in.sums + row * in.blocks + block) : 0;
        record[R::MX + lane()] = (float)((i32)(i16)both + (i32)(i16)(both >> 16));
    }
}

// The sums of 16 or 32 activations, as many as share a scale: sums [sub-block][N] of `subs` sub-blocks from `sub` on.
template <int N> DEVICE void stage_sums(const Input &in, u32 sub, int subs, float *to, float factor) {
    for (int i = lane(); i < subs * N; i += WARP) {
        int n = i % N;
        u32 at = sub + i / N;
        float v = 0.0f;
        if (n < in.rows && at < in.blocks * (F::LEN / F::SUB)) {
            u32 index = in.row[n] * in.blocks * (F::LEN / F::SUB) + at;
            if (F::SUB == 16) v = (float)(i32)(i16)__ldg((const u16 *)in.sums + index);
            if (F::SUB == 32) {
                u32 both = __ldg((const u32 *)in.sums + index);
                v = (float)((i32)(i16)both + (i32)(i16)(both >> 16));
            }
        }
        to[i] = mul(v, factor);
    }
}

// Continues the chains of all sets over the blocks that lie in the warps' areas; the last turn writes y.
template <class Core, int N, int W>
DEVICE void chain(const Matrix &m, const Input &in, u32 split, u32 turn, u32 turns, const float *shared, float *carry) {
    typedef Record<N, W> R;
    u32 warp = threadIdx.x / WARP;
    for (u32 i = warp; i < (8u >> split) * W * N; i += WARPS) {
        u32 n = i % N, v = i / N % W, set = i / (N * W);
        float acc = turn ? carry[i * WARP + lane()] : 0.0f;
        u32 block = (turn << split) * R::BLOCKS;
        for (u32 slice = 0; slice < 1u << split; slice++) {
            const float *record = shared + ((set << split) + slice) * Core::template area<N, W>() + Core::template records<N, W>();
#pragma unroll
            for (int b = 0; b < R::BLOCKS; b++, block++, record += R::SIZE) {
                if (block >= in.blocks) break;
                u32 at = v * WARP + lane();
                float dx = record[R::DX + n];
                acc = fma(mul(record[R::D + at], dx), record[n * R::ROWS + at], acc);
                if (F::MIN) {
                    float most = F::LEN == 256 ? record[R::M + n * R::ROWS + at] : record[R::MX + n];
                    acc = fma(-mul(record[R::DMIN + at], dx), most, acc);
                }
            }
        }
        u32 row = ((m.set + set) * W + v) * WARP + lane();
        if (turn + 1 < turns) carry[i * WARP + lane()] = acc;
        else if (row < m.rows && n < in.rows) m.y[(u64)(in.place + n) * m.rows + row] = acc;
    }
}

// A tile of at most N places.
template <class Core, int N, int W> DEVICE void product_tile(const Matrix &m, const Input &in, u32 split) {
    typedef Record<N, W> R;
    SHARED;
    float *shared = (float *)shared_memory;
    u32 warp = threadIdx.x / WARP, slice = warp & ((1u << split) - 1);
    u32 units = (in.blocks + R::BLOCKS - 1) / R::BLOCKS, turns = (units + (1u << split) - 1) >> split;
    u32 tiles = (m.rows + WARP - 1) / WARP, tile = (m.set + (warp >> split)) * W;
    const u8 *w[W];
#pragma unroll
    for (int v = 0; v < W; v++) w[v] = m.w + (u64)min(tile + v, tiles - 1) * (in.blocks * F::BLOCK);
    float *area = shared + warp * Core::template area<N, W>();
    for (u32 turn = 0; turn < turns; turn++) {
        u32 unit = (turn << split) + slice;
        if (tile < tiles && unit < units) Core::template unit<N, W>(in, w, unit * R::BLOCKS, area);
        __syncthreads();
        chain<Core, N, W>(m, in, split, turn, turns, shared, shared + WARPS * Core::template area<N, W>());
        __syncthreads();
    }
}

// The block's matrix and group; false if there is none.
DEVICE bool begin(Matrix &m, Input &in, u32 shift, PRODUCT) {
    uint4 group = make_uint4(0, 0, rows, 0);
    if (groups) {
        if (blockIdx.y >= count[0]) return false;
        group = groups[blockIdx.y];
    }
    u32 block = blockIdx.x;
    claim(m, block, w0, y0, rows0, stride0, group.x, shift, split);
    claim(m, block, w1, y1, rows1, stride1, group.x, shift, split);
    claim(m, block, w2, y2, rows2, stride2, group.x, shift, split);
    claim(m, block, w3, y3, rows3, stride3, group.x, shift, split);
    in.q = q, in.d = d, in.sums = sums, in.blocks = blocks, in.place = group.y, in.rows = group.z;
    return true;
}

#define GIVEN                                                                                                                  \
    w0, y0, rows0, stride0, w1, y1, rows1, stride1, w2, y2, rows2, stride2, w3, y3, rows3, stride3, q, d, sums, groups, count, \
        enter, rows, blocks, split, tile

// Groups of one place.
template <class Core> DEVICE void run_one(PRODUCT) {
    Matrix m;
    Input in;
    if (!begin(m, in, 8 - split, GIVEN)) return;
    u32 row = enter ? __ldg(enter + in.place) : in.place;
    in.row = &row;
    product_tile<Core, 1, 1>(m, in, split);
}

// Groups of any size, `tile` places at a time.
template <class Core> DEVICE void run_many(PRODUCT) {
    __shared__ u32 row[8];
    Matrix m;
    Input in;
    if (!begin(m, in, 9 - split, GIVEN)) return;
    u32 first = in.place, places = in.rows;
    in.row = row;
    for (u32 from = blockIdx.z * tile; from < places; from += gridDim.z * tile) {
        in.place = first + from;
        in.rows = min(tile, places - from);
        if (threadIdx.x < in.rows) row[threadIdx.x] = enter ? __ldg(enter + in.place + threadIdx.x) : in.place + threadIdx.x;
        __syncthreads();
        if (in.rows == 1) product_tile<Core, 1, 2>(m, in, split);
        else if (in.rows == 2) product_tile<Core, 2, 2>(m, in, split);
        else if (in.rows <= 4) product_tile<Core, 4, 2>(m, in, split);
        else product_tile<Core, 8, 2>(m, in, split);
    }
}
