/* Code shared by the kernels.  A sum has LANES explicit partial sums, a short sum FEW_LANES; the compiler keeps them in
   vector registers.  So the order of additions depends neither on alignment nor on the compiler. */

#ifndef COMMON_H
#define COMMON_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 32
#define FEW_LANES 16
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The floats of one vector register: GCC keeps arrays of these in registers, but not always arrays of floats.
   Each header with products defines the name of its instruction set, for instruction_sets.c. */
#if defined(__AVX512F__)
#define VECTOR 16
#define FLOAT32_SET "AVX-512"
#elif defined(__AVX__)
#define VECTOR 8
#if defined(__AVX2__) && defined(__FMA__)
#define FLOAT32_SET "AVX2"
#else
#define FLOAT32_SET "AVX"
#endif
#else
#define VECTOR 4
#if defined(__ARM_NEON)
#define FLOAT32_SET "NEON"
#elif defined(__SSE2__)
#define FLOAT32_SET "SSE2"
#else
#define FLOAT32_SET "plain C"
#endif
#endif
#define UNROLLED _Pragma("GCC unroll 16") for
typedef float floats __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias)); /* sums of them may wrap */

/* Combine the first WIDTH lanes with the next WIDTH.  WIDTH is a constant, so that the loop becomes one instruction. */
#define ADD_LANES(WIDTH) \
    for (int l = 0; l < (WIDTH); l++) lane[l] += lane[l + (WIDTH)]
#define GREATER_LANES(WIDTH) \
    for (int l = 0; l < (WIDTH); l++) lane[l] = lane[l] < lane[l + (WIDTH)] ? lane[l + (WIDTH)] : lane[l]

ALWAYS_INLINE float sum_of_lanes(float *lane, int lanes) {
    if (lanes == 32) ADD_LANES(16);
    ADD_LANES(8);
    ADD_LANES(4);
    ADD_LANES(2);
    return lane[0] + lane[1];
}

/* Set RESULT to the sum of TERM, an expression of i, over 0 ≤ i < N. */
#define SUM_IN(COUNT, RESULT, N, TERM)                                \
    do {                                                              \
        float lane_[COUNT] = {0};                                     \
        int64_t start_ = 0;                                           \
        for (; start_ + (COUNT) <= (N); start_ += (COUNT))            \
            for (int l_ = 0; l_ < (COUNT); l_++) {                    \
                const int64_t i = start_ + l_;                        \
                lane_[l_] += (TERM);                                  \
            }                                                         \
        for (int64_t i = start_; i < (N); i++) lane_[i - start_] += (TERM); \
        RESULT = sum_of_lanes(lane_, COUNT);                          \
    } while (0)
#define SUM(RESULT, N, TERM) SUM_IN(LANES, RESULT, N, TERM)

ALWAYS_INLINE float maximum_in(int lanes, const float *restrict x, int64_t n) {
    float lane[LANES];
    for (int l = 0; l < lanes; l++) lane[l] = -INFINITY;
    int64_t start = 0;
    for (; start + lanes <= n; start += lanes)
        for (int l = 0; l < lanes; l++) lane[l] = lane[l] < x[start + l] ? x[start + l] : lane[l];
    for (int64_t i = start; i < n; i++) lane[i - start] = lane[i - start] < x[i] ? x[i] : lane[i - start];
    if (lanes == 32) GREATER_LANES(16);
    GREATER_LANES(8);
    GREATER_LANES(4);
    GREATER_LANES(2);
    return lane[0] < lane[1] ? lane[1] : lane[0];
}

static inline float maximum(const float *restrict x, int64_t n) { return maximum_in(LANES, x, n); }

/* exp(x) for x ≤ 88, relative error 1e-7; 0 below −87.3, where the result would be subnormal; NaN for NaN.
   With n = round(x / ln 2), exp(x) = 2ⁿ exp(r) and |r| ≤ ln(2)/2.  Adding 1.5 · 2²³ rounds x / ln 2 to n, and the
   lowest bits of the sum are n.  Source: the minimax polynomial of Moshier's Cephes library, expf. */
static inline float exp_of(float x) {
    const float rounder = 12582912.0f, shifted = x * 1.44269504088896341f + rounder, n = shifted - rounder;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3f ? 0.0f : p * power;
}

#endif
