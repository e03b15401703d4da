// Attention of a step of a search to cached keys; see autograd.masks.CachedKeys.
//
// A block computes one head of one query.  Its warps take turns with groups of steps: a warp loads the keys and values of
// a group together, and keeps a running maximum and sum for softmax.  At the end the block adds the sums of its warps,
// always in the same order.  A lane holds the numbers lane, lane + 32, ... of a head.

#include "common.cuh"

constexpr int kWarps = 4;
constexpr int kItems = 4;  // numbers of a head in a lane: heads have at most 128
constexpr int kGroup = 4;  // steps
constexpr int kWidest = 32 * kItems;

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

__device__ __forceinline__ float exponential(float x) { return exp2f(x * 1.442695041f); }

// Loads a lane's numbers of a head, 0 behind its end; all are 0 for a step that does not exist.
template <typename T>
__device__ __forceinline__ void load_head(const T* head, int width, bool exists, float (&to)[kItems]) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int column = threadIdx.x % 32 + 32 * i;
        to[i] = exists && column < width ? load(head[column]) : 0.0f;
    }
}

// q (queries, heads, width); k and v (sentences * keys_of_sentence, heads, width or value_width), where the n_slots
// keys of a step are adjacent; slots (queries, slots_of_query), or null if every key is in slot 0.  Sentence s has
// n_steps[s * stride_of_n_steps] steps; queries attend to all of them if neighbourhood is negative.
template <typename T>
__device__ __forceinline__ void cached_attention(const T* q, const T* k, const T* v, const long long* n_steps,
                                                 const long long* slots, T* y, int n_heads, int width, int value_width,
                                                 int n_queries, int keys_of_sentence, int n_slots, int slots_of_query,
                                                 int stride_of_n_steps, int neighbourhood, float scale) {
    __shared__ float greatest_of[kWarps], total_of[kWarps], sums_of[kWarps][kWidest];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned query = blockIdx.x / n_heads, head = blockIdx.x % n_heads;
    const long long sentence = query / n_queries;
    const long long n = n_steps[sentence * stride_of_n_steps];
    const long long first = neighbourhood < 0 || n - 1 < neighbourhood ? 0 : n - 1 - neighbourhood;
    float of_query[kItems], sums[kItems] = {}, greatest = minus_infinity(), total = 0.0f;
    load_head(q + static_cast<long long>(blockIdx.x) * width, width, true, of_query);
    for (long long start = first + warp * kGroup; start < n; start += kWarps * kGroup) {
        float keys[kGroup][kItems], values[kGroup][kItems], scores[kGroup];
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const long long step = start + j;
            const bool exists = step < n;
            const long long slot = exists && slots ? slots[static_cast<long long>(query) * slots_of_query + step] : 0;
            const long long row = exists ? (sentence * keys_of_sentence + step * n_slots + slot) * n_heads + head : 0;
            load_head(k + row * width, width, exists, keys[j]);
            load_head(v + row * value_width, value_width, exists, values[j]);
        }
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            scores[j] = 0.0f;
#pragma unroll
            for (int i = 0; i < kItems; ++i) scores[j] += of_query[i] * keys[j][i];
        }
        for (unsigned distance = 16; distance; distance /= 2) {
#pragma unroll
            for (int j = 0; j < kGroup; ++j) scores[j] += __shfl_xor_sync(kWholeWarp, scores[j], distance);
        }
        float greater = greatest;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            scores[j] = start + j < n ? scores[j] * scale : minus_infinity();
            greater = Max::of(greater, scores[j]);
        }
        const float shrinking = exponential(greatest - greater);
        greatest = greater;
        total *= shrinking;
#pragma unroll
        for (int i = 0; i < kItems; ++i) sums[i] *= shrinking;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const float weight = exponential(scores[j] - greatest);
            total += weight;
#pragma unroll
            for (int i = 0; i < kItems; ++i) sums[i] += weight * values[j][i];
        }
    }
    if (lane == 0) greatest_of[warp] = greatest, total_of[warp] = total;
#pragma unroll
    for (int i = 0; i < kItems; ++i) sums_of[warp][lane + 32 * i] = sums[i];
    __syncthreads();
    const int column = threadIdx.x;  // a block has as many threads as the widest head has numbers
    if (column >= value_width) return;
    float denominator = 0.0f, sum = 0.0f;
    greatest = greatest_of[0];  // the first warp has at least one step
    for (int i = 1; i < kWarps; ++i) greatest = Max::of(greatest, greatest_of[i]);
    for (int i = 0; i < kWarps; ++i) {
        const float weight = exponential(greatest_of[i] - greatest);  // 0 for a warp without a step
        denominator += weight * total_of[i];
        sum += weight * sums_of[i][column];
    }
    store(y[static_cast<long long>(blockIdx.x) * value_width + column], sum / denominator);
}

#define CACHED_ATTENTION(T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                          \
        cached_attention_##T(const T* q, const T* k, const T* v, const long long* n_steps, const long long* slots,     \
                             T* y, int n_heads, int width, int value_width, int n_queries, int keys_of_sentence,       \
                             int n_slots, int slots_of_query, int stride_of_n_steps, int neighbourhood, float scale) { \
        cached_attention(q, k, v, n_steps, slots, y, n_heads, width, value_width, n_queries, keys_of_sentence,         \
                         n_slots, slots_of_query, stride_of_n_steps, neighbourhood, scale);                            \
    }

CACHED_ATTENTION(float)
CACHED_ATTENTION(bf16)
CACHED_ATTENTION(f16)
