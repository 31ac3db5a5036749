// Routed experts: choice and grouping; their outputs are summed in rows.cu.
//
// Pairs (row, rank) are sorted by expert, within an expert by row, so that each distinct expert's weights are read
// once. A *place* is a position in that order. Layouts: experts, weights, place [rows][used]; enter [places] = input
// row; groups [group] = {expert, first place, places, 0}; count[0] = groups.
#include "canon.cuh"

// Experts of a model, at most.
#define EXPERTS 1024

// Softmax over a row's logits, then its best experts: probability descending, index ascending; weights divided by their
// sum in rank order where `renormalize`, times `scale`. A single row is its own grouping. Blocks (rows), threads 256,
// shared `experts` singles.
KERNEL(256, 4)
route(const float *logits, u32 *experts, float *weights, u32 *enter, u32 *place, uint4 *groups, u32 *count, u32 n,
      u32 used, u32 renormalize, float scale, u32 alone) {
    SHARED;
    float *p = (float *)shared_memory;
    __shared__ u32 best[8];
    __shared__ float shared_sum;
    u32 row = blockIdx.x, warp = threadIdx.x / WARP;
    logits += row * n;
    u32 top = 0;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) top = max(top, ordered(logits[i]));
    top = warp_max(top);
    if (lane() == 0) best[warp] = top;
    __syncthreads();
    for (u32 w = 0; w < 8; w++) top = max(top, best[w]);
    float highest = from_ordered(top);
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) p[i] = exp_of(sub(logits[i], highest));
    __syncthreads();
    if (warp == 0) {
        float sum = sum_of(p, n);
        if (lane() == 0) shared_sum = sum;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) p[i] = divide(p[i], shared_sum);
    __syncthreads();
    // One rank after another by one warp; the chosen ones are set below everything.
    if (warp == 0) {
        float sum = 0.0f;
        for (u32 rank = 0; rank < used; rank++) {
            u32 mine = 0, where = 0xffffffffu;
#pragma unroll 8
            for (u32 i = lane(); i < n; i += WARP) {
                u32 word = p[i] < 0.0f ? 0 : __float_as_uint(p[i]) + 1;
                if (word > mine) mine = word, where = i;
            }
            u32 most = warp_max(mine), chosen = ~warp_max(mine == most ? ~where : 0);
            // Before it is struck out all have read it: shuffles order nothing.
            __syncwarp(FULL);
            if (lane() == 0) {
                sum = add(sum, p[chosen]);
                experts[row * used + rank] = chosen;
                weights[row * used + rank] = p[chosen];
                p[chosen] = -1.0f;
            }
            __syncwarp(FULL);
        }
        if (lane() == 0) shared_sum = sum;
    }
    __syncthreads();
    for (u32 rank = row * used + threadIdx.x; rank < (row + 1) * used; rank += blockDim.x) {
        float weight = weights[rank];
        weights[rank] = mul(renormalize ? divide(weight, shared_sum) : weight, scale);
        if (!alone) continue;
        enter[rank] = 0;
        place[rank] = rank;
        groups[rank] = make_uint4(experts[rank], rank, 1, 0);
        if (rank == 0) count[0] = used;
    }
}

// Sorts the pairs by expert. One block of whole warps, a thread an expert.
KERNEL(1024, 1)
group(const u32 *experts, u32 *enter, u32 *place, uint4 *groups, u32 *count, u32 pairs, u32 used) {
    __shared__ u32 chunk[EXPERTS], pairs_before[EXPERTS], groups_before[EXPERTS];
    u32 e = threadIdx.x, mine = 0;
    for (u32 from = 0; from < pairs; from += blockDim.x) {
        u32 end = min(pairs - from, blockDim.x);
        __syncthreads();
        if (e < end) chunk[e] = experts[from + e];
        __syncthreads();
        for (u32 i = 0; i < end; i++) mine += chunk[i] == e;
    }
    pairs_before[e] = mine;
    groups_before[e] = mine > 0;
    __syncthreads();
    // Sums over the experts before and including this one.
    for (u32 step = 1; step < blockDim.x; step *= 2) {
        u32 more = e >= step ? pairs_before[e - step] : 0, further = e >= step ? groups_before[e - step] : 0;
        __syncthreads();
        pairs_before[e] += more;
        groups_before[e] += further;
        __syncthreads();
    }
    if (e == blockDim.x - 1) count[0] = groups_before[e];
    u32 at = pairs_before[e] - mine;
    if (mine) groups[groups_before[e] - 1] = make_uint4(e, at, mine, 0);
    for (u32 from = 0; from < pairs; from += blockDim.x) {
        u32 end = min(pairs - from, blockDim.x);
        __syncthreads();
        if (e < end) chunk[e] = experts[from + e];
        __syncthreads();
        for (u32 i = 0; i < end; i++) {
            if (chunk[i] != e) continue;
            enter[at] = (from + i) / used;
            place[from + i] = at++;
        }
    }
}
