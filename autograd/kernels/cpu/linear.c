/* Linear maps with packed weights, and what other linear maps compute beside their matrix products. */

#include "packed.h"
#include "parallel.h"

#define PARTS 4 /* per thread: so many that a thread that is interrupted delays little */
#define BLOCK 96 /* rows; they stay in the second-level cache while all weights pass by */

typedef struct {
    const float *x;
    Packed w;
    const float *bias;
    float *y;
    int64_t rows, columns, relu, parts;
} Linear;

/* Compute one part's tiles of columns for all rows. */
static void linear_part(const void *arguments, int64_t part) {
    const Linear a = *(const Linear *)arguments;
    const int64_t tiles = (a.columns + COLUMNS - 1) / COLUMNS, terms = a.w.terms;
    for (int64_t block = 0; block < a.rows; block += BLOCK)
        for (int64_t tile = tiles * part / a.parts; tile < tiles * (part + 1) / a.parts; tile++) {
            const int64_t c = tile * COLUMNS, count = c + COLUMNS < a.columns ? COLUMNS : a.columns - c;
            const int64_t end = block + BLOCK < a.rows ? block + BLOCK : a.rows;
            for (int64_t row = block; row < end;) {
                float z[ROWS][COLUMNS];
                const int done = multiply_tile(a.x + row * terms, end - row, a.w, c, z[0], COLUMNS);
                for (int r = 0; r < done; r++, row++) {
                    finish_row(z[r], a.w.scales, a.bias, c, count);
                    if (a.relu)
                        for (int64_t i = 0; i < count; i++) z[r][i] = z[r][i] < 0.0f ? 0.0f : z[r][i];
                    memcpy(a.y + row * a.columns + c, z[r], sizeof(float) * (size_t)count);
                }
            }
        }
}

/* y = x W + bias, or max(0, x W + bias) if relu; bias may be null. */
void linear_packed(const float *restrict x, const float *restrict panels, const int32_t *restrict words,
                   const float *restrict scales, const float *restrict bias, float *restrict y, int64_t rows,
                   int64_t terms, int64_t columns, int64_t relu, int64_t threads) {
    const int64_t parts = threads > 1 ? PARTS * threads : 1;
    const Linear arguments = {x, {panels, words, scales, terms}, bias, y, rows, columns, relu, parts};
    run_parts(linear_part, &arguments, parts, threads);
}

/* Write the panels of W, whose element (k, c) is at k · row_step + c · column_step. */
void pack_panels(const float *restrict w, int64_t row_step, int64_t column_step, float *restrict panels, int64_t terms,
                 int64_t columns) {
    const int64_t n_panels = (columns + PADDED - 1) / PADDED * (PADDED / WIDTH);
    for (int64_t p = 0; p < n_panels; p++) {
        const int64_t c = p * WIDTH, count = columns - c < WIDTH ? columns - c : WIDTH;
        for (int64_t k = 0; k < terms; k++)
            for (int64_t i = 0; i < WIDTH; i++)
                panels[(p * terms + k) * WIDTH + i] = i < count ? w[k * row_step + (c + i) * column_step] : 0.0f;
    }
}

/* Write the words of the panels of W, and each column's scale: its greatest absolute value / 127, or 1 if that is 0. */
void pack_words(const float *restrict w, int64_t row_step, int64_t column_step, int32_t *restrict words,
                float *restrict scales, int64_t terms, int64_t columns) {
    const int64_t n_panels = (columns + PADDED - 1) / PADDED * (PADDED / WIDTH), n_words = (terms + 3) / 4;
    for (int64_t p = 0; p < n_panels; p++) {
        const int64_t c = p * WIDTH, count = columns - c < WIDTH ? columns - c : WIDTH;
        const float *first = w + c * column_step;
        float greatest[WIDTH] = {0};
        for (int64_t k = 0; k < terms; k++)
            for (int64_t i = 0; i < count; i++) {
                const float size = fabsf(first[k * row_step + i * column_step]);
                greatest[i] = greatest[i] < size ? size : greatest[i];
            }
        for (int64_t i = 0; i < count; i++) scales[c + i] = greatest[i] > 0.0f ? greatest[i] / 127.0f : 1.0f;
        int32_t *panel = words + p * n_words * WIDTH;
        memset(panel, 0, sizeof(int32_t) * (size_t)(n_words * WIDTH));
        for (int64_t k = 0; k < terms; k++)
            for (int64_t i = 0; i < count; i++) {
                const float level = rintf(first[k * row_step + i * column_step] / scales[c + i]);
                panel[k / 4 * WIDTH + i] |= (int32_t)(((uint32_t)(int32_t)level & 255u) << 8 * (k % 4));
            }
    }
}

/* y = y + bias in every row. */
void add_bias(float *restrict y, const float *restrict bias, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++, y += width)
        for (int64_t i = 0; i < width; i++) y[i] += bias[i];
}

/* y = max(0, y + bias) in every row; NaN stays NaN. */
void add_bias_relu(float *restrict y, const float *restrict bias, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++, y += width)
        for (int64_t i = 0; i < width; i++) {
            const float sum = y[i] + bias[i];
            y[i] = sum < 0.0f ? 0.0f : sum;
        }
}

/* dz = dy where y > 0, else 0, and dbias += the sum of its rows. */
void relu_backward(const float *restrict dy, const float *restrict y, float *restrict dz, float *restrict dbias,
                   int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++, dy += width, y += width, dz += width)
        for (int64_t i = 0; i < width; i++) {
            dz[i] = y[i] > 0.0f ? dy[i] : 0.0f;
            dbias[i] += dz[i];
        }
}
