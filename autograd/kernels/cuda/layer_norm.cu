// Layer normalisation of x, or of x + dropout(y), one warp per row; see autograd.ops.layer_norm.layer_norm and
// autograd.ops.add_norm.
//
// A row has a multiple of 16 columns, at most kMost; a kernel is compiled for each kMost.  A lane holds four adjacent
// columns of every 128: they need one word of random bits and one access to memory, for which parameters and new
// arrays are aligned.  Numbers beyond the row are 0 and never stored.  The forward pass draws the mask of dropout and
// keeps one bit per element, because a load takes far fewer instructions than drawing again.  The backward pass adds x
// and y again instead of reading their sum: writing and reading the sum would move as many bytes, and would round it
// in 16 bits.

#include "common.cuh"
#include "philox.cuh"

constexpr int kWarpsOfABlock = 8;

struct Four {
    float at[4];
};

// The type that has one bit for each number that a lane holds of a row.
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

// mask (rows, 32 lanes) of BitsOf has the bits of kept elements.  If it is null, nothing is dropped.
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

// Returns whether a lane's numbers 4 j ... 4 j + 3 lie in a row of this width.
__device__ __forceinline__ bool is_in_row(int j, int width) { return column_of(4 * j) < width; }

// Loads a lane's numbers 4 j ... 4 j + 3 of a row.
template <typename T>
__device__ __forceinline__ Four load_four(const T* rows, long long row, int width, int j) {
    Four four = {};
    if (is_in_row(j, width)) load_aligned(rows + row * width + column_of(4 * j), four.at);
    return four;
}

template <typename T>
__device__ __forceinline__ void store_four(T* rows, long long row, int width, int j, const Four& four) {
    if (is_in_row(j, width)) store_aligned(rows + row * width + column_of(4 * j), four.at);
}

// Returns a mask: bit i is set if a lane's i-th number of the row is kept.  The lanes of the warp draw the row together.
template <int kMost>
__device__ __forceinline__ unsigned drawn_mask(const StreamId& stream_id, int threshold, long long row, int width) {
    __shared__ word of_warps[kWarpsOfABlock][kMost / 4];
    word(&words)[kMost / 4] = of_warps[threadIdx.x / 32];
#pragma unroll
    for (int first = 0; first < kMost / 16; first += 32) {
        const int block = first + lane();
        if (block >= width / 16) break;
        word of_block[4];
        philox_block(stream_id, row * (width / 16) + block, of_block);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[4 * block + i] = of_block[i];
    }
    __syncwarp();
    unsigned kept = 0;
#pragma unroll
    for (int j = 0; j < kMost / 128; ++j) {
        if (!is_in_row(j, width)) break;
        const word four = words[32 * j + lane()];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (static_cast<int>(four >> 16 * i & 0xffff) >= threshold) kept |= 1u << (4 * j + i);
    }
    return kept;
}

// Returns a reference to a lane's bits of a row.
template <int kMost>
__device__ __forceinline__ typename BitsOf<kMost / 32>::Type& bits_of_row(void* mask, long long row) {
    return static_cast<typename BitsOf<kMost / 32>::Type*>(mask)[row * 32 + lane()];
}

// Loads x, or x + dropout(y); numbers of y whose bit in kept is not set are dropped.
template <bool kAdds, int kMost, typename T>
__device__ __forceinline__ void load_sum(const T* x, const T* y, long long row, int width, unsigned kept,
                                         float scale, float (&sum)[kMost / 32]) {
#pragma unroll
    for (int j = 0; j < kMost / 128; ++j) {
        const Four of_x = load_four(x, row, width, j);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[4 * j + i] = of_x.at[i];
        if constexpr (kAdds) {
            const Four of_y = load_four(y, row, width, j);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (kept >> (4 * j + i) & 1) sum[4 * j + i] += of_y.at[i] * scale;
        }
    }
}

// statistics (rows, 2) receives mean and 1 / standard deviation of every row for the backward pass.
template <bool kAdds, typename T, int kMost>
__device__ __forceinline__ void forward(const T* x, const T* y, const float* gain, const float* bias, T* result,
                                        float* statistics, long long n_rows, int width, float eps,
                                        const Dropout& dropout, const StreamId& stream_id, int threshold) {
    constexpr int kItems = kMost / 32;
    const unsigned warp = threadIdx.x / 32;
    const long long row = static_cast<long long>(blockIdx.x) * kWarpsOfABlock + warp;
    if (row >= n_rows) return;  // a whole warp
    float h[kItems], sum = 0, squares = 0;
    unsigned kept = ~0u;
    if constexpr (kAdds) {
        if (dropout.mask) {
            kept = drawn_mask<kMost>(stream_id, threshold, row, width);
            bits_of_row<kMost>(dropout.mask, row) = kept;
        }
    }
    load_sum<kAdds, kMost>(x, y, row, width, kept, dropout.scale, h);
#pragma unroll
    for (int i = 0; i < kItems; ++i) sum += h[i];
    const float mean = sum_over_warp(sum) / width;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        h[i] = is_in_row(i / 4, width) ? h[i] - mean : 0.0f;
        squares += h[i] * h[i];
    }
    const float inverse_std = rsqrtf(sum_over_warp(squares) / width + eps);
#pragma unroll
    for (int j = 0; j < kMost / 128; ++j) {
        const Four g = load_four(gain, 0, width, j), b = load_four(bias, 0, width, j);
        Four y_hat;
#pragma unroll
        for (int i = 0; i < 4; ++i) y_hat.at[i] = g.at[i] * (h[4 * j + i] * inverse_std) + b.at[i];
        store_four(result, row, width, j, y_hat);
    }
    if (lane() == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse_std;
    }
}

// of_parameters (blocks, 2, width) receives the sums over this block's rows of d x_hat and of d, where d is the gradient
// of the result; the caller adds the blocks.  dx is the gradient of x; dy, that of y, is dx masked and scaled.
template <bool kAdds, typename T, int kMost>
__device__ __forceinline__ void backward(const T* d_result, const T* x, const T* y, const float* gain,
                                         const float* statistics, T* dx, T* dy, float* of_parameters, long long n_rows,
                                         int width, const Dropout& dropout) {
    constexpr int kItems = kMost / 32;
    __shared__ float sums[2][kMost];
    const unsigned warp = threadIdx.x / 32;
    float dgain[kItems] = {}, dbias[kItems] = {};
    for (long long row = static_cast<long long>(blockIdx.x) * kWarpsOfABlock + warp; row < n_rows;
         row += static_cast<long long>(gridDim.x) * kWarpsOfABlock) {
        const float mean = statistics[2 * row], inverse_std = statistics[2 * row + 1];
        float h[kItems], d[kItems], sum = 0, along = 0;
        unsigned kept = ~0u;
        if constexpr (kAdds) {
            if (dropout.mask) kept = bits_of_row<kMost>(dropout.mask, row);
        }
        load_sum<kAdds, kMost>(x, y, row, width, kept, dropout.scale, h);
#pragma unroll
        for (int j = 0; j < kMost / 128; ++j) {
            const Four of_result = load_four(d_result, row, width, j), g = load_four(gain, 0, width, j);
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
        sum = sum_over_warp(sum) / width;
        along = sum_over_warp(along) / width;
#pragma unroll
        for (int j = 0; j < kMost / 128; ++j) {
            Four of_x, of_y;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int i = 4 * j + k;
                of_x.at[k] = inverse_std * (d[i] - sum - h[i] * along);
                of_y.at[k] = kept >> i & 1 ? of_x.at[k] * dropout.scale : 0.0f;
            }
            store_four(dx, row, width, j, of_x);
            if constexpr (kAdds) store_four(dy, row, width, j, of_y);
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
    for (int which = 0; which < 2; ++which)
        for (int column = threadIdx.x; column < width; column += blockDim.x)
            of_parameters[(2LL * blockIdx.x + which) * width + column] = sums[which][column];
}

// A width that is known at compile time takes fewer instructions.  Bounds that name a minimum of one block per
// multiprocessor keep compilers from spilling registers to fit a third block.
#define LAYER_NORM(T, name, most, width, bounds)                                                                      \
    extern "C" __global__ void __launch_bounds__ bounds                                                               \
        layer_norm_forward_##T##_##name(const T* x, const float* gain, const float* bias, T* result,                  \
                                        float* statistics, long long n_rows, int n_columns, float eps) {              \
        forward<false, T, most>(x, nullptr, gain, bias, result, statistics, n_rows, width, eps, Dropout{},            \
                                StreamId{}, 0);                                                                       \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock, 1)                                              \
        layer_norm_backward_##T##_##name(const T* d_result, const T* x, const float* gain, const float* statistics,   \
                                         T* dx, float* of_parameters, long long n_rows, int n_columns) {              \
        backward<false, T, most>(d_result, x, nullptr, gain, statistics, dx, nullptr, of_parameters, n_rows, width,   \
                                 Dropout{});                                                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__ bounds add_norm_forward_##T##_##name(                                \
        const T* x, const T* y, const float* gain, const float* bias, T* result, float* statistics, long long n_rows, \
        int n_columns, float eps, void* mask, float scale, word seed, word stream, word update,                       \
        const word* update_at, word micro_batch, int threshold) {                                                     \
        forward<true, T, most>(x, y, gain, bias, result, statistics, n_rows, width, eps, Dropout{mask, scale},        \
                               stream_id_of(seed, stream, update, update_at, micro_batch), threshold);                \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__ bounds add_norm_backward_##T##_##name(                               \
        const T* d_result, const T* x, const T* y, const float* gain, const float* statistics, T* dx, T* dy,          \
        float* of_parameters, long long n_rows, int n_columns, void* mask, float scale) {                             \
        backward<true, T, most>(d_result, x, y, gain, statistics, dx, dy, of_parameters, n_rows, width,               \
                                Dropout{mask, scale});                                                                \
    }

#define LAYER_NORM_UP_TO(T, most)                          \
    LAYER_NORM(T, most, most, most, (32 * kWarpsOfABlock)) \
    LAYER_NORM(T, below_##most, most, n_columns, (32 * kWarpsOfABlock, 1))

#define LAYER_NORMS(T)        \
    LAYER_NORM_UP_TO(T, 128)  \
    LAYER_NORM_UP_TO(T, 256)  \
    LAYER_NORM_UP_TO(T, 512)  \
    LAYER_NORM_UP_TO(T, 1024)

LAYER_NORMS(float)
LAYER_NORMS(bf16)
LAYER_NORMS(f16)
