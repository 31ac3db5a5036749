// Gated attention over a cache of K and V.
//
// Per query row and head: exact maximum, p = exp(s − max), sums over segments of 256 keys, segments added in order.
// Layouts: q [rows][heads][2·dim], query then gate; k, v [rows][kv_heads][dim]; cache [position][kv_heads][dim], halves
// where `half` is 1; scores [rows][heads][keys]; partial [rows][heads][segments][dim]; masses [rows][heads][segments].
#include "forms.cuh"

#define SEGMENT 256
// Elements of a head that a lane holds: heads have at most 256.
#define PER_LANE 8
// Query heads that share a V row on its way through a segment.
#define GROUP 8
// Queries that stand in shared memory together, at most.
#define QUERIES 64

DEVICE float cached(const void *cache, u32 half, u64 at) {
    return half ? half_to_float(((const u16 *)cache)[at]) : ((const float *)cache)[at];
}

DEVICE void store(void *cache, u32 half, u64 at, float v) {
    if (half)
        ((u16 *)cache)[at] = float_to_half(v);
    else
        ((float *)cache)[at] = v;
}

// Norms and rotates one head by a warp: (x · scale) · weight, then pairs (i, i + rope_dim / 2).
DEVICE void norm_rotate(float *head, const float *weight, const float *rope, u32 dim, u32 rope_dim, float eps) {
    float scale = rms_scale(head, dim, eps);
    for (u32 i = lane(); i < dim; i += WARP) head[i] = mul(mul(head[i], scale), weight[i]);
    __syncwarp(FULL);
    u32 half = rope_dim / 2;
    for (u32 i = lane(); i < half; i += WARP) {
        float a = head[i], b = head[i + half], c = rope[i], s = rope[i + half];
        head[i] = fma(a, c, -mul(b, s));
        head[i + half] = fma(a, s, mul(b, c));
    }
    __syncwarp(FULL);
}

// Norms and rotates queries and keys in place, appends K and V at position `start`, and clears the rows' maxima.
// Blocks (heads + kv_heads, rows), threads 32.
KERNEL(32, 16)
rotate(float *q, float *k, const float *v, const float *q_norm, const float *k_norm, const float *rope, void *k_cache,
       void *v_cache, u32 *maxima, u32 heads, u32 kv_heads, u32 dim, u32 rope_dim, u32 start, u32 half, float eps) {
    u32 head = blockIdx.x, row = blockIdx.y;
    rope += row * rope_dim;
    if (head < heads) {
        if (lane() == 0) maxima[row * heads + head] = 0;
        norm_rotate(q + (row * heads + head) * 2 * dim, q_norm, rope, dim, rope_dim, eps);
        return;
    }
    u32 from = (row * kv_heads + head - heads) * dim;
    norm_rotate(k + from, k_norm, rope, dim, rope_dim, eps);
    u64 to = ((u64)(start + row) * kv_heads + head - heads) * dim;
    for (u32 i = lane(); i < dim; i += WARP) {
        store(k_cache, half, to + i, k[from + i]);
        store(v_cache, half, to + i, v[from + i]);
    }
}

// score = (q · k) · (1 / sqrt(dim)) for the keys that a row sees, and their maximum. A warp takes a key for all of the
// tile's queries. Blocks (keys / 64, kv_heads, rows / tile), threads 256, shared tile · heads / kv_heads · dim singles.
KERNEL(256, 2)
scores(const float *q, const void *k_cache, float *out, u32 *maxima, u32 heads, u32 kv_heads, u32 dim, u32 start,
       u32 rows, u32 tile, u32 keys, u32 half, float scale) {
    SHARED;
    float *queries = (float *)shared_memory;
    __shared__ u32 tops[8][QUERIES];
    u32 kv = blockIdx.y, first = blockIdx.z * tile, group = heads / kv_heads, warp = threadIdx.x / WARP;
    u32 count = (rows - first < tile ? rows - first : tile) * group;
    for (u32 i = threadIdx.x; i < 8 * QUERIES; i += blockDim.x) tops[i / QUERIES][i % QUERIES] = 0;
    for (u32 i = threadIdx.x; i < count * dim; i += blockDim.x) {
        u32 which = i / dim, row = first + which / group, head = kv * group + which % group;
        queries[i] = q[(row * heads + head) * 2 * dim + i % dim];
    }
    __syncthreads();
    u32 end = blockIdx.x * 64 + 64 < keys ? blockIdx.x * 64 + 64 : keys;
    for (u32 key = blockIdx.x * 64 + warp; key < end; key += 256 / WARP) {
        float held[PER_LANE];
        u64 at = ((u64)key * kv_heads + kv) * dim;
#pragma unroll
        for (u32 e = 0; e < PER_LANE; e++)
            held[e] = e * WARP + lane() < dim ? cached(k_cache, half, at + e * WARP + lane()) : 0.0f;
        for (u32 which = 0; which < count; which++) {
            u32 row = first + which / group, head = kv * group + which % group;
            if (key > start + row) continue;
            const float *query = queries + which * dim;
            float sum = 0.0f;
#pragma unroll
            for (u32 e = 0; e < PER_LANE; e++)
                if (e * WARP + lane() < dim) sum = fma(held[e], query[e * WARP + lane()], sum);
            float score = mul(tree(sum), scale);
            if (lane() == 0) {
                out[(u64)(row * heads + head) * keys + key] = score;
                tops[warp][which] = max(tops[warp][which], ordered(score));
            }
        }
    }
    __syncthreads();
    for (u32 which = threadIdx.x; which < count; which += blockDim.x) {
        u32 top = 0;
        for (u32 w = 0; w < 8; w++) top = max(top, tops[w][which]);
        u32 row = first + which / group, head = kv * group + which % group;
        if (top) atomicMax(&maxima[row * heads + head], top);
    }
}

// p = exp(score − max) over one segment of a row's keys, their sum, and Σ p·v, an fma chain over the keys. Blocks
// (segments, kv_heads, rows), threads 256.
KERNEL(256, 2)
weigh(const float *all_scores, const u32 *maxima, const void *v_cache, float *partial, float *masses, u32 heads,
      u32 kv_heads, u32 dim, u32 start, u32 keys, u32 segments, u32 half) {
    __shared__ float p[GROUP][SEGMENT];
    u32 segment = blockIdx.x, kv = blockIdx.y, row = blockIdx.z, group = heads / kv_heads;
    u32 from = segment * SEGMENT, seen = start + row + 1;
    if (from >= seen) return;
    u32 n = seen - from < SEGMENT ? seen - from : SEGMENT;
    for (u32 first = 0; first < group; first += GROUP) {
        u32 count = group - first < GROUP ? group - first : GROUP, head = row * heads + kv * group + first;
        for (u32 i = threadIdx.x; i < count * SEGMENT; i += blockDim.x) {
            u32 which = i / SEGMENT, key = i % SEGMENT;
            if (key >= n) continue;
            float max = from_ordered(maxima[head + which]);
            p[which][key] = exp_of(sub(all_scores[(u64)(head + which) * keys + from + key], max));
        }
        __syncthreads();
        for (u32 which = threadIdx.x / WARP; which < count; which += blockDim.x / WARP) {
            float mass = sum_of(p[which], n);
            if (lane() == 0) masses[(head + which) * segments + segment] = mass;
        }
        for (u32 d = threadIdx.x; d < dim; d += blockDim.x) {
            float sums[GROUP];
#pragma unroll
            for (u32 g = 0; g < GROUP; g++) sums[g] = 0.0f;
            u64 at = ((u64)from * kv_heads + kv) * dim + d;
#pragma unroll 4
            for (u32 key = 0; key < n; key++) {
                float v = cached(v_cache, half, at + (u64)key * kv_heads * dim);
#pragma unroll
                for (u32 g = 0; g < GROUP; g++) sums[g] = fma(p[g][key], v, sums[g]);
            }
#pragma unroll
            for (u32 g = 0; g < GROUP; g++)
                if (g < count) partial[((u64)(head + g) * segments + segment) * dim + d] = sums[g];
        }
        __syncthreads();
    }
}

// out = (Σ segments / Σ masses) · sigmoid(gate), and its int8 forms. Blocks (heads · dim / 256, rows), threads 256.
KERNEL(256, 4)
attend(const float *partial, const float *masses, const float *q, float *out, u32 heads, u32 dim, u32 start,
       u32 segments, FORMS) {
    __shared__ float4 fours[64];  // read four at a time
    float *values = (float *)fours;
    u32 row = blockIdx.y, seen = (start + row) / SEGMENT + 1, width = heads * dim, from = blockIdx.x * 256;
    u32 column = from + threadIdx.x, head = row * heads + column / dim, d = column % dim;
    if (column < width) {
        float sum = 0.0f, mass = 0.0f;
        for (u32 s = 0; s < seen; s++) {
            mass = add(mass, masses[head * segments + s]);
            sum = add(sum, partial[((u64)head * segments + s) * dim + d]);
        }
        values[threadIdx.x] = mul(divide(sum, mass), sigmoid(q[head * 2 * dim + dim + d]));
        out[row * width + column] = values[threadIdx.x];
    }
    __syncthreads();
    quantize_forms(values, row, from, min(width - from, 256u), width, GIVEN_FORMS);
}
