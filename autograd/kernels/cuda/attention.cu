// Attention of packed tokens over key ranges; a warp computes 16 rows of one head; see autograd.ops.attention.
//
// A tile (first, end, first_other, end_other) has 16 rows of one sentence from first on, up to end, and needs the rows
// first_other ... end_other - 1 of the other side.  No array of the size queries times keys is in memory: Dao et al. 2022
// (FlashAttention), algorithms 1 and 4, here without shared memory, because sentences are short.

#include "mma.cuh"

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

template <typename Of>
__device__ __forceinline__ float reduce_over_group(float x) {  // the four lanes that share rows
    x = Of::of(x, __shfl_xor_sync(kWholeWarp, x, 1));
    return Of::of(x, __shfl_xor_sync(kWholeWarp, x, 2));
}

template <int kWidth>
__device__ void forward(const bf16* q, const bf16* k, const bf16* v, const Tile* tiles, const KeyRange* ranges, bf16* y,
                        float* log_normalisers, int n_tiles, int n_heads, float scale) {
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
    for (int key = tile.first_other; key < tile.end_other; key += 16) {
        float score[2][4] = {}, correction[2];
        add_product_of_rows(score, a, keys, key);
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
                s = sees[half].has(key + 8 * (i / 2) + 2 * lane_of_group() + i % 2) ? expf(s - greater) : 0.0f;
                sum_here += s;
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
    store_rows<kWidth>(y, task.head, n_heads, tile.first, tile.end, sum, 1 / total[0], 1 / total[1]);
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
template <int kWidth>
__device__ void backward_of_queries(const bf16* q, const bf16* k, const bf16* v, const bf16* y, const bf16* dy,
                                    const Tile* tiles, const KeyRange* ranges, const float* log_normalisers, bf16* dq,
                                    float* of_outputs, int n_tiles, int n_heads, float scale) {
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
    for (int key = tile.first_other; key < tile.end_other; key += 16) {
        float score[2][4] = {}, of_weight[2][4] = {};
        add_product_of_rows(score, a, keys, key);
        add_product_of_rows(of_weight, a_dy, values, key);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int half = i % 4 / 2, column = key + 8 * (i / 4) + 2 * lane_of_group() + i % 2;
            float& s = score[i / 4][i % 4];
            const float weight = sees[half].has(column) ? expf(s * scale - log_normaliser[half]) : 0.0f;
            s = weight * sees[half].of_score(of_weight[i / 4][i % 4], along[half]);
        }
        unsigned of_score[4];
        as_a(score, of_score);
        add_product(sum, of_score, keys, key);
    }
    store_rows<kWidth>(dq, task.head, n_heads, tile.first, tile.end, sum, scale, scale);
}

// Computes dk and dv: the same with keys as rows.
template <int kWidth>
__device__ void backward_of_keys(const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Tile* tiles,
                                 const KeyRange* ranges, const float* log_normalisers, const float* of_outputs,
                                 bf16* dk, bf16* dv, int n_tiles, int n_heads, float scale) {
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
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = query + 8 * (i / 4) + 2 * lane_of_group() + i % 2;
            const int key = tile.first + lane_group() + 8 * (i % 4 / 2);
            const long long index = static_cast<long long>(row) * n_heads + task.head;
            const KeyRange sees = range_of(ranges, row, tile.end_other);
            const bool seen = sees.has(key);
            float &w = weight[i / 4][i % 4], &d = of_score[i / 4][i % 4];
            w = seen ? expf(w * scale - log_normalisers[index]) : 0.0f;
            d = seen ? w * sees.of_score(d, of_outputs[index]) : 0.0f;
        }
        unsigned a_of_query[4];
        as_a(weight, a_of_query);
        add_product(of_values, a_of_query, of_y, query);
        as_a(of_score, a_of_query);
        add_product(of_keys, a_of_query, queries, query);
    }
    store_rows<kWidth>(dk, task.head, n_heads, tile.first, tile.end, of_keys, scale, scale);
    store_rows<kWidth>(dv, task.head, n_heads, tile.first, tile.end, of_values, 1, 1);
}

#define ATTENTION(width)                                                                                             \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                        \
        attention_forward_##width(const bf16* q, const bf16* k, const bf16* v, const Tile* tiles,                    \
                                  const KeyRange* ranges, bf16* y, float* log_normalisers, int n_tiles, int n_heads, \
                                  float scale) {                                                                     \
        forward<width>(q, k, v, tiles, ranges, y, log_normalisers, n_tiles, n_heads, scale);                         \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * kWarps) attention_backward_of_queries_##width(                 \
        const bf16* q, const bf16* k, const bf16* v, const bf16* y, const bf16* dy, const Tile* tiles,               \
        const KeyRange* ranges, const float* log_normalisers, bf16* dq, float* of_outputs, int n_tiles, int n_heads, \
        float scale) {                                                                                               \
        backward_of_queries<width>(q, k, v, y, dy, tiles, ranges, log_normalisers, dq, of_outputs, n_tiles, n_heads, \
                                   scale);                                                                           \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * kWarps) attention_backward_of_keys_##width(                    \
        const bf16* q, const bf16* k, const bf16* v, const bf16* dy, const Tile* tiles, const KeyRange* ranges,      \
        const float* log_normalisers, const float* of_outputs, bf16* dk, bf16* dv, int n_tiles, int n_heads,         \
        float scale) {                                                                                               \
        backward_of_keys<width>(q, k, v, dy, tiles, ranges, log_normalisers, of_outputs, dk, dv, n_tiles, n_heads,   \
                                scale);                                                                              \
    }

ATTENTION(16)
ATTENTION(32)
ATTENTION(64)
ATTENTION(128)
