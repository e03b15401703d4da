// Sums over rows, in float32 and in a fixed order, and the derivative of ReLU in the same pass.
//
// A block sums a chunk of rows of 32 columns; a second launch adds the sums of the chunks.

#include "common.cuh"

constexpr int kWarps = 8, kLanes = 32;

// If dz is not null, it receives the rows where y is positive and 0 elsewhere, and dz is summed instead of the rows.
template <typename T>
__device__ void sum_of_rows(const T* rows, const T* y, T* dz, float* sums, long long n_rows, int width,
                            int chunk_rows) {
    __shared__ float of_warps[kWarps][kLanes];
    const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes, n_groups = (width + kLanes - 1) / kLanes;
    const int column = blockIdx.x % n_groups * kLanes + lane;
    const long long chunk = blockIdx.x / n_groups, first = chunk * chunk_rows;
    const long long end = first + chunk_rows < n_rows ? first + chunk_rows : n_rows;
    float sum = 0;
    if (column < width) {
#pragma unroll 4
        for (long long row = first + warp; row < end; row += kWarps) {
            const long long i = row * width + column;
            float value = load(rows[i]);
            if (dz) {
                value = load(y[i]) > 0 ? value : 0.0f;
                store(dz[i], value);
            }
            sum += value;
        }
    }
    of_warps[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < width) {
        for (int other = 1; other < kWarps; ++other) sum += of_warps[other][lane];
        sums[chunk * width + column] = sum;
    }
}

#define SUMS_OF_ROWS(T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(kWarps * kLanes)                                                     \
        sum_of_rows_##T(const T* rows, float* sums, long long n_rows, int width, int chunk_rows) {                    \
        sum_of_rows<T>(rows, nullptr, nullptr, sums, n_rows, width, chunk_rows);                                      \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(kWarps * kLanes)                                                     \
        relu_backward_##T(const T* dy, const T* y, T* dz, float* sums, long long n_rows, int width, int chunk_rows) { \
        sum_of_rows<T>(dy, y, dz, sums, n_rows, width, chunk_rows);                                                   \
    }

SUMS_OF_ROWS(float)
SUMS_OF_ROWS(bf16)
