// Quantised formats: how weights lie on a device, how their codes are taken apart, and how activations become int8.
//
// 32 weight rows make a tile; a lane is a weight row. A stack lies as [matrix][tile][block]. A block of LEN weights
// has, for each group of 32 weights, a low plane (LOW words), a high plane (HIGH words) and SCALES bytes of scales,
// then HEAD bytes of d and dmin; each of these for all 32 rows side by side, so that a warp reads whole lines.
// src/backend/cuda/pack.rs writes this.
//
// Codes are unsigned: weight = code - CENTRE. Where bytes are spoken of, byte b of word j is weight 4j + b of the
// group; where nibbles, bits 8b.. of word j are weight 8j + b and bits 8b + 4.. weight 8j + 4 + b.
#pragma once
#include "canon.cuh"

// How the planes make codes. CRUMBS: 2 bits, THREE: 2 + 1, NIBBLES: 4, FIVE: 4 + 1, SIX: 4 + 2, BYTES: 8, GRID and
// FLOAT4: 4 bits into a table; their nibble n is weight n of the word's 8.
enum Codes { CRUMBS, THREE, NIBBLES, FIVE, SIX, BYTES, GRID, FLOAT4 };

// MIN: there is a minimum. FLUSH: so many groups of I fit a single exactly, |I| <= 2^24: scale · 32 · code · 127 each.
#define FORMAT(name, codes, len, sub, low, high, scales, head, centre, min, flush)                                     \
    struct name {                                                                                                      \
        static const int CODES = codes, LEN = len, SUB = sub, LOW = low, HIGH = high, SCALES = scales, HEAD = head;    \
        static const int CENTRE = centre, MIN = min, FLUSH = flush;                                                    \
        static const int GROUPS = len / 32, GROUP = 32 * (4 * low + 4 * high + scales);                                \
        static const int BLOCK = GROUPS * GROUP + 32 * head;                                                           \
    };
FORMAT(Q8_0, BYTES, 32, 32, 8, 0, 0, 2, 128, 0, 1)
FORMAT(Q4_0, NIBBLES, 32, 32, 4, 0, 0, 2, 8, 0, 1)
FORMAT(Q4_1, NIBBLES, 32, 32, 4, 0, 0, 4, 0, 1, 1)
FORMAT(Q5_0, FIVE, 32, 32, 4, 1, 0, 2, 16, 0, 1)
FORMAT(Q5_1, FIVE, 32, 32, 4, 1, 0, 4, 0, 1, 1)
FORMAT(IQ4_NL, GRID, 32, 32, 4, 0, 0, 2, 128, 0, 1)
FORMAT(MXFP4, FLOAT4, 32, 32, 4, 0, 0, 1, 128, 0, 1)
// 15 · 32 · 3 · 127 · 8 = 1.5 M
FORMAT(Q2_K, CRUMBS, 256, 16, 2, 0, 2, 4, 0, 1, 8)
// 32 · 32 · 4 · 127 · 8 = 4.2 M
FORMAT(Q3_K, THREE, 256, 16, 2, 1, 2, 2, 4, 0, 8)
// 63 · 32 · 15 · 127 · 4 = 15.4 M
FORMAT(Q4_K, NIBBLES, 256, 32, 4, 0, 2, 4, 0, 1, 4)
// 63 · 32 · 31 · 127 · 2 = 15.9 M
FORMAT(Q5_K, FIVE, 256, 32, 4, 1, 2, 4, 0, 1, 2)
// 128 · 32 · 32 · 127 = 16.65 M
FORMAT(Q6_K, SIX, 256, 16, 4, 2, 2, 2, 32, 0, 1)
// 32 · 32 · 127 · 127 = 16.52 M
FORMAT(IQ4_XS, GRID, 256, 32, 4, 0, 1, 2, 128, 0, 1)

// A row's part of a group. Scales: the scale's byte, then the minimum's or the second sub-block's; Q2_K: their nibbles.
template <class F> struct Group {
    u32 low[F::LOW];
    u32 high[F::HIGH ? F::HIGH : 1];
    u32 scales;
};

// `words` words of the lane's row, from a plane for 32 rows.
template <int words> DEVICE void load_plane(const u8 *at, u32 *to) {
    if (words >= 4) {
#pragma unroll
        for (int i = 0; i < words / 4; i++) {
            uint4 v = __ldg((const uint4 *)at + i * WARP + lane());
            to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
        }
    }
    if (words == 2) {
        uint2 v = __ldg((const uint2 *)at + lane());
        to[0] = v.x, to[1] = v.y;
    }
    if (words == 1) to[0] = __ldg((const u32 *)at + lane());
}

template <class F> DEVICE Group<F> load_group(const u8 *at) {
    Group<F> g;
    load_plane<F::LOW>(at, g.low);
    load_plane<F::HIGH>(at + 128 * F::LOW, g.high);
    const u8 *scales = at + 128 * (F::LOW + F::HIGH);
    g.scales = 1;
    if (F::SCALES == 1) g.scales = __ldg(scales + lane());
    if (F::SCALES == 2) g.scales = __ldg((const u16 *)scales + lane());
    return g;
}

// d and dmin of the lane's row; `head` is behind the block's groups.
template <class F> DEVICE void load_head(const u8 *head, float &d, float &dmin) {
    dmin = 0.0f;
    if (F::HEAD == 1) {
        u32 e = __ldg(head + lane());
        d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
    if (F::HEAD == 2) d = half_to_float(__ldg((const u16 *)head + lane()));
    if (F::HEAD == 4) {
        u32 both = __ldg((const u32 *)head + lane());
        d = half_to_float((u16)both);
        dmin = half_to_float((u16)(both >> 16));
    }
}

// The scale of sub-block `sub` of the group.
template <class F> DEVICE i32 scale_of(u32 scales, int sub) {
    if (F::CODES == CRUMBS) return (i32)(scales >> (8 * sub) & 15);
    return F::MIN ? (i32)(u8)(scales >> (8 * sub)) : (i32)(i8)(scales >> (8 * sub));
}

// The minimum of sub-block `sub` of the group.
template <class F> DEVICE i32 min_of(u32 scales, int sub) {
    if (F::CODES == CRUMBS) return (i32)(scales >> (8 * sub + 4) & 15);
    return (i32)(u8)(scales >> 8);
}

// Word j of a group of at most 4 bits as nibbles. Crumbs leave other crumbs above theirs.
template <class F> DEVICE u32 nibbles(const Group<F> &g, int j) {
    if (F::CODES == NIBBLES) return g.low[j];
    u32 low = g.low[j / 2] >> (j & 1 ? 2 : 0);
    if (F::CODES == CRUMBS) return low;
    u32 high = j == 0 ? g.high[0] : j == 1 ? g.high[0] >> 1 : j == 2 ? g.high[0] << 2 : g.high[0] << 1;
    return (low & 0x33333333u) | (high & 0x44444444u);
}

// Four of the 16 signed bytes of a table, by the low four nibbles of `codes`.
DEVICE u32 look_up(u32 codes, u32 t0, u32 t1, u32 t2, u32 t3) {
    u32 within = codes & 0x7777u, upper = 0x3210u | ((codes & 0x8888u) >> 1);
    return __byte_perm(__byte_perm(t0, t1, within), __byte_perm(t2, t3, within), upper);
}

// Word j of a group as bytes. `flip` is 0x80808080 to have formats whose CENTRE is 128 as signed bytes, 0 otherwise.
template <class F> DEVICE u32 bytes(const Group<F> &g, int j, u32 flip) {
    if (F::CODES == BYTES) return g.low[j] ^ flip;
    if (F::CODES == GRID || F::CODES == FLOAT4) {
        u32 codes = g.low[j / 2] >> (j & 1 ? 16 : 0);
        flip ^= 0x80808080u;
        if (F::CODES == FLOAT4)
            return look_up(codes, 0x03020100u ^ flip, 0x0c080604u ^ flip, 0xfdfeff00u ^ flip, 0xf4f8fafcu ^ flip);
        return look_up(codes, 0xbfad9881u ^ flip, 0xf6eaddcfu ^ flip, 0x26190d01u ^ flip, 0x71594535u ^ flip);
    }
    if (F::CODES == FIVE) {
        u32 low = (j & 1 ? g.low[j / 2] >> 4 : g.low[j / 2]) & 0x0f0f0f0fu;
        return low | ((j < 4 ? g.high[0] >> j : g.high[0] << (8 - j)) & 0x10101010u);
    }
    if (F::CODES == SIX) {
        u32 low = (j & 1 ? g.low[j / 2] >> 4 : g.low[j / 2]) & 0x0f0f0f0fu, high = g.high[j / 4];
        int k = j & 3;
        return low | ((k < 2 ? high >> (2 * k) : high << (8 - 2 * k)) & 0x30303030u);
    }
    u32 word = nibbles(g, j / 2);
    return (j & 1 ? word >> 4 : word) & (F::CODES == CRUMBS ? 0x03030303u : 0x0f0f0f0fu);
}

// A warp quantises 256 values: see canon.rs, quantize_row. q, d and sums are where the block's go.
DEVICE void quantize_256(const float *values, i8 *q, float *d, i16 *sums) {
    const float4 *from = (const float4 *)values + 2 * lane();
    float4 a = from[0], b = from[1];
    float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
    float amax = __uint_as_float(warp_max(most)), inverse = divide(127.0f, amax);
    u32 words[2] = {0, 0};
    i32 sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        i32 v = round_to_i8(mul(x[i], inverse));
        sum += v;
        words[i / 4] |= ((u32)v & 255) << (8 * (i & 3));
    }
    ((uint2 *)q)[lane()] = make_uint2(words[0], words[1]);
    sum += __shfl_xor_sync(FULL, sum, 1);
    if (lane() % 2 == 0) sums[lane() / 2] = (i16)sum;
    if (lane() == 0) d[0] = divide(amax, 127.0f);
}

// A warp quantises 32 values.
DEVICE void quantize_32(const float *values, i8 *q, float *d, i16 *sums) {
    float x = values[lane()];
    float amax = __uint_as_float(warp_max(__float_as_uint(x) & 0x7fffffffu));
    i32 v = round_to_i8(mul(x, divide(127.0f, amax)));
    q[lane()] = (i8)v;
#pragma unroll
    for (int half = 8; half > 0; half /= 2) v += __shfl_xor_sync(FULL, v, half);
    if (lane() % 16 == 0) sums[lane() / 16] = (i16)v;
    if (lane() == 0) d[0] = divide(amax, 127.0f);
}
