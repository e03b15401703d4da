/* Products of few rows with a packed weight W (I, O): panels of WIDTH columns each, zeros after the last column.

   A panel holds its rows one after the other: WIDTH numbers of float, or WIDTH words.  Byte j of a word is the int8
   weight of row 4 k + j.  A tile of a product, up to ROWS rows by COLUMNS columns, is summed in registers, so weights
   are read once for ROWS rows.  GCC does not keep an array of floats in registers, only one of vectors: their size is
   the only property of the processor that is written here.  Each sum has its terms in order, whatever the tile. */

#ifndef PACKED_H
#define PACKED_H

#include "common.h"

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
#define WIDTH 16
#define PADDED 32 /* the number of columns, zeros included, is a multiple of this on every processor */
#define VECTORS (COLUMNS / VECTOR)
#define TERMS 256 /* of a partial sum: rounding errors grow with the number of terms */
#define AHEAD 64 /* rows or words, 4 KiB, that are asked for in advance: processors foresee too little */

typedef int32_t ints __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

/* A packed weight of TERMS rows: panels of floats, or of words and the scale of each column. */
typedef struct {
    const float *panels;
    const int32_t *words;
    const float *scales;
    int64_t terms;
} Packed;

/* The index of row k's numbers that vector v of a tile needs, in panels of n rows; the tile begins at column c. */
static inline int64_t index_of(int64_t c, int v, int64_t k, int64_t n) {
    return ((c + v * VECTOR) / WIDTH * n + k) * WIDTH + v * VECTOR % WIDTH;
}

/* sum[r] += x[r][k] · weight for each row. */
ALWAYS_INLINE void add_products(floats sum[ROWS][VECTORS], int rows, const float *restrict x, int64_t stride,
                                const floats weight[VECTORS]) {
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) sum[r][v] += x[r * stride] * weight[v];
}

ALWAYS_INLINE void add_terms(floats sum[ROWS][VECTORS], int rows, const float *restrict x, Packed w, int64_t c,
                             int64_t start, int64_t end) {
    for (int64_t k = start; k < end; k++) {
        floats weight[VECTORS];
        UNROLLED(int i = 0; i < COLUMNS; i += WIDTH)
            __builtin_prefetch(w.panels + index_of(c + i, 0, k + AHEAD, w.terms));
        UNROLLED(int v = 0; v < VECTORS; v++) weight[v] = *(const floats *)(w.panels + index_of(c, v, k, w.terms));
        add_products(sum, rows, x + k, w.terms, weight);
    }
}

/* Add the products with the first `count` rows of the word of row k. */
ALWAYS_INLINE void add_word(floats sum[ROWS][VECTORS], int rows, const float *restrict x, Packed w, int64_t c,
                            int64_t k, int count) {
    ints word[VECTORS];
    UNROLLED(int v = 0; v < VECTORS; v++)
        word[v] = *(const ints *)(w.words + index_of(c, v, k / 4, (w.terms + 3) / 4));
    UNROLLED(int i = 0; i < COLUMNS; i += WIDTH)
        __builtin_prefetch(w.words + index_of(c + i, 0, k / 4 + AHEAD, (w.terms + 3) / 4));
    UNROLLED(int j = 0; j < count; j++) {
        floats weight[VECTORS];
        UNROLLED(int v = 0; v < VECTORS; v++)
            weight[v] = __builtin_convertvector((word[v] << (24 - 8 * j)) >> 24, floats);
        add_products(sum, rows, x + k + j, w.terms, weight);
    }
}

/* Like add_terms, of words; start is a multiple of 4. */
ALWAYS_INLINE void add_terms_of_words(floats sum[ROWS][VECTORS], int rows, const float *restrict x, Packed w,
                                      int64_t c, int64_t start, int64_t end) {
    int64_t k = start;
    for (; k + 4 <= end; k += 4) add_word(sum, rows, x, w, c, k, 4);
    if (end - k == 1) add_word(sum, rows, x, w, c, k, 1);
    if (end - k == 2) add_word(sum, rows, x, w, c, k, 2);
    if (end - k == 3) add_word(sum, rows, x, w, c, k, 3);
}

ALWAYS_INLINE void multiply_rows(int rows, const float *restrict x, Packed w, int64_t c, float *restrict out,
                                 int64_t stride) {
    floats total[ROWS][VECTORS];
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) total[r][v] = (floats){0};
    for (int64_t start = 0; start < w.terms; start += TERMS) {
        const int64_t end = start + TERMS < w.terms ? start + TERMS : w.terms;
        floats sum[ROWS][VECTORS];
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < VECTORS; v++) sum[r][v] = (floats){0};
        if (w.words)
            add_terms_of_words(sum, rows, x, w, c, start, end);
        else
            add_terms(sum, rows, x, w, c, start, end);
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < VECTORS; v++) total[r][v] += sum[r][v];
    }
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) *(floats *)(out + r * stride + v * VECTOR) = total[r][v];
}

/* Write x W, without scales, for the first of these rows and COLUMNS columns from c on; return the number of rows. */
static inline int multiply_tile(const float *restrict x, int64_t rows, Packed w, int64_t c, float *restrict out,
                                int64_t stride) {
    if (rows >= ROWS) return multiply_rows(ROWS, x, w, c, out, stride), ROWS;
    if (rows >= 4) return multiply_rows(4, x, w, c, out, stride), 4;
    return multiply_rows(1, x, w, c, out, stride), 1;
}

/* z = z · scale + bias for the columns c, c + 1, …, of a row; without scales or bias, that part is left out. */
static inline void finish_row(float *restrict z, const float *restrict scales, const float *restrict bias, int64_t c,
                              int64_t count) {
    if (scales)
        for (int64_t i = 0; i < count; i++) z[i] *= scales[c + i];
    if (bias)
        for (int64_t i = 0; i < count; i++) z[i] += bias[c + i];
}

#endif
