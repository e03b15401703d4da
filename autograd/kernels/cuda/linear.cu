// Sums over rows, in float32 and in a fixed order, and the derivative of ReLU in the same pass.
//
// A block sums a chunk of rows of 128 columns, four columns for a thread; a second launch adds the sums of the chunks.

#include "common.cuh"

constexpr int kWarps = 8, kLanes = 32, kItems = 4, kColumns = kLanes * kItems;

// Adds this warp's rows to sum.  With kRelu, dz receives the rows where y is positive and 0 elsewhere, and dz is summed
// instead of the rows.
template <bool kRelu, bool kAligned, typename T>
__device__ __forceinline__ void add_rows(const T* rows, const T* y, T* dz, float (&sum)[kItems], long long first,
                                         long long end, int width, int column) {
    const int count = kAligned ? kItems : width - column;
#pragma unroll (kAligned ? 4 : 1)
    for (long long row = first; row < end; row += kWarps) {
        const long long i = row * width + column;
        float value[kItems];
        load_first(rows + i, count, kAligned, value);
        if constexpr (kRelu) {
            float of_y[kItems];
            load_first(y + i, count, kAligned, of_y);
#pragma unroll
            for (int k = 0; k < kItems; ++k) value[k] = of_y[k] > 0 ? value[k] : 0.0f;
            store_first(dz + i, count, kAligned, value);
        }
#pragma unroll
        for (int k = 0; k < kItems; ++k) sum[k] += value[k];
    }
}

template <bool kRelu, typename T>
__device__ void sum_of_rows(const T* rows, const T* y, T* dz, float* sums, long long n_rows, int width,
                            int chunk_rows) {
    __shared__ Neighbours<float, kItems> of_warps[kWarps][kLanes];
    const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes, n_groups = (width + kColumns - 1) / kColumns;
    const int column = blockIdx.x % n_groups * kColumns + kItems * lane;
    const long long chunk = blockIdx.x / n_groups, first = chunk * chunk_rows;
    const long long end = first + chunk_rows < n_rows ? first + chunk_rows : n_rows;
    float sum[kItems] = {};
    if (column < width) {
        if (width % kItems == 0 && is_aligned<kItems>(rows) && is_aligned<kItems>(y) && is_aligned<kItems>(dz))
            add_rows<kRelu, true>(rows, y, dz, sum, first + warp, end, width, column);
        else
            add_rows<kRelu, false>(rows, y, dz, sum, first + warp, end, width, column);
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k) of_warps[warp][lane].at[k] = sum[k];
    __syncthreads();
    if (warp) return;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        for (int other = 1; other < kWarps; ++other) sum[k] += of_warps[other][lane].at[k];
        if (column + k < width) sums[chunk * width + column + k] = sum[k];
    }
}

#define SUMS_OF_ROWS(T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(kWarps * kLanes)                                                     \
        sum_of_rows_##T(const T* rows, float* sums, long long n_rows, int width, int chunk_rows) {                    \
        sum_of_rows<false, T>(rows, nullptr, nullptr, sums, n_rows, width, chunk_rows);                               \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(kWarps * kLanes)                                                     \
        relu_backward_##T(const T* dy, const T* y, T* dz, float* sums, long long n_rows, int width, int chunk_rows) { \
        sum_of_rows<true, T>(dy, y, dz, sums, n_rows, width, chunk_rows);                                             \
    }

SUMS_OF_ROWS(float)
SUMS_OF_ROWS(bf16)
SUMS_OF_ROWS(f16)
