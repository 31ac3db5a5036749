// The int8 forms of a row, made by whoever writes it.
//
// What the next product will read as int8 is quantised on the way where its addresses are given; an address of 0 means
// that nobody wants it.
#pragma once
#include "quant.cuh"

// By blocks of 256 and of 32: q [rows][width], d [rows][width / block], sums [rows][width / 16].
#define FORMS i8 *q256, float *d256, i16 *sums256, i8 *q32, float *d32, i16 *sums32
#define GIVEN_FORMS q256, d256, sums256, q32, d32, sums32

// Quantises `count` values that stand in row `row` from column `from` on, all of which the block's threads see; whole
// warps take whole blocks.
DEVICE void quantize_forms(const float *values, u32 row, u32 from, u32 count, u32 width, FORMS) {
    u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    if (q256) {
        for (u32 at = warp * 256; at < count; at += warps * 256) {
            u32 to = row * width + from + at;
            quantize_256(values + at, q256 + to, d256 + to / 256, sums256 + to / 16);
        }
    }
    if (q32) {
        for (u32 at = warp * 32; at < count; at += warps * 32) {
            u32 to = row * width + from + at;
            quantize_32(values + at, q32 + to, d32 + to / 32, sums32 + to / 16);
        }
    }
}
