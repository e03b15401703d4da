// Attention of packed tokens over key ranges; see autograd.ops.attention.
//
// A block of four warps computes one head of four slots of 16 queries, over slots of 16 keys in shared memory; see
// autograd.tiles for which slots come together.  No array of the size queries times keys is in global memory: Dao et
// al. 2022 (FlashAttention), algorithms 1 and 4.  Scores are in units of log 2, because the GPU computes powers of 2.

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older GPUs do not multiply bfloat16: no kernel

#include "attention.cuh"
#include "attention_long.cuh"

// A running softmax: add() turns the scores of 64 keys into weights relative to the greatest score so far, and corrects
// the earlier sums.
template <int kWidth, bool kDrops>
struct Softmax {
    float greatest[2], total[2] = {0, 0}, sum[kWidth / 8][4] = {};

    __device__ __forceinline__ Softmax() { greatest[0] = greatest[1] = Max::kNeutral; }

    __device__ __forceinline__ void add(float (&score)[kSlots][2][4], const Queries<kDrops>& queries, const Slots& keys,
                                        int offset, const SharedRows<kWidth>& values, float scale,
                                        const Dropout& dropout) {
        float shift[2], of_lane[2] = {0, 0};
        correct(score, scale, shift);
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
            if (!queries.meet(keys, slot, offset)) continue;  // a whole warp
            queries.draw(dropout, keys.first[slot] + offset);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float& s = score[slot][i / 4][i % 4];
                s = power_of_two(s * scale - shift[half_of(i)]);
                of_lane[half_of(i)] += s;
                if (!queries.keep(dropout, half_of(i), column_of(i))) s = 0.0f;
            }
            unsigned weights[4];
            as_a(score[slot], weights);
            add_product(sum, weights, values, slot);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) total[half] += reduce_over_group<Sum>(of_lane[half]);
    }

private:
    __device__ __forceinline__ void correct(const float (&score)[kSlots][2][4], float scale, float (&shift)[2]) {
        float correction[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float greater = greatest[half];
#pragma unroll
            for (int i = 0; i < kSlots * 4; ++i)
                greater = Max::of(greater, score[i / 4][i / 2 % 2][2 * half + i % 2]);
            greater = reduce_over_group<Max>(greater);
            shift[half] = greater == Max::kNeutral ? 0.0f : greater * scale;  // no key so far: all weights become 0
            correction[half] = power_of_two(greatest[half] * scale - shift[half]);
            total[half] *= correction[half];
            greatest[half] = greater;
        }
#pragma unroll
        for (int i = 0; i < kWidth / 8 * 4; ++i) sum[i / 4][i % 4] *= correction[i % 4 / 2];
    }
};

template <int kWidth, bool kDrops>
__device__ void forward(const bf16* q, const bf16* k, const bf16* v, const Block* blocks, const KeyRange* ranges,
                        bf16* y, float* log_normalisers, int n_heads, float scale, const Dropout& dropout) {
    alignas(16) __shared__ bf16 of_keys[SharedRows<kWidth>::kSize], of_values[SharedRows<kWidth>::kSize];
    __shared__ Draws draws[kDrops ? kSlots : 1];
    const SharedRows<kWidth> keys{of_keys}, values{of_values};
    const Block& block = read_block(blocks, n_heads);
    const int head = blockIdx.x % n_heads;
    if (block.is_empty()) return;
    const Slots key_slots = block.keys;  // in registers
    keys.start_copies(k, head, n_heads, block.keys, 0);
    values.start_copies(v, head, n_heads, block.keys, 0);
    const Queries<kDrops> queries(block.queries, ranges, head, n_heads, draws[kDrops ? threadIdx.x / 32 : 0], dropout);
    const LeftRows<kWidth> a(q, head, n_heads, queries.row, queries.end);
    Softmax<kWidth, kDrops> softmax;
    for (int offset = 0;;) {
        finish_copies();
        __syncthreads();
        float score[kSlots][2][4];
        compute_scores(score, queries, a, keys, key_slots, offset);
        softmax.add(score, queries, key_slots, offset, values, scale * kLog2OfE, dropout);
        __syncthreads();
        offset += kBlockRows;
        if (!is_any(key_slots, offset)) break;
        keys.start_copies(k, head, n_heads, block.keys, offset);
        values.start_copies(v, head, n_heads, block.keys, offset);
    }
    store_rows<kWidth>(y, head, n_heads, queries.row, queries.end, softmax.sum, dropout.scale / softmax.total[0],
                       dropout.scale / softmax.total[1], keys);
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (lane_of_group() == 0 && queries.row_of(half) < queries.end)
            log_normalisers[static_cast<long long>(queries.row_of(half)) * n_heads + head] =
                softmax.greatest[half] * (scale * kLog2OfE) + log2f(softmax.total[half]);
}

// A warp's results in backward: the kept weights and the gradients of the scores of 16 queries and 64 keys.
struct OfScores {
    unsigned kept[kSlots][4], gradient[kSlots][4];
};

// Computes the weights and the gradients of scores.  The <dy, y> of a query is computed as the sum of p dp, because the
// block has all keys of the query.
template <int kWidth, bool kDrops>
__device__ __forceinline__ void differentiate(OfScores& result, float (&weight)[kSlots][2][4],
                                              float (&of_weight)[kSlots][2][4], const Queries<kDrops>& queries,
                                              const Slots& keys, const float (&log_normaliser)[2], float scale,
                                              const Dropout& dropout) {
    float along[2] = {0, 0};
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        if (!queries.meet(keys, slot, 0)) continue;  // a whole warp
        float kept[2][4];
        queries.draw(dropout, keys.first[slot]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float &w = weight[slot][i / 4][i % 4], &d = of_weight[slot][i / 4][i % 4];
            const bool keeps = queries.keep(dropout, half_of(i), column_of(i));
            w = power_of_two(w * (scale * kLog2OfE) - log_normaliser[half_of(i)]);
            d = keeps ? d * dropout.scale : 0.0f;
            kept[i / 4][i % 4] = keeps ? w : 0.0f;
            along[half_of(i)] += w * d;
        }
        as_a(kept, result.kept[slot]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) along[half] = reduce_over_group<Sum>(along[half]);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        if (!queries.meet(keys, slot, 0)) continue;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float& w = weight[slot][i / 4][i % 4];
            w *= queries.sees[half_of(i)].of_score(of_weight[slot][i / 4][i % 4], along[half_of(i)]);
        }
        as_a(weight[slot], result.gradient[slot]);
    }
}

// Computes dq, dk and dv of a block that has all keys of its queries and all queries of its keys.
template <int kWidth, bool kDrops>
__device__ void backward(const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Block* blocks,
                         const KeyRange* ranges, const float* log_normalisers, bf16* dq, bf16* dk, bf16* dv,
                         int n_heads, float scale, const Dropout& dropout) {
    static_assert(kWidth <= kBlockRows, "the matrices of scores replace keys and values");
    alignas(16) __shared__ bf16 of_q[SharedRows<kWidth>::kSize], of_dy[SharedRows<kWidth>::kSize];
    alignas(16) __shared__ bf16 first_matrix[SharedRows<kBlockRows>::kSize];
    alignas(16) __shared__ bf16 second_matrix[SharedRows<kBlockRows>::kSize];
    __shared__ Draws draws[kDrops ? kSlots : 1];
    __shared__ bool met[kSlots][kSlots];  // slots of queries and of keys
    const SharedRows<kWidth> rows_q{of_q}, rows_dy{of_dy}, rows_k{first_matrix}, rows_v{second_matrix};
    const SharedRows<kBlockRows> weights{first_matrix}, of_scores{second_matrix};
    const Block& block = read_block(blocks, n_heads);
    const int head = blockIdx.x % n_heads, warp = threadIdx.x / 32;
    if (block.is_empty()) return;
    const Slots key_slots = block.keys;  // in registers
    rows_q.start_copies(q, head, n_heads, block.queries, 0);
    rows_k.start_copies(k, head, n_heads, block.keys, 0);
    rows_dy.start_copies(dy, head, n_heads, block.queries, 0);
    rows_v.start_copies(v, head, n_heads, block.keys, 0);
    const Queries<kDrops> queries(block.queries, ranges, head, n_heads, draws[kDrops ? warp : 0], dropout);
    if (lane() < kSlots) met[warp][lane()] = queries.meet(block.keys, lane(), 0);
    float log_normaliser[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = queries.row_of(half);
        log_normaliser[half] = row < queries.end ? log_normalisers[static_cast<long long>(row) * n_heads + head] : 0.0f;
    }
    finish_copies();
    __syncthreads();

    OfScores of_warp = {};
    {
        float weight[kSlots][2][4], of_weight[kSlots][2][4] = {};
        compute_scores(weight, queries, LeftSlot<kWidth>(rows_q, warp), rows_k, key_slots, 0);
        const LeftSlot<kWidth> a_dy(rows_dy, warp);
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot)
            if (queries.meet(key_slots, slot, 0)) add_product_of_rows(of_weight[slot], a_dy, rows_v, slot);
        differentiate<kWidth>(of_warp, weight, of_weight, queries, key_slots, log_normaliser, scale, dropout);
    }
    float sum[kWidth / 8][4] = {};
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot)
        if (queries.meet(key_slots, slot, 0)) add_product(sum, of_warp.gradient[slot], rows_k, slot);
    __syncthreads();  // until keys and values have been read
    store_rows<kWidth>(dq, head, n_heads, queries.row, queries.end, sum, scale, scale, of_scores);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        weights.store_a(warp, slot, of_warp.kept[slot]);
        of_scores.store_a(warp, slot, of_warp.gradient[slot]);
    }
    __syncthreads();

    float of_keys[kWidth / 8][4] = {}, of_values[kWidth / 8][4] = {};
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
        if (!met[slot][warp]) continue;  // a whole warp
        unsigned transposed[4];
        weights.as_transposed_a(slot, warp, transposed);
        add_product(of_values, transposed, rows_dy, slot);
        of_scores.as_transposed_a(slot, warp, transposed);
        add_product(of_keys, transposed, rows_q, slot);
    }
    __syncthreads();  // until all weights have been read
    const int key = block.keys.first[warp], end = block.keys.end[warp];
    store_rows<kWidth>(dk, head, n_heads, key, end, of_keys, scale, scale, weights);
    store_rows<kWidth>(dv, head, n_heads, key, end, of_values, dropout.scale, dropout.scale, weights);
}

// Kernels with and without dropout have the same arguments; those without ignore the last ones.
#define DROPOUT_ARGUMENTS                                                                                           \
    word seed, word stream, word update, const word *update_at, word micro_batch, const WeightRow *weight_rows,     \
        const int *of_head, int threshold, float scale_of_kept
#define DROPOUT(drops)                                                                                              \
    drops ? Dropout{stream_id_of(seed, stream, update, update_at, micro_batch), weight_rows, *of_head, threshold,   \
                    scale_of_kept}                                                                                  \
          : Dropout { {}, nullptr, 0, 0, 1.0f }
// A multiprocessor must be able to run at least `blocks` blocks at once, which limits registers.
#define KERNEL(name, blocks) extern "C" __global__ void __launch_bounds__(kThreads, blocks) attention_##name
#define FORWARD(width, suffix, drops)                                                                               \
    KERNEL(forward##suffix##_##width, width <= 64 ? 3 : 2)                                                          \
    (const bf16* q, const bf16* k, const bf16* v, const Block* blocks, const KeyRange* ranges, bf16* y,             \
     float* log_normalisers, int n_heads, float scale, DROPOUT_ARGUMENTS) {                                         \
        forward<width, drops>(q, k, v, blocks, ranges, y, log_normalisers, n_heads, scale, DROPOUT(drops));         \
    }
#define BACKWARD_IN_TWO_PASSES(width, suffix, drops)                                                                \
    KERNEL(backward_of_queries##suffix##_##width, 2)                                                                \
    (const bf16* q, const bf16* k, const bf16* v, const bf16* y, const bf16* dy, const Block* blocks,               \
     const KeyRange* ranges, const float* log_normalisers, bf16* dq, float* of_outputs, int n_heads, float scale,   \
     DROPOUT_ARGUMENTS) {                                                                                           \
        backward_of_queries<width, drops>(q, k, v, y, dy, blocks, ranges, log_normalisers, dq, of_outputs, n_heads, \
                                          scale, DROPOUT(drops));                                                   \
    }                                                                                                               \
    KERNEL(backward_of_keys##suffix##_##width, 2)                                                                   \
    (const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Block* blocks, const KeyRange* ranges,      \
     const float* log_normalisers, const float* of_outputs, bf16* dk, bf16* dv, int n_heads, float scale,           \
     DROPOUT_ARGUMENTS) {                                                                                           \
        backward_of_keys<width, drops>(q, k, v, dy, blocks, ranges, log_normalisers, of_outputs, dk, dv, n_heads,   \
                                       scale, DROPOUT(drops));                                                      \
    }
#define BACKWARD(width, suffix, drops)                                                                              \
    KERNEL(backward##suffix##_##width, 4)                                                                           \
    (const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Block* blocks, const KeyRange* ranges,      \
     const float* log_normalisers, bf16* dq, bf16* dk, bf16* dv, int n_heads, float scale, DROPOUT_ARGUMENTS) {     \
        backward<width, drops>(q, k, v, dy, blocks, ranges, log_normalisers, dq, dk, dv, n_heads, scale,            \
                               DROPOUT(drops));                                                                     \
    }
#define BOTH(KIND, width)                                                                                           \
    KIND(width, , false)                                                                                            \
    KIND(width, _dropped, true)
#define ATTENTION(width)                                                                                            \
    BOTH(FORWARD, width)                                                                                            \
    BOTH(BACKWARD_IN_TWO_PASSES, width)

ATTENTION(16)
ATTENTION(32)
ATTENTION(64)
ATTENTION(128)
BOTH(BACKWARD, 16)
BOTH(BACKWARD, 32)
BOTH(BACKWARD, 64)

#endif
