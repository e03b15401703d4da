// Label-smoothed cross-entropy, one block per row: the logits are overwritten by p - q; see autograd.ops.cross_entropy.
//
// A row is read twice, the second time from a cache, and written once, 16 bytes at a time.  Every thread writes the words
// that it has read.  The target and the impossible word, whose q differs, get their gradients after all others.  A row
// without a target (-1) becomes 0, whatever it contains.

#include "common.cuh"

constexpr int kThreads = 512;

// Returns exp(x) with a relative error of about 2^-22 + |x| 2^-24; 0 below the smallest normal number.
__device__ __forceinline__ float exponential(float x) {
    constexpr float kLog2OfE = 1.44269504f;
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kLog2OfE));
    return power;
#else  // tests run this on a CPU
    return exp2f(x * kLog2OfE);
#endif
}

// Calls visit(word, z) for all words of this thread.  z has the logits from that word on: one, or those of 16 bytes.
// Words before the first and behind the last multiple of 16 bytes come one by one.
template <typename T, typename Visit>
__device__ __forceinline__ void for_each_word(const T* logits, int n_words, const Visit& visit) {
    constexpr int kWords = kOf16Bytes<T>;
    const int before = static_cast<int>(-reinterpret_cast<unsigned long long>(logits) % 16 / sizeof(T));
    const int first = before < n_words ? before : n_words, n_in_vectors = (n_words - first) / kWords * kWords;
    for (int i = kWords * threadIdx.x; i < n_in_vectors; i += kWords * blockDim.x) {
        const int word = first + i;
        float z[kWords];
        load_aligned(logits + word, z);
        visit(word, z);
    }
    for (int i = threadIdx.x; i < n_words - n_in_vectors; i += blockDim.x) {
        const int word = i < first ? i : i + n_in_vectors;
        float z[1] = {load(logits[word])};
        visit(word, z);
    }
}

// Running sums over the words of a thread.
struct Sums {
    float greatest = Max::kNeutral, of_exponentials = 0;  // of exp(z - greatest)
    float of_logits = 0;                                  // without the impossible word, which may be -infinity

    // `left_out` is the index of the impossible word in z.  fmaxf ignores NaN, but the exponentials do not.
    template <int n>
    __device__ __forceinline__ void add(float (&z)[n], int left_out) {
        float greater = greatest;
#pragma unroll
        for (int i = 0; i < n; ++i) greater = fmaxf(greater, z[i]);
        of_exponentials *= exponential(greatest - greater);
        greatest = greater;
#pragma unroll
        for (int i = 0; i < n; ++i) of_exponentials += exponential(z[i] - greater);
        if (0 <= left_out && left_out < n) {
#pragma unroll
            for (int i = 0; i < n; ++i)
                if (i == left_out) z[i] = 0;
        }
#pragma unroll
        for (int i = 0; i < n; ++i) of_logits += z[i];
    }
};

template <typename T>
__device__ void cross_entropy(T* logits, const long long* targets, float* losses, long long n_words, float share,
                              float confidence, int impossible) {
    logits += blockIdx.x * n_words;
    const int target = static_cast<int>(targets[blockIdx.x]), n = static_cast<int>(n_words);
    if (target < 0) {  // a whole block
        for_each_word(logits, n, [&](int word, auto& z) {
            for (float& of_word : z) of_word = 0;
            store_aligned(logits + word, z);
        });
        if (threadIdx.x == 0) losses[blockIdx.x] = 0;
        return;
    }
    const float z_target = load(logits[target]), z_impossible = impossible < 0 ? 0 : load(logits[impossible]);
    Sums here;
    for_each_word(logits, n, [&](int word, auto& z) { here.add(z, impossible < 0 ? -1 : impossible - word); });
    const float greatest = reduce_over_block<Max>(here.greatest);
    const float total = reduce_over_block<Sum>(here.of_exponentials * exponential(here.greatest - greatest));
    const float sum = reduce_over_block<Sum>(here.of_logits), scale = 1 / total;
    for_each_word(logits, n, [&](int word, auto& z) {
        for (float& of_word : z) of_word = exponential(of_word - greatest) * scale - share;
        store_aligned(logits + word, z);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
        if (impossible >= 0) store(logits[impossible], exponential(z_impossible - greatest) * scale);
        const float of_target = target == impossible ? confidence : share + confidence;
        store(logits[target], exponential(z_target - greatest) * scale - of_target);
        losses[blockIdx.x] = logf(total) + greatest - (share > 0 ? share * sum : 0) - confidence * z_target;
    }
}

// Writes y = x * factor, four neighbours for a thread.
template <typename T>
__device__ void scaled(const T* x, const float* factor, T* y, long long n) {
    const long long i = 4 * (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x);
    const bool aligned = is_aligned<4>(x) && is_aligned<4>(y);
    float value[4];
    load_first(x + i, n - i, aligned, value);
    for (float& each : value) each *= *factor;
    store_first(y + i, n - i, aligned, value);
}

#define CROSS_ENTROPY(T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                            \
        cross_entropy_##T(T* logits, const long long* targets, float* losses, long long n_words, float share,         \
                          float confidence, int impossible) {                                                         \
        cross_entropy(logits, targets, losses, n_words, share, confidence, impossible);                               \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                            \
        scaled_##T(const T* x, const float* factor, T* y, long long n) {                                              \
        scaled(x, factor, y, n);                                                                                      \
    }

CROSS_ENTROPY(float)
CROSS_ENTROPY(bf16)
CROSS_ENTROPY(f16)
