// Layer normalisation, a warp a row; see autograd.ops.normalisation.layer_norm.

#include "common.cuh"

constexpr int kWarpsOfABlock = 8;

__device__ __forceinline__ float sum_over_warp(float x) {
    for (unsigned distance = 16; distance; distance /= 2) x += __shfl_xor_sync(kWholeWarp, x, distance);
    return x;
}

// statistics (rows, 2) keeps mean and 1 / standard deviation of every row for the backward pass.
template <typename T, int kWidth>
__device__ void forward(const T* x, const float* gain, const float* bias, T* y, float* statistics, long long n_rows,
                        float eps) {
    constexpr int kItems = kWidth / 32;
    const unsigned lane = threadIdx.x % 32;
    const long long row = static_cast<long long>(blockIdx.x) * kWarpsOfABlock + threadIdx.x / 32;
    if (row >= n_rows) return;  // a whole warp
    float h[kItems], sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) sum += h[i] = load(x[row * kWidth + i * 32 + lane]);
    const float mean = sum_over_warp(sum) / kWidth;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        h[i] -= mean;
        squares += h[i] * h[i];
    }
    const float inverse_std = rsqrtf(sum_over_warp(squares) / kWidth + eps);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int column = i * 32 + lane;
        store(y[row * kWidth + column], gain[column] * (h[i] * inverse_std) + bias[column]);
    }
    if (lane == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse_std;
    }
}

// of_parameters (blocks, 2, width) receives the sums over this block's rows of dy x_hat and of dy, to be added up.
template <typename T, int kWidth>
__device__ void backward(const T* dy, const T* x, const float* gain, const float* statistics, T* dx,
                         float* of_parameters, long long n_rows) {
    constexpr int kItems = kWidth / 32;
    __shared__ float sums[2][kWidth];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float dgain[kItems] = {}, dbias[kItems] = {};
    for (long long row = static_cast<long long>(blockIdx.x) * kWarpsOfABlock + warp; row < n_rows;
         row += static_cast<long long>(gridDim.x) * kWarpsOfABlock) {
        const float mean = statistics[2 * row], inverse_std = statistics[2 * row + 1];
        float h[kItems], d[kItems], sum = 0, along = 0;
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            const int column = i * 32 + lane;
            h[i] = (load(x[row * kWidth + column]) - mean) * inverse_std;
            d[i] = load(dy[row * kWidth + column]);
            dgain[i] += d[i] * h[i];
            dbias[i] += d[i];
            d[i] *= gain[column];
            sum += d[i];
            along += d[i] * h[i];
        }
        sum = sum_over_warp(sum) / kWidth;
        along = sum_over_warp(along) / kWidth;
#pragma unroll
        for (int i = 0; i < kItems; ++i)
            store(dx[row * kWidth + i * 32 + lane], inverse_std * (d[i] - sum - h[i] * along));
    }
    for (unsigned turn = 0; turn < kWarpsOfABlock; ++turn) {  // in turns, so that the order of addition is fixed
        if (warp == turn)
#pragma unroll
            for (int i = 0; i < kItems; ++i) {
                const int column = i * 32 + lane;
                sums[0][column] = turn ? sums[0][column] + dgain[i] : dgain[i];
                sums[1][column] = turn ? sums[1][column] + dbias[i] : dbias[i];
            }
        __syncthreads();
    }
    for (unsigned i = threadIdx.x; i < 2 * kWidth; i += blockDim.x)
        of_parameters[static_cast<long long>(blockIdx.x) * 2 * kWidth + i] = sums[i / kWidth][i % kWidth];
}

#define LAYER_NORM(T, width)                                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock)                                                 \
        layer_norm_forward_##T##_##width(const T* x, const float* gain, const float* bias, T* y, float* statistics,   \
                                         long long n_rows, float eps) {                                               \
        forward<T, width>(x, gain, bias, y, statistics, n_rows, eps);                                                 \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarpsOfABlock)                                                 \
        layer_norm_backward_##T##_##width(const T* dy, const T* x, const float* gain, const float* statistics, T* dx, \
                                          float* of_parameters, long long n_rows) {                                   \
        backward<T, width>(dy, x, gain, statistics, dx, of_parameters, n_rows);                                       \
    }

#define LAYER_NORM_OF_WIDTH(width) \
    LAYER_NORM(float, width)       \
    LAYER_NORM(bf16, width)

LAYER_NORM_OF_WIDTH(128)
LAYER_NORM_OF_WIDTH(256)
LAYER_NORM_OF_WIDTH(512)
LAYER_NORM_OF_WIDTH(1024)
