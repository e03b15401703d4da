// Layer normalisation of x, or of x + dropout(y), one warp per row; see autograd.ops.layer_norm.layer_norm and
// autograd.ops.add_norm.
//
// A lane holds four neighbours of every 128 columns: one word of random bits, and one access to memory, aligned as
// parameters and new arrays are.  The forward pass draws the mask of dropout and keeps one bit per element, because a
// load takes far fewer instructions than drawing again.  The backward pass adds x and y again instead of reading their sum: writing and reading
// the sum would move as many bytes, and would round it in 16 bits.

#include "common.cuh"
#include "philox.cuh"

constexpr int kWarpsOfABlock = 8;

struct Four {
    float at[4];
};

// The bits of a lane's numbers of a row.
template <int kItems>
struct BitsOf {
    typedef unsigned char Type;
};
template <>
struct BitsOf<16> {
    typedef unsigned short Type;
};
template <>
struct BitsOf<32> {
    typedef unsigned Type;
};

// mask (rows, 32 lanes), of BitsOf, holds the elements that are kept; null: nothing is dropped.
struct Dropout {
    void* mask;
    float scale;
};

__device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }

__device__ __forceinline__ float sum_over_warp(float x) {
    for (unsigned distance = 16; distance; distance /= 2) x += __shfl_xor_sync(kWholeWarp, x, distance);
    return x;
}

// Returns the column of a lane's i-th number.
__device__ __forceinline__ int column_of(int i) { return i / 4 * 128 + 4 * lane() + i % 4; }

// Loads a lane's numbers 4 j ... 4 j + 3 of a row.
template <int kWidth, typename T>
__device__ __forceinline__ Four load_four(const T* rows, long long row, int j) {
    Four four;
    load_aligned(rows + row * kWidth + 128 * j + 4 * lane(), four.at);
    return four;
}

template <int kWidth, typename T>
__device__ __forceinline__ void store_four(T* rows, long long row, int j, const Four& four) {
    store_aligned(rows + row * kWidth + 128 * j + 4 * lane(), four.at);
}

// Returns a mask: bit i is set if a lane's i-th number of the row is kept.  The lanes of the warp draw the row together.
template <int kWidth>
__device__ __forceinline__ unsigned drawn_mask(const StreamId& stream_id, int threshold, long long row) {
    __shared__ word of_warps[kWarpsOfABlock][kWidth / 4];
    word(&words)[kWidth / 4] = of_warps[threadIdx.x / 32];
    for (int block = lane(); block < kWidth / 16; block += 32) {
        word of_block[4];
        philox_block(stream_id, row * (kWidth / 16) + block, of_block);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[4 * block + i] = of_block[i];
    }
    __syncwarp();
    unsigned kept = 0;
#pragma unroll
    for (int j = 0; j < kWidth / 128; ++j) {
        const word four = words[32 * j + lane()];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (static_cast<int>(four >> 16 * i & 0xffff) >= threshold) kept |= 1u << (4 * j + i);
    }
    return kept;
}

// Returns the place of a lane's bits of a row.
template <int kWidth>
__device__ __forceinline__ typename BitsOf<kWidth / 32>::Type& bits_of_row(void* mask, long long row) {
    return static_cast<typename BitsOf<kWidth / 32>::Type*>(mask)[row * 32 + lane()];
}

// Loads x, or x + dropout(y); numbers of y whose bit in kept is not set are dropped.
template <bool kAdds, int kWidth, typename T>
__device__ __forceinline__ void load_sum(const T* x, const T* y, long long row, unsigned kept, float scale,
                                         float (&sum)[kWidth / 32]) {
#pragma unroll
    for (int j = 0; j < kWidth / 128; ++j) {
        const Four of_x = load_four<kWidth>(x, row, j);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[4 * j + i] = of_x.at[i];
        if constexpr (kAdds) {
            const Four of_y = load_four<kWidth>(y, row, j);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (kept >> (4 * j + i) & 1) sum[4 * j + i] += of_y.at[i] * scale;
        }
    }
}

// statistics (rows, 2) receives mean and 1 / standard deviation of every row for the backward pass.
template <bool kAdds, typename T, int kWidth>
__device__ void forward(const T* x, const T* y, const float* gain, const float* bias, T* result, float* statistics,
                        long long n_rows, float eps, const Dropout& dropout, const StreamId& stream_id, int threshold) {
    constexpr int kItems = kWidth / 32;
    const unsigned warp = threadIdx.x / 32;
    const long long row = static_cast<long long>(blockIdx.x) * kWarpsOfABlock + warp;
    if (row >= n_rows) return;  // a whole warp
    float h[kItems], sum = 0, squares = 0;
    unsigned kept = ~0u;
    if constexpr (kAdds) {
        if (dropout.mask) {
            kept = drawn_mask<kWidth>(stream_id, threshold, row);
            bits_of_row<kWidth>(dropout.mask, row) = kept;
        }
    }
    load_sum<kAdds, kWidth>(x, y, row, kept, dropout.scale, h);
#pragma unroll
    for (int i = 0; i < kItems; ++i) sum += h[i];
    const float mean = sum_over_warp(sum) / kWidth;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        h[i] -= mean;
        squares += h[i] * h[i];
    }
    const float inverse_std = rsqrtf(sum_over_warp(squares) / kWidth + eps);
#pragma unroll
    for (int j = 0; j < kWidth / 128; ++j) {
        const Four g = load_four<kWidth>(gain, 0, j), b = load_four<kWidth>(bias, 0, j);
        Four y_hat;
#pragma unroll
        for (int i = 0; i < 4; ++i) y_hat.at[i] = g.at[i] * (h[4 * j + i] * inverse_std) + b.at[i];
        store_four<kWidth>(result, row, j, y_hat);
    }
    if (lane() == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse_std;
    }
}

// of_parameters (blocks, 2, width) receives the sums over this block's rows of d x_hat and of d, where d is the gradient
// of the result; the caller adds the blocks.  dx is the gradient of x; dy, that of y, is dx masked and scaled.
template <bool kAdds, typename T, int kWidth>
__device__ void backward(const T* d_result, const T* x, const T* y, const float* gain, const float* statistics, T* dx,
                         T* dy, float* of_parameters, long long n_rows, const Dropout& dropout) {
    constexpr int kItems = kWidth / 32;
    __shared__ float sums[2][kWidth];
    const unsigned warp = threadIdx.x / 32;
    float dgain[kItems] = {}, dbias[kItems] = {};
    for (long long row = static_cast<long long>(blockIdx.x) * kWarpsOfABlock + warp; row < n_rows;
         row += static_cast<long long>(gridDim.x) * kWarpsOfABlock) {
        const float mean = statistics[2 * row], inverse_std = statistics[2 * row + 1];
        float h[kItems], d[kItems], sum = 0, along = 0;
        unsigned kept = ~0u;
        if constexpr (kAdds) {
            if (dropout.mask) kept = bits_of_row<kWidth>(dropout.mask, row);
        }
        load_sum<kAdds, kWidth>(x, y, row, kept, dropout.scale, h);
#pragma unroll
        for (int j = 0; j < kWidth / 128; ++j) {
            const Four of_result = load_four<kWidth>(d_result, row, j), g = load_four<kWidth>(gain, 0, j);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int i = 4 * j + k;
                h[i] = (h[i] - mean) * inverse_std;
                dgain[i] += of_result.at[k] * h[i];
                dbias[i] += of_result.at[k];
                d[i] = of_result.at[k] * g.at[k];
                sum += d[i];
                along += d[i] * h[i];
            }
        }
        sum = sum_over_warp(sum) / kWidth;
        along = sum_over_warp(along) / kWidth;
#pragma unroll
        for (int j = 0; j < kWidth / 128; ++j) {
            Four of_x, of_y;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int i = 4 * j + k;
                of_x.at[k] = inverse_std * (d[i] - sum - h[i] * along);
                of_y.at[k] = kept >> i & 1 ? of_x.at[k] * dropout.scale : 0.0f;
            }
            store_four<kWidth>(dx, row, j, of_x);
            if constexpr (kAdds) store_four<kWidth>(dy, row, j, of_y);
        }
    }
    for (unsigned next = 0; next < kWarpsOfABlock; ++next) {  // warp by warp: the order of addition is fixed
        if (warp == next)
#pragma unroll
            for (int i = 0; i < kItems; ++i) {
                const int column = column_of(i);
                sums[0][column] = next ? sums[0][column] + dgain[i] : dgain[i];
                sums[1][column] = next ? sums[1][column] + dbias[i] : dbias[i];
            }
        __syncthreads();
    }
    for (unsigned i = threadIdx.x; i < 2 * kWidth; i += blockDim.x)
        of_parameters[static_cast<long long>(blockIdx.x) * 2 * kWidth + i] = sums[i / kWidth][i % kWidth];
}

// One bound names a minimum of one block per multiprocessor: without it the compiler spills registers on sm_80 to fit
// a third block.
#define LAYER_NORM(T, width)                                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock)                                                 \
        layer_norm_forward_##T##_##width(const T* x, const float* gain, const float* bias, T* result,                 \
                                         float* statistics, long long n_rows, float eps) {                            \
        forward<false, T, width>(x, nullptr, gain, bias, result, statistics, n_rows, eps, Dropout{}, StreamId{}, 0);  \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock, 1)                                              \
        layer_norm_backward_##T##_##width(const T* d_result, const T* x, const float* gain, const float* statistics,  \
                                          T* dx, float* of_parameters, long long n_rows) {                            \
        backward<false, T, width>(d_result, x, nullptr, gain, statistics, dx, nullptr, of_parameters, n_rows,         \
                                  Dropout{});                                                                         \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock) add_norm_forward_##T##_##width(                 \
        const T* x, const T* y, const float* gain, const float* bias, T* result, float* statistics, long long n_rows, \
        float eps, void* mask, float scale, word seed, word stream, word update, const word* update_at,               \
        word micro_batch, int threshold) {                                                                            \
        forward<true, T, width>(x, y, gain, bias, result, statistics, n_rows, eps, Dropout{mask, scale},              \
                                stream_id_of(seed, stream, update, update_at, micro_batch), threshold);               \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock) add_norm_backward_##T##_##width(                \
        const T* d_result, const T* x, const T* y, const float* gain, const float* statistics, T* dx, T* dy,          \
        float* of_parameters, long long n_rows, void* mask, float scale) {                                            \
        backward<true, T, width>(d_result, x, y, gain, statistics, dx, dy, of_parameters, n_rows,                     \
                                 Dropout{mask, scale});                                                               \
    }

#define LAYER_NORM_OF_WIDTH(width) \
    LAYER_NORM(float, width)       \
    LAYER_NORM(bf16, width)

LAYER_NORM_OF_WIDTH(128)
LAYER_NORM_OF_WIDTH(256)
LAYER_NORM_OF_WIDTH(512)
LAYER_NORM_OF_WIDTH(1024)
