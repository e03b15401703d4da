// The backward pass of attention in two kernels: of queries, then of keys.  They are used for segments that do not
// fit into one block, and for heads whose rows do not fit into shared memory; see attention.cu.

#pragma once

#include "attention.cuh"

__device__ __forceinline__ float dot(unsigned x, unsigned y) {
    const bf16 x0{static_cast<unsigned short>(x)}, x1{static_cast<unsigned short>(x >> 16)};
    const bf16 y0{static_cast<unsigned short>(y)}, y1{static_cast<unsigned short>(y >> 16)};
    return load(x0) * load(y0) + load(x1) * load(y1);
}

// <dy, y> of the two rows of this lane.
template <int kWidth>
__device__ __forceinline__ void products_with_outputs(float (&along)[2], const LeftRows<kWidth>& of_y,
                                                      const LeftRows<kWidth>& outputs) {
    along[0] = along[1] = 0.0f;
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
        unsigned of_y_here[4], y_here[4];
        of_y.as_a(step, of_y_here);
        outputs.as_a(step, y_here);
#pragma unroll
        for (int i = 0; i < 4; ++i) along[i % 2] += dot(of_y_here[i], y_here[i]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) along[half] = reduce_over_group<Sum>(along[half]);
}

// Computes dq, and <dy, y> of every query for backward_of_keys: ds = p (dp - <dy, y>).
template <int kWidth, bool kDrops>
__device__ void backward_of_queries(const bf16* q, const bf16* k, const bf16* v, const bf16* y, const bf16* dy,
                                    const Block* blocks, const KeyRange* ranges, const float* log_normalisers, bf16* dq,
                                    float* of_outputs, int n_heads, float scale, const Dropout& dropout) {
    alignas(16) __shared__ bf16 of_keys[SharedRows<kWidth>::kSize], of_values[SharedRows<kWidth>::kSize];
    __shared__ Draws draws[kDrops ? kSlots : 1];
    const SharedRows<kWidth> keys{of_keys}, values{of_values};
    const Block& block = read_block(blocks, n_heads);
    const int head = blockIdx.x % n_heads;
    if (block.is_empty()) return;
    keys.start_copies(k, head, n_heads, block.keys, 0);
    values.start_copies(v, head, n_heads, block.keys, 0);
    const Queries<kDrops> queries(block.queries, ranges, head, n_heads, draws[kDrops ? threadIdx.x / 32 : 0], dropout);
    const LeftRows<kWidth> a(q, head, n_heads, queries.row, queries.end);
    const LeftRows<kWidth> a_dy(dy, head, n_heads, queries.row, queries.end);
    float along[2], log_normaliser[2], sum[kWidth / 8][4] = {};
    products_with_outputs(along, a_dy, LeftRows<kWidth>(y, head, n_heads, queries.row, queries.end));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const bool exists = queries.row_of(half) < queries.end;
        const long long index = static_cast<long long>(queries.row_of(half)) * n_heads + head;
        log_normaliser[half] = exists ? log_normalisers[index] : 0.0f;
        if (lane_of_group() == 0 && exists) of_outputs[index] = along[half];
    }
    for (int offset = 0;;) {
        finish_copies();
        __syncthreads();
#pragma unroll 1
        for (int slot = 0; slot < kSlots; ++slot) {
            if (!queries.meet(block.keys, slot, offset)) continue;  // a whole warp
            const int key = block.keys.first[slot] + offset;
            float score[2][4] = {}, of_weight[2][4] = {};
            add_product_of_rows(score, a, keys, slot);
            add_product_of_rows(of_weight, a_dy, values, slot);
            queries.draw(dropout, key);
            const KeyRange seen[2] = {queries.seen(0, block.keys.end[slot]), queries.seen(1, block.keys.end[slot])};
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int half = half_of(i);
                float& s = score[i / 4][i % 4];
                const float power = power_of_two(s * (scale * kLog2OfE) - log_normaliser[half]);
                const float weight = seen[half].has(key + column_of(i)) ? power : 0.0f;
                const float d = of_weight[i / 4][i % 4] * dropout.scale;
                const bool keeps = queries.keep(dropout, half, column_of(i));
                s = weight * queries.sees[half].of_score(keeps ? d : 0.0f, along[half]);
            }
            unsigned of_score[4];
            as_a(score, of_score);
            add_product(sum, of_score, keys, slot);
        }
        __syncthreads();
        offset += kBlockRows;
        if (!is_any(block.keys, offset)) break;
        keys.start_copies(k, head, n_heads, block.keys, offset);
        values.start_copies(v, head, n_heads, block.keys, offset);
    }
    store_rows<kWidth>(dq, head, n_heads, queries.row, queries.end, sum, scale, scale, keys);
}

struct alignas(16) QueryNumbers {
    KeyRange sees;
    float log_normaliser, along;
};

// Computes dk and dv as backward_of_queries computes dq, with keys as rows.
template <int kWidth, bool kDrops>
__device__ void backward_of_keys(const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Block* blocks,
                                 const KeyRange* ranges, const float* log_normalisers, const float* of_outputs,
                                 bf16* dk, bf16* dv, int n_heads, float scale, const Dropout& dropout) {
    alignas(16) __shared__ bf16 of_queries[SharedRows<kWidth>::kSize], of_dy[SharedRows<kWidth>::kSize];
    __shared__ QueryNumbers numbers[kBlockRows];
    __shared__ Draws all_draws[kDrops ? kSlots : 1];
    const SharedRows<kWidth> queries{of_queries}, of_y{of_dy};
    const Block& block = read_block(blocks, n_heads);
    const int head = blockIdx.x % n_heads, warp = threadIdx.x / 32;
    if (block.is_empty()) return;
    Draws& draws = all_draws[kDrops ? warp : 0];
    const int first = block.keys.first[warp], end = block.keys.end[warp];
    const LeftRows<kWidth> a(k, head, n_heads, first, end), a_v(v, head, n_heads, first, end);
    float of_keys[kWidth / 8][4] = {}, of_values[kWidth / 8][4] = {};
    for (int offset = 0; is_any(block.queries, offset); offset += kBlockRows) {
        __syncthreads();
        queries.start_copies(q, head, n_heads, block.queries, offset);
        of_y.start_copies(dy, head, n_heads, block.queries, offset);
        if (threadIdx.x < kBlockRows) {
            const int row = block.queries.first[threadIdx.x / kSlotRows] + offset + threadIdx.x % kSlotRows;
            const long long index = static_cast<long long>(row) * n_heads + head;
            numbers[threadIdx.x] = row < block.queries.end[threadIdx.x / kSlotRows]
                                       ? QueryNumbers{ranges[row], log_normalisers[index], of_outputs[index]}
                                       : QueryNumbers{};
        }
        finish_copies();
        __syncthreads();
#pragma unroll 1
        for (int slot = 0; slot < kSlots; ++slot) {
            const KeyRange of_lane = numbers[kSlotRows * slot + lane() % kSlotRows].sees;
            const bool meets = of_lane.first < min(first + kSlotRows, end) && first < of_lane.last;
            if (!__any_sync(kWholeWarp, meets)) continue;
            float weight[2][4] = {}, of_score[2][4] = {};
            add_product_of_rows(weight, a, queries, slot);
            add_product_of_rows(of_score, a_v, of_y, slot);
            if constexpr (kDrops) {
                const int row = block.queries.first[slot] + offset + lane() / 2;
                draws.draw(dropout.stream_id, dropout.index(row, block.queries.end[slot], head, n_heads) + first);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int column = lane_group() + 8 * half_of(i);
                const QueryNumbers query = numbers[kSlotRows * slot + column_of(i)];
                const bool kept = !kDrops || draws.at(column_of(i), column) >= dropout.threshold;
                float &w = weight[i / 4][i % 4], &d = of_score[i / 4][i % 4];
                const float power = power_of_two(w * (scale * kLog2OfE) - query.log_normaliser);
                w = query.sees.has(first + column) ? power : 0.0f;
                d = w * query.sees.of_score(kept ? d * dropout.scale : 0.0f, query.along);
                if (!kept) w = 0.0f;
            }
            unsigned of_query[4];
            as_a(weight, of_query);
            add_product(of_values, of_query, of_y, slot);
            as_a(of_score, of_query);
            add_product(of_keys, of_query, queries, slot);
        }
    }
    __syncthreads();
    store_rows<kWidth>(dk, head, n_heads, first, end, of_keys, scale, scale, queries);
    store_rows<kWidth>(dv, head, n_heads, first, end, of_values, dropout.scale, dropout.scale, queries);
}
