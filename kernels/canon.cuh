// The canonical arithmetic on a device: the twin of src/quant/canon.rs and src/quant/canon/functions.rs, operation for
// operation.
//
// `fma` stands where the specification says fma and nowhere else; every other operation is rounded by itself. Divisions
// and roots are IEEE, exponentials are made of these operations, and nothing here is the device's own approximation.
#pragma once
#include "warp.cuh"

DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }

// e^x within 1 ulp, rounded into the normal numbers: see functions.rs.
DEVICE float exp_of(float x) {
    const float magic = 12582912.0f;
    float shifted = fma(x, 1.44269504088896340736f, magic);
    float n = sub(shifted, magic);
    float r = fma(n, -0.693147182464599609375f, x);
    r = fma(n, 1.904654323148236e-9f, r);
    float p = 0.001381432f;
    p = fma(p, r, 0.008368851f);
    p = fma(p, r, 0.0416684f);
    p = fma(p, r, 0.1666652f);
    p = fma(p, r, 0.49999994f);
    p = fma(p, r, 1.0f);
    p = fma(p, r, 1.0f);
    float y = __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
    y = x < -87.33654f ? 0.0f : y;
    y = x > 88.72283f ? __uint_as_float(0x7f800000u) : y;
    return x != x ? x : y;
}

DEVICE float sigmoid(float x) { return divide(1.0f, add(1.0f, exp_of(-x))); }

DEVICE float silu(float x) { return divide(x, add(1.0f, exp_of(-x))); }

// ln(1 + e^x).
DEVICE float softplus(float x) {
    float u = exp_of(-fabsf(x));
    float s = divide(u, add(2.0f, u));
    float z = mul(s, s);
    float p = 0.14009386f;
    p = fma(p, z, 0.14000268f);
    p = fma(p, z, 0.20010799f);
    p = fma(p, z, 0.33333206f);
    float atanh = fma(mul(p, z), s, s);
    return add(x > 0.0f ? x : 0.0f, add(atanh, atanh));
}

// 1 / sqrt(x), both IEEE.
DEVICE float rsqrt_of(float x) { return divide(1.0f, __fsqrt_rn(x)); }

// The dot product of `n` singles by a warp: lane l takes l, l + 32, .. in order, then the tree. Eight steps are read
// ahead, since a chain that waits for each of its terms does nothing else.
DEVICE float dot(const float *a, const float *b, u32 n) {
    float sum = 0.0f;
    u32 i = lane();
    for (; i + 7 * WARP < n; i += 8 * WARP) {
        float x[8], y[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) x[k] = a[i + k * WARP], y[k] = b[i + k * WARP];
#pragma unroll
        for (u32 k = 0; k < 8; k++) sum = fma(x[k], y[k], sum);
    }
    for (; i < n; i += WARP) sum = fma(a[i], b[i], sum);
    return tree(sum);
}

// The sum of `n` singles by a warp, in the same order.
DEVICE float sum_of(const float *a, u32 n) {
    float sum = 0.0f;
    for (u32 i = lane(); i < n; i += WARP) sum = add(sum, a[i]);
    return tree(sum);
}

// 1 / sqrt(mean(x²) + eps) by a warp.
DEVICE float rms_scale(const float *x, u32 n, float eps) {
    return rsqrt_of(add(divide(dot(x, x, n), (float)n), eps));
}

// The integer nearest to x, ties to even, clamped to ±127; 0 for NaN.
DEVICE i32 round_to_i8(float x) {
    const float magic = 12582912.0f;
    x = x != x ? 0.0f : x;
    x = x < -127.0f ? -127.0f : x;
    x = x > 127.0f ? 127.0f : x;
    return (i32)__float_as_uint(add(x, magic)) - 0x4b400000;
}
