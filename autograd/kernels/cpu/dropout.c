/* Dropout masks of one byte per element, and their application. */

#include "common.h"
#include "philox.h"

#define DRAWN 64 /* numbers at once: four blocks */

/* Set kept[i] to 1 if the i-th random 16-bit number of a stream is at least the threshold (below 2¹⁶), else to 0.  A
   word has four numbers, the lowest bits first. */
void draw_mask(uint8_t *restrict kept, int64_t n, uint64_t seed, uint64_t stream, uint64_t update, uint64_t micro_batch,
               uint64_t threshold) {
    const uint16_t least = (uint16_t)threshold; /* so that 16-bit numbers are compared */
    uint64_t block = 1;
    for (int64_t start = 0; start < n; start += DRAWN) {
        uint64_t words[DRAWN / 4];
        uint16_t numbers[DRAWN];
        for (int i = 0; i < DRAWN / 4; i += 4, block++) philox_block(words + i, block, micro_batch, update, seed, stream);
        memcpy(numbers, words, sizeof numbers);
        const int64_t count = start + DRAWN <= n ? DRAWN : n - start;
        for (int64_t i = 0; i < count; i++) kept[start + i] = numbers[i] >= least;
    }
}

/* y = scale · x where kept, else 0 · x. */
void apply_mask(const float *restrict x, const uint8_t *restrict kept, float *restrict y, int64_t n, float scale) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * (kept[i] ? scale : 0.0f);
}
