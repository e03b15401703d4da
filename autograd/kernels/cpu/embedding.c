/* Rows of an embedding table, scaled, with the rows of a second table added and dropout applied. */

#include "common.h"

/* y_t = scale · table[ids_t] + encodings[positions_t], times kept_scale · kept_t.  Without kept, nothing is dropped. */
void embed(const float *restrict table, const int64_t *restrict ids, const float *restrict encodings,
           const int64_t *restrict positions, const uint8_t *restrict kept, float scale, float kept_scale,
           float *restrict y, int64_t rows, int64_t width) {
    for (int64_t t = 0; t < rows; t++, y += width) {
        const float *restrict word = table + ids[t] * width, *restrict encoding = encodings + positions[t] * width;
        for (int64_t i = 0; i < width; i++) y[i] = scale * word[i] + encoding[i];
        if (kept) {
            for (int64_t i = 0; i < width; i++) y[i] = kept[i] ? kept_scale * y[i] : 0.0f;
            kept += width;
        }
    }
}

/* table[ids_t] += scale · kept_t · dy_t for each row in turn.  Without kept, all of dy is added. */
void add_rows_to_table(float *restrict table, const int64_t *restrict ids, const float *restrict dy,
                       const uint8_t *restrict kept, float scale, int64_t rows, int64_t width) {
    for (int64_t t = 0; t < rows; t++, dy += width) {
        float *restrict out = table + ids[t] * width;
        if (kept) {
            for (int64_t i = 0; i < width; i++) out[i] += kept[i] ? scale * dy[i] : 0.0f;
            kept += width;
        } else
            for (int64_t i = 0; i < width; i++) out[i] += scale * dy[i];
    }
}
