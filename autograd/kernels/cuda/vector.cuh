// Several neighbours in memory, read or written in one access and computed with in float32.

#pragma once

#include "common.cuh"

// Two accesses if n numbers have 32 bytes.
template <typename T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Vector {
    T at[n];
};

template <typename T>
constexpr int kOf16Bytes = 16 / sizeof(T);

// Returns the number of bytes behind the last multiple of 16.
__device__ __forceinline__ unsigned misalignment(const void* address) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(address) % 16);
}

template <int n>
__device__ __forceinline__ void load_vector(const float* from, float (&x)[n]) {
    const Vector<float, n> stored = *reinterpret_cast<const Vector<float, n>*>(from);
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = stored.at[i];
}

template <int n>
__device__ __forceinline__ void load_vector(const bf16* from, float (&x)[n]) {
    if constexpr (n == 1) {
        x[0] = load(*from);
    } else {
        const Vector<unsigned, n / 2> stored = *reinterpret_cast<const Vector<unsigned, n / 2>*>(from);
#pragma unroll
        for (int i = 0; i < n / 2; ++i) {
            x[2 * i] = __uint_as_float(stored.at[i] << 16);
            x[2 * i + 1] = __uint_as_float(stored.at[i] & 0xffff0000u);
        }
    }
}

template <int n>
__device__ __forceinline__ void store_vector(float* to, const float (&x)[n]) {
    Vector<float, n> stored;
#pragma unroll
    for (int i = 0; i < n; ++i) stored.at[i] = x[i];
    *reinterpret_cast<Vector<float, n>*>(to) = stored;
}

// Rounds as `store` does; a NaN becomes some NaN.
__device__ __forceinline__ unsigned two_bf16(float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#else  // tests run this on a CPU
    bf16 lower, upper;
    store(lower, low);
    store(upper, high);
    return static_cast<unsigned>(upper.bits) << 16 | lower.bits;
#endif
}

template <int n>
__device__ __forceinline__ void store_vector(bf16* to, const float (&x)[n]) {
    if constexpr (n == 1) {
        store(*to, x[0]);
    } else {
        Vector<unsigned, n / 2> stored;
#pragma unroll
        for (int i = 0; i < n / 2; ++i) stored.at[i] = two_bf16(x[2 * i], x[2 * i + 1]);
        *reinterpret_cast<Vector<unsigned, n / 2>*>(to) = stored;
    }
}
