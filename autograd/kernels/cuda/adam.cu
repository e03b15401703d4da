// Adam over a flat buffer, one thread per element; see autograd.optim.adam_update.

#include "common.cuh"

// scalars are those of Adam.scalars; a scale of 0 changes nothing. rest is 1 - beta, rounded to float32 after the
// subtraction in float64; copy, if not null, receives the low-precision weights.
extern "C" __global__ void __launch_bounds__(256)
    adam_update_bf16(float* values, const float* gradients, float* m, float* v, bf16* copy, long long n,
                     const double* scalars, const double* scale, float beta1, float beta2, float rest1, float rest2,
                     float eps) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (*scale == 0 || i >= n) return;
    const float step_size = static_cast<float>(scalars[1]), variance_correction = static_cast<float>(scalars[2]);
    const float g = static_cast<float>(*scale) * gradients[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    values[i] -= step_size * m[i] / (sqrtf(v[i] / variance_correction) + eps);
    if (copy) store(copy[i], values[i]);
}
