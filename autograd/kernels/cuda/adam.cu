// Adam over a flat buffer, one thread an element; see autograd.optim.adam_update and autograd.judged.

#include "common.cuh"

// rest is 1 - beta, which float32 would round after the subtraction; copy, where there is one, is the parameters as
// products read them.
template <typename Copy>
__device__ void adam_update(float* values, const float* gradients, float factor, float* m, float* v, Copy* copy,
                            long long n, float step_size, float beta1, float beta2, float rest1, float rest2,
                            float variance_correction, float eps) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float g = factor * gradients[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    values[i] -= step_size * m[i] / (sqrtf(v[i] / variance_correction) + eps);
    if (copy) store(copy[i], values[i]);
}

extern "C" __global__ void __launch_bounds__(256)
    adam_update_bf16(float* values, const float* gradients, float* m, float* v, bf16* copy, long long n,
                     float step_size, float beta1, float beta2, float rest1, float rest2,
                     float variance_correction, float eps) {
    adam_update(values, gradients, 1, m, v, copy, n, step_size, beta1, beta2, rest1, rest2, variance_correction, eps);
}

extern "C" __global__ void __launch_bounds__(256)
    adam_update_judged_bf16(float* values, const float* gradients, float* m, float* v, bf16* copy, long long n,
                            const float* numbers, const double* verdict, float beta1, float beta2, float rest1,
                            float rest2, float eps) {
    if (verdict[2] == 0) return;
    adam_update(values, gradients, static_cast<float>(verdict[2]), m, v, copy, n, numbers[1], beta1, beta2, rest1,
                rest2, numbers[2], eps);
}
