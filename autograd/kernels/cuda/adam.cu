// Adam over a flat buffer, four consecutive elements for a thread; see autograd.optim.adam_update.

#include "common.cuh"

// scalars are those of Adam.scalars; a scale of 0 changes nothing.  rest1 and rest2 are 1 - beta1 and 1 - beta2, which
// the caller subtracts in float64 and rounds.  copy, if not null, receives the low-precision weights.
extern "C" __global__ void __launch_bounds__(256)
    adam_update_bf16(float* values, const float* gradients, float* m, float* v, bf16* copy, long long n,
                     const double* scalars, const double* scale, float beta1, float beta2, float rest1, float rest2,
                     float eps) {
    constexpr int kItems = 4;
    const long long first = kItems * (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x), count = n - first;
    if (*scale == 0 || count <= 0) return;
    const bool aligned = is_aligned<kItems>(values) && is_aligned<kItems>(gradients) && is_aligned<kItems>(m) &&
                         is_aligned<kItems>(v) && is_aligned<kItems>(copy);
    const float step_size = static_cast<float>(scalars[1]), variance_correction = static_cast<float>(scalars[2]);
    float of_values[kItems], g[kItems], of_m[kItems], of_v[kItems];
    load_first(values + first, count, aligned, of_values);
    load_first(gradients + first, count, aligned, g);
    load_first(m + first, count, aligned, of_m);
    load_first(v + first, count, aligned, of_v);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        g[i] *= static_cast<float>(*scale);
        of_m[i] = beta1 * of_m[i] + rest1 * g[i];
        of_v[i] = beta2 * of_v[i] + rest2 * g[i] * g[i];
        of_values[i] -= step_size * of_m[i] / (sqrtf(of_v[i] / variance_correction) + eps);
    }
    store_first(m + first, count, aligned, of_m);
    store_first(v + first, count, aligned, of_v);
    store_first(values + first, count, aligned, of_values);
    if (copy) store_first(copy + first, count, aligned, of_values);
}
