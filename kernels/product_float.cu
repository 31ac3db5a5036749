// Quantised products where integers have no fast path (below sm_61): single-precision fma on integer values, all exact.
//
// A code is taken with one `and`, at bit p of its word, and used as it lies: a subnormal single, code · 2^(p - 149). Its
// activation is staged as x · 2^(100 - p), so that a product is code · x · 2^-49. Sums of a sub-block stay below 2^24 of these
// units (32 · 255 · 127 < 2^20), so do FLUSH groups times their scales (quant.cuh), beyond that whole numbers take over.
#include "product.cuh"

#define UNIT 0x1p-49f

// code · 2^-149 · x + acc, the code being below 2^23.
#ifndef HOST_CUDA
DEVICE float fma_code(u32 code, float x, float acc) { return fma(__uint_as_float(code), x, acc); }
#else
DEVICE float fma_code(u32 code, float x, float acc) { return fma(mul((float)(i32)code, 0x1p-100f), mul(x, UNIT), acc); }
#endif

// Codes 4j to 4j + 3 of a group, in place. Word by word: nibbles at bits 0, 8, 16, 8 and 4, 12, 4, 12, bytes at 0, 8, 0, 8.
DEVICE void take(const Group<F> &g, int j, u32 (&code)[4]) {
    if (F::CODES <= NIBBLES) {
        const u32 mask = F::CODES == CRUMBS ? 3 : 15;
        u32 word = nibbles(g, j / 2), upper = word >> 16;
        if (j & 1) {
            code[0] = word & mask << 4, code[1] = word & mask << 12, code[2] = upper & mask << 4, code[3] = upper & mask << 12;
        } else {
            code[0] = word & mask, code[1] = word & mask << 8, code[2] = word & mask << 16, code[3] = upper & mask << 8;
        }
    } else {
        u32 word = bytes(g, j, 0), upper = word >> 16;
        code[0] = word & 0xff, code[1] = word & 0xff00, code[2] = upper & 0xff, code[3] = upper & 0xff00;
    }
}

struct Core {
    // Groups of a unit, and those whose activations are staged at a time.
    template <int N, int W> static __device__ constexpr int groups() { return F::LEN == 256 ? 8 : Record<N, W>::BLOCKS; }
    template <int N, int W> static __device__ constexpr int step() { return F::LEN == 256 && N == 8 ? 4 : groups<N, W>(); }
    // Singles of staged activations [N][32 step] and sums [sub-block][N].
    template <int N, int W> static __device__ constexpr int sums_at() { return N * 32 * step<N, W>(); }
    template <int N, int W> static __device__ constexpr int staged() { return sums_at<N, W>() + N * step<N, W>() * (32 / F::SUB); }
    // A block's record takes the place of what was staged; those of several small blocks lie behind.
    template <int N, int W> static __device__ constexpr int records() { return F::LEN == 256 ? 0 : staged<N, W>(); }
    template <int N, int W> static __device__ constexpr int area() {
        int records = Record<N, W>::SIZE * Record<N, W>::BLOCKS, more = staged<N, W>();
        return ((F::LEN == 256 ? (records > more ? records : more) : records + more) + 3) / 4 * 4;
    }

    // Activations of `step` groups from element `at` of the rows on.
    template <int N, int W> static __device__ __forceinline__ void stage(const Input &in, u32 at, float *to) {
        const int octets = 4 * step<N, W>();
        u32 width = in.blocks * F::LEN;
#pragma unroll
        for (int i = 0; i < (N * octets + 31) / 32; i++) {
            u32 octet = i * WARP + lane(), n = octet / octets, k = octet % octets * 8;
            if (N * octets % 32 != 0 && octet >= N * octets) break;
            uint2 v = make_uint2(0, 0);
            if (n < in.rows && at + k < width) v = __ldg((const uint2 *)(in.q + (u64)in.row[n] * width + at + k));
            float x[8];
#pragma unroll
            for (int j = 0; j < 8; j++) x[j] = (float)(i32)(i8)((j < 4 ? v.x : v.y) >> (8 * (j & 3)));
            float4 *out = (float4 *)to + octet * 2;
            const float p0 = 0x1p100f, p4 = 0x1p96f, p8 = 0x1p92f, p12 = 0x1p88f, p16 = 0x1p84f;
            if (F::CODES <= NIBBLES) {
                out[0] = make_float4(mul(x[0], p0), mul(x[1], p8), mul(x[2], p16), mul(x[3], p8));
                out[1] = make_float4(mul(x[4], p4), mul(x[5], p12), mul(x[6], p4), mul(x[7], p12));
            } else {
                out[0] = make_float4(mul(x[0], p0), mul(x[1], p8), mul(x[2], p0), mul(x[3], p8));
                out[1] = make_float4(mul(x[4], p0), mul(x[5], p8), mul(x[6], p0), mul(x[7], p8));
            }
        }
        int subs = step<N, W>() * (32 / F::SUB);
        if (F::CENTRE) stage_sums<N>(in, at / F::SUB, subs, to + sums_at<N, W>(), -F::CENTRE * UNIT);
        if (F::MIN && F::LEN == 256) stage_sums<N>(in, at / F::SUB, subs, to + sums_at<N, W>(), 1.0f);
    }

    // One sub-block of a group: Σ code · x in units, centred.
    template <int N, int W>
    static __device__ __forceinline__ void dot(const Group<F> (&g)[W], int sub, const float *x, const float *sums, float (&out)[W][N]) {
        // A single chain would wait for itself.
        const int chains = N * W == 1 ? 2 : 1;
        float acc[chains][W][N];
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                acc[0][v][n] = F::CENTRE ? sums[n] : 0.0f;
                if (chains == 2) acc[1][v][n] = 0.0f;
            }
#pragma unroll
        for (int j = sub * F::SUB / 4; j < (sub + 1) * F::SUB / 4; j++) {
            u32 code[W][4];
#pragma unroll
            for (int v = 0; v < W; v++) take(g[v], j, code[v]);
#pragma unroll
            for (int n = 0; n < N; n++) {
                float4 a = ((const float4 *)x)[n * 8 * step<N, W>() + j];
#pragma unroll
                for (int v = 0; v < W; v++) {
                    float &even = acc[0][v][n], &odd = acc[chains - 1][v][n];
                    even = fma_code(code[v][0], a.x, even);
                    odd = fma_code(code[v][1], a.y, odd);
                    even = fma_code(code[v][2], a.z, even);
                    odd = fma_code(code[v][3], a.w, odd);
                }
            }
        }
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) out[v][n] = chains == 2 ? add(acc[0][v][n], acc[1][v][n]) : acc[0][v][n];
    }

    // Blocks of 32: each group's integers are a record.
    template <int N, int W>
    static __device__ __forceinline__ void narrow(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        typedef Record<N, W> R;
        stage<N, W>(in, block * 32, area);
        __syncwarp();
        float *record = area + records<N, W>();
#pragma unroll(N == 1 ? 4 : 1)
        for (int b = 0; b < R::BLOCKS; b++, record += R::SIZE) {
            if (block + b >= in.blocks) break;
            Group<F> g[W];
#pragma unroll
            for (int v = 0; v < W; v++) g[v] = load_group<F>(w[v] + (block + b) * F::BLOCK);
            float i[W][N];
            dot<N, W>(g, 0, area + 32 * b, area + sums_at<N, W>() + N * b, i);
#pragma unroll
            for (int v = 0; v < W; v++)
#pragma unroll
                for (int n = 0; n < N; n++) record[n * R::ROWS + v * WARP + lane()] = mul(i[v][n], 1.0f / UNIT);
            finish<N, W>(in, w, block + b, record);
        }
    }

    // The floats of a record.
    template <int N, int W>
    static __device__ __forceinline__ void finish(const Input &in, const u8 *const (&w)[W], u32 block, float *record) {
        typedef Record<N, W> R;
#pragma unroll
        for (int v = 0; v < W; v++) {
            float d, dmin;
            load_head<F>(w[v] + block * F::BLOCK + F::GROUPS * F::GROUP, d, dmin);
            record[R::D + v * WARP + lane()] = d;
            if (F::MIN) record[R::DMIN + v * WARP + lane()] = dmin;
        }
        record_rows<N, W>(in, block, record);
    }

    // A block of 256.
    template <int N, int W>
    static __device__ __forceinline__ void wide(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        typedef Record<N, W> R;
        const int subs = 32 / F::SUB;
        float some[W][N], most[W][N];
        i32 whole[W][N];
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) some[v][n] = most[v][n] = 0.0f, whole[v][n] = 0;
        Group<F> next[W];
#pragma unroll
        for (int v = 0; v < W; v++) next[v] = load_group<F>(w[v] + block * F::BLOCK);
#pragma unroll 1
        for (int from = 0; from < 8; from += step<N, W>()) {
            stage<N, W>(in, block * 256 + 32 * from, area);
            __syncwarp();
#pragma unroll(N == 1 ? 8 : 1)
            for (int k = 0; k < step<N, W>(); k++) {
                Group<F> g[W];
#pragma unroll
                for (int v = 0; v < W; v++) {
                    g[v] = next[v];
                    if (from + k < 7) next[v] = load_group<F>(w[v] + block * F::BLOCK + (from + k + 1) * F::GROUP);
                }
#pragma unroll
                for (int sub = 0; sub < subs; sub++) {
                    const float *sums = area + sums_at<N, W>() + (k * subs + sub) * N;
                    float i[W][N];
                    dot<N, W>(g, sub, area + 32 * k, sums, i);
#pragma unroll
                    for (int v = 0; v < W; v++) {
                        float scale = (float)scale_of<F>(g[v].scales, sub), low = F::MIN ? (float)min_of<F>(g[v].scales, sub) : 0.0f;
#pragma unroll
                        for (int n = 0; n < N; n++) {
                            some[v][n] = fma(scale, i[v][n], some[v][n]);
                            if (F::MIN) most[v][n] = fma(low, sums[n], most[v][n]);
                        }
                    }
                }
                if (F::FLUSH == 8 || (k + 1) % F::FLUSH != 0) continue;
#pragma unroll
                for (int v = 0; v < W; v++)
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        whole[v][n] += __float2int_rn(mul(some[v][n], 1.0f / UNIT));
                        some[v][n] = 0.0f;
                    }
            }
            __syncwarp();
        }
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                float i = F::FLUSH == 8 ? mul(some[v][n], 1.0f / UNIT) : (float)whole[v][n];
                area[n * R::ROWS + v * WARP + lane()] = i;
                if (F::MIN) area[R::M + n * R::ROWS + v * WARP + lane()] = most[v][n];
            }
        finish<N, W>(in, w, block, area);
    }

    template <int N, int W>
    static __device__ __forceinline__ void unit(const Input &in, const u8 *const (&w)[W], u32 block, float *area) {
        if constexpr (F::LEN == 256) wide<N, W>(in, w, block, area);
        else narrow<N, W>(in, w, block, area);
    }
};

KERNEL(256, 4) product_1(PRODUCT) { run_one<Core>(GIVEN); }

KERNEL(256, 2) product_n(PRODUCT) { run_many<Core>(GIVEN); }
