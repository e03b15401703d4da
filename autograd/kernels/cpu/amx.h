/* Products of bfloat16 matrices in the tile registers of AMX, which Intel's servers have from 2023 on.

   A tile has 16 rows of 16 words; a word holds a pair of numbers.  One instruction adds the product of a tile of A (rows
   of pairs) and a tile of B (pairs of columns) to a tile of 16 × 16 sums.  Linux must first be asked for the registers.
   For bytes, AMX was not faster than AVX-512 VNNI.  Source: Intel's Architecture Instruction Set Extensions Programming
   Reference, chapter 3. */

#ifndef AMX_H
#define AMX_H

#include "common.h"

#define STEP_PAIRS 16 /* of a row of a tile */

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define HAS_AMX 1
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <sys/syscall.h>

long syscall(long number, ...); /* C11 hides the declaration in unistd.h */
#define BIT(n) (1u << (n))

/* Return 1 if this processor has AMX for bfloat16, and the system lets this process use it. */
static inline int asks_for_tiles(void) {
    const unsigned needed = BIT(22) | BIT(24);
    const long request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux */
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & needed) != needed) return 0;
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
}

static inline int has_tiles(void) {
    static atomic_int answer; /* 0: not known, 1: no, 2: yes */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (!known) atomic_store_explicit(&answer, known = 1 + asks_for_tiles(), memory_order_relaxed);
    return known == 2;
}

typedef struct {
    uint8_t palette, first_row, unused[14];
    uint16_t bytes[16]; /* of a row of each tile */
    uint8_t rows[16];
} TileShapes;

/* Tiles 0 to 3 are the sums of rows × 32 columns, 4 and 5 hold rows of A, 6 and 7 columns of B. */
ALWAYS_INLINE void shape_tiles(int64_t rows) {
    TileShapes shapes = {.palette = 1};
    const uint8_t upper = (uint8_t)(rows < 16 ? rows : 16), lower = (uint8_t)(rows <= 16 ? 1 : rows - 16);
    const uint8_t each[8] = {upper, upper, lower, lower, upper, lower, STEP_PAIRS, STEP_PAIRS};
    for (int tile = 0; tile < 8; tile++) shapes.bytes[tile] = 64, shapes.rows[tile] = each[tile];
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
}

/* The compiler's own functions for tiles do not say that they read memory. */
#define TILE_LOAD(TILE, FROM, BYTES) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #TILE ::"r"(FROM), "r"((int64_t)(BYTES)) : "memory")
#define TILE_STORE(TILE, TO, BYTES) \
    __asm__ volatile("tilestored %%tmm" #TILE ", (%0,%1,1)" ::"r"(TO), "r"((int64_t)(BYTES)) : "memory")
#define TILE_ZERO(TILE) __asm__ volatile("tilezero %tmm" #TILE)
#define TILE_ADD(SUM, A, B) __asm__ volatile("tdpbf16ps %tmm" #B ", %tmm" #A ", %tmm" #SUM)
#define TILE_RELEASE() __asm__ volatile("tilerelease")

/* A product of up to 32 rows and 32 columns.  Distances in words: a_row and c_row between rows, a_step between steps of
   STEP_PAIRS words of a row, b_row between pairs of a column. */
typedef struct {
    const uint32_t *a, *b;
    int64_t a_row, a_step, b_row, steps;
    float *c;
    int64_t c_row;
} TileProduct;

ALWAYS_INLINE void multiply_and_store(int two, int adds, TileProduct p) {
    const uint32_t *a = p.a, *b = p.b;
    float *c = p.c, *lower = c + 16 * p.c_row;
    if (adds) {
        TILE_LOAD(0, c, 4 * p.c_row);
        TILE_LOAD(1, c + 16, 4 * p.c_row);
        if (two) TILE_LOAD(2, lower, 4 * p.c_row);
        if (two) TILE_LOAD(3, lower + 16, 4 * p.c_row);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        if (two) TILE_ZERO(2);
        if (two) TILE_ZERO(3);
    }
    for (int64_t step = 0; step < p.steps; step++, a += p.a_step, b += STEP_PAIRS * p.b_row) {
        TILE_LOAD(6, b, 4 * p.b_row);
        TILE_LOAD(4, a, 4 * p.a_row);
        TILE_LOAD(7, b + 16, 4 * p.b_row);
        TILE_ADD(0, 4, 6);
        if (two) TILE_LOAD(5, a + 16 * p.a_row, 4 * p.a_row);
        TILE_ADD(1, 4, 7);
        if (two) TILE_ADD(2, 5, 6);
        if (two) TILE_ADD(3, 5, 7);
    }
    TILE_STORE(0, c, 4 * p.c_row);
    TILE_STORE(1, c + 16, 4 * p.c_row);
    if (two) TILE_STORE(2, lower, 4 * p.c_row);
    if (two) TILE_STORE(3, lower + 16, 4 * p.c_row);
}

/* Set C to A B, or add A B to it if adds, for 1 to 32 rows, for which the tiles must be shaped. */
ALWAYS_INLINE void multiply_tiles(int64_t rows, int adds, TileProduct product) {
    if (rows > 16)
        multiply_and_store(1, adds, product);
    else
        multiply_and_store(0, adds, product);
}

/* Write the transpose of 16 × 16 words, whose rows are `row` words apart. */
ALWAYS_INLINE void transpose_words(const uint32_t *restrict x, int64_t row, uint32_t *restrict out) {
    __m512i a[16], b[16];
    UNROLLED(int i = 0; i < 16; i += 2) {
        const __m512i even = _mm512_loadu_si512(x + i * row), odd = _mm512_loadu_si512(x + (i + 1) * row);
        a[i] = _mm512_unpacklo_epi32(even, odd), a[i + 1] = _mm512_unpackhi_epi32(even, odd);
    }
    UNROLLED(int i = 0; i < 16; i += 4) UNROLLED(int j = 0; j < 2; j++) {
        b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
        b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
    /* b[4 g + j] has rows 4 g to 4 g + 3 of columns j, 4 + j, 8 + j and 12 + j */
    UNROLLED(int j = 0; j < 4; j++) {
        const __m512i upper_even = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
        const __m512i upper_odd = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        const __m512i lower_even = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
        const __m512i lower_odd = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        _mm512_storeu_si512(out + 16 * j, _mm512_shuffle_i32x4(upper_even, lower_even, 0x88));
        _mm512_storeu_si512(out + 16 * (8 + j), _mm512_shuffle_i32x4(upper_even, lower_even, 0xdd));
        _mm512_storeu_si512(out + 16 * (4 + j), _mm512_shuffle_i32x4(upper_odd, lower_odd, 0x88));
        _mm512_storeu_si512(out + 16 * (12 + j), _mm512_shuffle_i32x4(upper_odd, lower_odd, 0xdd));
    }
}
#else
#define HAS_AMX 0
static inline int has_tiles(void) { return 0; }
#endif

#endif
