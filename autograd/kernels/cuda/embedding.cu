// Embedding of tokens with positions and dropout, and the gradients of both tables; see autograd.ops.embedding.

#include "common.cuh"
#include "philox.cuh"

constexpr int kWarps = 8, kDraws = 16, kElementsOfAWarp = 32 * kDraws;

// Computes 512 consecutive elements of y from `first` on; a lane computes n of them at a time.  Bit i % 16 of
// kept[i / 16] is set if the i-th of them is kept.
template <int n, typename T>
__device__ __forceinline__ void embed_neighbours(const T* table, const long long* ids, const T* encodings,
                                                 const long long* positions, T* y, const unsigned short* kept,
                                                 long long first, long long size, unsigned width, float scale,
                                                 float scale_of_kept) {
    const long long token = first / width;
    const unsigned column = static_cast<unsigned>(first % width);
    for (unsigned i = n * (threadIdx.x % 32); i < kElementsOfAWarp && first + i < size; i += 32 * n) {
        const long long row = token + (column + i) / width;
        const unsigned at = (column + i) % width, bits = kept[i / kDraws] >> i % kDraws;
        float word[n], encoding[n];
        load_aligned(table + ids[row] * width + at, word);
        load_aligned(encodings + positions[row] * width + at, encoding);
#pragma unroll
        for (int j = 0; j < n; ++j)
            word[j] = bits >> j & 1 ? (scale * word[j] + encoding[j]) * scale_of_kept : 0.0f;
        store_aligned(y + first + i, word);
    }
}

// `kept` receives a bit for every element, padded to 512; if it is null, nothing is dropped.
template <typename T>
__device__ void embed(const T* table, const long long* ids, const T* encodings, const long long* positions, T* y,
                      unsigned short* kept, long long size, int width, float scale, const StreamId& stream_id,
                      int threshold, float scale_of_kept) {
    __shared__ unsigned short kept_here[kWarps][32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long group = static_cast<long long>(blockIdx.x) * kWarps + warp, first = group * kElementsOfAWarp;
    if (first >= size) return;  // a whole warp
    unsigned bits = 0xffff;
    if (kept) {
        word of_block[4];
        philox_block(stream_id, group * 32 + lane, of_block);
        bits = 0;
#pragma unroll
        for (int i = 0; i < kDraws; ++i)
            if (static_cast<int>(of_block[i / 4] >> 16 * (i % 4) & 0xffff) >= threshold) bits |= 1u << i;
        kept[group * 32 + lane] = static_cast<unsigned short>(bits);
    }
    kept_here[warp][lane] = static_cast<unsigned short>(bits);
    __syncwarp();
    constexpr int kVector = kOf16Bytes<T>;
    if (width % kVector == 0 && is_aligned<kVector>(table) && is_aligned<kVector>(encodings))
        embed_neighbours<kVector>(table, ids, encodings, positions, y, kept_here[warp], first, size, width, scale,
                                  scale_of_kept);
    else
        embed_neighbours<1>(table, ids, encodings, positions, y, kept_here[warp], first, size, width, scale,
                            scale_of_kept);
}

// Tokens in the order of their ids: order[i] is the token at index i of the order, or -1 behind the last.
struct Order {
    const int* order;
    const long long* ids;
    int n;

    __device__ __forceinline__ bool has(int i) const { return i < n && order[i] >= 0; }
    __device__ __forceinline__ long long id(int i) const { return has(i) ? ids[order[i]] : -1; }
};

__device__ __forceinline__ int sum_over_warp(int x) {
    for (unsigned distance = 16; distance; distance /= 2) x += __shfl_xor_sync(kWholeWarp, x, distance);
    return x;
}

// A run of equal ids is cut into pieces at every multiple of 32 in the order.  The sum of a piece that is not a whole
// run is written to `sums`, which has two rows for each multiple of 32: the first for the piece that continues a run
// there, the second for the piece that begins a run there or behind it.
constexpr int kPiece = 32;

template <typename Float>
__device__ __forceinline__ Float* sum_of_piece(Float* sums, int cut, bool second, int width) {
    return sums + (2ll * (cut / kPiece) + second) * width;
}

// Adds the rows of a piece in their order; a lane adds n columns at a time.
template <int n, typename T>
__device__ __forceinline__ void add_piece(const T* dy, const unsigned short* kept, const int* tokens, int n_tokens,
                                          float* out, bool adds, int width, float scale) {
    for (int column = n * (threadIdx.x % 32); column < width; column += 32 * n) {
        float sum[n] = {}, before[n] = {};
#pragma unroll 4
        for (int i = 0; i < n_tokens; ++i) {
            const unsigned long long at = static_cast<unsigned long long>(tokens[i]) * width + column;
            float row[n];
            load_aligned(dy + at, row);
            const unsigned bits = kept ? kept[at / kDraws] >> at % kDraws : ~0u;
#pragma unroll
            for (int j = 0; j < n; ++j)
                if (bits >> j & 1) sum[j] += row[j];
        }
        if (adds) load_aligned(out + column, before);
#pragma unroll
        for (int j = 0; j < n; ++j) sum[j] = before[j] + scale * sum[j];
        store_aligned(out + column, sum);
    }
}

// Adds scale * dy to rows of the table.  Warp i adds the piece that begins at index i of the order, if there is one.
template <typename T>
__device__ void add_rows(const T* dy, const unsigned short* kept, const Order& tokens, float* table, float* sums,
                         int width, float scale) {
    const int first = static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long id = tokens.id(first);
    if (id < 0) return;
    const bool continues = first && tokens.id(first - 1) == id;
    if (continues && first % kPiece) return;
    const int cut = first / kPiece * kPiece, end = cut + kPiece;
    const int n_tokens = sum_over_warp(first + lane < end && tokens.id(first + lane) == id);
    const bool is_run = !continues && !(first + n_tokens == end && tokens.id(end) == id);
    float* const out = is_run ? table + id * width : sum_of_piece(sums, cut, !continues, width);
    constexpr int kVector = kOf16Bytes<T>;
    if (width % kVector == 0 && is_aligned<kVector>(dy) && is_aligned<kVector>(table))
        add_piece<kVector>(dy, kept, tokens.order + first, n_tokens, out, is_run, width, scale);
    else
        add_piece<1>(dy, kept, tokens.order + first, n_tokens, out, is_run, width, scale);
}

// Adds the pieces of a run to the table, in their order, in the warp of the first cut of the run.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    add_sums_of_pieces(const float* sums, const long long* ids, const int* order, float* table, int n, int width) {
    const Order tokens{order, ids, n};
    const int lane = threadIdx.x % 32, cut = (static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / 32 + 1) * kPiece;
    const long long id = tokens.id(cut);
    if (id < 0 || tokens.id(cut - 1) != id || (cut > kPiece && tokens.id(cut - kPiece - 1) == id)) return;
    int n_cuts = 0;
    for (int found = 32; found == 32; n_cuts += found)
        found = sum_over_warp(tokens.id(cut + (n_cuts + lane) * kPiece) == id);
    for (int column = lane; column < width; column += 32) {
        float sum = sum_of_piece(sums, cut - kPiece, true, width)[column];
#pragma unroll 4
        for (int i = 0; i < n_cuts; ++i) sum += sum_of_piece(sums, cut + i * kPiece, false, width)[column];
        table[id * width + column] += sum;
    }
}

// The minimum of four blocks per multiprocessor for add_rows: without it the compiler spills registers on sm_100.
#define EMBEDDING(T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * kWarps)                                                         \
        embed_##T(const T* table, const long long* ids, const T* encodings, const long long* positions, T* y,         \
                  unsigned short* kept, long long size, int width, float scale, word seed, word stream, word update,  \
                  const word* update_at, word micro_batch, int threshold, float scale_of_kept) {                      \
        embed(table, ids, encodings, positions, y, kept, size, width, scale,                                          \
              stream_id_of(seed, stream, update, update_at, micro_batch), threshold, scale_of_kept);                  \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * kWarps, 4)                                                      \
        add_rows_##T(const T* dy, const unsigned short* kept, const long long* ids, const int* order, float* table,   \
                     float* sums, int n, int width, float scale) {                                                    \
        add_rows(dy, kept, Order{order, ids, n}, table, sums, width, scale);                                          \
    }

EMBEDDING(float)
EMBEDDING(bf16)
EMBEDDING(f16)
