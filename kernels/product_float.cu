// Quantised products where integers have no fast path (below sm_61): single-precision fma on integer values, all exact.
//
// A code is taken with one `and`, at bit p of its word, and used as it lies: a subnormal single, code · 2^(p - 149).
// Its activation is staged as x · 2^(100 - p), so that a product is code · x · 2^-49. Sums of a sub-block stay below
// 2^24 of these units (32 · 255 · 127 < 2^20), so do FLUSH groups times their scales (quant.cuh); beyond that whole
// numbers take over.
#include "product.cuh"

#define UNIT 0x1p-49f

// code · 2^-149 · x + acc, the code being below 2^23.
#ifndef HOST_CUDA
DEVICE float fma_code(u32 code, float x, float acc) { return fma(__uint_as_float(code), x, acc); }
#else
DEVICE float fma_code(u32 code, float x, float acc) { return fma(mul((float)(i32)code, 0x1p-100f), mul(x, UNIT), acc); }
#endif

// Codes 4j to 4j + 3 of a group, in place: nibbles at bits 0, 8, 16, 8 and 4, 12, 4, 12 in turn, bytes at 0, 8, 0, 8.
DEVICE void take(const Group<F> &g, int j, u32 (&code)[4]) {
    if (F::CODES <= NIBBLES) {
        const u32 mask = F::CODES == CRUMBS ? 3 : 15;
        u32 word = nibbles(g, j / 2), upper = word >> 16;
        if (j & 1) {
            code[0] = word & mask << 4, code[1] = word & mask << 12;
            code[2] = upper & mask << 4, code[3] = upper & mask << 12;
        } else {
            code[0] = word & mask, code[1] = word & mask << 8, code[2] = word & mask << 16, code[3] = upper & mask << 8;
        }
    } else {
        u32 word = bytes(g, j, 0), upper = word >> 16;
        code[0] = word & 0xff, code[1] = word & 0xff00, code[2] = upper & 0xff, code[3] = upper & 0xff00;
    }
}

struct Floats {
    static const int WORDS = 32, AHEAD = 8;
    typedef float Sum;
    // Groups that are staged at a time: as many as 4 KiB hold.
    template <int N> static __device__ constexpr int step() { return N == 8 ? 4 : 8; }
    static __device__ constexpr float centre() { return -F::CENTRE * UNIT; }

    // I of a block: what fits a single, and the rest.
    struct Total {
        float some;
        i32 whole;
        __device__ __forceinline__ void clear() { some = 0.0f, whole = 0; }
        __device__ __forceinline__ void add(i32 scale, float i) { some = fma((float)scale, i, some); }
        __device__ __forceinline__ void flush() {
            if (F::FLUSH == 8) return;
            whole += __float2int_rn(mul(some, 1.0f / UNIT));
            some = 0.0f;
        }
        __device__ __forceinline__ float value() const { return F::FLUSH == 8 ? single(some) : (float)whole; }
    };
    static __device__ __forceinline__ float single(float i) { return mul(i, 1.0f / UNIT); }

    // Activations of STEP groups from element `at` of the rows on: asked for, then put to [N][32 STEP].
    template <int N, int STEP> struct Staged {
        static const u32 OCTETS = 4 * STEP, TURNS = (N * OCTETS + 31) / 32;
        uint2 octet[TURNS];

        __device__ __forceinline__ Staged(const Input &in, u32 at) {
            u32 width = in.blocks * F::LEN;
#pragma unroll
            for (u32 t = 0; t < TURNS; t++) {
                u32 i = t * WARP + lane(), n = i / OCTETS, k = at + i % OCTETS * 8;
                octet[t] = make_uint2(0, 0);
                if (n < in.rows && k < width && i < N * OCTETS)
                    octet[t] = __ldg((const uint2 *)(in.q + (u64)in.row[n] * width + k));
            }
        }

        __device__ __forceinline__ void store(float *to) const {
#pragma unroll
            for (u32 t = 0; t < TURNS; t++) {
                u32 i = t * WARP + lane();
                if (i >= N * OCTETS) break;
                float x[8];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const int nibble[8] = {0, 8, 16, 8, 4, 12, 4, 12}, p = F::CODES <= NIBBLES ? nibble[j] : j % 2 * 8;
                    u32 word = j < 4 ? octet[t].x : octet[t].y;
                    x[j] = mul((float)(i32)(i8)(word >> (8 * (j & 3))), __uint_as_float((227u - p) << 23));
                }
                float4 *out = (float4 *)to + 2 * i;
                out[0] = make_float4(x[0], x[1], x[2], x[3]);
                out[1] = make_float4(x[4], x[5], x[6], x[7]);
            }
        }
    };

    // Σ code · x of sub-block `sub` of a group in units, centred.
    template <int N, int W, int STEP, int sub>
    static __device__ __forceinline__ void
    dot(const Group<F> (&g)[W], const float *x, const float *sums, float (&out)[W][N]) {
        // A single chain would wait for itself.
        const int chains = N * W == 1 ? F::SUB / 8 : N * W == 2 ? 2 : 1;
        float acc[chains][W][N];
#pragma unroll
        for (int c = 0; c < chains; c++)
#pragma unroll
            for (int v = 0; v < W; v++)
#pragma unroll
                for (int n = 0; n < N; n++) acc[c][v][n] = F::CENTRE && c == 0 ? sums[n] : 0.0f;
#pragma unroll
        for (int j = sub * F::SUB / 4; j < (sub + 1) * F::SUB / 4; j++) {
            u32 code[W][4];
#pragma unroll
            for (int v = 0; v < W; v++) take(g[v], j, code[v]);
#pragma unroll
            for (int n = 0; n < N; n++) {
                float4 a = ((const float4 *)x)[n * 8 * STEP + j];
#pragma unroll
                for (int v = 0; v < W; v++) {
                    const float one[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float &sum = acc[i % chains][v][n];
                        sum = fma_code(code[v][i], one[i], sum);
                    }
                }
            }
        }
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                out[v][n] = chains >= 2 ? add(acc[0][v][n], acc[1 % chains][v][n]) : acc[0][v][n];
                if (chains == 4) out[v][n] = add(out[v][n], add(acc[2 % chains][v][n], acc[3 % chains][v][n]));
            }
    }
};

KERNEL(256, 7) product_1(PRODUCT) { run_one<Floats>(GIVEN); }

KERNEL(256, 5) product_2(PRODUCT) { run_many<Two<Floats>>(GIVEN); }

KERNEL(256, 3) product_n(PRODUCT) { run_many<Eight<Floats>>(GIVEN); }
