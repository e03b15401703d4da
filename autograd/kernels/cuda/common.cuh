// Code shared by kernels: 16-bit storage of numbers that are computed with in float32, and reductions over a block.

#pragma once

struct bf16 {  // the upper half of a float32
    unsigned short bits;
};

struct f16 {  // 11 bits of precision, numbers up to 65,504
    unsigned short bits;
};

#ifdef __CUDA_ARCH__  // tests define these functions for the CPU
__device__ __forceinline__ float f16_value(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// Rounds to nearest, ties to even.
__device__ __forceinline__ unsigned short f16_bits(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

__device__ __forceinline__ float load(float x) { return x; }
__device__ __forceinline__ float load(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ float load(f16 x) { return f16_value(x.bits); }

// Rounds to 16 bits, to nearest, ties to even; a NaN becomes 0x7fff.
__device__ __forceinline__ unsigned bf16_bits(float x) {
    const unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Returns two numbers in 16 bits each, low in the lower half.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else  // older GPUs lack the instruction, and tests run this on a CPU
    return bf16_bits(high) << 16 | bf16_bits(low);
#endif
}

__device__ __forceinline__ void store(float& out, float x) { out = x; }
__device__ __forceinline__ void store(bf16& out, float x) {
    out.bits = static_cast<unsigned short>(bf16_pair(x, 0.0f));
}

__device__ __forceinline__ void store(f16& out, float x) { out.bits = f16_bits(x); }

// Two numbers in 16 bits each, low in the lower half.
__device__ __forceinline__ unsigned pair_of(bf16, float low, float high) { return bf16_pair(low, high); }
__device__ __forceinline__ unsigned pair_of(f16, float low, float high) {
    return static_cast<unsigned>(f16_bits(high)) << 16 | f16_bits(low);
}
template <typename T>
__device__ __forceinline__ float low_of(unsigned pair) { return load(T{static_cast<unsigned short>(pair)}); }
template <typename T>
__device__ __forceinline__ float high_of(unsigned pair) { return load(T{static_cast<unsigned short>(pair >> 16)}); }

// n neighbours in memory, for accesses of up to 16 bytes; more bytes take several accesses.
template <typename T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Neighbours {
    T at[n];
};

template <typename T>
constexpr int kOf16Bytes = 16 / sizeof(T);

// Returns whether an address (or null) allows accesses to n neighbours at once.
template <int n, typename T>
__device__ __forceinline__ bool is_aligned(const T* address) {
    return reinterpret_cast<unsigned long long>(address) % alignof(Neighbours<T, n>) == 0;
}

template <int n>
__device__ __forceinline__ void load_aligned(const float* from, float (&to)[n]) {
    const Neighbours<float, n> stored = *reinterpret_cast<const Neighbours<float, n>*>(from);
#pragma unroll
    for (int i = 0; i < n; ++i) to[i] = stored.at[i];
}

template <int n, typename T>
__device__ __forceinline__ void load_aligned(const T* from, float (&to)[n]) {
    if constexpr (n == 1) {
        to[0] = load(*from);
    } else {
        const Neighbours<unsigned, n / 2> pairs = *reinterpret_cast<const Neighbours<unsigned, n / 2>*>(from);
#pragma unroll
        for (int i = 0; i < n / 2; ++i) {
            to[2 * i] = low_of<T>(pairs.at[i]);
            to[2 * i + 1] = high_of<T>(pairs.at[i]);
        }
    }
}

template <int n>
__device__ __forceinline__ void store_aligned(float* to, const float (&from)[n]) {
    Neighbours<float, n> stored;
#pragma unroll
    for (int i = 0; i < n; ++i) stored.at[i] = from[i];
    *reinterpret_cast<Neighbours<float, n>*>(to) = stored;
}

template <int n, typename T>
__device__ __forceinline__ void store_aligned(T* to, const float (&from)[n]) {
    if constexpr (n == 1) {
        store(*to, from[0]);
    } else {
        Neighbours<unsigned, n / 2> pairs;
#pragma unroll
        for (int i = 0; i < n / 2; ++i) pairs.at[i] = pair_of(T{}, from[2 * i], from[2 * i + 1]);
        *reinterpret_cast<Neighbours<unsigned, n / 2>*>(to) = pairs;
    }
}

// Loads n neighbours at once if the address is aligned, else one by one; only the first `count` exist, the rest are 0.
template <int n, typename T>
__device__ __forceinline__ void load_first(const T* from, long long count, bool aligned, float (&to)[n]) {
    if (aligned && count >= n) return load_aligned<n>(from, to);
#pragma unroll
    for (int i = 0; i < n; ++i) to[i] = i < count ? load(from[i]) : 0.0f;
}

// Stores the first `count` of n neighbours.
template <int n, typename T>
__device__ __forceinline__ void store_first(T* to, long long count, bool aligned, const float (&from)[n]) {
    if (aligned && count >= n) return store_aligned<n>(to, from);
#pragma unroll
    for (int i = 0; i < n; ++i)
        if (i < count) store(to[i], from[i]);
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
