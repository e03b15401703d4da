/* The denominator of softmax. */

#include "common.h"

/* greatest = max x and log_total = log Σ exp(x − greatest) for each row. */
void log_normaliser(const float *restrict x, float *restrict greatest, float *restrict log_total, int64_t rows,
                    int64_t width) {
    for (int64_t row = 0; row < rows; row++, x += width) {
        const float shift = greatest[row] = maximum(x, width);
        float total;
        SUM(total, width, exp_of(x[i] - shift));
        log_total[row] = logf(total);
    }
}
