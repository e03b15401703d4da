// The gradient of an embedding; see autograd.ops.embedding.

#include "common.cuh"

constexpr int kWarps = 8;

// Sorts ids stably and writes the old index of each.  The new index of an id is the number of ids before it in the
// order: n * n comparisons, in one asynchronous launch.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    sort_ids(const long long* ids, long long* sorted_ids, long long* order, int n) {
    __shared__ int others[32 * kWarps];
    const int here = blockIdx.x * blockDim.x + threadIdx.x, id = here < n ? static_cast<int>(ids[here]) : 0;
    int position = 0;
    for (int start = 0; start < n; start += blockDim.x) {
        const int size = n - start < static_cast<int>(blockDim.x) ? n - start : blockDim.x, other = start + threadIdx.x;
        if (other < n) others[threadIdx.x] = static_cast<int>(ids[other]);
        __syncthreads();
        for (int i = 0; i < size; ++i) position += others[i] < id + (start + i < here);
        __syncthreads();  // until all threads have read others
    }
    if (here < n) {
        sorted_ids[position] = id;
        order[position] = here;
    }
}

// Tokens are sorted by id.  The block of the first token of each id adds the rows of dy of all its tokens to that row of
// the table.  Warp w sums tokens w, w + 8 ... of the id; then the sums of the warps are added in order.  So no addition
// depends on the speed of blocks.
template <typename T>
__device__ void add_rows(const T* dy, const long long* sorted_ids, const long long* order, float* table, long long n,
                         int width) {
    __shared__ float sums[kWarps][32];
    const long long first = blockIdx.x, id = sorted_ids[first];
    if (first && sorted_ids[first - 1] == id) return;  // a whole block
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int start = 0; start < width; start += 32) {
        const int column = start + lane;
        float sum = 0;
        if (column < width)
            for (long long i = first + warp; i < n && sorted_ids[i] == id; i += kWarps)
                sum += load(dy[order[i] * width + column]);
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && column < width) {
#pragma unroll
            for (int i = 1; i < kWarps; ++i) sum += sums[i][lane];
            table[id * width + column] += sum;
        }
        __syncthreads();  // until the sums have been read
    }
}

#define ADD_ROWS(T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                   \
        add_rows_##T(const T* dy, const long long* sorted_ids, const long long* order, float* table, long long n, \
                     int width) {                                                                               \
        add_rows(dy, sorted_ids, order, table, n, width);                                                       \
    }

ADD_ROWS(float)
ADD_ROWS(bf16)
