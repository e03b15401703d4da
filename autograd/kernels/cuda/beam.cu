// The arrays of a beam search; see autograd.ops.beam.

#include "common.cuh"

constexpr int kThreads = 128;
constexpr int kMost = 16;  // live hypotheses of a sentence, and finished ones
constexpr int kMostRanked = 2 * kMost;

__device__ __forceinline__ double minus_infinity() { return static_cast<double>(__uint_as_float(0xff800000u)); }

// Returns the number of values that come before value i: greater ones, and equal ones with smaller indices.
__device__ __forceinline__ int rank_of(const double* values, int i, int n) {
    int rank = 0;
    for (int j = 0; j < n; ++j) rank += values[j] > values[i] || (values[j] == values[i] && j < i);
    return rank;
}

// A block computes a sentence.  Its threads rank continuations, then old and new finished hypotheses, then each thread
// moves columns of the histories.  Columns from the newest step on are equal in all of them.
extern "C" __global__ void __launch_bounds__(kThreads)
    extend_beams(double* log_p, long long* newest, long long* ids, long long* cache_index, double* finished_scores,
                 double* finished_log_p, long long* finished_ids, bool* done, long long* n_steps,
                 const long long* limits, const double* greatest_penalties, const double* token_log_p,
                 const long long* tokens, const double* penalties, long long* parents, int k, unsigned n_tokens,
                 int n_ranked, int n_finished, int longest, long long end) {
    __shared__ double totals[kMost * kMostRanked], scores[kMost + kMostRanked], best_scores[kMost];
    __shared__ unsigned choices[kMostRanked], parent_of[kMost];
    __shared__ int live[kMost], sources[kMost];
    __shared__ long long token_of[kMost], column_of[kMost][kThreads];
    __shared__ bool continues[kMostRanked];
    const int thread = threadIdx.x, n_choices = k * static_cast<int>(n_tokens);
    const long long sentence = blockIdx.x, step = n_steps[sentence];
    const bool was_done = done[sentence];
    log_p += sentence * k, newest += sentence * k, parents += sentence * k;
    finished_scores += sentence * n_finished, finished_log_p += sentence * n_finished;
    token_log_p += sentence * n_choices, tokens += sentence * n_choices;

    for (int i = thread; i < n_choices; i += kThreads) {
        const double total = token_log_p[i] + log_p[static_cast<unsigned>(i) / n_tokens];
        totals[i] = total == total ? total : minus_infinity();
    }
    __syncthreads();
    for (int i = thread; i < n_choices; i += kThreads) {
        const int rank = rank_of(totals, i, n_choices);
        if (rank < n_ranked) choices[rank] = i;
    }
    __syncthreads();
    if (thread < n_ranked) {
        const double total = totals[choices[thread]];
        const bool exists = total > minus_infinity(), ends = tokens[choices[thread]] == end;
        continues[thread] = exists && !ends;
        scores[n_finished + thread] = ends && exists && !was_done ? total / penalties[step - 1] : minus_infinity();
    }
    if (thread < n_finished) scores[thread] = finished_scores[thread];
    if (thread < k) live[thread] = -1;
    __syncthreads();
    if (thread < n_finished + n_ranked) {
        const int rank = rank_of(scores, thread, n_finished + n_ranked);
        if (rank < n_finished) sources[rank] = thread, best_scores[rank] = scores[thread];
    }
    if (thread < n_ranked && continues[thread]) {
        int number = 0;
        for (int i = 0; i < thread; ++i) number += continues[i];
        if (number < k) live[number] = thread;
    }
    __syncthreads();
    double its_log_p = minus_infinity();
    if (thread < n_finished) {
        const int source = sources[thread];
        if (source < n_finished) its_log_p = finished_log_p[source];
        else if (best_scores[thread] > minus_infinity()) its_log_p = totals[choices[source - n_finished]];
    }
    if (thread < k) {
        const int rank = live[thread];
        const unsigned choice = rank < 0 ? 0 : choices[rank];
        log_p[thread] = rank < 0 ? minus_infinity() : totals[choice];
        newest[thread] = token_of[thread] = rank < 0 ? end : tokens[choice];
        parents[thread] = parent_of[thread] = choice / n_tokens;
    }
    __syncthreads();  // until finished_log_p, log_p, done and n_steps were read, and parents are known
    if (thread < n_finished) finished_scores[thread] = best_scores[thread], finished_log_p[thread] = its_log_p;
    const double bound = (live[0] < 0 ? minus_infinity() : totals[choices[live[0]]]) / greatest_penalties[sentence];
    const bool is_done = was_done || !(bound > best_scores[n_finished - 1] && limits[sentence] > step);
    const long long next = is_done ? step : step + 1;
    if (thread == 0) done[sentence] = is_done, n_steps[sentence] = next;
    for (int column = thread; column < next; column += kThreads) {
        long long* own = finished_ids + sentence * n_finished * longest + column;
        long long* words = ids + sentence * k * longest + column;
        long long* slots = cache_index + sentence * k * longest + column;
        for (int i = 0; i < n_finished; ++i) column_of[i][thread] = own[i * longest];
        for (int i = 0; i < n_finished; ++i) {
            const int source = sources[i];
            const long long parent = source < n_finished ? 0 : choices[source - n_finished] / n_tokens;
            own[i * longest] = source < n_finished ? column_of[source][thread] : words[parent * longest];
        }
        for (int i = 0; i < k; ++i) column_of[i][thread] = words[i * longest];
        for (int i = 0; i < k; ++i)
            words[i * longest] = column == step - 1 ? token_of[i] : column_of[parent_of[i]][thread];
        for (int i = 0; i < k; ++i) column_of[i][thread] = slots[i * longest];
        for (int i = 0; i < k; ++i) slots[i * longest] = column == next - 1 ? i : column_of[parent_of[i]][thread];
    }
}

// A block copies the key and the value of one hypothesis into its slot of the newest step.
template <typename Bits>
__device__ __forceinline__ void append(Bits* keys, Bits* values, const Bits* new_keys, const Bits* new_values,
                                       const long long* n_steps, unsigned k, int n_slots, long long capacity,
                                       int key_width, int value_width) {
    const long long sentence = blockIdx.x / k, slot = blockIdx.x % k;
    const long long row = (sentence * capacity + n_steps[sentence] - 1) * n_slots + slot;
    for (int i = threadIdx.x; i < key_width; i += kThreads)
        keys[row * key_width + i] = new_keys[static_cast<long long>(blockIdx.x) * key_width + i];
    for (int i = threadIdx.x; i < value_width; i += kThreads)
        values[row * value_width + i] = new_values[static_cast<long long>(blockIdx.x) * value_width + i];
}

#define APPEND(bits, Bits)                                                                                           \
    extern "C" __global__ void __launch_bounds__(kThreads) append_##bits##_bits_to_cache(                            \
        Bits* keys, Bits* values, const Bits* new_keys, const Bits* new_values, const long long* n_steps, unsigned k, \
        int n_slots, long long capacity, int key_width, int value_width) {                                           \
        append(keys, values, new_keys, new_values, n_steps, k, n_slots, capacity, key_width, value_width);           \
    }

APPEND(32, unsigned)
APPEND(16, unsigned short)
