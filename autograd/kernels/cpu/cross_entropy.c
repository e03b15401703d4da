/* Label-smoothed cross-entropy of rows of logits. */

#include "common.h"

/* Overwrite z with exp(z − shift) and return the sum of these; set *sum to the sum of z − shift. */
static inline float exponentials(float *restrict z, int64_t n, float shift, float *restrict sum) {
    float of_exp[LANES] = {0}, of_z[LANES] = {0};
    int64_t start = 0;
    for (; start + LANES <= n; start += LANES)
        for (int l = 0; l < LANES; l++) {
            const float shifted = z[start + l] - shift, e = exp_of(shifted);
            of_z[l] += shifted, of_exp[l] += e, z[start + l] = e;
        }
    for (int64_t i = start; i < n; i++) {
        const float shifted = z[i] - shift, e = exp_of(shifted);
        of_z[i - start] += shifted, of_exp[i - start] += e, z[i] = e;
    }
    *sum = sum_of_lanes(of_z, LANES);
    return sum_of_lanes(of_exp, LANES);
}

/* Return Σ H(q, p) over rows of logits z, with p = softmax(z) and q = confidence · [target] + share · [not impossible];
   overwrite z with p − q.  A row with a negative target adds nothing, and becomes 0.  If `impossible` is negative, no
   class is impossible. */
double cross_entropy_rows(float *restrict z, const int64_t *restrict targets, int64_t rows, int64_t width, float share,
                          float confidence, int64_t impossible) {
    double loss = 0.0;
    for (int64_t row = 0; row < rows; row++, z += width) {
        const int64_t target = targets[row];
        if (target < 0) {
            memset(z, 0, sizeof(float) * (size_t)width);
            continue;
        }
        const float greatest = maximum(z, width), of_target = z[target] - greatest;
        float total, sharing;
        if (impossible < 0)
            total = exponentials(z, width, greatest, &sharing);
        else {
            const int64_t above = impossible + 1;
            float sharing_above, unused;
            total = exponentials(z, impossible, greatest, &sharing) + exponentials(z + impossible, 1, greatest, &unused) +
                    exponentials(z + above, width - above, greatest, &sharing_above);
            sharing += sharing_above;
        }
        loss += log((double)total) - (double)confidence * of_target;
        if (share > 0.0f) loss -= (double)share * sharing; /* without it, 0 · −∞ would be NaN */
        const float scale = 1.0f / total;
        for (int64_t i = 0; i < width; i++) z[i] = z[i] * scale - share;
        if (impossible >= 0) z[impossible] += share;
        z[target] -= confidence;
    }
    return loss;
}
