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
// Launch: 256 threads; blocks (Σ sets of a matrix / (8 >> split), groups, tiles of places); `tile` places at most at a time. A
// set is 32 · W weight rows; the 8 warps are 8 >> split sets, 1 << split warps taking turns in a set's
// units (BLOCKS blocks each). If one turn does not cover the width, split is 3. A warp leaves its integers in its area of shared
// memory, then the warps chain; between turns the chains stand in y. Shared: 8 areas.
#pragma once
#include "quant.cuh"

typedef VARIANT F;

#define WARPS 8
#define MATRIX(i) const u8 *w##i, float *y##i, u32 rows##i, u32 stride##i
#define PRODUCT                                                                                                                \
    MATRIX(0), MATRIX(1), MATRIX(2), MATRIX(3), const i8 *q, const float *d, const i16 *sums, const uint4 *groups,             \
        const u32 *count, const u32 *enter, u32 rows, u32 blocks, u32 split, u32 tile
#define GIVEN                                                                                                                  \
    w0, y0, rows0, stride0, w1, y1, rows1, stride1, w2, y2, rows2, stride2, w3, y3, rows3, stride3, q, d, sums, groups, count, \
        enter, rows, blocks, split, tile

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
    static const int ROWS = 32 * W, M = N * ROWS, D = M + (F::MIN && F::LEN == 256 ? N * ROWS : 0);
    static const int DMIN = D + ROWS, DX = DMIN + (F::MIN ? ROWS : 0), MX = DX + N, SIZE = MX + N;
};

// Takes the block of threads if it is one of this matrix's; counts on to the next if not. Behind its matrix a block's number is
// negative, hence large.
DEVICE void claim(Matrix &m, u32 &stride, u32 &block, const u8 *w, float *y, u32 rows, u32 stride_here, u32 shift, u32 split) {
    u32 blocks = (rows + (1u << shift) - 1) >> shift;
    if (block < blocks) {
        m.w = w;
        m.y = y;
        m.rows = rows;
        m.set = block << (3 - split);
        stride = stride_here;
    }
    block -= blocks;
}

// The sum of two neighbours of `sums`.
DEVICE i32 both_sums(const i16 *at) {
    u32 both = __ldg((const u32 *)at);
    return (i32)(i16)both + (i32)(i16)(both >> 16);
}

// The sums of the activations that share a scale, of `subs` sub-blocks from `sub` on: to [sub-block][N], times `factor`.
template <int N> DEVICE void stage_sums(const Input &in, u32 sub, u32 subs, float *to, float factor) {
    const u32 per = F::LEN / F::SUB;
    for (u32 i = lane(); i < subs * N; i += WARP) {
        u32 n = i % N, at = sub + i / N;
        i32 v = 0;
        if (n < in.rows && at < in.blocks * per) {
            const i16 *sums = in.sums + (in.row[n] * in.blocks * per + at) * (F::SUB / 16);
            v = F::SUB == 16 ? (i32)(i16)__ldg((const u16 *)sums) : both_sums(sums);
        }
        to[i] = mul((float)v, factor);
    }
}

// The floats of a record.
template <int N, int W> DEVICE void finish(const Input &in, const u8 *const (&w)[W], u32 block, float *record) {
    typedef Record<N, W> R;
#pragma unroll
    for (int v = 0; v < W; v++) {
        float d, dmin;
        load_head<F>(w[v] + block * F::BLOCK + F::GROUPS * F::GROUP, d, dmin);
        record[R::D + v * WARP + lane()] = d;
        if (F::MIN) record[R::DMIN + v * WARP + lane()] = dmin;
    }
    if (lane() >= N) return;
    bool there = lane() < in.rows;
    u32 at = there ? in.row[lane()] * in.blocks + block : 0;
    record[R::DX + lane()] = there ? __ldg(in.d + at) : 0.0f;
    if (F::MIN && F::LEN == 32) record[R::MX + lane()] = there ? (float)both_sums(in.sums + 2 * at) : 0.0f;
}

// What a warp does, lanes being weight rows. A (arithmetic) says how: WORDS singles hold 32 staged activations of a row; `step`
// groups are staged at a time; a Sum holds a sub-block's I, a Total a block's; sums [N] of a centred format are times `centre`.
template <class A, int N, int W> struct Lanes {
    typedef Record<N, W> R;
    static const int BLOCKS = F::LEN == 256 ? 1 : N <= 2 ? 4 : 8 / N;
    static const int GROUPS = F::LEN == 256 ? 8 : BLOCKS, STEP = GROUPS < A::template step<N>() ? GROUPS : A::template step<N>();
    static const int SUBS = 32 / F::SUB, SUMS = N * A::WORDS * STEP, STAGED = SUMS + N * STEP * SUBS;
    // A block's record takes the place of what was staged; those of several small blocks lie behind.
    static const int RECORDS = F::LEN == 256 ? 0 : STAGED, END = RECORDS + R::SIZE * BLOCKS;
    // Groups in a row without a jump, where there is little to do for each.
    static const int UNROLL = N * W == 1 ? A::UNROLL : N * W <= 4 ? 2 : 1;
    static const int AREA = ((END > STAGED ? END : STAGED) + 3) / 4 * 4;

    // Stages STEP groups from group `group` of the rows on.
    static __device__ __forceinline__ void stage(const Input &in, u32 group, float *area) {
        A::template stage<N, STEP>(in, group * 32, area);
        if (F::CENTRE && A::centre() != 0.0f) stage_sums<N>(in, group * SUBS, STEP * SUBS, area + SUMS, A::centre());
        if (F::MIN && F::LEN == 256) stage_sums<N>(in, group * SUBS, STEP * SUBS, area + SUMS, 1.0f);
        __syncwarp();
    }

    // Blocks of 32: each group's I is a record.
    static __device__ __forceinline__ void narrow(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        stage(in, block, area);
#pragma unroll 1
        for (u32 b = 0; b < min((u32)BLOCKS, in.blocks - block); b++) {
            Group<F> g[W];
#pragma unroll
            for (int v = 0; v < W; v++) g[v] = load_group<F>(w[v] + (block + b) * F::BLOCK);
            typename A::Sum i[W][N];
            A::template dot<N, W, STEP, 0>(g, area + A::WORDS * b, area + SUMS + N * b, i);
            float *record = area + RECORDS + b * R::SIZE;
#pragma unroll
            for (int v = 0; v < W; v++)
#pragma unroll
                for (int n = 0; n < N; n++) record[n * R::ROWS + v * WARP + lane()] = A::single(i[v][n]);
            finish<N, W>(in, w, block + b, record);
        }
    }

    // Sub-block `sub` of a group of a block of 256.
    template <int sub>
    static __device__ __forceinline__ void
    part(const Group<F> (&g)[W], const float *x, const float *sums, typename A::Total (&total)[W][N], float (&most)[W][N]) {
        typename A::Sum i[W][N];
        A::template dot<N, W, STEP, sub>(g, x, sums, i);
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                total[v][n].add(scale_of<F>(g[v].scales, sub), i[v][n]);
                if (F::MIN) most[v][n] = fma((float)min_of<F>(g[v].scales, sub), sums[n], most[v][n]);
            }
    }

    // Blocks of 256.
    static __device__ __forceinline__ void wide(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        typename A::Total total[W][N];
        float most[W][N];
        Group<F> next[W];
        const u8 *from[W];
#pragma unroll
        for (int v = 0; v < W; v++) {
            from[v] = w[v] + block * F::BLOCK;
            next[v] = load_group<F>(from[v]);
#pragma unroll
            for (int n = 0; n < N; n++) total[v][n].clear(), most[v][n] = 0.0f;
        }
#pragma unroll 1
        for (u32 k = 0; k < 8; k += STEP) {
            stage(in, block * 8 + k, area);
#pragma unroll(UNROLL)
            for (u32 i = 0; i < STEP; i++) {
                Group<F> g[W];
#pragma unroll
                for (int v = 0; v < W; v++) {
                    g[v] = next[v];
                    if (k + i < 7) next[v] = load_group<F>(from[v] + (k + i + 1) * F::GROUP);
                }
                const float *x = area + A::WORDS * i, *sums = area + SUMS + i * SUBS * N;
                part<0>(g, x, sums, total, most);
                if constexpr (SUBS == 2) part<1>(g, x, sums + N, total, most);
                if ((i + 1) % F::FLUSH != 0) continue;
#pragma unroll
                for (int v = 0; v < W; v++)
#pragma unroll
                    for (int n = 0; n < N; n++) total[v][n].flush();
            }
            __syncwarp();
        }
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                area[n * R::ROWS + v * WARP + lane()] = total[v][n].value();
                if (F::MIN) area[R::M + n * R::ROWS + v * WARP + lane()] = most[v][n];
            }
        finish<N, W>(in, w, block, area);
    }

    static __device__ __forceinline__ void unit(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        if constexpr (F::LEN == 256) wide(in, w, block, area);
        else narrow(in, w, block, area);
    }
};

// A link: integers, d and dmin are the lane's, dx and MX its place's.
template <int N, int W> DEVICE float link(const float *integers, const float *column, const float *place, float acc) {
    typedef Record<N, W> R;
    float dx = place[R::DX];
    acc = fma(mul(column[R::D], dx), integers[0], acc);
    if (F::MIN) acc = fma(-mul(column[R::DMIN], dx), F::LEN == 256 ? integers[R::M] : place[R::MX], acc);
    return acc;
}

// Continues the chains of all sets over the blocks that lie in the warps' areas.
template <class L, int N, int W>
DEVICE void chain(const Matrix &m, const Input &in, u32 split, u32 turn, const float *shared) {
    typedef Record<N, W> R;
    u32 first = (turn << split) * L::BLOCKS, links = min(in.blocks - first, (u32)L::BLOCKS << split);
#pragma unroll 1
    for (u32 i = threadIdx.x / WARP; i < (W * N * WARPS) >> split; i += WARPS) {
        u32 n = i % N, v = i / N % W, set = i / (N * W);
        u32 row = ((m.set + set) * W + v) * WARP + lane();
        if (row >= m.rows || n >= in.rows) continue;
        float *y = m.y + (u64)(in.place + n) * m.rows + row, acc = turn ? *y : 0.0f;
        const float *place = shared + (set << split) * L::AREA + L::RECORDS, *column = place + v * WARP + lane();
        const float *integers = column + n * R::ROWS;
        place += n;
#pragma unroll(L::BLOCKS == 1 ? 4 : 1)
        for (u32 at = 0; at < links; at += L::BLOCKS) {
#pragma unroll
            for (u32 b = 0; b < L::BLOCKS; b++)
                if (b == 0 || at + b < links)
                    acc = link<N, W>(integers + b * R::SIZE, column + b * R::SIZE, place + b * R::SIZE, acc);
            integers += L::AREA, column += L::AREA, place += L::AREA;
        }
        *y = acc;
    }
}

// A tile of at most N places.
template <class L, int N, int W> DEVICE void product_tile(const Matrix &m, const Input &in, u32 split) {
    typedef Record<N, W> R;
    SHARED;
    float *shared = (float *)shared_memory;
    u32 warp = threadIdx.x / WARP, slice = warp & ((1u << split) - 1);
    u32 units = (in.blocks + L::BLOCKS - 1) / L::BLOCKS;
    u32 tiles = (m.rows + WARP - 1) / WARP, tile = (m.set + (warp >> split)) * W;
    const u8 *w[W];
#pragma unroll
    for (int v = 0; v < W; v++) w[v] = m.w + (u64)min(tile + v, tiles - 1) * (in.blocks * F::BLOCK);
    for (u32 turn = 0; turn << split < units; turn++) {
        u32 unit = (turn << split) + slice;
        if (tile < tiles && unit < units) L::unit(in, w, unit * L::BLOCKS, shared + warp * L::AREA);
        __syncthreads();
        chain<L, N, W>(m, in, split, turn, shared);
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
    u32 block = blockIdx.x, stride = 0;
    claim(m, stride, block, w0, y0, rows0, stride0, shift, split);
    claim(m, stride, block, w1, y1, rows1, stride1, shift, split);
    claim(m, stride, block, w2, y2, rows2, stride2, shift, split);
    claim(m, stride, block, w3, y3, rows3, stride3, shift, split);
    m.w += (u64)group.x * stride * 16;
    in.q = q, in.d = d, in.sums = sums, in.blocks = blocks, in.place = group.y, in.rows = group.z;
    return true;
}

// Groups of one place.
template <class A> DEVICE void run_one(PRODUCT) {
    Matrix m;
    Input in;
    if (!begin(m, in, 8 - split, GIVEN)) return;
    u32 row = enter ? __ldg(enter + in.place) : in.place;
    in.row = &row;
    product_tile<Lanes<A, 1, 1>, 1, 1>(m, in, split);
}

// Groups of any size, `tile` places at a time, T::MOST at most.
template <class T> DEVICE void run_many(PRODUCT) {
    __shared__ u32 row[T::MOST];
    Matrix m;
    Input in;
    if (!begin(m, in, (T::W == 2 ? 9 : 8) - split, GIVEN)) return;
    u32 first = in.place, places = in.rows;
    in.row = row;
    for (u32 from = blockIdx.z * tile; from < places; from += gridDim.z * tile) {
        in.place = first + from;
        in.rows = min(tile, places - from);
        if (threadIdx.x < in.rows) row[threadIdx.x] = enter ? __ldg(enter + in.place + threadIdx.x) : in.place + threadIdx.x;
        __syncthreads();
        T::tile(m, in, split);
    }
}

// Few places, lanes being weight rows.
template <class A> struct Few {
    static const int MOST = 8, W = 2;
    static __device__ __forceinline__ void tile(const Matrix &m, const Input &in, u32 split) {
        if (in.rows == 1) product_tile<Lanes<A, 1, 2>, 1, 2>(m, in, split);
        else if (in.rows == 2) product_tile<Lanes<A, 2, 2>, 2, 2>(m, in, split);
        else if (in.rows <= 4) product_tile<Lanes<A, 4, 2>, 4, 2>(m, in, split);
        else product_tile<Lanes<A, 8, 2>, 8, 2>(m, in, split);
    }
};
