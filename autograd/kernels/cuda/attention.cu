// Attention of packed tokens over key ranges; a warp computes 16 rows of one head; see autograd.ops.attention.
//
// A tile (first, end, first_other, end_other) has 16 rows of one sentence from first on, up to end, and needs the rows
// first_other ... end_other - 1 of the other side.  No array of the size queries times keys is in memory: Dao et al. 2022
// (FlashAttention), algorithms 1 and 4, here without shared memory, because sentences are short.

#include "mma.cuh"
#include "philox.cuh"

constexpr int kWarps = 4;

struct Tile {
    int first, end, first_other, end_other;
};

struct Task {  // of a warp
    Tile tile;
    int head;
    bool exists;

    __device__ Task(const Tile* tiles, int n_tiles, int n_heads) {
        const long long index = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
        exists = index / n_heads < n_tiles;
        tile = exists ? tiles[index / n_heads] : Tile{0, 0, 0, 0};
        head = static_cast<int>(index % n_heads);
    }
};

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

// Dropout of weights: the draw of a weight's index in the reference's array (segments, heads, queries, keys) decides.
struct Dropout {
    StreamId stream_id;
    const WeightRow* rows;
    long long of_head;  // the number of weights of a segment and head
    int threshold;
    float scale;  // of weights that are kept

    // The index of a query's weight of key 0, if the packed keys are counted on from its segment's first.
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
    int first_column[16];  // of the 32 draws of a row

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

// The draws of a warp whose rows are queries.
template <bool kDrops>
struct QueryTile {
    const Dropout& dropout;
    Draws& draws;
    word first;  // the index of the weight of key 0, of the query whose draws this lane computes

    __device__ __forceinline__ QueryTile(const Dropout& dropout, const Tile& tile, int head, int n_heads, Draws& draws)
        : dropout(dropout), draws(draws) {
        if constexpr (kDrops) first = dropout.index(tile.first + threadIdx.x % 32 / 2, tile.end, head, n_heads);
    }
    __device__ __forceinline__ void draw(int key) const {
        if constexpr (kDrops) draws.draw(dropout.stream_id, first + key);
    }
    __device__ __forceinline__ bool keep(int half, int column) const {
        return !kDrops || draws.at(lane_group() + 8 * half, column) >= dropout.threshold;
    }
};

template <typename Of>
__device__ __forceinline__ float reduce_over_group(float x) {  // the four lanes that share rows
    x = Of::of(x, __shfl_xor_sync(kWholeWarp, x, 1));
    return Of::of(x, __shfl_xor_sync(kWholeWarp, x, 2));
}

template <int kWidth, bool kDrops>
__device__ void forward(const bf16* q, const bf16* k, const bf16* v, const Tile* tiles, const KeyRange* ranges, bf16* y,
                        float* log_normalisers, int n_tiles, int n_heads, float scale, const Dropout& dropout) {
    __shared__ Draws draws[kWarps];
    const Task task(tiles, n_tiles, n_heads);
    if (!task.exists) return;  // a whole warp
    const Tile tile = task.tile;
    const Rows<kWidth> queries(q, task.head, n_heads, tile.end);
    const Rows<kWidth> keys(k, task.head, n_heads, tile.end_other), values(v, task.head, n_heads, tile.end_other);
    const LeftRows<kWidth> a(queries, tile.first);
    KeyRange sees[2];
    float greatest[2], total[2] = {0, 0}, sum[kWidth / 8][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = tile.first + lane_group() + 8 * half;
        sees[half] = range_of(ranges, row, tile.end);
        greatest[half] = Max::kNeutral;
    }
    const QueryTile<kDrops> numbers(dropout, tile, task.head, n_heads, draws[threadIdx.x / 32]);
    for (int key = tile.first_other; key < tile.end_other; key += 16) {
        float score[2][4] = {}, correction[2];
        add_product_of_rows(score, a, keys, key);
        numbers.draw(key);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float greater = greatest[half], sum_here = 0;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& s = score[i / 2][2 * half + i % 2];
                s *= scale;
                if (sees[half].has(key + 8 * (i / 2) + 2 * lane_of_group() + i % 2)) greater = Max::of(greater, s);
            }
            greater = reduce_over_group<Max>(greater);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& s = score[i / 2][2 * half + i % 2];
                const int column = 8 * (i / 2) + 2 * lane_of_group() + i % 2;
                s = sees[half].has(key + column) ? expf(s - greater) : 0.0f;
                sum_here += s;
                if (!numbers.keep(half, column)) s = 0.0f;
            }
            correction[half] = expf(greatest[half] - greater);
            total[half] = total[half] * correction[half] + reduce_over_group<Sum>(sum_here);
            greatest[half] = greater;
        }
#pragma unroll
        for (int i = 0; i < kWidth / 8 * 4; ++i) sum[i / 4][i % 4] *= correction[i % 4 / 2];
        unsigned weights[4];
        as_a(score, weights);
        add_product(sum, weights, values, key);
    }
    store_rows<kWidth>(y, task.head, n_heads, tile.first, tile.end, sum, dropout.scale / total[0],
                       dropout.scale / total[1]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = tile.first + lane_group() + 8 * half;
        if (lane_of_group() == 0 && row < tile.end)
            log_normalisers[static_cast<long long>(row) * n_heads + task.head] = greatest[half] + logf(total[half]);
    }
}

__device__ __forceinline__ float dot(unsigned x, unsigned y) {
    const bf16 x0{static_cast<unsigned short>(x)}, x1{static_cast<unsigned short>(x >> 16)};
    const bf16 y0{static_cast<unsigned short>(y)}, y1{static_cast<unsigned short>(y >> 16)};
    return load(x0) * load(y0) + load(x1) * load(y1);
}

// Computes dq, and <dy, y> of every query for backward_of_keys: ds = p (dp - <dy, y>).
template <int kWidth, bool kDrops>
__device__ void backward_of_queries(const bf16* q, const bf16* k, const bf16* v, const bf16* y, const bf16* dy,
                                    const Tile* tiles, const KeyRange* ranges, const float* log_normalisers, bf16* dq,
                                    float* of_outputs, int n_tiles, int n_heads, float scale, const Dropout& dropout) {
    __shared__ Draws draws[kWarps];
    const Task task(tiles, n_tiles, n_heads);
    if (!task.exists) return;  // a whole warp
    const Tile tile = task.tile;
    const Rows<kWidth> queries(q, task.head, n_heads, tile.end), outputs(y, task.head, n_heads, tile.end);
    const Rows<kWidth> of_y(dy, task.head, n_heads, tile.end);
    const Rows<kWidth> keys(k, task.head, n_heads, tile.end_other), values(v, task.head, n_heads, tile.end_other);
    const LeftRows<kWidth> a(queries, tile.first), a_dy(of_y, tile.first);
    float along[2] = {0, 0}, log_normaliser[2], sum[kWidth / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
        unsigned of_y_here[4], y_here[4];
        a_dy.as_a(step, of_y_here);
        outputs.as_a(tile.first, step, y_here);
#pragma unroll
        for (int i = 0; i < 4; ++i) along[i % 2] += dot(of_y_here[i], y_here[i]);
    }
    KeyRange sees[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = tile.first + lane_group() + 8 * half;
        const long long index = static_cast<long long>(row) * n_heads + task.head;
        along[half] = reduce_over_group<Sum>(along[half]);
        sees[half] = range_of(ranges, row, tile.end);
        log_normaliser[half] = row < tile.end ? log_normalisers[index] : 0.0f;
        if (lane_of_group() == 0 && row < tile.end) of_outputs[index] = along[half];
    }
    const QueryTile<kDrops> numbers(dropout, tile, task.head, n_heads, draws[threadIdx.x / 32]);
    for (int key = tile.first_other; key < tile.end_other; key += 16) {
        float score[2][4] = {}, of_weight[2][4] = {};
        add_product_of_rows(score, a, keys, key);
        add_product_of_rows(of_weight, a_dy, values, key);
        numbers.draw(key);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int half = i % 4 / 2, column = 8 * (i / 4) + 2 * lane_of_group() + i % 2;
            float& s = score[i / 4][i % 4];
            const float weight = sees[half].has(key + column) ? expf(s * scale - log_normaliser[half]) : 0.0f;
            const float d = numbers.keep(half, column) ? of_weight[i / 4][i % 4] * dropout.scale : 0.0f;
            s = weight * sees[half].of_score(d, along[half]);
        }
        unsigned of_score[4];
        as_a(score, of_score);
        add_product(sum, of_score, keys, key);
    }
    store_rows<kWidth>(dq, task.head, n_heads, tile.first, tile.end, sum, scale, scale);
}

// Computes dk and dv: the same with keys as rows.
template <int kWidth, bool kDrops>
__device__ void backward_of_keys(const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Tile* tiles,
                                 const KeyRange* ranges, const float* log_normalisers, const float* of_outputs,
                                 bf16* dk, bf16* dv, int n_tiles, int n_heads, float scale, const Dropout& dropout) {
    __shared__ Draws all_draws[kWarps];
    Draws& draws = all_draws[threadIdx.x / 32];
    const Task task(tiles, n_tiles, n_heads);
    if (!task.exists) return;  // a whole warp
    const Tile tile = task.tile;
    const Rows<kWidth> keys(k, task.head, n_heads, tile.end), values(v, task.head, n_heads, tile.end);
    const Rows<kWidth> queries(q, task.head, n_heads, tile.end_other), of_y(dy, task.head, n_heads, tile.end_other);
    const LeftRows<kWidth> a(keys, tile.first), a_v(values, tile.first);
    float of_keys[kWidth / 8][4] = {}, of_values[kWidth / 8][4] = {};
    for (int query = tile.first_other; query < tile.end_other; query += 16) {
        float weight[2][4] = {}, of_score[2][4] = {};
        add_product_of_rows(weight, a, queries, query);
        add_product_of_rows(of_score, a_v, of_y, query);
        if constexpr (kDrops) {
            const int row = query + threadIdx.x % 32 / 2;
            draws.draw(dropout.stream_id, dropout.index(row, tile.end_other, task.head, n_heads) + tile.first);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = 8 * (i / 4) + 2 * lane_of_group() + i % 2, column = lane_group() + 8 * (i % 4 / 2);
            const long long index = static_cast<long long>(query + row) * n_heads + task.head;
            const KeyRange sees = range_of(ranges, query + row, tile.end_other);
            const bool seen = sees.has(tile.first + column);
            const bool kept = !kDrops || draws.at(row, column) >= dropout.threshold;
            float &w = weight[i / 4][i % 4], &d = of_score[i / 4][i % 4];
            w = seen ? expf(w * scale - log_normalisers[index]) : 0.0f;
            d = seen ? w * sees.of_score(kept ? d * dropout.scale : 0.0f, of_outputs[index]) : 0.0f;
            if (!kept) w = 0.0f;
        }
        unsigned a_of_query[4];
        as_a(weight, a_of_query);
        add_product(of_values, a_of_query, of_y, query);
        as_a(of_score, a_of_query);
        add_product(of_keys, a_of_query, queries, query);
    }
    store_rows<kWidth>(dk, task.head, n_heads, tile.first, tile.end, of_keys, scale, scale);
    store_rows<kWidth>(dv, task.head, n_heads, tile.first, tile.end, of_values, dropout.scale,
                       dropout.scale);
}

// Kernels with and without dropout have the same arguments; those without ignore the last ones.
#define DROPOUT_ARGUMENTS                                                                                        \
    word seed, word stream, word update, const word *update_at, word micro_batch, const WeightRow *weight_rows, \
        const int *of_head, int threshold, float scale_of_kept
#define DROPOUT(drops)                                                                                             \
    drops ? Dropout{stream_id_of(seed, stream, update, update_at, micro_batch), weight_rows, *of_head, threshold, \
                    scale_of_kept}                                                                                \
          : Dropout{{}, nullptr, 0, 0, 1.0f}
#define ATTENTION(width, suffix, drops)                                                                              \
    extern "C" __global__ void __launch_bounds__(32 * kWarps) attention_forward##suffix##_##width(                   \
        const bf16* q, const bf16* k, const bf16* v, const Tile* tiles, const KeyRange* ranges, bf16* y,             \
        float* log_normalisers, int n_tiles, int n_heads, float scale, DROPOUT_ARGUMENTS) {                          \
        forward<width, drops>(q, k, v, tiles, ranges, y, log_normalisers, n_tiles, n_heads, scale, DROPOUT(drops));  \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * kWarps) attention_backward_of_queries##suffix##_##width(       \
        const bf16* q, const bf16* k, const bf16* v, const bf16* y, const bf16* dy, const Tile* tiles,               \
        const KeyRange* ranges, const float* log_normalisers, bf16* dq, float* of_outputs, int n_tiles, int n_heads, \
        float scale, DROPOUT_ARGUMENTS) {                                                                            \
        backward_of_queries<width, drops>(q, k, v, y, dy, tiles, ranges, log_normalisers, dq, of_outputs, n_tiles,   \
                                          n_heads, scale, DROPOUT(drops));                                           \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * kWarps) attention_backward_of_keys##suffix##_##width(          \
        const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Tile* tiles, const KeyRange* ranges,      \
        const float* log_normalisers, const float* of_outputs, bf16* dk, bf16* dv, int n_tiles, int n_heads,         \
        float scale, DROPOUT_ARGUMENTS) {                                                                            \
        backward_of_keys<width, drops>(q, k, v, dy, tiles, ranges, log_normalisers, of_outputs, dk, dv, n_tiles,     \
                                       n_heads, scale, DROPOUT(drops));                                              \
    }
#define ATTENTION_OF(width)        \
    ATTENTION(width, , false)      \
    ATTENTION(width, _dropped, true)

ATTENTION_OF(16)
ATTENTION_OF(32)
ATTENTION_OF(64)
ATTENTION_OF(128)
