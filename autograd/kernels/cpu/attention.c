/* Scaled dot-product attention over key ranges, forward and backward, and over key indices, forward.

   q (T, heads, width), k (S, heads, width), v (S, heads, v_width), y (T, heads, v_width).  Segments of queries and keys
   are given by starts and lengths.  The attention weights of each segment and head follow one another: a matrix with a
   row of padded(number of keys) elements for each query. */

#include "common.h"

#define ROWS (VECTOR == 16 ? 8 : 6) /* ROWS × FEW_LANES sums fit in the vector registers and keep the adders busy */
#define VECTORS (FEW_LANES / VECTOR)
#define FEW_QUERIES 4 /* for which a transposed copy of the keys takes longer than it saves */
#define BLOCK 48 /* queries whose score gradients are in the scratch of the backward pass; the same in attention.py */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Return n rounded up to a multiple of FEW_LANES. */
static inline int64_t padded(int64_t n) { return (n + FEW_LANES - 1) / FEW_LANES * FEW_LANES; }

/* C = A B, or C += A B if adds, for a tile of C (at most ROWS × FEW_LANES); A is rows × n, B is n × FEW_LANES. */
ALWAYS_INLINE void multiply_tile(const float *const a_rows[ROWS], int64_t a_column, const float *restrict b,
                                 int64_t b_row, float *restrict c, int64_t c_row, int64_t rows, int64_t n, int adds) {
    floats sum[ROWS][VECTORS];
    UNROLLED(int r = 0; r < ROWS; r++)
    UNROLLED(int v = 0; v < VECTORS; v++) sum[r][v] = (floats){0};
    for (int64_t i = 0; i < n; i++, b += b_row)
        UNROLLED(int r = 0; r < ROWS; r++)
        UNROLLED(int v = 0; v < VECTORS; v++)
            sum[r][v] += a_rows[r][i * a_column] * *(const floats *)(b + v * VECTOR);
    UNROLLED(int r = 0; r < ROWS; r++)
    if (r < rows)
        UNROLLED(int v = 0; v < VECTORS; v++) {
            floats *out = (floats *)(c + r * c_row + v * VECTOR);
            if (adds) sum[r][v] += *out;
            *out = sum[r][v];
        }
}

/* C = A B, or C += A B if adds, for A (rows × n), B (n × columns) and C (rows × columns).  Element (i, j) of A is at
   i · a_row + j · a_column; rows of B and C are b_row and c_row apart. */
static void multiply(const float *restrict a, int64_t a_row, int64_t a_column, const float *restrict b,
                     int64_t b_row, float *restrict c, int64_t c_row, int64_t rows, int64_t n, int64_t columns,
                     int adds) {
    const int64_t whole = columns / FEW_LANES * FEW_LANES;
    for (int64_t row = 0; row < rows; row += ROWS, c += ROWS * c_row) {
        const int64_t own_rows = smaller(ROWS, rows - row);
        const float *a_rows[ROWS];
        for (int r = 0; r < ROWS; r++) a_rows[r] = a + (row + smaller(r, own_rows - 1)) * a_row;
        for (int64_t column = 0; column < whole; column += FEW_LANES)
            multiply_tile(a_rows, a_column, b + column, b_row, c + column, c_row, own_rows, n, adds);
        for (int64_t r = 0; r < own_rows && whole < columns; r++)
            for (int64_t column = whole; column < columns; column++) {
                float sum = 0.0f;
                for (int64_t i = 0; i < n; i++) sum += a_rows[r][i * a_column] * b[i * b_row + column];
                c[r * c_row + column] = adds ? c[r * c_row + column] + sum : sum;
            }
    }
}

/* Transpose x (rows × columns) to out (columns × stride), zeros after the rows; four rows at a time. */
static void transpose(const float *restrict x, int64_t x_row, int64_t rows, int64_t columns, float *restrict out,
                      int64_t stride) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * x_row)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t r = 0; r < 4; r++) out[j * stride + i + r] = x[r * x_row + j];
    for (int64_t j = 0; j < columns; j++)
        for (int64_t r = i; r < stride; r++) out[j * stride + r] = r < rows ? x[(r - i) * x_row + j] : 0.0f;
}

/* Replace the scores from first to last − 1 by softmax(scale · scores), the others by 0; n is a multiple of FEW_LANES. */
static void softmax(float *restrict scores, int64_t n, int64_t first, int64_t last, float scale) {
    float total;
    for (int64_t j = 0; j < n; j++) scores[j] = j >= first && j < last ? scores[j] : -INFINITY;
    const float greatest = maximum_in(FEW_LANES, scores, n);
    for (int64_t j = 0; j < n; j++) scores[j] = exp_of((scores[j] - greatest) * scale);
    SUM_IN(FEW_LANES, total, n, scores[i]);
    const float inverse = 1.0f / total;
    for (int64_t j = 0; j < n; j++) scores[j] *= inverse;
}

/* At most ROWS queries of one segment, and a range of keys that contains every key to which they attend.  start and end
   are multiples of FEW_LANES, counted from the first key of the segment. */
typedef struct {
    int64_t rows, start, end;
} Queries;

/* Return the queries from the i-th on; first and last are the key ranges of the segment's n queries, offset is the
   segment's first key. */
static Queries queries_at(int64_t i, int64_t n, const int64_t *first, const int64_t *last, int64_t offset) {
    const int64_t rows = smaller(ROWS, n - i);
    int64_t least = first[i], greatest = last[i];
    for (int64_t r = i + 1; r < i + rows; r++) {
        least = smaller(least, first[r]);
        greatest = greatest < last[r] ? last[r] : greatest;
    }
    return (Queries){rows, (least - offset) / FEW_LANES * FEW_LANES, padded(greatest - offset)};
}

/* Set a row to 0 outside of the range of keys. */
static inline void clear_others(float *row, Queries queries, int64_t stride) {
    memset(row, 0, sizeof(float) * (size_t)queries.start);
    memset(row + queries.end, 0, sizeof(float) * (size_t)(stride - queries.end));
}

typedef float eight __attribute__((vector_size(32)));
typedef float four __attribute__((vector_size(16)));

/* Return ⟨a, b⟩, with FEW_LANES partial sums. */
ALWAYS_INLINE float dot(const float *restrict a, const float *restrict b, int64_t n) {
    floats sum[VECTORS];
    UNROLLED(int v = 0; v < VECTORS; v++) sum[v] = (floats){0};
    int64_t i = 0;
    for (; i + FEW_LANES <= n; i += FEW_LANES)
        UNROLLED(int v = 0; v < VECTORS; v++)
            sum[v] += *(const floats *)(a + i + v * VECTOR) * *(const floats *)(b + i + v * VECTOR);
    eight halves[2];
    memcpy(halves, sum, sizeof halves);
    const eight half = halves[0] + halves[1];
    four quarters[2];
    memcpy(quarters, &half, sizeof quarters);
    const four last = quarters[0] + quarters[1];
    float total = (last[0] + last[2]) + (last[1] + last[3]);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

/* Prefetch the numbers of a key's head: a search's key/value cache is too large for the processor's caches. */
ALWAYS_INLINE void prefetch(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += FEW_LANES) __builtin_prefetch(x + i);
}

/* Few queries of one segment, with pointers to its first query, key and value; index, if not null, selects the keys. */
typedef struct {
    const float *q, *k, *v;
    const int64_t *index, *first, *last;
    float *weights, *y;
    int64_t n_keys, heads, width, v_width, stride;
    float scale;
} Few;

/* Compute attention_forward for few queries, key after key, without a transposed copy of the keys. */
ALWAYS_INLINE void attend_few(Few a, Queries these, int64_t offset) {
    const int64_t end = smaller(these.end, a.n_keys);
    for (int64_t j = these.start; j < end; j++)
        for (int64_t h = 0; h < a.heads; h++) {
            const int64_t key = a.index ? a.index[j] : j, next = a.index && j + 2 < end ? a.index[j + 2] : key;
            prefetch(a.k + (next * a.heads + h) * a.width, a.width);
            prefetch(a.v + (key * a.heads + h) * a.v_width, a.v_width);
            for (int64_t r = 0; r < these.rows; r++)
                a.weights[(h * these.rows + r) * a.stride + j] =
                    dot(a.q + (r * a.heads + h) * a.width, a.k + (key * a.heads + h) * a.width, a.width);
        }
    for (int64_t h = 0; h < a.heads; h++)
        for (int64_t r = 0; r < these.rows; r++) {
            float *row = a.weights + (h * these.rows + r) * a.stride;
            const int64_t skipped = offset + these.start;
            softmax(row + these.start, these.end - these.start, a.first[r] - skipped, a.last[r] - skipped, a.scale);
            clear_others(row, these, a.stride);
        }
    memset(a.y, 0, sizeof(float) * (size_t)(these.rows * a.heads * a.v_width));
    for (int64_t j = these.start; j < end; j++)
        for (int64_t h = 0; h < a.heads; h++)
            for (int64_t r = 0; r < these.rows; r++) {
                const float weight = a.weights[(h * these.rows + r) * a.stride + j];
                const float *v_here = a.v + ((a.index ? a.index[j] : j) * a.heads + h) * a.v_width;
                float *restrict y_here = a.y + (r * a.heads + h) * a.v_width;
                for (int64_t i = 0; i < a.v_width; i++) y_here[i] += weight * v_here[i];
            }
}

/* y_i = Σ_j p_ij v_j with p_i = softmax_j(scale · ⟨q_i, k_j⟩) over the keys first_i ≤ j < last_i; set the weights p.
   scratch has width · padded(longest segment of keys) elements. */
void attention_forward(const float *q, const float *k, const float *v, const int64_t *first, const int64_t *last,
                       const int64_t *query_starts, const int64_t *query_lengths, const int64_t *key_starts,
                       const int64_t *key_lengths, float *scratch, float *weights, float *y, int64_t segments,
                       int64_t heads, int64_t width, int64_t v_width, float scale) {
    const int64_t q_row = heads * width, v_row = heads * v_width;
    for (int64_t b = 0; b < segments; first += query_lengths[b], last += query_lengths[b], b++) {
        const int64_t n_queries = query_lengths[b], n_keys = key_lengths[b], offset = key_starts[b];
        const int64_t stride = padded(n_keys);
        if (n_queries && n_queries <= FEW_QUERIES) {
            const Few few = {q + query_starts[b] * q_row, k + offset * q_row, v + offset * v_row,
                             0,                           first,              last,
                             weights,                     y + query_starts[b] * v_row,
                             n_keys,                      heads,              width,
                             v_width,                     stride,             scale};
            attend_few(few, queries_at(0, n_queries, first, last, offset), offset);
            weights += heads * n_queries * stride;
            continue;
        }
        for (int64_t h = 0; h < heads && n_queries; h++, weights += n_queries * stride) {
            const float *q_head = q + query_starts[b] * q_row + h * width, *v_head = v + offset * v_row + h * v_width;
            float *y_head = y + query_starts[b] * v_row + h * v_width;
            transpose(k + offset * q_row + h * width, q_row, n_keys, width, scratch, stride);
            for (int64_t i = 0; i < n_queries; i += ROWS) {
                const Queries these = queries_at(i, n_queries, first, last, offset);
                const int64_t n = these.end - these.start;
                float *p = weights + i * stride + these.start;
                multiply(q_head + i * q_row, q_row, 1, scratch + these.start, stride, p, stride, these.rows, width, n,
                         0);
                for (int64_t r = 0; r < these.rows; r++) {
                    const int64_t skipped = offset + these.start;
                    softmax(p + r * stride, n, first[i + r] - skipped, last[i + r] - skipped, scale);
                    clear_others(weights + (i + r) * stride, these, stride);
                }
                multiply(p, stride, 1, v_head + these.start * v_row, v_row, y_head + i * v_row, v_row, these.rows,
                         smaller(these.end, n_keys) - these.start, v_width, 0);
            }
        }
    }
}

/* The arrays of one segment and head in the backward pass. */
typedef struct {
    const float *q, *k, *dy, *weights, *transposed_values;
    float *dq, *gradients;
    int64_t n_keys, q_row, v_row, stride, width, v_width;
    float scale;
} Head;

/* Set dq and the gradients of the scores of queries i, i + 1, …: scale · p ⊙ (dp − Σ p dp) with dp = dy vᵀ.  The
   gradients of a query are exactly 0 if one weight is 1 and the others are 0. */
static void score_gradients(const Head *head, Queries queries, int64_t i) {
    const int64_t stride = head->stride, start = queries.start, n = queries.end - start;
    float *gradients = head->gradients + i % BLOCK * stride;
    multiply(head->dy + i * head->v_row, head->v_row, 1, head->transposed_values + start, stride, gradients + start,
             stride, queries.rows, head->v_width, n, 0);
    for (int64_t r = 0; r < queries.rows; r++) {
        const float *restrict p = head->weights + (i + r) * stride + start;
        float *restrict dp = gradients + r * stride + start, along;
        SUM_IN(FEW_LANES, along, n, p[i] * dp[i]);
        for (int64_t j = 0; j < n; j++) dp[j] = p[j] * (dp[j] - along) * head->scale;
        clear_others(gradients + r * stride, queries, stride);
    }
    multiply(gradients + start, stride, 1, head->k + start * head->q_row, head->q_row, head->dq + i * head->q_row,
             head->q_row, queries.rows, smaller(queries.end, head->n_keys) - start, head->width, 0);
}

/* Write the gradients of attention_forward: dv = pᵀ dy, dq = ds k, dk = dsᵀ q, with ds the gradients of the scores.
   Keys that are in no segment are not written.  scratch has (v_width + BLOCK) · padded(longest segment of keys)
   elements. */
void attention_backward(const float *q, const float *k, const float *v, const float *dy, const float *weights,
                        const int64_t *first, const int64_t *last, const int64_t *query_starts,
                        const int64_t *query_lengths, const int64_t *key_starts, const int64_t *key_lengths,
                        float *scratch, float *dq, float *dk, float *dv, int64_t segments, int64_t heads, int64_t width,
                        int64_t v_width, float scale) {
    const int64_t q_row = heads * width, v_row = heads * v_width;
    for (int64_t b = 0; b < segments; first += query_lengths[b], last += query_lengths[b], b++) {
        const int64_t n_queries = query_lengths[b], n_keys = key_lengths[b], stride = padded(n_keys);
        for (int64_t h = 0; h < heads; h++, weights += n_queries * stride) {
            const int64_t in_q = query_starts[b] * q_row + h * width, in_k = key_starts[b] * q_row + h * width;
            const int64_t in_y = query_starts[b] * v_row + h * v_width, in_v = key_starts[b] * v_row + h * v_width;
            float *gradients = scratch + v_width * stride;
            const Head head = {q + in_q, k + in_k,  dy + in_y, weights, scratch, dq + in_q, gradients,
                               n_keys,   q_row,     v_row,     stride,  width,   v_width,   scale};
            transpose(v + in_v, v_row, n_keys, v_width, scratch, stride);
            multiply(weights, 1, stride, head.dy, v_row, dv + in_v, v_row, n_keys, n_queries, v_width, 0);
            for (int64_t i = 0; i == 0 || i < n_queries; i += BLOCK) {
                const int64_t n = smaller(BLOCK, n_queries - i);
                for (int64_t r = i; r < i + n; r += ROWS)
                    score_gradients(&head, queries_at(r, i + n, first, last, key_starts[b]), r);
                multiply(gradients, 1, stride, head.q + i * q_row, q_row, dk + in_k, q_row, n_keys, n, width, i > 0);
            }
        }
    }
}

/* Write y_i as attention_forward does, for queries that attend to n keys each: query i to the keys index[i · n], …,
   index[i · n + n − 1].  scratch has heads · padded(n) elements. */
void attention_of_indices(const float *q, const float *k, const float *v, const int64_t *index, float *scratch,
                          float *y, int64_t queries, int64_t n, int64_t heads, int64_t width, int64_t v_width,
                          float scale) {
    const int64_t stride = padded(n), first = 0;
    for (int64_t row = 0; row < queries; row++, q += heads * width, y += heads * v_width, index += n) {
        const Few few = {q, k, v, index, &first, &n, scratch, y, n, heads, width, v_width, stride, scale};
        attend_few(few, (Queries){1, 0, stride}, 0);
    }
}
