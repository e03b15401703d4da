/* Products of bfloat16 matrices, summed in float32.

   A word of 32 bits holds a pair of bfloat16 numbers that are neighbours along the terms of a product; an odd last
   number is paired with a zero.  The left matrix A is given by the distances between its rows and between its words.
   The right matrix B lies in panels of PANEL columns: the words of a term pair for all columns of the panel, then the
   words of the next pair.  Each sum adds its terms in order, whatever the tile.  AMD's instructions for pairs need half the
   time of float32, Intel's twice its time; so Intel's processors have AMX (amx.h).  Other processors multiply in float32.
   Results of the three differ in the last bits. */

#ifndef BFLOAT16_H
#define BFLOAT16_H

#include "amx.h"
#include "common.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#define BFLOAT16_SET "AVX-512 BF16"
#define TILE_ROWS 14 /* with TILE_COLUMNS, as many sums as vector registers allow */
#define TILE_COLUMNS 32
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#define BFLOAT16_SET "NEON BF16"
#define TILE_ROWS 6
#define TILE_COLUMNS 16
#elif defined(__AVX512F__)
#define BFLOAT16_SET "none"
#define TILE_ROWS 10
#define TILE_COLUMNS 32
#else
#define BFLOAT16_SET "none"
#define TILE_ROWS 4
#define TILE_COLUMNS 16
#endif
#define MOST_TILE_ROWS 14 /* of any processor and any caller */
#define PANEL 32
#define AHEAD_PAIRS 32 /* to prefetch, 4 KiB: processors by themselves prefetch too little */
#define PAIRS 256 /* of a block: so many pairs of a panel stay in the first-level cache */
#define TILE_VECTORS (TILE_COLUMNS / VECTOR)

typedef uint16_t half __attribute__((may_alias)); /* a word is written as two */

/* Return the distance between rows in words: an odd number of whole cache lines, or else rows would compete for the
   same part of the first-level cache.  bfloat16.py computes the same. */
static inline int64_t words_of_row(int64_t columns) { return ((columns + 31) / 32 | 1) * 16; }

/* Return the number of term pairs of a panel: whole steps of AMX.  Pairs after the last term are zeros. */
static inline int64_t pairs_of_panel(int64_t terms) { return (terms + 2 * STEP_PAIRS - 1) / (2 * STEP_PAIRS) * STEP_PAIRS; }

/* Round to the nearest bfloat16, ties to even; NaN stays NaN.  Numbers below 2⁻¹²⁶ become 0, as with AVX-512. */
static inline uint16_t nearest_bfloat16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0) return (uint16_t)(bits >> 16 & 0x8000u);
    const uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : nearest);
}

/* Round n numbers; write zeros behind them up to the next multiple of 32. */
ALWAYS_INLINE void round_numbers(const float *restrict x, half *restrict out, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512BF16__)
    for (; i + 32 <= n; i += 32) {
        const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(x + i));
        memcpy(out + i, &both, sizeof both);
    }
#endif
    for (; i < n; i++) out[i] = nearest_bfloat16(x[i]);
    for (; i % (2 * STEP_PAIRS); i++) out[i] = 0;
}

/* Return sum + a₀ b₀ + a₁ b₁ for each lane, where a and b are pairs. */
ALWAYS_INLINE floats add_pairs(floats sum, uint32_t a, words b) {
#if defined(__AVX512BF16__)
    /* The intrinsic of this instruction makes GCC 12 store all sums in every round. */
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi32((int)a)), "v"(b));
    return sum;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return (floats)vbfdotq_f32((float32x4_t)sum, vreinterpretq_bf16_u32(vdupq_n_u32(a)),
                               vreinterpretq_bf16_u32((uint32x4_t)b));
#else
    const uint32_t low = a << 16, high = a & 0xffff0000u;
    float first, second;
    memcpy(&first, &low, sizeof first), memcpy(&second, &high, sizeof second);
    return sum + first * (floats)(b << 16) + second * (floats)(b & 0xffff0000u);
#endif
}

/* A left matrix: distances between rows and between words, in words. */
typedef struct {
    const uint32_t *words;
    int64_t row, pair;
} Left;

/* Set a tile of C to A B, to C + A B if adds, or to A B plus the bias of the columns, if there is one. */
ALWAYS_INLINE void multiply_pairs(int rows, Left a, const uint32_t *restrict b, int64_t pairs, float *restrict c,
                                  int64_t c_row, int adds, const float *restrict bias) {
    floats sum[MOST_TILE_ROWS][TILE_VECTORS];
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < TILE_VECTORS; v++) {
        sum[r][v] = (floats){0};
        if (adds) sum[r][v] = *(const floats *)(c + r * c_row + v * VECTOR);
        if (bias) sum[r][v] = *(const floats *)(bias + v * VECTOR);
    }
    for (int64_t p = 0; p < pairs; p++, b += PANEL) {
        words right[TILE_VECTORS];
        UNROLLED(int i = 0; i < TILE_COLUMNS; i += 16) __builtin_prefetch(b + AHEAD_PAIRS * PANEL + i);
        UNROLLED(int v = 0; v < TILE_VECTORS; v++) right[v] = *(const words *)(b + v * VECTOR);
        const uint32_t *left = a.words + p * a.pair;
        UNROLLED(int r = 0; r < rows; r++)
        UNROLLED(int v = 0; v < TILE_VECTORS; v++) sum[r][v] = add_pairs(sum[r][v], left[r * a.row], right[v]);
    }
    UNROLLED(int r = 0; r < rows; r++)
    UNROLLED(int v = 0; v < TILE_VECTORS; v++) *(floats *)(c + r * c_row + v * VECTOR) = sum[r][v];
}

#endif
