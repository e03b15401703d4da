/* An update of Adam, and one of a moving average of the parameters. */

#include "common.h"

/* One step in place with g = factor · gradients, as autograd/optim.py defines it; the complements are 1 − β₁, 1 − β₂. */
void adam_step(float *restrict values, const float *restrict gradients, float *restrict m, float *restrict v, int64_t n,
               float factor, float step_size, float variance_correction, float beta1, float complement1, float beta2,
               float complement2, float eps) {
    for (int64_t i = 0; i < n; i++) {
        const float g = gradients[i] * factor;
        m[i] = beta1 * m[i] + complement1 * g;
        v[i] = beta2 * v[i] + complement2 * g * g;
        values[i] -= step_size * m[i] / (sqrtf(v[i] / variance_correction) + eps);
    }
}

/* average ← average − share · (average − values), in place. */
void average_step(float *restrict average, const float *restrict values, int64_t n, float share) {
    for (int64_t i = 0; i < n; i++)
        average[i] -= share * (average[i] - values[i]);
}
