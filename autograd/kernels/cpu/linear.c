/* Linear maps with packed weights; bias, ReLU and its derivative for other linear maps. */

#include "packed.h"

#define PARTS 4 /* per thread: small parts, so that an interrupted thread delays the others little */
#define BLOCK 96 /* rows that stay in the second-level cache while all weights are read */

typedef struct {
    Product product;
    const float *bias;
    float *y;
    int64_t rows, columns, relu, parts;
} Linear;

/* Write z + bias, or max(0, z + bias), for a row and the columns from c on. */
ALWAYS_INLINE void finish_row(float *restrict z, const Linear *a, int64_t row, int64_t c, int64_t count) {
    add_bias_of(z, a->bias, c, count);
    if (a->relu)
        for (int64_t i = 0; i < count; i++) z[i] = z[i] < 0.0f ? 0.0f : z[i];
    memcpy(a->y + row * a->columns + c, z, sizeof(float) * (size_t)count);
}

/* Compute one part's tiles of columns for all rows. */
static void linear_part(const void *arguments, int64_t part) {
    const Linear a = *(const Linear *)arguments;
    const int64_t tiles = (a.columns + COLUMNS - 1) / COLUMNS;
    for (int64_t block = 0; block < a.rows; block += BLOCK)
        for (int64_t tile = tiles * part / a.parts; tile < tiles * (part + 1) / a.parts; tile++) {
            const int64_t c = tile * COLUMNS, end = block + BLOCK < a.rows ? block + BLOCK : a.rows;
            for (int64_t row = block; row < end;) {
                float z[MOST_ROWS_OF_TILE][COLUMNS];
                const int done = multiply_tile(a.product, row, end, c, z[0], COLUMNS);
                for (int r = 0; r < done; r++, row++)
                    if (c + COLUMNS <= a.columns)
                        finish_row(z[r], &a, row, c, COLUMNS);
                    else
                        finish_row(z[r], &a, row, c, a.columns - c);
            }
        }
}

/* y = x W + bias, or max(0, x W + bias) if relu; bias may be null.  If words is not null, x is rounded as W is. */
void linear_packed(const float *restrict x, int32_t *restrict rounded, const float *restrict panels,
                   const int32_t *restrict words, const float *restrict scales, const float *restrict bias,
                   float *restrict y, int64_t rows, int64_t terms, int64_t columns, int64_t relu, int64_t threads) {
    const int64_t parts = threads > 1 ? PARTS * threads : 1;
    if (words) round_rows(x, rounded, rows, terms, scales != 0, threads);
    const Linear arguments = {{x, panels, rounded, words, scales, terms}, bias, y, rows, columns, relu, parts};
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

/* Write the words of the panels of W, and the scale of each column. */
void pack_words(const float *restrict w, int64_t row_step, int64_t column_step, int32_t *restrict words,
                float *restrict scales, int64_t terms, int64_t columns) {
    const int64_t n_panels = (columns + PADDED - 1) / PADDED * (PADDED / WIDTH), n_words = (terms + 3) / 4;
    for (int64_t p = 0; p < n_panels; p++) {
        const int64_t c = p * WIDTH, count = columns - c < WIDTH ? columns - c : WIDTH;
        const float *first = w + c * column_step;
        int32_t greatest[WIDTH] = {0};
        for (int64_t k = 0; k < terms; k++)
            for (int64_t i = 0; i < count; i++) {
                const int32_t size = magnitude_bits(first[k * row_step + i * column_step]);
                greatest[i] = greatest[i] < size ? size : greatest[i];
            }
        for (int64_t i = 0; i < WIDTH; i++) scales[c + i] = scale_of(greatest[i]);
        int32_t *panel = words + p * n_words * WIDTH;
        memset(panel, 128, sizeof(int32_t) * (size_t)(n_words * WIDTH));
        for (int64_t k = 0; k < terms; k++)
            for (int64_t i = 0; i < count; i++) {
                if (!(scales[c + i] > 0.0f)) continue;
                const int32_t level = (int32_t)rintf(first[k * row_step + i * column_step] / scales[c + i]);
                panel[k / 4 * WIDTH + i] ^= (int32_t)(((uint32_t)level & 255u) << 8 * (k % 4));
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
