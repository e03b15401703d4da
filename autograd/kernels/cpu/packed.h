/* Products with a packed weight W (I, O): panels of WIDTH columns each, zeros after the last column.

   A panel holds its rows one after the other: WIDTH numbers of float, or WIDTH words, each the weights of four rows as
   bytes (int8.h).  Weights in bfloat16 have the panels of bfloat16.h.  A tile of a product, up to ROWS rows by COLUMNS
   columns, is summed in registers, so weights are read once for ROWS rows.  GCC keeps arrays of vectors in
   registers, but not arrays of floats.  Each sum adds its terms in order, whatever the tile. */

#ifndef PACKED_H
#define PACKED_H

#include "bfloat16.h"
#include "int8.h"
#include "parallel.h"

#if defined(__AVX512F__)
#define ROWS 12
#define COLUMNS 32
#elif defined(__AVX__)
#define ROWS 6
#define COLUMNS 16
#else
#define ROWS 4
#define COLUMNS 16
#endif
#define MOST_ROWS_OF_TILE 32 /* with AMX */
#define WIDTH 16
#define PADDED 32 /* the number of columns, zeros included, is a multiple of this on every processor */
#define VECTORS (COLUMNS / VECTOR)
#define TERMS 256 /* of a partial sum: rounding errors grow with the number of terms */
#define AHEAD 64 /* rows or words to prefetch, 4 KiB: processors by themselves prefetch too little */
#define FEW_NUMBERS 16384 /* of x, which one thread rounds before another one could begin */

/* The factors of a product x W of `terms` terms: x and panels of floats; x and W in bfloat16; or levels, words and the
   columns' scales. */
typedef struct {
    const float *x, *panels;
    const int32_t *rounded, *words;
    const float *scales;
    int64_t terms;
} Product;

/* Return the number of words of a rounded row of x. */
static inline int64_t rounded_words(int64_t terms, int is_int8) {
    return is_int8 ? row_words(terms) : words_of_row(terms);
}

/* Return the index of row k's numbers for vector v of a tile that begins at column c, in panels of n rows. */
static inline int64_t index_of(int64_t c, int v, int64_t k, int64_t n) {
    return ((c + v * VECTOR) / WIDTH * n + k) * WIDTH + v * VECTOR % WIDTH;
}

/* sum[r] += x[r][k] · weight for each row and the terms from start on. */
ALWAYS_INLINE void add_terms(floats sum[ROWS][VECTORS], int rows, const float *restrict x, Product p, int64_t c,
                             int64_t start, int64_t end) {
    for (int64_t k = start; k < end; k++) {
        floats weight[VECTORS];
        UNROLLED(int i = 0; i < COLUMNS; i += WIDTH)
            __builtin_prefetch(p.panels + index_of(c + i, 0, k + AHEAD, p.terms));
        UNROLLED(int v = 0; v < VECTORS; v++) weight[v] = *(const floats *)(p.panels + index_of(c, v, k, p.terms));
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < VECTORS; v++) sum[r][v] += x[r * p.terms + k] * weight[v];
    }
}

ALWAYS_INLINE void multiply_floats(int rows, const float *restrict x, Product p, int64_t c, float *restrict out,
                                   int64_t stride) {
    floats total[ROWS][VECTORS];
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) total[r][v] = (floats){0};
    for (int64_t start = 0; start < p.terms; start += TERMS) {
        const int64_t end = start + TERMS < p.terms ? start + TERMS : p.terms;
        floats sum[ROWS][VECTORS];
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < VECTORS; v++) sum[r][v] = (floats){0};
        add_terms(sum, rows, x, p, c, start, end);
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < VECTORS; v++) total[r][v] += sum[r][v];
    }
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) *(floats *)(out + r * stride + v * VECTOR) = total[r][v];
}

ALWAYS_INLINE void multiply_levels(int rows, const int32_t *restrict row, Product p, int64_t c, float *restrict out,
                                   int64_t stride) {
    const int64_t n_words = (p.terms + 3) / 4, n = row_words(p.terms);
    words sum[ROWS][VECTORS];
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) sum[r][v] = (words){0} + (uint32_t)row[r * n + 1];
    for (int64_t k = 0; k < n_words; k++) {
        words weight[VECTORS];
        UNROLLED(int i = 0; i < COLUMNS; i += WIDTH)
            __builtin_prefetch(p.words + index_of(c + i, 0, k + AHEAD, n_words));
        UNROLLED(int v = 0; v < VECTORS; v++) weight[v] = *(const words *)(p.words + index_of(c, v, k, n_words));
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < VECTORS; v++)
            sum[r][v] = add_bytes(sum[r][v], weight[v], row + r * n + HEAD + k * QUAD);
    }
    UNROLLED(int r = 0; r < rows; r++) {
        float scale;
        memcpy(&scale, row + r * n, sizeof scale);
        UNROLLED(int v = 0; v < VECTORS; v++)
            *(floats *)(out + r * stride + v * VECTOR) = __builtin_convertvector((ints)sum[r][v], floats) *
                                                         *(const floats *)(p.scales + c + v * VECTOR) * scale;
    }
}

/* The panels of bfloat16.h have as many columns as a tile, or twice as many. */
ALWAYS_INLINE void multiply_bfloat16(int rows, Product p, int64_t row, int64_t c, float *restrict out, int64_t stride) {
    const int64_t n_words = words_of_row(p.terms);
    const Left left = {(const uint32_t *)p.rounded + row * n_words, n_words, 1};
    const uint32_t *panel = (const uint32_t *)p.words + c / PANEL * pairs_of_panel(p.terms) * PANEL;
    multiply_pairs(rows, left, panel + c % PANEL, (p.terms + 1) / 2, out, stride, 0, 0);
}

ALWAYS_INLINE void multiply_rows(int rows, Product p, int64_t row, int64_t c, float *restrict out, int64_t stride) {
    if (p.panels)
        multiply_floats(rows, p.x + row * p.terms, p, c, out, stride);
    else if (p.scales)
        multiply_levels(rows, p.rounded + row * row_words(p.terms), p, c, out, stride);
    else
        multiply_bfloat16(rows, p, row, c, out, stride);
}

#if HAS_AMX
/* As multiply_tile, with AMX: also for few rows, because its sums differ from those of vectors in the last bits. */
static inline int multiply_bfloat16_in_tiles(Product p, int64_t row, int64_t end, int64_t c, float *restrict out,
                                             int64_t stride) {
    const int64_t rows = end - row < MOST_ROWS_OF_TILE ? end - row : MOST_ROWS_OF_TILE;
    const int64_t n_words = words_of_row(p.terms), n_pairs = pairs_of_panel(p.terms);
    const uint32_t *x = (const uint32_t *)p.rounded + row * n_words, *panel = (const uint32_t *)p.words + c * n_pairs;
    shape_tiles(rows);
    multiply_tiles(rows, 0, (TileProduct){x, panel, n_words, STEP_PAIRS, PANEL, n_pairs / STEP_PAIRS, out, stride});
    TILE_RELEASE();
    return (int)rows;
}
#endif

/* Write x W for the first of the rows row, …, end − 1 and COLUMNS columns from c on; return how many rows. */
static inline int multiply_tile(Product p, int64_t row, int64_t end, int64_t c, float *restrict out, int64_t stride) {
#if HAS_AMX
    if (!p.panels && !p.scales && has_tiles()) return multiply_bfloat16_in_tiles(p, row, end, c, out, stride);
#endif
    if (end - row >= ROWS) return multiply_rows(ROWS, p, row, c, out, stride), ROWS;
    if (end - row >= 4) return multiply_rows(4, p, row, c, out, stride), 4;
    return multiply_rows(1, p, row, c, out, stride), 1;
}

/* A product's left factor, which is to be rounded to levels, or to bfloat16. */
typedef struct {
    const float *x;
    int32_t *rounded;
    int64_t rows, terms, parts;
    int is_int8;
} Rounding;

static void round_part(const void *arguments, int64_t part) {
    const Rounding a = *(const Rounding *)arguments;
    for (int64_t row = a.rows * part / a.parts; row < a.rows * (part + 1) / a.parts; row++) {
        int32_t *rounded = a.rounded + row * rounded_words(a.terms, a.is_int8);
        if (a.is_int8)
            quantise_row(a.x + row * a.terms, a.terms, rounded);
        else
            round_numbers(a.x + row * a.terms, (half *)rounded, a.terms);
    }
}

/* Round all rows, on several threads if that is worth their start. */
static inline void round_rows(const float *restrict x, int32_t *restrict rounded, int64_t rows, int64_t terms,
                              int is_int8, int64_t threads) {
    const int64_t parts = rows * terms < FEW_NUMBERS ? 1 : threads;
    const Rounding arguments = {x, rounded, rows, terms, parts, is_int8};
    run_parts(round_part, &arguments, parts, threads);
}

/* z = z + bias for the columns c, c + 1, …, of a row; bias may be null. */
ALWAYS_INLINE void add_bias_of(float *restrict z, const float *restrict bias, int64_t c, int64_t count) {
    if (bias)
        for (int64_t i = 0; i < count; i++) z[i] += bias[c + i];
}

#endif
