// Quantised products of many rows on the tensor cores: signed bytes, 16 weight rows by 32 weights by 8 places at a time (sm_80).
//
// A warp has a tile of 32 weight rows and N places. The order of the 32 weights of a group is free as long as both sides keep
// it: lane l holds, of weight rows l/4 + 8k and of place l/4, weights 8(l%4) to 8(l%4) + 7, which are a word of codes and eight
// neighbouring activations. Sub-blocks of 16 are two products, each with the other half of the activations zero.
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
    const i8 *at[N / 8];

    __device__ __forceinline__ Places(const Input &in) {
#pragma unroll
        for (int t = 0; t < N / 8; t++) {
            u32 n = 8 * t + lane() / 4;
            at[t] = n < in.rows ? in.q + (u64)in.row[n] * (in.blocks * F::LEN) + 8 * (lane() % 4) : 0;
        }
    }

    __device__ __forceinline__ uint2 load(int t, u32 group) const {
        return at[t] ? __ldg((const uint2 *)(at[t] + 32 * group)) : make_uint2(0, 0);
    }
};

template <int N> struct Fragments {
    typedef Record<N, 1> R;
    static const int SUBS = 32 / F::SUB, BLOCKS = F::LEN == 256 ? 1 : 32 / N;
    // The sums of a block of 256, then its record; blocks of 32 have theirs behind the sums.
    static const int SUMS = (F::LEN == 256 ? 8 * SUBS : BLOCKS) * N, RECORDS = F::LEN == 256 ? 0 : SUMS;
    static const int END = RECORDS + R::SIZE * BLOCKS, AREA = ((END > SUMS ? END : SUMS) + 3) / 4 * 4;

    // Σ code · x of sub-block `sub` of a group, centred: weight rows l/4 + 8k by places 2(l%4) and one further of each eight.
    static __device__ __forceinline__ void
    dot(const Group<F> (&g)[4], const uint2 (&x)[N / 8], int sub, const float *sums, i32 (&out)[2][N / 8][4]) {
        const bool here = SUBS == 1 || lane() % 4 / 2 == sub;
#pragma unroll
        for (int t = 0; t < N / 8; t++) {
            float2 first = CENTRED ? *(const float2 *)(sums + 8 * t + 2 * (lane() % 4)) : make_float2(0.0f, 0.0f);
            u32 b[2] = {here ? x[t].x : 0, here ? x[t].y : 0};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const Group<F> &upper = g[2 * h], &lower = g[2 * h + 1];
                u32 a[4] = {bytes(upper, 0, FLIP), bytes(lower, 0, FLIP), bytes(upper, 1, FLIP), bytes(lower, 1, FLIP)};
                i32(&d)[4] = out[h][t];
                d[0] = d[2] = (i32)first.x;
                d[1] = d[3] = (i32)first.y;
                mma(d, a, b);
            }
        }
    }

    // Writes what lanes hold of [place][weight row].
    template <class T> static __device__ __forceinline__ void store(const T (&d)[2][N / 8][4], float *to) {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int t = 0; t < N / 8; t++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    to[(8 * t + 2 * (lane() % 4) + i % 2) * R::ROWS + 16 * h + i / 2 * 8 + lane() / 4] = (float)d[h][t][i];
    }

    static __device__ __forceinline__ void load(const u8 *at, Group<F> (&g)[4]) {
#pragma unroll
        for (int k = 0; k < 4; k++) g[k] = load_part(at, lane() / 4 + 8 * k, lane() % 4);
    }

    // Blocks of 32: each group's I is a record.
    static __device__ __forceinline__ void narrow(const Input &in, const u8 *const (&w)[1], u32 block, float *area) {
        if (CENTRED) stage_sums<N>(in, block, BLOCKS, area, -F::CENTRE);
        __syncwarp();
        Places<N> places(in);
#pragma unroll 1
        for (u32 b = 0; b < min((u32)BLOCKS, in.blocks - block); b++) {
            Group<F> g[4];
            uint2 x[N / 8];
            i32 i[2][N / 8][4];
            load(w[0] + (block + b) * F::BLOCK, g);
#pragma unroll
            for (int t = 0; t < N / 8; t++) x[t] = places.load(t, block + b);
            dot(g, x, 0, area + N * b, i);
            float *record = area + RECORDS + b * R::SIZE;
            store(i, record);
            finish<N, 1>(in, w, block + b, record);
        }
    }

    // Blocks of 256.
    static __device__ __forceinline__ void wide(const Input &in, const u8 *const (&w)[1], u32 block, float *area) {
        if (CENTRED || F::MIN) stage_sums<N>(in, block * 8 * SUBS, 8 * SUBS, area, F::MIN ? 1.0f : -F::CENTRE);
        __syncwarp();
        Places<N> places(in);
        i32 total[2][N / 8][4];
        float most[2][N / 8][4];
#pragma unroll
        for (int i = 0; i < N; i++) (&total[0][0][0])[i] = 0, (&most[0][0][0])[i] = 0.0f;
#pragma unroll 2
        for (u32 k = 0; k < 8; k++) {
            Group<F> g[4];
            uint2 x[N / 8];
            load(w[0] + block * F::BLOCK + k * F::GROUP, g);
#pragma unroll
            for (int t = 0; t < N / 8; t++) x[t] = places.load(t, block * 8 + k);
#pragma unroll
            for (int sub = 0; sub < SUBS; sub++) {
                const float *sums = area + (k * SUBS + sub) * N;
                i32 some[2][N / 8][4];
                dot(g, x, sub, sums, some);
#pragma unroll
                for (int t = 0; t < N / 8; t++) {
                    float2 sum = F::MIN ? *(const float2 *)(sums + 8 * t + 2 * (lane() % 4)) : make_float2(0.0f, 0.0f);
#pragma unroll
                    for (int h = 0; h < 2; h++)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            u32 scales = g[2 * h + i / 2].scales;
                            total[h][t][i] += scale_of<F>(scales, sub) * some[h][t][i];
                            if (F::MIN) {
                                float &m = most[h][t][i];
                                m = fma((float)min_of<F>(scales, sub), i % 2 ? sum.y : sum.x, m);
                            }
                        }
                }
            }
        }
        __syncwarp();
        store(total, area);
        if (F::MIN) store(most, area + R::M);
        finish<N, 1>(in, w, block, area);
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
