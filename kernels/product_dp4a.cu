// Quantised products by dp4a: four products of bytes in an instruction, whole numbers throughout (sm_61 and later).
//
// Codes are bytes four to a word, as are the activations; |I| < 2^28. Formats whose codes are centred at 128 are taken
// as signed bytes; of the others the centre goes out through the sums of the activations.
#include "product.cuh"

struct Integers {
    static const int WORDS = 8, AHEAD = 4;
    typedef i32 Sum;
    static const u32 FLIP = F::CENTRE == 128 ? 0x80808080u : 0;
    // Groups that are staged at a time.
    template <int N> static __device__ constexpr int step() { return 8; }
    static __device__ constexpr float centre() { return FLIP ? 0.0f : -F::CENTRE; }

    // I of a block.
    struct Total {
        i32 sum;
        __device__ __forceinline__ void clear() { sum = 0; }
        __device__ __forceinline__ void add(i32 scale, i32 i) { sum += scale * i; }
        __device__ __forceinline__ void flush() {}
        __device__ __forceinline__ float value() const { return (float)sum; }
    };
    static __device__ __forceinline__ float single(i32 i) { return (float)i; }

    // Activations of STEP groups from element `at` of the rows on: asked for, then put to [N][8 STEP] words.
    template <int N, int STEP> struct Staged {
        static const u32 UNITS = 2 * STEP, TURNS = (N * UNITS + 31) / 32;
        uint4 unit[TURNS];

        __device__ __forceinline__ Staged(const Input &in, u32 at) {
            u32 width = in.blocks * F::LEN;
#pragma unroll
            for (u32 t = 0; t < TURNS; t++) {
                u32 i = t * WARP + lane(), n = i / UNITS, k = at + i % UNITS * 16;
                unit[t] = make_uint4(0, 0, 0, 0);
                if (n < in.rows && k < width && i < N * UNITS)
                    unit[t] = __ldg((const uint4 *)(in.q + (u64)in.row[n] * width + k));
            }
        }

        __device__ __forceinline__ void store(float *to) const {
#pragma unroll
            for (u32 t = 0; t < TURNS; t++) {
                u32 i = t * WARP + lane();
                if (i < N * UNITS) ((uint4 *)to)[i] = unit[t];
            }
        }
    };

    // Σ code · x of sub-block `sub` of a group, centred.
    template <int N, int W, int STEP, int sub>
    static __device__ __forceinline__ void
    dot(const Group<F> (&g)[W], const float *x, const float *sums, i32 (&out)[W][N]) {
        const int words = F::SUB / 4;
        u32 code[W][words];
#pragma unroll
        for (int v = 0; v < W; v++)
#pragma unroll
            for (int j = 0; j < words; j++) code[v][j] = bytes(g[v], sub * words + j, FLIP);
#pragma unroll
        for (int n = 0; n < N; n++) {
            i32 first = centre() != 0.0f ? (i32)sums[n] : 0;
#pragma unroll
            for (int v = 0; v < W; v++) out[v][n] = first;
#pragma unroll
            for (int j = 0; j < words; j += 4) {
                uint4 a = ((const uint4 *)x)[n * 2 * STEP + (sub * words + j) / 4];
#pragma unroll
                for (int v = 0; v < W; v++) {
                    i32 &i = out[v][n];
                    i = dp4a(code[v][j], a.x, i);
                    i = dp4a(code[v][j + 1], a.y, i);
                    i = dp4a(code[v][j + 2], a.z, i);
                    i = dp4a(code[v][j + 3], a.w, i);
                }
            }
        }
    }
};

KERNEL(256, 2) product_1(PRODUCT) { run_one<Integers>(GIVEN); }

KERNEL(256, 2) product_2(PRODUCT) { run_many<Two<Integers>>(GIVEN); }

KERNEL(256, 1) product_n(PRODUCT) { run_many<Eight<Integers>>(GIVEN); }
