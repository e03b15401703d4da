/* Layer normalisation of x, or of x + y, where dropout may be applied to y. */

#include "common.h"

#define ADDED 16

/* x̂ = (s − mean) / √(variance + eps) and out = x̂ · gain + bias for each row s = x + scale · kept · y.
   Without y, s = x; without kept, nothing is dropped and scale is not used. */
void layer_norm_forward(const float *restrict x, const float *restrict y, const uint8_t *restrict kept, float scale,
                        const float *restrict gain, const float *restrict bias, float *restrict x_hat,
                        float *restrict inverse_std, float *restrict out, int64_t rows, int64_t width, float eps) {
    for (int64_t row = 0; row < rows; row++, x += width, x_hat += width, out += width) {
        float mean, variance;
        if (kept) {
            for (int64_t i = 0; i < width; i++) x_hat[i] = x[i] + y[i] * (kept[i] ? scale : 0.0f);
            kept += width, y += width;
        } else if (y) {
            for (int64_t i = 0; i < width; i++) x_hat[i] = x[i] + y[i];
            y += width;
        } else
            memcpy(x_hat, x, sizeof(float) * (size_t)width);
        SUM(mean, width, x_hat[i]);
        mean /= (float)width;
        SUM(variance, width, (x_hat[i] - mean) * (x_hat[i] - mean));
        inverse_std[row] = 1.0f / sqrtf(variance / (float)width + eps);
        for (int64_t i = 0; i < width; i++) {
            x_hat[i] = (x_hat[i] - mean) * inverse_std[row];
            out[i] = x_hat[i] * gain[i] + bias[i];
        }
    }
}

/* The gradients of layer_norm_forward: dx (of x), dy = scale · kept · dx (if kept is given), and sums over rows:
   dgain = Σ dout · x̂ in sums[0], dbias = Σ dout in sums[1].  sums[2] and sums[3] hold the sums of ADDED rows, so that
   rounding errors grow with the number of such groups, not of rows.  Shapes: sums (4, width), zeros before. */
void layer_norm_backward(const float *restrict dout, const float *restrict x_hat, const float *restrict inverse_std,
                         const float *restrict gain, const uint8_t *restrict kept, float scale, float *restrict dx,
                         float *restrict dy, float *restrict sums, int64_t rows, int64_t width) {
    float *restrict dgain = sums + 2 * width, *restrict dbias = sums + 3 * width;
    for (int64_t row = 0; row < rows; row++, dout += width, x_hat += width, dx += width) {
        float mean, along;
        for (int64_t i = 0; i < width; i++) dx[i] = dout[i] * gain[i];
        SUM(mean, width, dx[i]);
        SUM(along, width, dx[i] * x_hat[i]);
        mean /= (float)width, along /= (float)width;
        for (int64_t i = 0; i < width; i++) {
            dx[i] = (dx[i] - mean - x_hat[i] * along) * inverse_std[row];
            dgain[i] += dout[i] * x_hat[i];
            dbias[i] += dout[i];
        }
        if (kept) {
            for (int64_t i = 0; i < width; i++) dy[i] = dx[i] * (kept[i] ? scale : 0.0f);
            kept += width, dy += width;
        }
        if ((row + 1) % ADDED == 0 || row + 1 == rows)
            for (int64_t i = 0; i < 2 * width; i++) sums[i] += sums[2 * width + i], sums[2 * width + i] = 0;
    }
}
