/* Products of bytes.  A row of x is rounded to levels −127 … 127: multiples of its greatest absolute value / 127.

   A weight is stored as its level + 128, because x86 multiplies unsigned by signed bytes; so a sum begins with −128 ·
   the sum of the row's levels.  Up to 133,144 terms a sum is exact in 32 bits, with the same bits on every processor. */

#ifndef INT8_H
#define INT8_H

#include <float.h>

#include "common.h"

#if defined(__AVX512VNNI__) && VECTOR == 16
#define INT8_SET "AVX-512 VNNI"
#define BYTES_OF_X86
#elif defined(__AVXVNNI__) && VECTOR == 8
#define INT8_SET "AVX-VNNI"
#define BYTES_OF_X86
#elif (defined(__AVX512BW__) && VECTOR == 16) || (defined(__AVX2__) && VECTOR == 8) || (defined(__SSE2__) && VECTOR == 4)
#define INT8_SET FLOAT32_SET
#define PAIRS_OF_X86
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#define INT8_SET "NEON dot product"
#define BYTES_OF_ARM
#include <arm_neon.h>
#else
#define INT8_SET "plain C"
#endif

#ifdef PAIRS_OF_X86
typedef int16_t Level __attribute__((may_alias)); /* stored in words */
#else
typedef int8_t Level __attribute__((may_alias));
#endif
#define QUAD ((int64_t)sizeof(Level)) /* words of a row for four levels, which one word of the weight multiplies */
#define HEAD 2                        /* words before the levels: the row's scale, and the first summand of its sums */
#define AT_ONCE 64                    /* levels */

typedef int32_t ints __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

/* The number of words of a row of levels. */
static inline int64_t row_words(int64_t terms) { return HEAD + (terms + 3) / 4 * QUAD; }

/* Return sum + the products of four levels with the four bytes of each word of the weight. */
ALWAYS_INLINE words add_bytes(words sum, words weight, const int32_t *restrict levels) {
#if defined(BYTES_OF_X86) && VECTOR == 16
    /* GCC 12 keeps the sums of its intrinsic function in memory. */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weight), "m"(*levels));
    return sum;
#elif defined(BYTES_OF_X86)
    const words four = (words){0} + (uint32_t)*levels;
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(weight), "x"(four));
    return sum;
#elif defined(PAIRS_OF_X86)
    const words even = weight & 0x00ff00ffu, odd = (words)((halves)weight >> 8);
    const words first = (words){0} + (uint32_t)levels[0], second = (words){0} + (uint32_t)levels[1];
#if VECTOR == 16
    return sum + (words)_mm512_madd_epi16((__m512i)even, (__m512i)first) +
           (words)_mm512_madd_epi16((__m512i)odd, (__m512i)second);
#elif VECTOR == 8
    return sum + (words)_mm256_madd_epi16((__m256i)even, (__m256i)first) +
           (words)_mm256_madd_epi16((__m256i)odd, (__m256i)second);
#else
    return sum + (words)_mm_madd_epi16((__m128i)even, (__m128i)first) +
           (words)_mm_madd_epi16((__m128i)odd, (__m128i)second);
#endif
#elif defined(BYTES_OF_ARM)
    const int8x16_t signed_bytes = vreinterpretq_s8_u32((uint32x4_t)weight ^ 0x80808080u);
    return (words)vdotq_s32((int32x4_t)sum, signed_bytes, vreinterpretq_s8_s32(vdupq_n_s32(*levels)));
#else
    const Level *level = (const Level *)levels;
    UNROLLED(int j = 0; j < 4; j++) sum += (weight >> 8 * j & 255u) * (uint32_t)level[j];
    return sum;
#endif
}

/* Store levels, a multiple of four, in the order in which add_bytes needs them. */
ALWAYS_INLINE void store_levels(const int32_t *restrict levels, int64_t count, Level *restrict stored) {
#ifdef PAIRS_OF_X86
    for (int64_t k = 0; k < count; k += 4) {
        stored[k] = (Level)levels[k];
        stored[k + 1] = (Level)levels[k + 2];
        stored[k + 2] = (Level)levels[k + 1];
        stored[k + 3] = (Level)levels[k + 3];
    }
#else
    for (int64_t k = 0; k < count; k++) stored[k] = (Level)levels[k];
#endif
}

/* Return the bits of |x|; as integers they have the order of the numbers, with NaN after infinity. */
static inline int32_t magnitude_bits(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & INT32_MAX;
}

/* Return the scale of numbers from the greatest of their magnitude_bits: NaN if a number is not finite, and at least
   FLT_MIN. */
static inline float scale_of(int32_t greatest) {
    float scale;
    memcpy(&scale, &greatest, sizeof scale);
    if (!(scale <= FLT_MAX)) return NAN;
    return scale / 127.0f < FLT_MIN ? FLT_MIN : scale / 127.0f;
}

/* Round a row to levels; if its scale is NaN, all levels are 0. */
static inline void quantise_row(const float *restrict x, int64_t terms, int32_t *restrict row) {
    int32_t greatest = 0;
    for (int64_t k = 0; k < terms; k++) greatest = greatest < magnitude_bits(x[k]) ? magnitude_bits(x[k]) : greatest;
    const float scale = scale_of(greatest), inverse = 1.0f / scale;
    const int64_t n_finite = scale > 0.0f ? terms : 0;
    uint32_t total = 0;
    for (int64_t start = 0; start < terms; start += AT_ONCE) {
        const int64_t end = start + AT_ONCE < terms ? start + AT_ONCE : terms;
        int32_t levels[AT_ONCE] = {0};
        for (int64_t k = start; k < end && k < n_finite; k++) {
            levels[k - start] = (int32_t)rintf(x[k] * inverse);
            total += (uint32_t)levels[k - start];
        }
        store_levels(levels, (end - start + 3) / 4 * 4, (Level *)(row + HEAD) + start);
    }
    memcpy(row, &scale, sizeof scale);
#ifdef BYTES_OF_ARM
    row[1] = 0;
#else
    row[1] = (int32_t)(0u - 128u * total);
#endif
}

#endif
