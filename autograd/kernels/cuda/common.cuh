// Code shared by kernels: 16-bit storage of numbers that are computed with in float32, and reductions over a block.

#pragma once

struct bf16 {  // the upper half of a float32
    unsigned short bits;
};

__device__ __forceinline__ float load(float x) { return x; }
__device__ __forceinline__ float load(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

__device__ __forceinline__ void store(float& out, float x) { out = x; }
// Rounds to nearest, ties to even; a NaN stays a NaN, because its quiet bit is set.
__device__ __forceinline__ void store(bf16& out, float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    out.bits = static_cast<unsigned short>(rounded >> 16);
}

constexpr unsigned kWholeWarp = 0xffffffffu;

struct Sum {
    static constexpr float kNeutral = 0.0f;
    __device__ __forceinline__ static float of(float x, float y) { return x + y; }
};

struct Max {
    static constexpr float kNeutral = -3.402823466e+38f;
    __device__ __forceinline__ static float of(float x, float y) { return x > y ? x : y; }
};

// Reduces x over all threads of a block (a multiple of 32) and returns the result in each of them.  The order of
// operations depends only on the size of the block.
template <typename Of>
__device__ float reduce_over_block(float x) {
    __shared__ float of_warps[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    for (unsigned distance = 16; distance; distance /= 2) x = Of::of(x, __shfl_xor_sync(kWholeWarp, x, distance));
    __syncthreads();  // until all threads have read the numbers of an earlier call
    if (lane == 0) of_warps[warp] = x;
    __syncthreads();
    x = lane < n_warps ? of_warps[lane] : Of::kNeutral;
    for (unsigned distance = 16; distance; distance /= 2) x = Of::of(x, __shfl_xor_sync(kWholeWarp, x, distance));
    return x;
}
