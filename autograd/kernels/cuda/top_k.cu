// The n greatest numbers of each row and their columns; see autograd.ops.top_k.
//
// A block computes a row.  Thread t has the columns t, t + threads, … and remembers its best item that has not been
// taken.  In each of n rounds the block takes the best of all threads, and only the thread that had it searches its
// columns for the next one.  So nearly all of a row is read once.

#include "common.cuh"

constexpr int kMostThreads = 1024;
constexpr long long kNone = 0x7fffffffffffffffLL;

template <typename T>
struct Item {
    T value;
    long long column;

    // Items are in order of falling values, ties by column.
    __device__ bool precedes(Item other) const {
        return value > other.value || (value == other.value && column < other.column);
    }
};

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

__device__ __forceinline__ float exponential(float x) { return exp2f(x * 1.442695041f); }

// Returns this thread's first item behind `last` in a column that is not forbidden; NaN counts as -infinity.
template <typename T>
__device__ Item<T> next_item(const T* row, const bool* forbidden, long long width, Item<T> last) {
    Item<T> best{-infinity(), kNone};
    for (long long column = threadIdx.x; column < width; column += blockDim.x) {
        const T x = row[column];
        const Item<T> item{x == x && !(forbidden && forbidden[column]) ? x : -infinity(), column};
        if (item.precedes(best) && last.precedes(item)) best = item;
    }
    return best;
}

template <typename T>
__device__ Item<T> first_of_warp(Item<T> item) {
    for (unsigned distance = 16; distance; distance /= 2) {
        const Item<T> other{
            __shfl_xor_sync(kWholeWarp, item.value, distance), __shfl_xor_sync(kWholeWarp, item.column, distance)};
        if (other.precedes(item)) item = other;
    }
    return item;
}

// Returns the first item of the block, a multiple of 32 threads, in each of them.
template <typename T>
__device__ Item<T> first_of_block(Item<T> item) {
    __shared__ T values[32];
    __shared__ long long columns[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    item = first_of_warp(item);
    __syncthreads();  // until all threads have read the items of an earlier call
    if (lane == 0) values[warp] = item.value, columns[warp] = item.column;
    __syncthreads();
    if (lane < blockDim.x / 32) item = Item<T>{values[lane], columns[lane]};
    return first_of_warp(item);
}

// Stores the block's n first items, the value by `store(at, value)`.
template <typename T, typename Store>
__device__ void top_k(const T* x, const bool* forbidden, long long* columns, long long width, int n, Store store) {
    const T* row = x + blockIdx.x * width;
    Item<T> own = next_item(row, forbidden, width, Item<T>{infinity(), -1});
    for (int i = 0; i < n; ++i) {
        const Item<T> best = first_of_block(own);
        if (threadIdx.x == 0) {
            const long long at = static_cast<long long>(blockIdx.x) * n + i;
            store(at, best.value);
            columns[at] = best.column == kNone ? 0 : best.column;
        }
        if (own.column == best.column && own.column != kNone) own = next_item(row, forbidden, width, own);
    }
}

extern "C" __global__ void __launch_bounds__(kMostThreads)
    top_k_float(const float* x, float* values, long long* columns, long long width, int n) {
    top_k(x, nullptr, columns, width, n, [=](long long at, float value) { values[at] = value; });
}

extern "C" __global__ void __launch_bounds__(kMostThreads)
    top_k_double(const double* x, double* values, long long* columns, long long width, int n) {
    top_k(x, nullptr, columns, width, n, [=](long long at, double value) { values[at] = value; });
}

// log_p gets values - the logarithm of the sum of all exponentials of a row.  A row has its own row of `forbidden`, or
// with a `rule` for each rows_of_rule rows one of two, or else the only one (forbidden_stride is 0).
extern "C" __global__ void __launch_bounds__(kMostThreads)
    log_softmax_top(const float* x, const bool* forbidden, const bool* rule, double* log_p, long long* columns,
                    long long width, long long forbidden_stride, int n, int rows_of_rule) {
    const float* row = x + blockIdx.x * width;
    float greatest = -infinity(), total = 0.0f;
    for (long long column = threadIdx.x; column < width; column += blockDim.x) {
        const float logit = row[column];
        if (logit > greatest) {
            total *= exponential(greatest - logit);
            greatest = logit;
        }
        if (logit != -infinity()) total += exponential(logit - greatest);
    }
    const float greatest_of_row = reduce_over_block<Max>(greatest);
    const float log_total = logf(reduce_over_block<Sum>(total * exponential(greatest - greatest_of_row)));
    forbidden += (rule ? rule[blockIdx.x / rows_of_rule] : blockIdx.x) * forbidden_stride;
    top_k(x, forbidden, columns, width, n, [=](long long at, float value) {
        log_p[at] = static_cast<double>(value) - static_cast<double>(greatest_of_row) - static_cast<double>(log_total);
    });
}
