// What the quantised products share: which threads do what, the rows that enter, the chain over blocks.
//
//   y[place][row] = w[expert][row] · x[enter[place]], a chain over the weights' blocks in ascending order:
//   acc = fma(d · dx, I, acc), and with a minimum acc = fma(-(dmin · dx), M, acc)
//
// Up to four matrices of one width and format have one input: w [expert][tile][block] (quant.cuh), `stride` 16-byte
// units from expert to expert, y [place][rows]; a matrix that is not there has 0 rows. Activations: q [row][width], d
// [row][blocks], sums [row][width / 16]. Without `groups` there is one group: expert 0, places 0..rows. With them,
// groups [group] = {expert, first place, places, 0}, count[0] of them. enter [place] = input row, or 0 for the place
// itself.
//
// Launch: 256 threads; blocks (Σ sets of a matrix / (8 >> split), groups, tiles of places); `tile` places at most at a
// time. A set is 32 · W weight rows; the 8 warps are 8 >> split sets, 1 << split warps taking turns in a set's units
// (BLOCKS blocks each). If one turn does not cover the width, split is 3. A warp leaves its integers in its area of
// shared memory, then the warps chain. Shared: 8 areas.
#pragma once
#include "quant.cuh"

typedef VARIANT F;

#define WARPS 8
#define MATRIX(i) const u8 *w##i, float *y##i, u32 rows##i, u32 stride##i
#define PRODUCT                                                                                                        \
    MATRIX(0), MATRIX(1), MATRIX(2), MATRIX(3), const i8 *q, const float *d, const i16 *sums, const uint4 *groups,     \
        const u32 *count, const u32 *enter, u32 rows, u32 blocks, u32 split, u32 tile
#define GIVEN                                                                                                          \
    w0, y0, rows0, stride0, w1, y1, rows1, stride1, w2, y2, rows2, stride2, w3, y3, rows3, stride3, q, d, sums, groups,\
        count, enter, rows, blocks, split, tile

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

// What a warp leaves of a block of weights, in singles: I [N][32 W], M likewise, d and dmin [32 W], dx [N]. Where a
// block is its own sub-block, M is the same for all weights: MX [N].
template <int N, int W> struct Record {
    static const int ROWS = 32 * W, M = N * ROWS, D = M + (F::MIN && F::LEN == 256 ? N * ROWS : 0);
    static const int DMIN = D + ROWS, DX = DMIN + (F::MIN ? ROWS : 0), MX = DX + N, SIZE = MX + N;
};

// Takes the block of threads if it is one of this matrix's; counts on to the next if not.
DEVICE bool claim(Matrix &m, u32 &block, const u8 *w, float *y, u32 rows, u32 shift, u32 split) {
    u32 blocks = (rows + (1u << shift) - 1) >> shift;
    if (block >= blocks) {
        block -= blocks;
        return false;
    }
    m.w = w;
    m.y = y;
    m.rows = rows;
    m.set = block << (3 - split);
    return true;
}

// The sum of two neighbours of `sums`.
DEVICE i32 both_sums(const i16 *at) {
    u32 both = __ldg((const u32 *)at);
    return (i32)(i16)both + (i32)(i16)(both >> 16);
}

// Sums of the activations that share a scale, of SUBS sub-blocks from `sub` on: asked for, then put to [sub-block][N].
template <int N, int SUBS> struct Sums {
    static const int TURNS = (N * SUBS + 31) / 32;
    i32 sum[TURNS];

    __device__ __forceinline__ Sums(const Input &in, u32 sub) {
        const u32 per = F::LEN / F::SUB;
#pragma unroll
        for (u32 t = 0; t < TURNS; t++) {
            u32 i = t * WARP + lane(), n = i % N, at = sub + i / N;
            sum[t] = 0;
            if (i >= SUBS * N || n >= in.rows || at >= in.blocks * per) continue;
            const i16 *from = in.sums + (in.row[n] * in.blocks * per + at) * (F::SUB / 16);
            sum[t] = F::SUB == 16 ? (i32)(i16)__ldg((const u16 *)from) : both_sums(from);
        }
    }

    __device__ __forceinline__ void store(float *to, float factor) const {
#pragma unroll
        for (u32 t = 0; t < TURNS; t++) {
            u32 i = t * WARP + lane();
            if (i < SUBS * N) to[i] = mul((float)sum[t], factor);
        }
    }
};

// The floats of a record: asked for at first, needed at last.
template <int N, int W> struct Heads {
    typedef Record<N, W> R;
    float d[W], dmin[W], dx, mx;

    __device__ __forceinline__ void load(const Input &in, const u8 *const (&w)[W], u32 block) {
#pragma unroll
        for (int v = 0; v < W; v++) load_head<F>(w[v] + block * F::BLOCK + F::GROUPS * F::GROUP, d[v], dmin[v]);
        dx = mx = 0.0f;
        if (lane() >= min((u32)N, in.rows)) return;
        u32 at = in.row[lane()] * in.blocks + block;
        dx = __ldg(in.d + at);
        if (F::MIN && F::LEN == 32) mx = (float)both_sums(in.sums + 2 * at);
    }

    __device__ __forceinline__ void store(float *record) const {
#pragma unroll
        for (int v = 0; v < W; v++) {
            record[R::D + v * WARP + lane()] = d[v];
            if (F::MIN) record[R::DMIN + v * WARP + lane()] = dmin[v];
        }
        if (lane() >= N) return;
        record[R::DX + lane()] = dx;
        if (F::MIN && F::LEN == 32) record[R::MX + lane()] = mx;
    }
};

// What a warp does, lanes being weight rows. A (arithmetic) says how: WORDS singles hold 32 staged activations of a
// row; `step` groups are staged at a time; a Sum holds a sub-block's I, a Total a block's; sums [N] of a centred format
// are times `centre`.
template <class A, int N, int W> struct Lanes {
    typedef Record<N, W> R;
    static const int BLOCKS = F::LEN == 256 ? 1 : N <= 2 ? 4 : 8 / N;
    static const int GROUPS = F::LEN == 256 ? 8 : BLOCKS, MOST = A::template step<N>();
    static const int STEP = GROUPS < MOST ? GROUPS : MOST;
    static const int SUBS = 32 / F::SUB, SUMS = N * A::WORDS * STEP, STAGED = SUMS + N * STEP * SUBS;
    // A block's record takes the place of what was staged; those of several small blocks lie behind.
    static const int RECORDS = F::LEN == 256 ? 0 : STAGED, END = RECORDS + R::SIZE * BLOCKS;
    // Groups that are under way from memory while one is worked on, and groups in a row without a jump.
    static const int AHEAD = N * W == 1 ? A::AHEAD : 1, UNROLL = N * W <= 2 ? A::AHEAD / (N * W) : 1;
    static const int AREA = ((END > STAGED ? END : STAGED) + 3) / 4 * 4;

    // Stages STEP groups from group `group` of the rows on.
    static __device__ __forceinline__ void stage(const Input &in, u32 group, float *area) {
        const bool centred = F::CENTRE && A::centre() != 0.0f, needed = centred || (F::MIN && F::LEN == 256);
        typename A::template Staged<N, STEP> staged(in, group * 32);
        if constexpr (needed) {
            Sums<N, STEP * SUBS> sums(in, group * SUBS);
            sums.store(area + SUMS, centred ? A::centre() : 1.0f);
        }
        staged.store(area);
        __syncwarp();
    }

    static __device__ __forceinline__ void load(const u8 *const (&w)[W], u32 at, Group<F> (&to)[W]) {
#pragma unroll
        for (int v = 0; v < W; v++) to[v] = load_group<F>(w[v] + at);
    }

    // Blocks of 32: each group's I is a record. Blocks behind the last are read as the last.
    static __device__ __forceinline__ void narrow(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        const int ahead = AHEAD < BLOCKS ? AHEAD : BLOCKS;
        u32 there = min((u32)BLOCKS, in.blocks - block);
        Group<F> ring[ahead][W];
#pragma unroll
        for (u32 i = 0; i < ahead; i++) load(w, (block + min(i, there - 1)) * F::BLOCK, ring[i]);
        Heads<N, W> heads[BLOCKS];
#pragma unroll
        for (u32 b = 0; b < BLOCKS; b++) heads[b].load(in, w, block + min(b, there - 1));
        stage(in, block, area);
#pragma unroll
        for (u32 b = 0; b < BLOCKS; b++) {
            if (b >= there) continue;
            Group<F> g[W];
#pragma unroll
            for (int v = 0; v < W; v++) g[v] = ring[b % ahead][v];
            if (b + ahead < there) load(w, (block + b + ahead) * F::BLOCK, ring[b % ahead]);
            typename A::Sum i[W][N];
            A::template dot<N, W, STEP, 0>(g, area + A::WORDS * b, area + SUMS + N * b, i);
            float *record = area + RECORDS + b * R::SIZE;
#pragma unroll
            for (int v = 0; v < W; v++)
#pragma unroll
                for (int n = 0; n < N; n++) record[n * R::ROWS + v * WARP + lane()] = A::single(i[v][n]);
            heads[b].store(record);
        }
    }

    // Sub-block `sub` of a group of a block of 256.
    template <int sub>
    static __device__ __forceinline__ void
    part(const Group<F> (&g)[W], const float *x, const float *sums, typename A::Total (&total)[W][N],
         float (&most)[W][N]) {
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
        Group<F> ring[AHEAD][W];
        const u8 *from[W];
#pragma unroll
        for (int v = 0; v < W; v++) from[v] = w[v] + block * F::BLOCK;
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) load(from, i * F::GROUP, ring[i]);
        Heads<N, W> heads;
        heads.load(in, w, block);
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) total[v][n].clear(), most[v][n] = 0.0f;
#pragma unroll 1
        for (u32 k = 0; k < 8; k += UNROLL) {
            if (k % STEP == 0) stage(in, block * 8 + k, area);
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                Group<F> g[W];
#pragma unroll
                for (int v = 0; v < W; v++) g[v] = ring[i % AHEAD][v];
                // Without a branch, so that it can begin before the work; behind the last group that one comes again.
                if (i + AHEAD < UNROLL) load(from, (i + AHEAD) * F::GROUP, ring[i % AHEAD]);
                else if (UNROLL < 8) load(from, (k + i + AHEAD < 8 ? i + AHEAD : i) * F::GROUP, ring[i % AHEAD]);
                const u32 at = (k + i) % STEP;
                const float *x = area + A::WORDS * at, *sums = area + SUMS + at * SUBS * N;
                part<0>(g, x, sums, total, most);
                if constexpr (SUBS == 2) part<1>(g, x, sums + N, total, most);
                if ((k + i + 1) % F::FLUSH != 0) continue;
#pragma unroll
                for (int v = 0; v < W; v++)
#pragma unroll
                    for (int n = 0; n < N; n++) total[v][n].flush();
            }
#pragma unroll
            for (int v = 0; v < W; v++) from[v] += UNROLL * F::GROUP;
            if ((k + UNROLL) % STEP == 0) __syncwarp();
        }
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                area[n * R::ROWS + v * WARP + lane()] = total[v][n].value();
                if (F::MIN) area[R::M + n * R::ROWS + v * WARP + lane()] = most[v][n];
            }
        heads.store(area);
    }

    static __device__ __forceinline__ void unit(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        if constexpr (F::LEN == 256) wide(in, w, block, area);
        else narrow(in, w, block, area);
    }
};

// B links from link `at` of a set on: read first, then chained. `area` is the set's first; `v`, `n` name the chain.
template <class L, int N, int W, int B> DEVICE float links(const float *area, u32 at, u32 v, u32 n, float acc) {
    typedef Record<N, W> R;
    const float *first = area + L::RECORDS + at / L::BLOCKS * L::AREA + at % L::BLOCKS * R::SIZE;
    const float *place = first + n, *column = first + v * WARP + lane(), *integers = column + n * R::ROWS;
    float scale[B], some[B], minimum[B], most[B];
#pragma unroll
    for (u32 b = 0; b < B; b++) {
        const u32 offset = b / L::BLOCKS * L::AREA + b % L::BLOCKS * R::SIZE;
        float dx = place[offset + R::DX];
        scale[b] = mul(column[offset + R::D], dx);
        some[b] = integers[offset];
        if (!F::MIN) continue;
        minimum[b] = -mul(column[offset + R::DMIN], dx);
        most[b] = F::LEN == 256 ? integers[offset + R::M] : place[offset + R::MX];
    }
#pragma unroll
    for (u32 b = 0; b < B; b++) {
        acc = fma(scale[b], some[b], acc);
        if (F::MIN) acc = fma(minimum[b], most[b], acc);
    }
    return acc;
}

// Chain `i` of the block of threads: of a set, a lane's weight row and a place.
template <class L, int N, int W> struct Chain {
    u32 n, v, row;
    const float *area;
    bool there;

    __device__ __forceinline__ Chain(const Matrix &m, const Input &in, u32 split, u32 i, const float *shared) {
        u32 set = i / (N * W);
        n = i % N, v = i / N % W;
        row = ((m.set + set) * W + v) * WARP + lane();
        area = shared + (set << split) * L::AREA;
        there = row < m.rows && n < in.rows;
    }

    // Goes on over the `end` blocks that lie in the set's areas.
    __device__ __forceinline__ float run(u32 end, float acc) const {
        u32 at = 0;
#pragma unroll 1
        for (; at + 4 <= end; at += 4) acc = links<L, N, W, 4>(area, at, v, n, acc);
#pragma unroll 1
        for (; at < end; at++) acc = links<L, N, W, 1>(area, at, v, n, acc);
        return acc;
    }

    __device__ __forceinline__ void write(const Matrix &m, const Input &in, float acc) const {
        m.y[(u64)(in.place + n) * m.rows + row] = acc;
    }
};

// A tile of at most N places.
template <class L, int N, int W> DEVICE void product_tile(const Matrix &m, const Input &in, u32 split) {
    typedef Chain<L, N, W> C;
    SHARED;
    float *shared = (float *)shared_memory;
    u32 warp = threadIdx.x / WARP, slice = warp & ((1u << split) - 1);
    u32 units = (in.blocks + L::BLOCKS - 1) / L::BLOCKS;
    u32 tiles = (m.rows + WARP - 1) / WARP, tile = (m.set + (warp >> split)) * W;
    const u8 *w[W];
#pragma unroll
    for (int v = 0; v < W; v++) w[v] = m.w + (u64)min(tile + v, tiles - 1) * (in.blocks * F::BLOCK);
    // With split 3 these are all chains of a warp; with less they end in the first turn.
    const int mine = (W * N + WARPS - 1) / WARPS;
    float acc[mine];
#pragma unroll
    for (int j = 0; j < mine; j++) acc[j] = 0.0f;
    for (u32 turn = 0; turn << split < units; turn++) {
        u32 unit = (turn << split) + slice, first = (turn << split) * L::BLOCKS;
        u32 end = min(in.blocks - first, (u32)L::BLOCKS << split);
        if (tile < tiles && unit < units) L::unit(in, w, unit * L::BLOCKS, shared + warp * L::AREA);
        __syncthreads();
        if (split == 3) {
#pragma unroll
            for (int j = 0; j < mine; j++) {
                C chain(m, in, split, warp + j * WARPS, shared);
                if (warp + j * WARPS >= W * N || !chain.there) continue;
                acc[j] = chain.run(end, acc[j]);
                if (first + end == in.blocks) chain.write(m, in, acc[j]);
            }
        } else {
#pragma unroll 1
            for (u32 i = warp; i < (W * N * WARPS) >> split; i += WARPS) {
                C chain(m, in, split, i, shared);
                if (chain.there) chain.write(m, in, chain.run(end, 0.0f));
            }
        }
        __syncthreads();
    }
}

// The block's matrix and group; false if there is none.
DEVICE bool begin(Matrix &m, Input &in, u32 shift, PRODUCT) {
    uint4 group = make_uint4(0, 0, rows, 0);
    if (groups) {
        // The table has room for as many groups as there are blocks; both loads are under way at once.
        u32 there = __ldg(count);
        group = __ldg(groups + blockIdx.y);
        if (blockIdx.y >= there) return false;
    }
    u32 block = blockIdx.x, stride = stride0;
    if (!claim(m, block, w0, y0, rows0, shift, split)) {
        stride = stride1;
        if (!claim(m, block, w1, y1, rows1, shift, split)) {
            stride = stride2;
            if (!claim(m, block, w2, y2, rows2, shift, split)) {
                stride = stride3;
                claim(m, block, w3, y3, rows3, shift, split);
            }
        }
    }
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
        if (threadIdx.x < in.rows)
            row[threadIdx.x] = enter ? __ldg(enter + in.place + threadIdx.x) : in.place + threadIdx.x;
        __syncthreads();
        T::tile(m, in, split);
    }
}

// Up to eight places, lanes being weight rows.
template <class A> struct Eight {
    static const int MOST = 8, W = 2;
    static __device__ __forceinline__ void tile(const Matrix &m, const Input &in, u32 split) {
        if (in.rows == 1) product_tile<Lanes<A, 1, 2>, 1, 2>(m, in, split);
        else if (in.rows == 2) product_tile<Lanes<A, 2, 2>, 2, 2>(m, in, split);
        else if (in.rows <= 4) product_tile<Lanes<A, 4, 2>, 4, 2>(m, in, split);
        else product_tile<Lanes<A, 8, 2>, 8, 2>(m, in, split);
    }
};

// Up to two: fewer registers, so more warps at once.
template <class A> struct Two {
    static const int MOST = 2, W = 2;
    static __device__ __forceinline__ void tile(const Matrix &m, const Input &in, u32 split) {
        if (in.rows == 1) product_tile<Lanes<A, 1, 2>, 1, 2>(m, in, split);
        else product_tile<Lanes<A, 2, 2>, 2, 2>(m, in, split);
    }
};
