// Random words, and dropout; see autograd.random and autograd.ops.dropout.
//
// The forward pass draws the mask and keeps one bit per element, because a load takes far fewer instructions than drawing
// again in the backward pass.

#include "common.cuh"
#include "philox.cuh"

constexpr int kWarps = 8, kDraws = 16, kItems = 8;  // numbers that a thread draws, and elements that it reads at once

// Each thread computes a block of four words.
extern "C" __global__ void __launch_bounds__(256)
    philox_words(word* words, long long n_words, word seed, word stream, word update, const word* update_at,
                 word micro_batch) {
    const long long block = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    word of_block[4];
    philox_block(stream_id_of(seed, stream, update, update_at, micro_batch), block, of_block);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (4 * block + i < n_words) words[4 * block + i] = of_block[i];
}

__device__ __forceinline__ long long thread_index() {
    return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Writes x * scale where its bit is set, and 0 elsewhere.  kept has the bits of the 16 elements whose numbers this
// thread draws.  A warp has 512 elements; its threads pass over them in order, so that adjacent threads read adjacent
// elements.
template <typename T>
__device__ __forceinline__ void mask(const T* x, T* y, long long n, unsigned kept, float scale) {
    const unsigned lane = threadIdx.x % 32;
    const long long first = (thread_index() - lane) * kDraws;
    const bool aligned = is_aligned<kItems>(x) && is_aligned<kItems>(y);
#pragma unroll
    for (int pass = 0; pass < kDraws / kItems; ++pass) {
        const unsigned part = 32 * pass + lane;  // of kItems elements
        const unsigned of_part = __shfl_sync(kWholeWarp, kept, part * kItems / kDraws) >> part * kItems % kDraws;
        const long long i = first + static_cast<long long>(part) * kItems;
        float values[kItems];
        load_first(x + i, n - i, aligned, values);
#pragma unroll
        for (int k = 0; k < kItems; ++k) values[k] = of_part >> k & 1 ? values[k] * scale : 0.0f;
        store_first(y + i, n - i, aligned, values);
    }
}

// bits receives the mask, 16 bits for each thread of the grid.  A thread draws 16 numbers: four in a word, lowest bits
// first.
template <typename T>
__device__ void dropout(const T* x, T* y, unsigned short* bits, long long n, float scale, const StreamId& stream_id,
                        int threshold) {
    word of_block[4];
    philox_block(stream_id, thread_index(), of_block);
    unsigned kept = 0;
#pragma unroll
    for (int i = 0; i < kDraws; ++i)
        kept |= static_cast<unsigned>(static_cast<int>(of_block[i / 4] >> 16 * (i % 4) & 0xffff) >= threshold) << i;
    bits[thread_index()] = kept;
    mask(x, y, n, kept, scale);
}

#define DROPOUT(T)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                         \
        dropout_forward_##T(const T* x, T* y, unsigned short* bits, long long n, float scale, word seed, word stream, \
                            word update, const word* update_at, word micro_batch, int threshold) {                    \
        dropout(x, y, bits, n, scale, stream_id_of(seed, stream, update, update_at, micro_batch), threshold);         \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                         \
        dropout_backward_##T(const T* dy, T* dx, const unsigned short* bits, long long n, float scale) {              \
        mask(dy, dx, n, bits[thread_index()], scale);                                                                 \
    }

DROPOUT(float)
DROPOUT(bf16)
DROPOUT(f16)
