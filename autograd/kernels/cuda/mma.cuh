// Products of 16-bit matrices by tensor cores, and loading of their fragments from rows in memory.
//
// Layouts: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".  Lane 4 g + t of a warp holds, of A
// (16, 16), the rows g and g + 8 at columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9; of B (16, 8), these numbers of column g; of C
// (16, 8), rows g and g + 8 at columns 2 t and 2 t + 1.

#pragma once

#include "common.cuh"

#ifndef MMA_M16N8K16  // tests define it for the CPU
#define MMA_M16N8K16
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

__device__ __forceinline__ unsigned lane_group() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ unsigned lane_of_group() { return threadIdx.x % 4; }

__device__ __forceinline__ unsigned pack(bf16 low, bf16 high) {
    return static_cast<unsigned>(high.bits) << 16 | low.bits;
}

// Rounds as bf16_pair does, by whole numbers: with bf16_pair the compiler spills registers of attention on sm_80.
__device__ __forceinline__ bf16 rounded_by_bits(float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    return bf16{static_cast<unsigned short>(rounded >> 16)};
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    return pack(rounded_by_bits(low), rounded_by_bits(high));
}

// The rows of one head among packed rows of all heads; rows from `end` on read as zeros.
template <int kWidth>
struct Rows {
    const bf16* first;
    long long stride;
    int end;

    __device__ Rows(const bf16* all, int head, int n_heads, int end)
        : first(all + static_cast<long long>(head) * kWidth), stride(static_cast<long long>(n_heads) * kWidth), end(end) {}

    __device__ __forceinline__ unsigned two(int row, int column) const {
        return row < end ? *reinterpret_cast<const unsigned*>(first + row * stride + column) : 0u;
    }
    __device__ __forceinline__ bf16 one(int row, int column) const {
        return row < end ? first[row * stride + column] : bf16{0};
    }
    // A: rows row ... row + 15, columns 16 step ... 16 step + 15.
    __device__ __forceinline__ void as_a(int row, int step, unsigned (&a)[4]) const {
        const int r = row + lane_group(), column = 16 * step + 2 * lane_of_group();
        a[0] = two(r, column), a[1] = two(r + 8, column), a[2] = two(r, column + 8), a[3] = two(r + 8, column + 8);
    }
    // B transposed: its columns are the rows row ... row + 7, at columns 16 step ... 16 step + 15.
    __device__ __forceinline__ void as_columns_of_b(int row, int step, unsigned (&b)[2]) const {
        const int r = row + lane_group(), column = 16 * step + 2 * lane_of_group();
        b[0] = two(r, column), b[1] = two(r, column + 8);
    }
    // B: rows row ... row + 15, columns 8 tile ... 8 tile + 7.
    __device__ __forceinline__ void as_rows_of_b(int row, int tile, unsigned (&b)[2]) const {
        const int r = row + 2 * lane_of_group(), column = 8 * tile + lane_group();
        b[0] = pack(one(r, column), one(r + 1, column)), b[1] = pack(one(r + 8, column), one(r + 9, column));
    }
};

// Converts two tiles C of a (16, 16) matrix to the A of the next product, rounded to 16 bits.
__device__ __forceinline__ void as_a(const float (&c)[2][4], unsigned (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pack(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
}

// The A of products of rows: the 16 rows from `row` on.  They stay in registers; rows of wide heads do not fit, and are
// read again from the cache for each use.
template <int kWidth>
struct LeftRows {
    static constexpr bool kKept = kWidth <= 64;
    static constexpr int kAtOnce = kKept ? kWidth / 16 : 2;  // steps that are unrolled
    Rows<kWidth> rows;
    int row;
    unsigned kept[kKept ? kWidth / 16 : 1][4];

    __device__ __forceinline__ LeftRows(const Rows<kWidth>& rows, int row) : rows(rows), row(row) {
        if constexpr (kKept) {
#pragma unroll
            for (int step = 0; step < kWidth / 16; ++step) rows.as_a(row, step, kept[step]);
        }
    }
    __device__ __forceinline__ void as_a(int step, unsigned (&a)[4]) const {
        if constexpr (kKept) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = kept[step][i];
        } else {
            rows.as_a(row, step, a);
        }
    }
};

// c (16, 16) += A Bᵀ, where B is 16 rows from `row` on.
template <int kWidth>
__device__ __forceinline__ void add_product_of_rows(float (&c)[2][4], const LeftRows<kWidth>& left,
                                                    const Rows<kWidth>& rows, int row) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
#pragma unroll LeftRows<kWidth>::kAtOnce
        for (int step = 0; step < kWidth / 16; ++step) {
            unsigned a[4], b[2];
            left.as_a(step, a);
            rows.as_columns_of_b(row + 8 * tile, step, b);
            mma_m16n8k16(c[tile], a, b);
        }
}

// c (16, width) += A B, where B is 16 rows from `row` on.
template <int kWidth>
__device__ __forceinline__ void add_product(float (&c)[kWidth / 8][4], const unsigned (&a)[4], const Rows<kWidth>& rows,
                                            int row) {
#pragma unroll
    for (int tile = 0; tile < kWidth / 8; ++tile) {
        unsigned b[2];
        rows.as_rows_of_b(row, tile, b);
        mma_m16n8k16(c[tile], a, b);
    }
}

// Stores rows row ... row + 15 of one head, scaled and rounded to 16 bits; rows from `end` on are not written.
template <int kWidth>
__device__ __forceinline__ void store_rows(bf16* all, int head, int n_heads, int row, int end,
                                           const float (&c)[kWidth / 8][4], float of_upper, float of_lower) {
#pragma unroll
    for (int tile = 0; tile < kWidth / 8; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = row + lane_group() + 8 * half;
            const float scale = half ? of_lower : of_upper;
            bf16* out = all + (static_cast<long long>(r) * n_heads + head) * kWidth + 8 * tile + 2 * lane_of_group();
            if (r < end)
                *reinterpret_cast<unsigned*>(out) = pack(c[tile][2 * half] * scale, c[tile][2 * half + 1] * scale);
        }
}
