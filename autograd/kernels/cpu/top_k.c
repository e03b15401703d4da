/* The n greatest log-probabilities of a projection, without its logits in memory. */

#include "packed.h"

#define CHUNK 128 /* columns; the logits of a tile of rows are in the first-level cache */

/* Insert z into the n greatest values of a row if it is greater than one of them; equal values stay in order. */
static inline void insert(float *restrict values, int64_t *restrict columns, int64_t n, float z, int64_t column) {
    if (!(z > values[n - 1])) return;
    int64_t i = n - 1;
    for (; i > 0 && values[i - 1] < z; i--) values[i] = values[i - 1], columns[i] = columns[i - 1];
    values[i] = z, columns[i] = column;
}

/* Set the maximum and Σ exp(z − maximum) of count logits z, of the columns from c on; insert the logits in values. */
static void take_logits(const float *restrict z, int64_t c, int64_t count, const uint8_t *restrict forbidden,
                        float *restrict greatest, float *restrict total, float *restrict values,
                        int64_t *restrict columns, int64_t n) {
    *greatest = maximum(z, count);
    const float shift = *greatest > -INFINITY ? *greatest : 0.0f;
    SUM(*total, count, exp_of(z[i] - shift));
    if (*greatest > values[n - 1])
        for (int64_t i = 0; i < count; i++)
            if (z[i] > values[n - 1] && !forbidden[c + i]) insert(values, columns, n, z[i], c + i);
}

typedef struct {
    Product product;
    const float *bias;
    const uint8_t *forbidden;
    int64_t mask_step;
    float *values;
    int64_t *columns;
    float *greatest, *total;
    int64_t rows, width, n, parts;
} TopK;

/* Compute and search one part's chunks of columns for all rows. */
static void top_k_part(const void *arguments, int64_t part) {
    const TopK a = *(const TopK *)arguments;
    const int64_t chunks = (a.width + CHUNK - 1) / CHUNK;
    float *values = a.values + part * a.rows * a.n;
    int64_t *columns = a.columns + part * a.rows * a.n;
    for (int64_t i = 0; i < a.rows * a.n; i++) values[i] = -INFINITY, columns[i] = 0;
    for (int64_t chunk = chunks * part / a.parts; chunk < chunks * (part + 1) / a.parts; chunk++) {
        const int64_t c = chunk * CHUNK, count = c + CHUNK < a.width ? CHUNK : a.width - c;
        for (int64_t row = 0; row < a.rows;) {
            float z[MOST_ROWS_OF_TILE][CHUNK];
            int done = 0;
            for (int64_t i = 0; i < count; i += COLUMNS)
                done = multiply_tile(a.product, row, a.rows, c + i, z[0] + i, CHUNK);
            for (int r = 0; r < done; r++, row++) {
                add_bias_of(z[r], a.bias, c, count);
                take_logits(z[r], c, count, a.forbidden + row * a.mask_step, a.greatest + chunk * a.rows + row,
                            a.total + chunk * a.rows + row, values + row * a.n, columns + row * a.n, a.n);
            }
        }
    }
}

/* Combine the results of all parts for one row. */
static void combine_parts(const TopK *a, int64_t row, double *restrict log_p, int64_t *restrict columns) {
    float *values = a->values + row * a->n, shift = -INFINITY;
    for (int64_t part = 1; part < a->parts; part++)
        for (int64_t i = (part * a->rows + row) * a->n, end = i + a->n; i < end; i++)
            insert(values, a->columns + row * a->n, a->n, a->values[i], a->columns[i]);
    const int64_t end = (a->width + CHUNK - 1) / CHUNK * a->rows;
    for (int64_t i = row; i < end; i += a->rows) shift = fmaxf(shift, a->greatest[i]);
    double sum = 0.0;
    for (int64_t i = row; i < end; i += a->rows) sum += a->total[i] * exp((double)a->greatest[i] - shift);
    for (int64_t i = 0; i < a->n; i++) {
        log_p[row * a->n + i] = (double)values[i] - shift - log(sum);
        columns[row * a->n + i] = a->columns[row * a->n + i];
    }
}

/* Write log_p (rows, n), the n greatest log-probabilities of the columns that are not forbidden, and their columns.

   Equal values are in order of their columns.  Row r's mask begins at forbidden + r · mask_step.  The columns are
   divided into parts, whose results are in values and part_columns (parts, rows, n) and combined at the end; greatest
   and total (chunks, rows) hold each chunk's maximum and Σ exp(z − maximum).  So results do not depend on the number of
   parts. */
void linear_top_k(const float *restrict x, int32_t *restrict rounded, const float *restrict panels,
                  const int32_t *restrict words, const float *restrict scales, const float *restrict bias,
                  const uint8_t *restrict forbidden, int64_t mask_step, float *restrict values,
                  int64_t *restrict part_columns, float *restrict greatest, float *restrict total,
                  double *restrict log_p, int64_t *restrict columns, int64_t rows, int64_t terms, int64_t width,
                  int64_t n, int64_t parts, int64_t threads) {
    if (words) round_rows(x, rounded, rows, terms, scales != 0, threads);
    const Product product = {x, panels, rounded, words, scales, terms};
    const TopK arguments = {product,  bias,  forbidden, mask_step, values, part_columns,
                            greatest, total, rows,      width,     n,      parts};
    run_parts(top_k_part, &arguments, parts, threads);
    for (int64_t row = 0; row < rows; row++) combine_parts(&arguments, row, log_p, columns);
}
