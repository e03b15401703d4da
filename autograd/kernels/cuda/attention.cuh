// Code shared by the kernels of attention: blocks, key ranges, dropout of weights, and scores.

#pragma once

#include "mma.cuh"
#include "philox.cuh"

constexpr float kLog2OfE = 1.44269504f;

struct Block {
    Slots queries, keys;

    __device__ __forceinline__ bool is_empty() const { return queries.end[0] == 0 && keys.end[0] == 0; }
};

// Copies the block of these threads to shared memory, from where each of them reads it many times.
__device__ __forceinline__ const Block& read_block(const Block* blocks, int n_heads) {
    constexpr int kNumbers = sizeof(Block) / sizeof(int);
    __shared__ int numbers[kNumbers];
    if (threadIdx.x < kNumbers)
        numbers[threadIdx.x] = reinterpret_cast<const int*>(blocks + blockIdx.x / n_heads)[threadIdx.x];
    __syncthreads();
    return *reinterpret_cast<const Block*>(numbers);
}

struct KeyRange {
    int first, last;
    __device__ __forceinline__ bool has(int key) const { return first <= key && key < last; }
    // The gradient of a score divided by its weight; exactly 0 for a single key, whose weight is 1 for any score.
    __device__ __forceinline__ float of_score(float of_weight, float along) const {
        return last - first > 1 ? of_weight - along : 0.0f;
    }
};

__device__ __forceinline__ KeyRange range_of(const KeyRange* ranges, int row, int end) {
    return row < end ? ranges[row] : KeyRange{0, 0};
}

struct WeightRow {  // of a query; see autograd.tiles
    int segment, offset;
};

// Dropout of weights.  A weight's number is drawn by its index in the reference's array (segments, heads, queries,
// keys).
struct Dropout {
    StreamId stream_id;
    const WeightRow* rows;
    long long of_head;  // the number of weights of a segment and head
    int threshold;
    float scale;  // of weights that are kept

    // The index of a query's weight of key 0; the index plus j is that of packed key j of the query's segment.
    __device__ __forceinline__ word index(int query, int end, int head, int n_heads) const {
        if (query >= end) return 0;
        const WeightRow row = rows[query];
        return (static_cast<long long>(row.segment) * n_heads + head) * of_head + row.offset;
    }
};

// The draws of 16 queries and 16 keys.  The 16 weights of a query lie in two blocks of 16 draws at most.
struct Draws {
    union {
        word words[16][9];  // two blocks and a gap, because of the memory's banks
        unsigned short numbers[16][36];
    };
    int first_column[16];  // of the 32 draws of a row: the first one used

    // Every lane of a warp draws a block: those of row r are drawn by the lanes 2 r and 2 r + 1.
    // first is the index of the first weight of this lane's row.
    __device__ __forceinline__ void draw(const StreamId& stream_id, word first) {
        const unsigned row = threadIdx.x % 32 / 2;
        word block[4];
        philox_block(stream_id, first / 16 + threadIdx.x % 2, block);
        __syncwarp();  // until all lanes have read the draws of an earlier call
#pragma unroll
        for (int i = 0; i < 4; ++i) words[row][threadIdx.x % 2 * 4 + i] = block[i];
        first_column[row] = static_cast<int>(first % 16);
        __syncwarp();
    }
    __device__ __forceinline__ int at(int row, int column) const { return numbers[row][first_column[row] + column]; }
};

template <typename Of>
__device__ __forceinline__ float reduce_over_group(float x) {  // the four lanes that share rows
    x = Of::of(x, __shfl_xor_sync(kWholeWarp, x, 1));
    return Of::of(x, __shfl_xor_sync(kWholeWarp, x, 2));
}

__device__ __forceinline__ bool is_any(const Slots& slots, int offset) {
    bool any = false;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) any |= slots.first[slot] + offset < slots.end[slot];
    return any;
}

// The queries of a warp: a slot.  This lane has two of them, lane_group() and lane_group() + 8.
template <bool kDrops>
struct Queries {
    int row, end;
    KeyRange sees[2], union_of_ranges;
    Draws& draws;
    word first_weight;  // the index of the weight of key 0, of the query whose draws this lane computes

    __device__ __forceinline__ Queries(const Slots& slots, const KeyRange* ranges, int head, int n_heads, Draws& draws,
                                       const Dropout& dropout)
        : row(slots.first[threadIdx.x / 32]), end(slots.end[threadIdx.x / 32]), draws(draws) {
#pragma unroll
        for (int half = 0; half < 2; ++half) sees[half] = range_of(ranges, row_of(half), end);
        const KeyRange of_lane = range_of(ranges, row + lane() % kSlotRows, end);
        const bool exists = of_lane.first < of_lane.last;
        union_of_ranges.first = __reduce_min_sync(kWholeWarp, exists ? of_lane.first : 0x7fffffff);
        union_of_ranges.last = __reduce_max_sync(kWholeWarp, of_lane.last);
        if constexpr (kDrops) first_weight = dropout.index(row + lane() / 2, end, head, n_heads);
    }
    __device__ __forceinline__ int row_of(int half) const { return row + lane_group() + 8 * half; }
    // Returns whether any of these queries sees a key of a slot.
    __device__ __forceinline__ bool meet(const Slots& keys, int slot, int offset) const {
        const int key = keys.first[slot] + offset, end = min(key + kSlotRows, keys.end[slot]);
        return key < end && key < union_of_ranges.last && union_of_ranges.first < end;
    }
    // The keys up to `end` that a query sees.
    __device__ __forceinline__ KeyRange seen(int half, int end) const {
        return KeyRange{sees[half].first, min(sees[half].last, end)};
    }
    __device__ __forceinline__ void draw(const Dropout& dropout, int key) const {
        if constexpr (kDrops) draws.draw(dropout.stream_id, first_weight + key);
    }
    __device__ __forceinline__ bool keep(const Dropout& dropout, int half, int column) const {
        return !kDrops || draws.at(lane_group() + 8 * half, column) >= dropout.threshold;
    }
};

// The column and the half of the rows of element i of two tiles C.
__device__ __forceinline__ int column_of(int i) { return 8 * (i / 4) + 2 * lane_of_group() + i % 2; }
__device__ __forceinline__ constexpr int half_of(int i) { return i % 4 / 2; }

// Computes the scores of a warp's queries and 64 keys.  If a query does not see a key, the score is Max::kNeutral,
// whose power is 0.
template <int kWidth, bool kDrops, typename Left>
__device__ __forceinline__ void compute_scores(float (&score)[kSlots][2][4], const Queries<kDrops>& queries,
                                               const Left& left, const SharedRows<kWidth>& rows, const Slots& keys,
                                               int offset) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const bool met = queries.meet(keys, slot, offset);  // the same in a whole warp
        float(&s)[2][4] = score[slot];
#pragma unroll
        for (int i = 0; i < 8; ++i) s[i / 4][i % 4] = met ? 0.0f : Max::kNeutral;
        if (!met) continue;
        add_product_of_rows(s, left, rows, slot);
        const KeyRange seen[2] = {queries.seen(0, keys.end[slot]), queries.seen(1, keys.end[slot])};
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (!seen[half_of(i)].has(keys.first[slot] + offset + column_of(i))) s[i / 4][i % 4] = Max::kNeutral;
    }
}
