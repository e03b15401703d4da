// The squared norm of a gradient, and the scale of an update; see autograd.optim.sum_squares and clip.
//
// Sums are float64, each in a fixed order.

#include "common.cuh"

constexpr int kThreads = 256;

__device__ __forceinline__ bool is_finite(double x) { return x - x == 0; }

// Returns the sum over the block in thread 0.
__device__ double sum_over_block(double x) {
    __shared__ double sums[kThreads];
    sums[threadIdx.x] = x;
    for (unsigned distance = kThreads / 2; distance; distance /= 2) {
        __syncthreads();
        if (threadIdx.x < distance) sums[threadIdx.x] += sums[threadIdx.x + distance];
    }
    return sums[0];
}

// Writes the sum of squares of each `run` consecutive elements; one block for each sum.
extern "C" __global__ void __launch_bounds__(kThreads)
    sum_squares(const float* gradients, double* squares, long long n, int run) {
    double sum = 0;
    const long long first = static_cast<long long>(blockIdx.x) * run;
    for (long long i = first + threadIdx.x; i < n && i < first + run; i += kThreads)
        sum += static_cast<double>(gradients[i]) * gradients[i];
    sum = sum_over_block(sum);
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    clip(const double* squares, int n_squares, const double* loss, const double* scalars, double* outcome,
         float max_norm) {
    double sum = 0;
    for (int i = threadIdx.x; i < n_squares; i += kThreads) sum += squares[i];
    sum = sum_over_block(sum);
    if (threadIdx.x) return;
    const double per_token = scalars[0], norm = sqrt(sum) * per_token;
    outcome[0] = *loss;
    outcome[1] = norm;
    outcome[2] = is_finite(*loss + norm) ? per_token * (norm > max_norm ? max_norm / norm : 1.0) : 0.0;
}
