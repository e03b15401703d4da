// Label-smoothed cross-entropy, one block per row: the logits are overwritten by p - q; see autograd.ops.cross_entropy.
//
// A row is read twice, the second time from a cache, and written once.  Every thread writes the words that it has read.
// The target and the impossible word, whose q differs, get their gradients after all others.  A row without a target
// (-1) becomes 0, whatever it contains.

#include "common.cuh"

template <typename T>
__device__ void cross_entropy(T* logits, const long long* targets, float* losses, long long n_words, float share,
                              float confidence, int impossible) {
    logits += blockIdx.x * n_words;
    const int target = static_cast<int>(targets[blockIdx.x]), n = static_cast<int>(n_words);
    if (target < 0) {  // a whole block
        for (int word = threadIdx.x; word < n; word += blockDim.x) store(logits[word], 0.0f);
        if (threadIdx.x == 0) losses[blockIdx.x] = 0;
        return;
    }
    const float z_target = load(logits[target]), z_impossible = impossible < 0 ? 0 : load(logits[impossible]);
    float greatest_here = Max::kNeutral, total = 0, sum = 0;  // sum omits the impossible word, which may be -infinity
    for (int word = threadIdx.x; word < n; word += blockDim.x) {
        const float z = load(logits[word]), greater = Max::of(greatest_here, z);
        total = total * expf(greatest_here - greater) + expf(z - greater);
        if (word != impossible) sum += z;
        greatest_here = greater;
    }
    const float greatest = reduce_over_block<Max>(greatest_here);
    total = reduce_over_block<Sum>(total * expf(greatest_here - greatest));
    sum = reduce_over_block<Sum>(sum);
    const float scale = 1 / total;
    for (int word = threadIdx.x; word < n; word += blockDim.x)
        store(logits[word], expf(load(logits[word]) - greatest) * scale - share);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (impossible >= 0) store(logits[impossible], expf(z_impossible - greatest) * scale);
        const float of_target = target == impossible ? confidence : share + confidence;
        store(logits[target], expf(z_target - greatest) * scale - of_target);
        losses[blockIdx.x] = logf(total) + greatest - (share > 0 ? share * sum : 0) - confidence * z_target;
    }
}

#define CROSS_ENTROPY(T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                                                \
        cross_entropy_##T(T* logits, const long long* targets, float* losses, long long n_words, float share,         \
                          float confidence, int impossible) {                                                         \
        cross_entropy(logits, targets, losses, n_words, share, confidence, impossible);                               \
    }

CROSS_ENTROPY(float)
CROSS_ENTROPY(bf16)
