// What a GPU has and the host lacks, so that the kernels compile unmodified and run on this machine's processor.
//
// Every thread of a block is a fiber. A fiber runs until it must wait for others (a shuffle, a barrier), then another
// of its warp goes on. A block stays on one host thread; several host threads run blocks side by side. Compile with
// -ffp-contract=off: the intrinsics below are plain operators, and each must be rounded by itself.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#ifdef __SSE4_1__
#include <smmintrin.h>
#endif

#define HOST_CUDA 1
#define KERNEL(threads, blocks) [[maybe_unused]] static void
#define SHARED uint4 *const shared_memory = (uint4 *)::emulated::shared_memory()

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline, unused))
#define __noinline__ __attribute__((noinline, unused))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
// Static shared memory: the build script writes HOST_SHARED(type, name, dimensions) where a kernel has __shared__. All
// shared memory is poisoned for each block and ends at an inaccessible page.
#define HOST_SHARED(T, name, ...)                                                                                      \
    typedef T host_##name __VA_ARGS__;                                                                                 \
    host_##name &name = *(host_##name *)::emulated::static_shared(HOST_HERE, sizeof(host_##name));

#define HOST_INLINE static inline __attribute__((always_inline, unused))

// Vectors, aligned as on the device.
#define HOST_VECTORS(T, N)                                                                                             \
    struct alignas(2 * sizeof(T)) N##2 { T x, y; };                                                                    \
    struct N##3 { T x, y, z; };                                                                                        \
    struct alignas(4 * sizeof(T)) N##4 { T x, y, z, w; };                                                              \
    HOST_INLINE N##2 make_##N##2(T x, T y) { return {x, y}; }                                                          \
    HOST_INLINE N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HOST_VECTORS(float, float)
HOST_VECTORS(int, int)
HOST_VECTORS(unsigned, uint)
HOST_VECTORS(short, short)
HOST_VECTORS(unsigned short, ushort)
HOST_VECTORS(signed char, char)
HOST_VECTORS(unsigned char, uchar)
#undef HOST_VECTORS

namespace emulated {

// Where in a kernel's text lanes meet.
struct Site {
    const char *file;
    int line;
};

// Lanes of one mask that meet; what they bring lies in one of two rows in turn, so that a lane may run ahead by one
// meeting.
struct Group {
    unsigned arrived, mask, turn;
    const Site *site;
    uint64_t values[2][32];
};

// What a lane brings to a matrix product.
struct Operands {
    unsigned a[4], b[2];
};

struct Fiber;

struct Warp {
    unsigned alive, ready;
    Fiber *lanes;
    Group groups[32];
    Operands operands[2][32];
};

struct Fiber {
    void *stack_pointer;
    uint3 thread;
    unsigned lane, stack;
    Warp *warp;
    const Site *site;
};

extern thread_local Fiber *current;
extern thread_local uint3 block, block_size, grid_size;

// Waits for the lanes of `mask`, each with a value; returns the 32 values.
const uint64_t *meet(unsigned mask, uint64_t value, const Site *site);
// Waits for the whole block; returns how many brought a true `vote`.
unsigned barrier(bool vote, const Site *site);
// D += A·B by a whole warp.
void product(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const Site *site);
// What a block asked for when it was launched; what the kernel declares at a place in its text.
void *shared_memory();
void *static_shared(const Site *site, size_t bytes);
// Abandons the block.
[[noreturn]] void fail(const Site *site, const char *format, ...) __attribute__((format(printf, 2, 3)));

// A kernel and how it is called.
struct Entry {
    const char *file, *variant, *name;
    // Of its parameters: p, i or f each.
    const char *kinds;
    // What a block may have, and the lowest architecture.
    unsigned threads, from;
    void (*run)(const uint64_t *args);
};

template <class T> constexpr char kind_of() {
    constexpr bool is_int = std::is_same_v<T, int> || std::is_same_v<T, unsigned>, is_float = std::is_same_v<T, float>;
    static_assert(std::is_pointer_v<T> || is_int || is_float, "a kernel takes pointers, int, u32 and float");
    return is_int ? 'i' : is_float ? 'f' : 'p';
}

template <class T> T argument(uint64_t word) {
    if constexpr (std::is_pointer_v<T>) {
        return (T)(uintptr_t)word;
    } else {
        uint32_t half = (uint32_t)word;
        T value;
        memcpy(&value, &half, sizeof value);
        return value;
    }
}

template <class F> struct Call;
template <class... A> struct Call<void (*)(A...)> {
    static constexpr char kinds[] = {kind_of<std::remove_cv_t<A>>()..., 0};
    template <void (*F)(A...), size_t... I> static void go(const uint64_t *args, std::index_sequence<I...>) {
        F(argument<std::remove_cv_t<A>>(args[I])...);
    }
    template <void (*F)(A...)> static void run(const uint64_t *args) { go<F>(args, std::index_sequence_for<A...>{}); }
};

template <class T> HOST_INLINE uint64_t pack(T value) {
    static_assert(sizeof(T) <= 8, "a lane brings at most 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return word;
}

template <class T> HOST_INLINE T unpack(uint64_t word) {
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

enum Shuffle { INDEX, UP, DOWN, XOR };

// Lanes are cut into segments of `width`; who would read beyond its own keeps what it has.
template <Shuffle KIND, class T>
HOST_INLINE T shuffle(const Site *site, unsigned mask, T value, int by, int width = 32) {
    int lane = (int)current->lane, segment = lane & ~(width - 1), source = lane;
    const uint64_t *values = meet(mask, pack(value), site);
    if (KIND == INDEX) source = segment | (by & (width - 1));
    if (KIND == UP) source = lane - by < segment ? lane : lane - by;
    if (KIND == DOWN) source = lane + by >= segment + width ? lane : lane + by;
    if (KIND == XOR) source = (lane ^ by) >= segment + width ? lane : lane ^ by;
    if (!(mask >> source & 1)) fail(site, "a shuffle reads lane %d, which is outside its mask %08x", source, mask);
    return unpack<T>(values[source]);
}

HOST_INLINE unsigned ballot(const Site *site, unsigned mask, int vote) {
    const uint64_t *votes = meet(mask, vote != 0, site);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) bits |= (mask >> i & 1 ? (unsigned)votes[i] : 0u) << i;
    return bits;
}

HOST_INLINE unsigned mask_or_all(unsigned mask = 0xffffffffu) { return mask; }

float half_to_float(unsigned short half);
unsigned short float_to_half(float value);

}  // namespace emulated

// An entry of the table that a translation unit ends with.
#define HOST_ENTRY(file, variant, function, threads, from)                                                             \
    {file, variant, #function, ::emulated::Call<decltype(&function)>::kinds, threads, from,                            \
     &::emulated::Call<decltype(&function)>::template run<&function>},

#define HOST_HERE                                                                                                      \
    ([]() -> const ::emulated::Site * {                                                                                \
        static constexpr ::emulated::Site here = {__FILE__, __LINE__};                                                 \
        return &here;                                                                                                  \
    }())

#define threadIdx (::emulated::current->thread)
#define blockIdx (::emulated::block)
#define blockDim (::emulated::block_size)
#define gridDim (::emulated::grid_size)
static constexpr int warpSize = 32;

#define __syncthreads() ((void)::emulated::barrier(false, HOST_HERE))
#define __syncthreads_count(vote) ((int)::emulated::barrier((vote) != 0, HOST_HERE))
#define __syncthreads_or(vote) ((int)(::emulated::barrier((vote) != 0, HOST_HERE) != 0))
#define __syncthreads_and(vote) ((int)(::emulated::barrier((vote) == 0, HOST_HERE) == 0))
#define __syncwarp(...) ((void)::emulated::meet(::emulated::mask_or_all(__VA_ARGS__), 0, HOST_HERE))
#define __shfl_sync(...) ::emulated::shuffle<::emulated::INDEX>(HOST_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) ::emulated::shuffle<::emulated::UP>(HOST_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) ::emulated::shuffle<::emulated::DOWN>(HOST_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) ::emulated::shuffle<::emulated::XOR>(HOST_HERE, __VA_ARGS__)
#define __ballot_sync(mask, vote) ::emulated::ballot(HOST_HERE, mask, vote)
#define __any_sync(mask, vote) ((int)(::emulated::ballot(HOST_HERE, mask, vote) != 0))
#define __all_sync(mask, vote) ((int)(::emulated::ballot(HOST_HERE, mask, vote) == (unsigned)(mask)))
#define mma(d, a, b) ::emulated::product(d, a, b, HOST_HERE)

HOST_INLINE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HOST_INLINE void __threadfence_block() {}

HOST_INLINE float half_to_float(unsigned short half) { return ::emulated::half_to_float(half); }
HOST_INLINE unsigned short float_to_half(float value) { return ::emulated::float_to_half(value); }

// Singles: IEEE, to nearest even.
HOST_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HOST_INLINE float __fmul_rn(float a, float b) { return a * b; }
HOST_INLINE float __fadd_rn(float a, float b) { return a + b; }
HOST_INLINE float __fsub_rn(float a, float b) { return a - b; }
HOST_INLINE float __fdiv_rn(float a, float b) { return a / b; }
HOST_INLINE float __frcp_rn(float a) { return 1.0f / a; }
HOST_INLINE float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }

HOST_INLINE int __float_as_int(float v) { return ::emulated::unpack<int>(::emulated::pack(v)); }
HOST_INLINE unsigned __float_as_uint(float v) { return ::emulated::unpack<unsigned>(::emulated::pack(v)); }
HOST_INLINE float __int_as_float(int v) { return ::emulated::unpack<float>(::emulated::pack(v)); }
HOST_INLINE float __uint_as_float(unsigned v) { return ::emulated::unpack<float>(::emulated::pack(v)); }

// To integers: beyond the range the nearest integer, 0 for NaN.
HOST_INLINE int __float2int_rz(float v) {
    return v != v ? 0 : v >= 2147483648.0f ? 0x7fffffff : v < -2147483648.0f ? -0x7fffffff - 1 : (int)v;
}
HOST_INLINE int __float2int_rn(float v) { return __float2int_rz(__builtin_rintf(v)); }
HOST_INLINE unsigned __float2uint_rz(float v) {
    return !(v > 0.0f) ? 0u : v >= 4294967296.0f ? 0xffffffffu : (unsigned)v;
}
HOST_INLINE unsigned __float2uint_rn(float v) { return __float2uint_rz(__builtin_rintf(v)); }
HOST_INLINE float __int2float_rn(int v) { return (float)v; }
HOST_INLINE float __uint2float_rn(unsigned v) { return (float)v; }

// Integers.
HOST_INLINE int __popc(unsigned v) { return __builtin_popcount(v); }
HOST_INLINE int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
HOST_INLINE int __ffs(int v) { return __builtin_ffs(v); }
HOST_INLINE unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
    return r;
}
HOST_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
HOST_INLINE int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
HOST_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
HOST_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((uint64_t)high << 32 | low) << (by & 31)) >> 32);
}
// Each nibble of `select` names one of eight bytes, its top bit asks for the byte's sign eight times.
HOST_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = select >> 4 * i, byte = (unsigned)(bytes >> 8 * (s & 7)) & 255;
        r |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
}
HOST_INLINE int dp4a(unsigned a, unsigned b, int c) {
#ifdef __SSE4_1__
    __m128i wide_a = _mm_cvtepi8_epi16(_mm_cvtsi32_si128((int)a));
    __m128i wide_b = _mm_cvtepi8_epi16(_mm_cvtsi32_si128((int)b));
    __m128i pairs = _mm_madd_epi16(wide_a, wide_b);
    return _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_srli_epi64(pairs, 32))) + c;
#else
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; i++) sum += (unsigned)((signed char)(a >> 8 * i) * (signed char)(b >> 8 * i));
    return (int)sum;
#endif
}
HOST_INLINE unsigned __vadd4(unsigned a, unsigned b) {
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
HOST_INLINE unsigned __vsub4(unsigned a, unsigned b) {
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}

template <class T> HOST_INLINE T __ldg(const T *at) { return *at; }
template <class T> HOST_INLINE T __ldcs(const T *at) { return *at; }
template <class T> HOST_INLINE T __ldcg(const T *at) { return *at; }
template <class T> HOST_INLINE void __stcs(T *at, T value) { *at = value; }
template <class T> HOST_INLINE void __stcg(T *at, T value) { *at = value; }

#define HOST_ORDER(T)                                                                                                  \
    HOST_INLINE T min(T a, T b) { return a < b ? a : b; }                                                              \
    HOST_INLINE T max(T a, T b) { return a > b ? a : b; }
HOST_ORDER(int)
HOST_ORDER(unsigned)
HOST_ORDER(long long)
HOST_ORDER(unsigned long long)
#undef HOST_ORDER
HOST_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
HOST_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }

// Atomics on integers, between blocks too.
#define HOST_ATOMIC(name, T, next)                                                                                     \
    HOST_INLINE T name(T *at, T value) {                                                                               \
        T old = __atomic_load_n(at, __ATOMIC_RELAXED);                                                                 \
        while (!__atomic_compare_exchange_n(at, &old, (T)(next), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {         \
        }                                                                                                              \
        return old;                                                                                                    \
    }
#define HOST_ATOMICS(T)                                                                                                \
    HOST_ATOMIC(atomicMax, T, old > value ? old : value)                                                               \
    HOST_ATOMIC(atomicMin, T, old < value ? old : value)                                                               \
    HOST_INLINE T atomicAnd(T *at, T value) { return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST); }                \
    HOST_INLINE T atomicOr(T *at, T value) { return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST); }                  \
    HOST_INLINE T atomicXor(T *at, T value) { return __atomic_fetch_xor(at, value, __ATOMIC_SEQ_CST); }                \
    HOST_INLINE T atomicAdd(T *at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }                \
    HOST_INLINE T atomicSub(T *at, T value) { return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST); }                \
    HOST_INLINE T atomicExch(T *at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); }              \
    HOST_INLINE T atomicCAS(T *at, T expected, T value) {                                                              \
        __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
        return expected;                                                                                               \
    }
HOST_ATOMICS(int)
HOST_ATOMICS(unsigned)
HOST_ATOMICS(unsigned long long)
HOST_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
#undef HOST_ATOMICS
#undef HOST_ATOMIC
