// What a kernel says instead of the compiler's own words, and what the 32 lanes of a warp do together.
//
// Every file starts from here. Kernels are C++17 without headers, so that the run-time compiler and the host compiler
// read the same text; what only a GPU has stands behind HOST_CUDA, which the emulator defines (host/emulate.h gives its
// twins). Lanes meet only in code that all 32 of them reach.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define DEVICE static __device__ __forceinline__
#define WARP 32
#define FULL 0xffffffffu

#ifndef HOST_CUDA
// A kernel for blocks of at most `threads` threads, of which `blocks` shall fit a multiprocessor at once.
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
// Dynamic shared memory, in 16-byte units.
#define SHARED extern __shared__ uint4 shared_memory[]

// Four products of signed bytes, summed (sm_61).
DEVICE i32 dp4a(u32 a, u32 b, i32 c) {
#if __CUDA_ARCH__ >= 610
    i32 d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#else
    return c;
#endif
}

// D += A·B over 16 x 32 signed bytes by 32 x 8 (sm_80). Lane l holds, four bytes along k to a word: of A, rows l/4 and
// l/4 + 8 at k = 4(l%4) (a0, a1) and 16 further (a2, a3); of B, column l/4 at the same two k (b0, b1); of D, row l/4 at
// columns 2(l%4), 2(l%4) + 1 (d0, d1) and row l/4 + 8 (d2, d3).
DEVICE void mma(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// The half with these bits.
DEVICE float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

// The bits of the half nearest to `f`, ties to even.
DEVICE u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#endif

DEVICE u32 lane() { return threadIdx.x & 31; }

// The fixed tree over 32 lanes: 16, 8, 4, 2, 1. A sum does not depend on which of its two terms comes first, so every
// lane ends with the bits of lane 0.
DEVICE float tree(float v) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) v = __fadd_rn(v, __shfl_xor_sync(FULL, v, half));
    return v;
}

// The largest of 32 words, in every lane.
DEVICE u32 warp_max(u32 v) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        u32 other = __shfl_xor_sync(FULL, v, half);
        v = other > v ? other : v;
    }
    return v;
}

// Singles as words of the same order, for maxima that are exact and need no float atomics; NaN is 0, below all.
DEVICE u32 ordered(float v) {
    u32 bits = __float_as_uint(v);
    u32 word = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return v != v ? 0u : word;
}

// The single that `ordered` made into this word; 0 gives minus infinity.
DEVICE float from_ordered(u32 word) {
    if (word == 0) return __uint_as_float(0xff800000u);
    return __uint_as_float(word & 0x80000000u ? word & 0x7fffffffu : ~word);
}
