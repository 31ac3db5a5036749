// Quantised products of many rows on tensor cores: signed bytes, 16 weight rows by 32 weights by 8 places each (sm_80).
//
// A warp has a tile of 32 weight rows and N places. The order of the 32 weights of a group is free as long as both
// sides keep it: lane l holds, of weight rows l/4 + 8k and of place l/4, weights 8(l%4) to 8(l%4) + 7, which are a word
// of codes and eight neighbouring activations. Sub-blocks of 16 are two products, each with the other half of the
// activations zero.
#include "product.cuh"

// Codes around 128 become signed bytes; other centres go out through the sums of the activations.
static const u32 FLIP = F::CENTRE == 128 ? 0x80808080u : 0;
static const bool CENTRED = F::CENTRE != 0 && FLIP == 0;

// What row `row` has of weights 8j to 8j + 7 of a group, as words 0 and 1 of a group of its own.
DEVICE Group<F> load_part(const u8 *at, u32 row, u32 j) {
    Group<F> g;
    const u8 *high = at + 128 * F::LOW, *scales = high + 128 * F::HIGH;
    if (F::LOW == 8) {
        uint2 v = __ldg((const uint2 *)(at + j / 2 * 512 + row * 16 + j % 2 * 8));
        g.low[0] = v.x, g.low[1] = v.y;
    }
    if (F::LOW == 4) g.low[0] = __ldg((const u32 *)(at + row * 16) + j);
    if (F::LOW == 2) g.low[0] = __ldg((const u32 *)(at + row * 8) + j / 2) >> (j % 2 * 2);
    if (F::HIGH) g.high[0] = __ldg((const u32 *)(high + row * 4 * F::HIGH) + (F::HIGH == 2 ? j / 2 : 0));
    if (F::CODES == THREE) g.high[0] = j < 2 ? g.high[0] >> j : g.high[0] << (4 - j);
    if (F::CODES == FIVE) g.high[0] = j < 2 ? g.high[0] >> 2 * j : g.high[0] << (8 - 2 * j);
    if (F::CODES == SIX) g.high[0] <<= j % 2 * 4;
    g.scales = 1;
    if (F::SCALES == 1) g.scales = __ldg(scales + row);
    if (F::SCALES == 2) g.scales = __ldg((const u16 *)scales + row);
    return g;
}

// The activations of a lane's place in each eight of N.
template <int N> struct Places {
    // Where its row begins; all ones if there is none.
    u32 at[N / 8];

    __device__ __forceinline__ Places(const Input &in) {
#pragma unroll
        for (int t = 0; t < N / 8; t++) {
            u32 n = 8 * t + lane() / 4;
            at[t] = n < in.rows ? in.row[n] * (in.blocks * F::LEN) + 8 * (lane() % 4) : 0xffffffffu;
        }
    }

    __device__ __forceinline__ uint2 load(const Input &in, int t, u32 group) const {
        return at[t] != 0xffffffffu ? __ldg((const uint2 *)(in.q + at[t] + 32 * group)) : make_uint2(0, 0);
    }
};

template <int N> struct Fragments {
    typedef Record<N, 1> R;
    static const int SUBS = 32 / F::SUB, BLOCKS = F::LEN == 256 ? 1 : 32 / N;
    // The sums of a unit, then its records.
    static const int SUMS = (F::LEN == 256 ? 8 * SUBS : BLOCKS) * N, RECORDS = SUMS;
    static const int AREA = (RECORDS + R::SIZE * BLOCKS + 3) / 4 * 4;

    // Sixteen weight rows by eight places: Σ code · x of sub-block `sub` of a group, centred, of weight rows l/4 and
    // l/4 + 8 by places 2(l%4) and one further. `upper` and `lower` are the lane's two rows.
    static __device__ __forceinline__ void
    dot(const Group<F> &upper, const Group<F> &lower, uint2 x, int sub, const float *sums, i32 (&d)[4]) {
        const bool here = SUBS == 1 || lane() % 4 / 2 == sub;
        float2 first = CENTRED ? *(const float2 *)(sums + 2 * (lane() % 4)) : make_float2(0.0f, 0.0f);
        u32 a[4] = {bytes(upper, 0, FLIP), bytes(lower, 0, FLIP), bytes(upper, 1, FLIP), bytes(lower, 1, FLIP)};
        u32 b[2] = {here ? x.x : 0, here ? x.y : 0};
        d[0] = d[2] = (i32)first.x;
        d[1] = d[3] = (i32)first.y;
        mma(d, a, b);
    }

    // Writes what lanes hold of [place][weight row], of the tile's sixteen rows `h`.
    template <class T> static __device__ __forceinline__ void store(const T (&d)[N / 8][4], u32 h, float *to) {
#pragma unroll
        for (int t = 0; t < N / 8; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[(8 * t + 2 * (lane() % 4) + i % 2) * R::ROWS + 16 * h + i / 2 * 8 + lane() / 4] = (float)d[t][i];
    }

    // The lane's two of sixteen rows.
    static __device__ __forceinline__ void load(const u8 *at, u32 h, Group<F> (&g)[2]) {
#pragma unroll
        for (int k = 0; k < 2; k++) g[k] = load_part(at, 16 * h + lane() / 4 + 8 * k, lane() % 4);
    }

    // Blocks of 32: each group's I is a record.
    static __device__ __forceinline__ void narrow(const Input &in, const u8 *const (&w)[1], u32 block, float *area) {
        if (CENTRED) Sums<N, BLOCKS>(in, block).store(area, -F::CENTRE);
        __syncwarp();
        Places<N> places(in);
#pragma unroll 1
        for (u32 b = 0; b < min((u32)BLOCKS, in.blocks - block); b++) {
            Heads<N, 1> heads;
            heads.load(in, w, block + b);
            float *record = area + RECORDS + b * R::SIZE;
            uint2 x[N / 8];
#pragma unroll
            for (int t = 0; t < N / 8; t++) x[t] = places.load(in, t, block + b);
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                Group<F> g[2];
                i32 i[N / 8][4];
                load(w[0] + (block + b) * F::BLOCK, h, g);
#pragma unroll
                for (int t = 0; t < N / 8; t++) dot(g[0], g[1], x[t], 0, area + N * b + 8 * t, i[t]);
                store(i, h, record);
            }
            heads.store(record);
        }
    }

    // Blocks of 256, sixteen rows after the other: half the registers, twice the warps at once.
    static __device__ __forceinline__ void wide(const Input &in, const u8 *const (&w)[1], u32 block, float *area) {
        if (CENTRED || F::MIN) Sums<N, 8 * SUBS>(in, block * 8 * SUBS).store(area, F::MIN ? 1.0f : -F::CENTRE);
        __syncwarp();
        Places<N> places(in);
        float *record = area + RECORDS;
        Heads<N, 1> heads;
        heads.load(in, w, block);
        heads.store(record);
#pragma unroll 1
        for (u32 h = 0; h < 2; h++) {
            i32 total[N / 8][4];
            float most[N / 8][4];
#pragma unroll
            for (int i = 0; i < N / 2; i++) (&total[0][0])[i] = 0, (&most[0][0])[i] = 0.0f;
#pragma unroll 2
            for (u32 k = 0; k < 8; k++) {
                Group<F> g[2];
                uint2 x[N / 8];
                load(w[0] + block * F::BLOCK + k * F::GROUP, h, g);
#pragma unroll
                for (int t = 0; t < N / 8; t++) x[t] = places.load(in, t, block * 8 + k);
#pragma unroll
                for (int sub = 0; sub < SUBS; sub++)
#pragma unroll
                    for (int t = 0; t < N / 8; t++) {
                        const float *sums = area + (k * SUBS + sub) * N + 8 * t;
                        i32 some[4];
                        dot(g[0], g[1], x[t], sub, sums, some);
                        float2 sum = F::MIN ? *(const float2 *)(sums + 2 * (lane() % 4)) : make_float2(0.0f, 0.0f);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            u32 scales = g[i / 2].scales;
                            float &m = most[t][i];
                            total[t][i] += scale_of<F>(scales, sub) * some[i];
                            if (F::MIN) m = fma((float)min_of<F>(scales, sub), i % 2 ? sum.y : sum.x, m);
                        }
                    }
            }
            store(total, h, record);
            if (F::MIN) store(most, h, record + R::M);
        }
    }

    static __device__ __forceinline__ void unit(const Input &in, const u8 *const (&w)[1], u32 block, float *area) {
        if constexpr (F::LEN == 256) wide(in, w, block, area);
        else narrow(in, w, block, area);
    }
};

struct Tensor {
    static const int MOST = 16, W = 1;
    static __device__ __forceinline__ void tile(const Matrix &m, const Input &in, u32 split) {
        if (in.rows <= 8) product_tile<Fragments<8>, 8, 1>(m, in, split);
        else product_tile<Fragments<16>, 16, 1>(m, in, split);
    }
};

KERNEL(256, 2) product_n(PRODUCT) { run_many<Tensor>(GIVEN); }
