// Kernels for the tests of the emulator alone: what lanes do together, and what a kernel must not do.
#include "canon.cuh"

// out[thread] = what this file was compiled as.
KERNEL(32, 1) compiled_as(i32 *out) { out[threadIdx.x] = VARIANT; }

// out[i] = a[i]·x + n, over all blocks of a line.
KERNEL(256, 1) arguments(const float *a, float x, i32 n, u32 count, float *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fma(a[i], x, (float)n);
}

// out[block][thread]: its place in the grid, as one number; four threads in y.
KERNEL(256, 1) places(u32 *out) {
    u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    u32 thread = threadIdx.y * blockDim.x + threadIdx.x;
    u32 place = blockIdx.x + 100 * blockIdx.y + 10000 * blockIdx.z;
    out[block * (blockDim.x * blockDim.y) + thread] = place + 1000000 * thread;
}

// out[8][32]: every way of asking another lane.
KERNEL(32, 1) shuffles(const u32 *in, u32 *out) {
    u32 v = in[lane()];
    out[lane()] = __shfl_sync(FULL, v, 7);
    out[32 + lane()] = __shfl_up_sync(FULL, v, 3);
    out[64 + lane()] = __shfl_down_sync(FULL, v, 3);
    out[96 + lane()] = __shfl_xor_sync(FULL, v, 5);
    out[128 + lane()] = __shfl_xor_sync(FULL, v, 12, 8);
    out[160 + lane()] = __shfl_sync(FULL, v, 3, 8);
    out[192 + lane()] = __ballot_sync(FULL, v & 1);
    out[224 + lane()] = __any_sync(FULL, v == 1000) + 2 * __all_sync(FULL, v < 2000);
}

// The tree, the largest and a dot product, by one warp.
KERNEL(32, 1) trees(const float *x, u32 n, float *out) {
    float sum = tree(x[lane()]), highest = from_ordered(warp_max(ordered(x[lane()]))), product = dot(x, x, n);
    if (lane() == 0) {
        out[0] = sum;
        out[1] = highest;
        out[2] = product;
    }
}

// Each block counts its values mod 32 in static shared memory, and all of them in global memory.
KERNEL(256, 1) histogram(const u32 *in, u32 *of_block, u32 *total, u32 *most) {
    __shared__ u32 counts[32];
    if (threadIdx.x < 32) counts[threadIdx.x] = 0;
    __syncthreads();
    u32 v = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&counts[v & 31], 1u);
    atomicAdd(&total[v & 31], 1u);
    atomicMax(most, v);
    __syncthreads();
    if (threadIdx.x < 32) of_block[blockIdx.x * 32 + threadIdx.x] = counts[threadIdx.x];
}

// out[thread] = in[the thread opposite], through dynamic shared memory.
KERNEL(1024, 1) reverse(const u32 *in, u32 *out) {
    SHARED;
    u32 *held = (u32 *)shared_memory;
    held[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

// What a block finds in its dynamic shared memory, before it leaves something else there.
KERNEL(32, 1) finds(u32 *out) {
    SHARED;
    u32 *held = (u32 *)shared_memory;
    out[blockIdx.x * 32 + threadIdx.x] = held[threadIdx.x];
    held[threadIdx.x] = 7;
}

// The same with static shared memory.
KERNEL(32, 1) finds_static(u32 *out) {
    __shared__ u32 held[32];
    out[blockIdx.x * 32 + threadIdx.x] = held[threadIdx.x];
    held[threadIdx.x] = 7;
}

// How many threads of a block hold an odd value, said by the barrier.
KERNEL(256, 1) votes(const u32 *in, i32 *out) {
    u32 v = in[threadIdx.x];
    i32 odd = __syncthreads_count(v & 1), any = __syncthreads_or(v == 5), all = __syncthreads_and(v < 256);
    if (threadIdx.x == 0) {
        out[0] = odd;
        out[1] = any;
        out[2] = all;
    }
}

// Half the threads end before a barrier of the others.
KERNEL(64, 1) ends_early(u32 *out) {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    out[threadIdx.x] = threadIdx.x;
}

// Halves to singles and back.
KERNEL(256, 1) halves(const u16 *in, float *wide, u16 *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    wide[i] = half_to_float(in[i]);
    out[i] = float_to_half(wide[i]);
}

// Singles to halves.
KERNEL(256, 1) narrow(const float *in, u32 n, u16 *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = float_to_half(in[i]);
}

// exp, sigmoid, silu, softplus, 1/sqrt, side by side.
KERNEL(32, 1) functions(const float *in, u32 n, float *out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[5 * i] = exp_of(in[i]);
    out[5 * i + 1] = sigmoid(in[i]);
    out[5 * i + 2] = silu(in[i]);
    out[5 * i + 3] = softplus(in[i]);
    out[5 * i + 4] = rsqrt_of(in[i]);
}

// out[thread] = dp4a of its two words; out[32 + thread] = bytes of both, chosen by the third.
KERNEL(32, 1) bytes(const u32 *a, const u32 *b, const u32 *c, u32 *out) {
    out[lane()] = (u32)dp4a(a[lane()], b[lane()], (i32)c[lane()]);
    out[32 + lane()] = __byte_perm(a[lane()], b[lane()], c[lane()]);
}

// d[16][8] += a[16][32]·b[8][32], bytes along k.
KERNEL(32, 1) tile(const u32 *a, const u32 *b, i32 *d) {
    u32 row = lane() / 4, k = lane() % 4, at = row * 8 + 2 * k;
    u32 left[4] = {a[row * 8 + k], a[(row + 8) * 8 + k], a[row * 8 + k + 4], a[(row + 8) * 8 + k + 4]};
    u32 right[2] = {b[row * 8 + k], b[row * 8 + k + 4]};
    i32 sum[4] = {d[at], d[at + 1], d[at + 64], d[at + 65]};
    mma(sum, left, right);
    mma(sum, left, right);
    d[at] = sum[0];
    d[at + 1] = sum[1];
    d[at + 64] = sum[2];
    d[at + 65] = sum[3];
}

// out[0] gets `value` after a while.
KERNEL(32, 1) slow(u32 rounds, u32 value, u32 *out) {
    u32 v = lane();
    for (u32 i = 0; i < rounds; i++) v = __shfl_xor_sync(FULL, v, 1) + (v >> 31);
    if (lane() == 0) out[0] = value + (v == FULL);
}

// out[block] = which block in turn it was.
KERNEL(32, 1) turns(u32 *counter, u32 *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(counter, 1u);
}

// out[lane], out[32 + lane] = as which in turn the lane came to a meeting, and as which it went on.
KERNEL(32, 1) meets(u32 *counters, u32 *out) {
    out[lane()] = atomicAdd(counters, 1u);
    __syncwarp();
    out[32 + lane()] = atomicAdd(counters + 1, 1u);
}

// out[0] = how far one warp's work was when another looked: 0, 1 or 2 steps.
KERNEL(64, 1) looks(u32 *steps, u32 *out) {
    if (threadIdx.x < 32) {
        for (u32 step = 1; step <= 2; step++) {
            if (lane() == 0) steps[0] = step;
            __syncwarp();
        }
    } else if (lane() == 0) {
        out[0] = steps[0];
    }
}

// The barrier between writing and reading another warp's value is missing.
KERNEL(64, 1) misses_barrier(u32 *out) {
    SHARED;
    u32 *held = (u32 *)shared_memory;
    held[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = held[(threadIdx.x + 63) & 63];
}

// The same with static shared memory.
KERNEL(64, 1) misses_static_barrier(u32 *out) {
    __shared__ u32 held[64], unused;
    held[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = held[(threadIdx.x + 63) & 63];
    unused = 0;
}

// Two barriers for one block.
KERNEL(64, 1) parts_at_barrier(u32 *out) {
    if (threadIdx.x < 40) {
        __syncthreads();
    } else {
        out[0] = 1;
        __syncthreads();
    }
}

// Half of a warp shuffles.
KERNEL(32, 1) shuffles_apart(u32 *out) {
    u32 v = lane();
    if (v & 1) v = __shfl_xor_sync(FULL, v, 1);
    out[lane()] = v;
}

// A shuffle with a lane outside its mask.
KERNEL(32, 1) shuffles_outside(u32 *out) {
    if (lane() < 16) out[lane()] = __shfl_sync(0xffffu, lane(), 16);
}

// A warp waits at a barrier, another for its own lanes that wait there.
KERNEL(64, 1) waits_for_ever(u32 *out) {
    if (threadIdx.x != 40) __syncthreads();
    out[threadIdx.x] = __shfl_sync(FULL, threadIdx.x, 0);
}

// Block 1's thread 5 reads at `index`.
KERNEL(32, 1) reads(const u32 *in, i32 index, u32 *out) {
    if (blockIdx.x == 1 && threadIdx.x == 5) out[0] = in[index];
}

// Writes at `index`.
KERNEL(32, 1) writes(u32 *out, i32 index) {
    if (threadIdx.x == 3) out[index] = 1;
}

// Writes behind what it asked for.
KERNEL(32, 1) writes_behind_shared(u32 *out, i32 index) {
    SHARED;
    u32 *held = (u32 *)shared_memory;
    if (threadIdx.x == 2) held[index] = 1;
    out[threadIdx.x] = held[0];
}

// Reads behind what it declares.
KERNEL(32, 1) reads_behind_static(u32 *out, i32 index) {
    __shared__ u32 held[32];
    out[threadIdx.x] = held[index];
}

// Calls itself `depth` deep, 64 bytes at least each time.
__device__ __noinline__ u32 sink(i32 depth) {
    volatile u32 held[16];
    held[depth & 15] = (u32)depth;
    return depth > 0 ? sink(depth - 1) + held[depth & 15] : 0;
}

KERNEL(32, 1) sinks(u32 *out, i32 depth) { out[0] = sink(depth); }

// Divides by what it is given.
KERNEL(32, 1) divides(i32 by, i32 *out) { out[threadIdx.x] = 100 / by; }
