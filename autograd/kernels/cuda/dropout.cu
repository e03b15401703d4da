// Random words, and dropout without a mask in memory; see autograd.random and autograd.ops.dropout.

#include "common.cuh"
#include "philox.cuh"

constexpr int kWarps = 8, kDrawsOfABlock = 16, kDrawsOfAWarp = 32 * kDrawsOfABlock;

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

// Every thread of a warp draws 16 numbers, four to a word, lowest bits first; the warp then passes over its 512 elements
// in order, so that neighbours in memory are read by neighbours.
template <typename T>
__device__ void dropout(const T* x, T* y, long long n, const StreamId& stream_id, int threshold, float scale) {
    __shared__ word words[kWarps][kDrawsOfAWarp / 4];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long group = static_cast<long long>(blockIdx.x) * kWarps + warp, first = group * kDrawsOfAWarp;
    word of_block[4];
    philox_block(stream_id, group * 32 + lane, of_block);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[warp][4 * lane + i] = of_block[i];
    __syncwarp();
    for (int i = lane; i < kDrawsOfAWarp && first + i < n; i += 32) {
        const int draw = static_cast<int>(words[warp][i / 4] >> 16 * (i % 4) & 0xffff);
        store(y[first + i], draw >= threshold ? load(x[first + i]) * scale : 0.0f);
    }
}

#define DROPOUT(T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                  \
        dropout_##T(const T* x, T* y, long long n, word seed, word stream, word update, const word* update_at, \
                    word micro_batch, int threshold, float scale) {                                            \
        dropout(x, y, n, stream_id_of(seed, stream, update, update_at, micro_batch), threshold, scale);        \
    }

DROPOUT(float)
DROPOUT(bf16)
