/* Matrix products in bfloat16 for training: packing of operands, and products fused with the steps that follow.

   Rows of a matrix (R, C) are R rows of words_of_row(C) words; a word holds two neighbours of a row.  Panels of a matrix
   B (K, C) are ⌈C/PANEL⌉ panels of pairs_of_panel(K) rows of PANEL words; a word holds two neighbours of a column.

   A weight's gradient Xᵀ Y needs panels of both.  With AMX, those of X are transposed in steps of STEP_PAIRS rows: PANEL
   rows of STEP_PAIRS words. */

#include "bfloat16.h"
#include "parallel.h"

#define MOST_ROWS 224 /* of a block of the left matrix, which stays in the second-level cache */
#define BLOCK (1 << 16) /* words of such a block */
#define STEP (2 * STEP_PAIRS) /* pairs whose rows stay in the first-level cache while all panels are packed */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Write the rows of x (rows × columns). */
void bfloat16_rows(const float *restrict x, int32_t *restrict out, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; row++)
        round_numbers(x + row * columns, (half *)(out + row * words_of_row(columns)), columns);
}

/* Write PANEL words of a panel: pairs of the numbers of two rows. */
ALWAYS_INLINE void write_pairs(const half *restrict first, const half *restrict second, half *restrict out) {
    for (int i = 0; i < PANEL; i++) out[2 * i] = first[i], out[2 * i + 1] = second[i];
}

/* Transpose steps of a panel, for AMX. */
static void transpose_steps(uint32_t *restrict panel, int64_t steps) {
#if HAS_AMX
    for (uint32_t step[STEP_PAIRS * PANEL]; steps > 0; steps--, panel += STEP_PAIRS * PANEL) {
        memcpy(step, panel, sizeof step);
        for (int half_panel = 0; half_panel < PANEL; half_panel += 16)
            transpose_words(step + half_panel, PANEL, panel + half_panel * STEP_PAIRS);
    }
#else
    (void)panel, (void)steps;
#endif
}

/* Write the panels of B (terms, columns), given by its rows, which end with zeros; is_left: for the left factor of a
   weight's gradient. */
static void write_panels(const int32_t *restrict rows, int32_t *restrict out, int64_t terms, int64_t columns,
                         int is_left) {
    const int64_t stride = 2 * words_of_row(columns), pairs = pairs_of_panel(terms);
    const half zeros[PANEL] = {0};
    for (int64_t start = 0; start < pairs; start += STEP)
        for (int64_t c = 0; c < columns; c += PANEL) {
            uint32_t *panel = (uint32_t *)out + c * pairs + start * PANEL;
            const int64_t n = smaller(STEP, pairs - start);
            for (int64_t p = 0, k = 2 * start; p < n; p++, k += 2) {
                const half *first = (const half *)rows + k * stride + c;
                write_pairs(k < terms ? first : zeros, k + 1 < terms ? first + stride : zeros, (half *)(panel + p * PANEL));
            }
            if (is_left && has_tiles()) transpose_steps(panel, n / STEP_PAIRS);
        }
}

typedef struct {
    const float *w;
    uint32_t *panels;
    int64_t terms, columns, transposed;
} Packing;

/* Pack one panel of W (terms, columns), but not the zeros at its end. */
static void pack_columns(const Packing *a, int64_t c, uint32_t *restrict out) {
    const int64_t count = smaller(PANEL, a->columns - c);
    for (int64_t k = 0; k < a->terms; k += 2, out += PANEL) {
        half two[2][PANEL] = {{0}};
        for (int64_t i = k; i < smaller(k + 2, a->terms); i++)
            round_numbers(a->w + i * a->columns + c, two[i - k], count);
        write_pairs(two[0], two[1], (half *)out);
    }
}

/* The same for Wᵀ, where W is (columns, terms). */
static void pack_rows(const Packing *a, int64_t c, uint32_t *restrict out) {
    const int64_t count = smaller(PANEL, a->columns - c);
    for (int64_t k = 0; k < a->terms; k += 2 * STEP) {
        uint32_t rows[PANEL][STEP] = {{0}};
        const int64_t n = smaller(2 * STEP, a->terms - k), pairs = (n + 1) / 2;
        for (int64_t i = 0; i < count; i++) round_numbers(a->w + (c + i) * a->terms + k, (half *)rows[i], n);
        for (int64_t p = 0; p < pairs; p++, out += PANEL)
            for (int64_t i = 0; i < PANEL; i++) out[i] = rows[i][p];
    }
}

static void pack_part(const void *arguments, int64_t part) {
    const Packing *a = arguments;
    const int64_t pairs = (a->terms + 1) / 2, stride = pairs_of_panel(a->terms);
    uint32_t *out = a->panels + part * stride * PANEL;
    (a->transposed ? pack_rows : pack_columns)(a, part * PANEL, out);
    memset(out + pairs * PANEL, 0, sizeof(uint32_t) * (size_t)((stride - pairs) * PANEL));
}

/* Write the panels of a weight W (terms, columns), or of its transpose, where W is (columns, terms). */
void bfloat16_pack(const float *restrict w, int32_t *restrict panels, int64_t terms, int64_t columns,
                   int64_t transposed, int64_t threads) {
    const Packing arguments = {w, (uint32_t *)panels, terms, columns, transposed};
    run_parts(pack_part, &arguments, (columns + PANEL - 1) / PANEL, threads);
}

#if HAS_AMX
/* Set a panel of C (rows × PANEL) as multiply_pairs does, with AMX. */
static void multiply_panel_in_tiles(Left a, int64_t rows, const uint32_t *restrict panel, int64_t pairs,
                                    float *restrict c, int64_t c_row, int adds, const float *restrict bias) {
    const int64_t steps = (pairs + STEP_PAIRS - 1) / STEP_PAIRS, step = STEP_PAIRS * a.pair;
    if (bias)
        for (int64_t row = 0; row < rows; row++) memcpy(c + row * c_row, bias, sizeof(float) * PANEL);
    for (int64_t row = 0; row < rows; row += 32) {
        const int64_t n = smaller(32, rows - row);
        if (row == 0 || n < 32) shape_tiles(n);
        const TileProduct product = {a.words + row * a.row, panel, a.row, step, PANEL, steps, c + row * c_row, c_row};
        multiply_tiles(n, adds || bias, product);
    }
    TILE_RELEASE();
}
#endif

/* Set a panel of C (rows × PANEL) as multiply_pairs does; the rows are divided evenly into tiles. */
static void multiply_panel(Left a, int64_t rows, const uint32_t *restrict panel, int64_t pairs, float *restrict c,
                           int64_t c_row, int adds, const float *restrict bias) {
#if HAS_AMX
    if (has_tiles()) {
        multiply_panel_in_tiles(a, rows, panel, pairs, c, c_row, adds, bias);
        return;
    }
#endif
    const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t start = 0; start == 0 || start < pairs; start += PAIRS, adds = 1, bias = 0) {
        const int64_t n = smaller(PAIRS, pairs - start);
        for (int64_t column = 0; column < PANEL; column += TILE_COLUMNS)
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t row = rows * tile / tiles;
                const Left left = {a.words + row * a.row + start * a.pair, a.row, a.pair};
                const uint32_t *right = panel + start * PANEL + column;
                float *out = c + row * c_row + column;
                const float *own_bias = bias ? bias + column : 0;
                switch (rows * (tile + 1) / tiles - row) {
#define CASE(ROWS)                                                                                         \
    case ROWS:                                                                                             \
        multiply_pairs(ROWS, left, right, n, out, c_row, adds, own_bias);                                  \
        break;
                    CASE(1) CASE(2) CASE(3) CASE(4)
#if TILE_ROWS > 4
                    CASE(5) CASE(6)
#endif
#if TILE_ROWS > 6
                    CASE(7) CASE(8) CASE(9) CASE(10)
#endif
#if TILE_ROWS > 10
                    CASE(11) CASE(12) CASE(13) CASE(14)
#endif
                }
            }
    }
}

/* A block of rows of A and a panel of B, whose product is a piece of C. */
typedef struct {
    Left a;
    const uint32_t *panel;
    int64_t pairs, row, rows, column, columns;
} Piece;

typedef void (*Use)(const void *arguments, const Piece *piece);

typedef struct {
    const int32_t *a, *panels;
    int64_t rows, terms, columns;
} Factors;

/* Let `use` compute each piece of C = A B from the term pairs first, …, last − 1: all panels of a block of rows before
   the next block. */
static void for_each_piece(Factors f, int64_t first, int64_t last, Use use, const void *arguments) {
    const int64_t n = last - first, block = smaller(MOST_ROWS, BLOCK / (n + 1) + 1), stride = words_of_row(f.terms);
    for (int64_t row = 0; row < f.rows; row += block)
        for (int64_t column = 0; column < f.columns; column += PANEL) {
            const Left left = {(const uint32_t *)f.a + row * stride + first, stride, 1};
            const uint32_t *panel = (const uint32_t *)f.panels + column * pairs_of_panel(f.terms) + first * PANEL;
            const int64_t own_rows = smaller(block, f.rows - row), own_columns = smaller(PANEL, f.columns - column);
            const Piece piece = {left, panel, n, row, own_rows, column, own_columns};
            use(arguments, &piece);
        }
}

typedef struct {
    const float *bias;
    float *y;
    int64_t columns, adds;
} Linear;

static void use_linear(const void *arguments, const Piece *piece) {
    const Linear *a = arguments;
    const Piece p = *piece;
    float *y = a->y + p.row * a->columns + p.column, z[MOST_ROWS][PANEL], bias[PANEL] = {0};
    if (a->bias) memcpy(bias, a->bias + p.column, sizeof(float) * (size_t)p.columns);
    if (p.columns == PANEL) {
        multiply_panel(p.a, p.rows, p.panel, p.pairs, y, a->columns, (int)a->adds, a->bias ? bias : 0);
        return;
    }
    multiply_panel(p.a, p.rows, p.panel, p.pairs, z[0], PANEL, 0, bias);
    for (int64_t row = 0; row < p.rows; row++, y += a->columns)
        for (int64_t i = 0; i < p.columns; i++) y[i] = a->adds ? y[i] + z[row][i] : z[row][i];
}

/* y = A B + bias, or y += A B if adds; bias may be null.  A is given by its rows, B by its panels.  If x is not null,
   it is first rounded into the rows of A. */
void bfloat16_linear(const float *restrict x, int32_t *restrict a, const int32_t *restrict panels,
                     const float *restrict bias, float *restrict y, int64_t rows, int64_t terms, int64_t columns,
                     int64_t adds) {
    if (x) bfloat16_rows(x, a, rows, terms);
    const int64_t pairs = (terms + 1) / 2;
    for (int64_t start = 0; start == 0 || start < pairs; start += PAIRS) {
        const Linear arguments = {start ? 0 : bias, y, columns, adds || start};
        for_each_piece((Factors){a, panels, rows, terms, columns}, start, smaller(start + PAIRS, pairs), use_linear,
                       &arguments);
    }
}

typedef struct {
    const float *bias;
    uint32_t *hidden;
    int64_t stride;
} Hidden;

static void use_hidden(const void *arguments, const Piece *piece) {
    const Hidden *a = arguments;
    const Piece p = *piece;
    float z[MOST_ROWS][PANEL], bias[PANEL] = {0};
    memcpy(bias, a->bias + p.column, sizeof(float) * (size_t)p.columns);
    multiply_panel(p.a, p.rows, p.panel, p.pairs, z[0], PANEL, 0, bias);
    for (int64_t row = 0; row < p.rows; row++) {
        for (int i = 0; i < PANEL; i++) z[row][i] = z[row][i] < 0.0f ? 0.0f : z[row][i];
        round_numbers(z[row], (half *)(a->hidden + (p.row + row) * a->stride + p.column / 2), p.columns);
    }
}

/* Write the rows of h = max(0, A B + bias); NaN stays NaN.  If x is not null, it is first rounded into A. */
void bfloat16_hidden(const float *restrict x, int32_t *restrict a, const int32_t *restrict panels,
                     const float *restrict bias, int32_t *restrict hidden, int64_t rows, int64_t terms,
                     int64_t columns) {
    if (x) bfloat16_rows(x, a, rows, terms);
    const Hidden arguments = {bias, (uint32_t *)hidden, words_of_row(columns)};
    for_each_piece((Factors){a, panels, rows, terms, columns}, 0, (terms + 1) / 2, use_hidden, &arguments);
}

typedef struct {
    const uint32_t *hidden;
    uint32_t *dz;
    float *dbias;
    int64_t stride;
} ReluBackward;

static void use_relu_backward(const void *arguments, const Piece *piece) {
    const ReluBackward *a = arguments;
    const Piece p = *piece;
    float z[MOST_ROWS][PANEL], sum[PANEL] = {0};
    multiply_panel(p.a, p.rows, p.panel, p.pairs, z[0], PANEL, 0, 0);
    for (int64_t row = 0; row < p.rows; row++) {
        const int64_t index = (p.row + row) * a->stride + p.column / 2;
        uint16_t h[PANEL] = {0};
        memcpy(h, a->hidden + index, sizeof(uint16_t) * (size_t)p.columns);
        for (int i = 0; i < PANEL; i++) {
            const int is_positive = (uint16_t)(h[i] - 1) < 0x7f80; /* and no NaN */
            z[row][i] = is_positive ? z[row][i] : 0.0f;
            sum[i] += z[row][i];
        }
        round_numbers(z[row], (half *)(a->dz + index), p.columns);
    }
    for (int64_t i = 0; i < p.columns; i++) a->dbias[p.column + i] += sum[i];
}

/* Write the rows of dz = A B where h > 0, else 0, and add the sum of the rows, before they are rounded, to dbias.  If
   x is not null, it is first rounded into A. */
void bfloat16_relu_backward(const float *restrict x, int32_t *restrict a, const int32_t *restrict panels,
                            const int32_t *restrict hidden, int32_t *restrict dz, float *restrict dbias, int64_t rows,
                            int64_t terms, int64_t columns) {
    if (x) bfloat16_rows(x, a, rows, terms);
    const ReluBackward arguments = {(const uint32_t *)hidden, (uint32_t *)dz, dbias, words_of_row(columns)};
    for_each_piece((Factors){a, panels, rows, terms, columns}, 0, (terms + 1) / 2, use_relu_backward, &arguments);
}

typedef struct {
    const uint32_t *x, *y;
    float *c;
    int64_t pairs, rows, columns, first, last; /* pairs of a panel */
    int adds;
} WeightGradient;

/* Write the piece of C = Xᵀ Y for one panel of X and one of Y, or add it if adds; sum over pairs first … last − 1. */
static void multiply_panels(const WeightGradient *a, int64_t row, int64_t column) {
    const Left left = {a->x + row * a->pairs + a->first * PANEL, has_tiles() ? STEP_PAIRS : 1, PANEL};
    const uint32_t *right = a->y + column * a->pairs + a->first * PANEL;
    const int64_t rows = smaller(PANEL, a->rows - row), columns = smaller(PANEL, a->columns - column);
    float *c = a->c + row * a->columns + column, z[PANEL][PANEL];
    if (columns == PANEL) {
        multiply_panel(left, rows, right, a->last - a->first, c, a->columns, a->adds, 0);
        return;
    }
    multiply_panel(left, rows, right, a->last - a->first, z[0], PANEL, 0, 0);
    for (int64_t r = 0; r < rows; r++, c += a->columns)
        for (int64_t i = 0; i < columns; i++) c[i] = a->adds ? c[i] + z[r][i] : z[r][i];
}

/* C = Xᵀ Y, or C += Xᵀ Y if adds, for X (terms, rows) and Y (terms, columns), both given by their rows.  First the
   panels of Y are written, and unless is_packed those of X. */
void bfloat16_weight_gradient(const int32_t *restrict x, int32_t *restrict x_panels, int64_t is_packed,
                              const int32_t *restrict y, int32_t *restrict y_panels, float *restrict c, int64_t terms,
                              int64_t rows, int64_t columns, int64_t adds) {
    const int64_t pairs = (terms + 1) / 2, step = 2 * PAIRS, block = BLOCK / step / PANEL * PANEL;
    if (!is_packed) write_panels(x, x_panels, terms, rows, 1);
    write_panels(y, y_panels, terms, columns, 0);
    for (int64_t start = 0; start == 0 || start < pairs; start += step) {
        const int64_t last = smaller(start + step, pairs);
        const WeightGradient a = {(const uint32_t *)x_panels, (const uint32_t *)y_panels, c, pairs_of_panel(terms), rows,
                                  columns, start, last, adds || start};
        for (int64_t first = 0; first < rows; first += block)
            for (int64_t column = 0; column < columns; column += PANEL)
                for (int64_t row = first; row < smaller(first + block, rows); row += PANEL)
                    multiply_panels(&a, row, column);
    }
}
