// Products of 16-bit matrices by tensor cores, and loading of their fragments from rows in global and shared memory.
//
// Layouts: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".  Lane 4 g + t of a warp holds
// - of A (16, 16), rows g and g + 8 at columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9;
// - of B (16, 8), rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 at column g;
// - of C (16, 8), rows g and g + 8 at columns 2 t and 2 t + 1.

#pragma once

#include "common.cuh"

#ifndef TENSOR_CORES  // tests define these functions for the CPU
#define TENSOR_CORES

__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned shared_address(const void* x) {
    return static_cast<unsigned>(__cvta_generic_to_shared(x));
}

// Loads four matrices (8, 8); lane 8 i + r has the address of row r of matrix i.  Of each, lane 4 g + t gets row g at
// columns 2 t and 2 t + 1; transposed, rows 2 t and 2 t + 1 at column g.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(unsigned (&x)[4], const void* row) {
    if constexpr (kTransposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(shared_address(row))
                     : "memory");
}

// Starts to copy 16 bytes from global to shared memory, or to clear them.
__device__ __forceinline__ void start_copy(void* to, const void* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
}

// Waits for this thread's copies; other threads see them after a barrier.
__device__ __forceinline__ void finish_copies() { asm volatile("cp.async.wait_all;\n" ::: "memory"); }

// 2 to the power of x.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}
#endif

__device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }
__device__ __forceinline__ unsigned lane_group() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ unsigned lane_of_group() { return threadIdx.x % 4; }

constexpr int kSlots = 4, kSlotRows = 16, kBlockRows = kSlots * kSlotRows;  // a slot is 16 rows, a tile of a product
constexpr int kThreads = 32 * kSlots;

// Four slots of packed rows: those from first[i] on, up to end[i].
struct Slots {
    int first[kSlots], end[kSlots];
};

// 64 rows in shared memory.  The gap of 16 bytes puts eight rows of a matrix into different banks.
template <int kWidth>
struct SharedRows {
    static constexpr int kStride = kWidth + 8, kSize = kBlockRows * kStride;
    bf16* first;

    __device__ __forceinline__ bf16* at(int row, int column) const { return first + row * kStride + column; }

    // Starts to copy the rows of four slots, moved by `offset` rows; missing rows become zeros.
    __device__ __forceinline__ void start_copies(const bf16* all, int head, int n_heads, const Slots& slots,
                                                 int offset) const {
        constexpr int kPieces = kWidth / 8;
#pragma unroll
        for (int i = 0; i < kBlockRows * kPieces / kThreads; ++i) {
            const int piece = i * kThreads + threadIdx.x, row = piece / kPieces, column = piece % kPieces * 8;
            const int from = slots.first[row / kSlotRows] + offset + row % kSlotRows;
            const bool exists = from < slots.end[row / kSlotRows];
            const long long index = exists ? (static_cast<long long>(from) * n_heads + head) * kWidth + column : 0;
            start_copy(at(row, column), all + index, exists);
        }
    }
    // The A of slot `slot`, columns 16 step ... 16 step + 15.
    __device__ __forceinline__ void as_a(int slot, int step, unsigned (&a)[4]) const {
        load_matrices<false>(a, at(16 * slot + lane() % 16, 16 * step + lane() / 16 * 8));
    }
    // The A that is the transpose of slot `slot`, at columns 16 step ... 16 step + 15.
    __device__ __forceinline__ void as_transposed_a(int slot, int step, unsigned (&a)[4]) const {
        load_matrices<true>(a, at(16 * slot + lane() / 16 * 8 + lane() % 8, 16 * step + lane() / 8 % 2 * 8));
    }
    // Two B, whose columns are the rows of slot `slot`.
    __device__ __forceinline__ void as_columns_of_b(int slot, int step, unsigned (&b)[4]) const {
        load_matrices<false>(b, at(16 * slot + lane() / 16 * 8 + lane() % 8, 16 * step + lane() / 8 % 2 * 8));
    }
    // Two B, columns 16 pair ... 16 pair + 15 of slot `slot`.
    __device__ __forceinline__ void as_rows_of_b(int slot, int pair, unsigned (&b)[4]) const {
        load_matrices<true>(b, at(16 * slot + lane() % 16, 16 * pair + lane() / 16 * 8));
    }
    // Stores the A fragment of a tile (16, 16).
    __device__ __forceinline__ void store_a(int slot, int step, const unsigned (&a)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            *reinterpret_cast<unsigned*>(
                at(16 * slot + lane_group() + i % 2 * 8, 16 * step + 2 * lane_of_group() + i / 2 * 8)) = a[i];
    }
};

// Converts two tiles C of a (16, 16) matrix to the A of the next product, rounded to 16 bits.
__device__ __forceinline__ void as_a(const float (&c)[2][4], unsigned (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = bf16_pair(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
}

// The A of products of rows: 16 rows of one head in global memory.  They stay in registers; rows of wide heads do not
// fit, and are read again from the cache for each use.
template <int kWidth>
struct LeftRows {
    static constexpr bool kKept = kWidth <= 64;
    static constexpr int kAtOnce = kKept ? kWidth / 16 : 2;  // steps that are unrolled
    const bf16* start;
    long long stride;
    int row, end;
    unsigned kept[kKept ? kWidth / 16 : 1][4];

    __device__ __forceinline__ LeftRows(const bf16* all, int head, int n_heads, int row, int end)
        : start(all + static_cast<long long>(head) * kWidth), stride(static_cast<long long>(n_heads) * kWidth),
          row(row), end(end) {
        if constexpr (kKept) {
#pragma unroll
            for (int step = 0; step < kWidth / 16; ++step) read(step, kept[step]);
        }
    }
    __device__ __forceinline__ unsigned two(int r, int column) const {
        return r < end ? *reinterpret_cast<const unsigned*>(start + r * stride + column) : 0u;
    }
    __device__ __forceinline__ void read(int step, unsigned (&a)[4]) const {
        const int r = row + lane_group(), column = 16 * step + 2 * lane_of_group();
        a[0] = two(r, column), a[1] = two(r + 8, column), a[2] = two(r, column + 8), a[3] = two(r + 8, column + 8);
    }
    __device__ __forceinline__ void as_a(int step, unsigned (&a)[4]) const {
        if constexpr (kKept) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = kept[step][i];
        } else {
            read(step, a);
        }
    }
};

// The A of products of rows, from a slot of rows in shared memory.
template <int kWidth>
struct LeftSlot {
    static constexpr int kAtOnce = kWidth / 16;
    unsigned kept[kWidth / 16][4];

    __device__ __forceinline__ LeftSlot(const SharedRows<kWidth>& rows, int slot) {
#pragma unroll
        for (int step = 0; step < kWidth / 16; ++step) rows.as_a(slot, step, kept[step]);
    }
    __device__ __forceinline__ void as_a(int step, unsigned (&a)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = kept[step][i];
    }
};

// c (16, 16) += A Bᵀ, where B is a slot.
template <int kWidth, typename Left>
__device__ __forceinline__ void add_product_of_rows(float (&c)[2][4], const Left& left, const SharedRows<kWidth>& rows,
                                                    int slot) {
#pragma unroll Left::kAtOnce
    for (int step = 0; step < kWidth / 16; ++step) {
        unsigned a[4], b[4];
        left.as_a(step, a);
        rows.as_columns_of_b(slot, step, b);
        mma_m16n8k16(c[0], a, b[0], b[1]);
        mma_m16n8k16(c[1], a, b[2], b[3]);
    }
}

// c (16, width) += A B, where B is a slot.
template <int kWidth>
__device__ __forceinline__ void add_product(float (&c)[kWidth / 8][4], const unsigned (&a)[4],
                                            const SharedRows<kWidth>& rows, int slot) {
#pragma unroll
    for (int pair = 0; pair < kWidth / 16; ++pair) {
        unsigned b[4];
        rows.as_rows_of_b(slot, pair, b);
        mma_m16n8k16(c[2 * pair], a, b[0], b[1]);
        mma_m16n8k16(c[2 * pair + 1], a, b[2], b[3]);
    }
}

// Stores rows row ... row + 15 of one head, scaled and rounded to 16 bits; rows from `end` on are not written.  The rows
// of this warp's slot in `staging` collect 16 bytes for each store.
template <int kWidth, int kStagedWidth>
__device__ __forceinline__ void store_rows(bf16* all, int head, int n_heads, int row, int end,
                                           const float (&c)[kWidth / 8][4], float of_upper, float of_lower,
                                           const SharedRows<kStagedWidth>& staging) {
    constexpr int kPieces = kWidth / 8;
    const int own = threadIdx.x / 32 * kSlotRows;
#pragma unroll
    for (int i = 0; i < kWidth / 8 * 2; ++i) {
        const float scale = i % 2 ? of_lower : of_upper;
        bf16* to = staging.at(own + lane_group() + i % 2 * 8, i / 2 * 8 + 2 * lane_of_group());
        *reinterpret_cast<unsigned*>(to) = bf16_pair(c[i / 2][i % 2 * 2] * scale, c[i / 2][i % 2 * 2 + 1] * scale);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kSlotRows * kPieces / 32; ++i) {
        const int piece = i * 32 + lane(), r = piece / kPieces, column = piece % kPieces * 8;
        bf16* to = all + (static_cast<long long>(row + r) * n_heads + head) * kWidth + column;
        if (row + r < end) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(staging.at(own + r, column));
    }
    __syncwarp();  // until all lanes have read
}
