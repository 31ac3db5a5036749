// The largest element of a row and its weight.
#include "canon.cuh"

// Elements of a row that a block looks through.
#define PART 4096

// Of two places the better one: the larger element, the lower index.
DEVICE void better(u32 &word, u32 &at, u32 other, u32 where) {
    if (other > word || (other == word && where < at)) word = other, at = where;
}

// The best of the 256 threads' places, in every thread.
DEVICE void block_best(u32 &word, u32 &at) {
    __shared__ u32 words[8], places[8];
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        u32 other = __shfl_xor_sync(FULL, word, half), where = __shfl_xor_sync(FULL, at, half);
        better(word, at, other, where);
    }
    if (lane() == 0) words[threadIdx.x / WARP] = word, places[threadIdx.x / WARP] = at;
    __syncthreads();
    for (u32 w = 0; w < 8; w++) better(word, at, words[w], places[w]);
}

// The best element of each part of a row. Zeros of both signs are equal. Blocks (n / PART, rows), threads 256.
KERNEL(256, 4)
best_of_parts(const float *x, u32 *words, u32 *places, u32 n) {
    u32 from = blockIdx.x * PART, end = from + PART < n ? from + PART : n, word = 0, at = from;
    for (u32 i = from + threadIdx.x; i < end; i += blockDim.x)
        better(word, at, ordered(add(x[(u64)blockIdx.y * n + i], 0.0f)), i);
    block_best(word, at);
    u32 to = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) words[to] = word, places[to] = at;
}

// The best of the parts; 0 where nothing is above minus infinity. Blocks (rows), threads 256.
KERNEL(256, 4)
best_of_row(const u32 *words, const u32 *places, u32 *best, u32 parts) {
    u32 word = 0, at = 0;
    for (u32 i = threadIdx.x; i < parts; i += blockDim.x)
        better(word, at, words[blockIdx.x * parts + i], places[blockIdx.x * parts + i]);
    block_best(word, at);
    if (threadIdx.x == 0) best[blockIdx.x] = word <= ordered(__uint_as_float(0xff800000u)) ? 0 : at;
}

// Σ exp(x − x[best]) over each part of one row. A guess's weight, no part of the model's arithmetic. Blocks (n / PART),
// threads 256.
KERNEL(256, 4)
masses_of_parts(const float *x, const u32 *best, float *masses, u32 n) {
    __shared__ float sums[8];
    u32 from = blockIdx.x * PART, end = from + PART < n ? from + PART : n;
    float most = x[best[0]], sum = 0.0f;
    for (u32 i = from + threadIdx.x; i < end; i += blockDim.x) sum = add(sum, exp_of(sub(x[i], most)));
    sum = tree(sum);
    if (lane() == 0) sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 w = 1; w < 8; w++) sum = add(sum, sums[w]);
    masses[blockIdx.x] = sum;
}
