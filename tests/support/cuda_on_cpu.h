// Enough of CUDA to run a kernel on one core of a CPU: the threads of a block are fibres that take turns.
//
// A fibre runs until it waits at a barrier.  A warp runs until all its threads wait for other warps, and only then the
// next one runs: most kernels that lack a barrier give wrong results.  A barrier that some threads never reach aborts, and
// does not hang.  An asynchronous copy fills its destination with NaN when it starts, and copies when its thread waits
// for it; a thread that ends before aborts.  Not emulated: warps that run in lock step, and warps that take turns between
// two barriers of the block.

#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "f16_on_cpu.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static  // blocks run one after the other

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

constexpr unsigned kWarp = 32;
constexpr size_t kStack = 1 << 16;

struct Barrier {
    unsigned waiting = 0, generation = 0;
};

struct Copy {  // of 16 bytes
    void* to;
    const void* from;  // nullptr: zeros
};

struct Fibre {  // runs its thread of one block after the other
    ucontext_t beginning;
    jmp_buf point;  // where it waits: jumps need no call of the kernel, as changes of contexts do
    std::vector<char> stack = std::vector<char>(kStack);
    bool begun = false, finished = false;
    std::vector<Copy> copies;
};

struct Warp {
    Barrier barrier;
    double slots[kWarp];
    unsigned fragments[kWarp][6];
    const void* rows[kWarp];
};

inline std::vector<Fibre> fibres;
inline std::vector<Warp> warps;
inline Barrier block_barrier;
inline jmp_buf scheduler;
inline unsigned current, progress;
inline void (*body)(void*);
inline void* body_argument;

inline void fail(const char* reason) {
    std::fprintf(stderr, "block %u: %s\n", blockIdx.x, reason);
    std::abort();
}

inline void check_alignment(const void* x) {
    if (reinterpret_cast<size_t>(x) % 16) fail("an address is no multiple of 16");
}

[[gnu::noinline]] inline void pause() {
    if (!_setjmp(fibres[current].point)) _longjmp(scheduler, 1);
}

inline void wait(Barrier& barrier, unsigned size) {
    const unsigned generation = barrier.generation;
    ++progress;
    if (++barrier.waiting == size) {
        barrier.waiting = 0;
        ++barrier.generation;
        return;
    }
    while (barrier.generation == generation) pause();
}

inline Warp& warp() { return warps[threadIdx.x / kWarp]; }

inline unsigned warp_size() {
    const unsigned rest = blockDim.x - threadIdx.x / kWarp * kWarp;
    return rest < kWarp ? rest : kWarp;
}

inline void run_for_ever() {
    for (;;) {
        body(body_argument);
        if (!fibres[current].copies.empty()) fail("a thread has ended without waiting for its copies");
        fibres[current].finished = true;
        ++progress;
        pause();
    }
}

[[gnu::noinline]] inline void resume(Fibre& fibre) {
    if (_setjmp(scheduler)) return;
    if (fibre.begun) _longjmp(fibre.point, 1);
    fibre.begun = true;
    getcontext(&fibre.beginning);
    fibre.beginning.uc_stack.ss_sp = fibre.stack.data();
    fibre.beginning.uc_stack.ss_size = kStack;
    makecontext(&fibre.beginning, run_for_ever, 0);
    setcontext(&fibre.beginning);
}

// Lets each thread of a warp run to its next barrier; returns whether some have not finished before.
inline bool run_threads(unsigned of_warp) {
    const unsigned first = of_warp * kWarp, rest = fibres.size() - first, n = rest < kWarp ? rest : kWarp;
    bool running = false;
    for (unsigned i = 0; i < n; ++i) {
        current = first + i;
        if (fibres[current].finished) continue;
        running = true;
        threadIdx.x = current;
        resume(fibres[current]);
    }
    return running;
}

inline void run_block() {
    for (Fibre& fibre : fibres) fibre.finished = false;
    block_barrier = Barrier();
    warps.assign((blockDim.x + kWarp - 1) / kWarp, Warp());
    for (bool running = true; running;) {
        running = false;
        bool any_progress = false;
        for (unsigned of_warp = 0; of_warp < warps.size(); ++of_warp) {
            do {
                progress = 0;
                running |= run_threads(of_warp);
                any_progress |= progress > 0;
            } while (progress);
        }
        if (running && !any_progress) fail("some threads wait at a barrier that others never reach");
    }
}

template <typename... Arguments>
struct Call {
    void (*kernel)(Arguments...);
    void** arguments;

    template <size_t... I>
    void operator()(std::index_sequence<I...>) const {
        kernel(*static_cast<Arguments*>(arguments[I])...);
    }
    static void enter(void* self) { (*static_cast<Call*>(self))(std::index_sequence_for<Arguments...>{}); }
};

// As cuLaunchKernel: arguments[i] points to argument i.
template <typename... Arguments>
void launch(void (*kernel)(Arguments...), unsigned grid, unsigned block, void** arguments) {
    Call<Arguments...> call{kernel, arguments};
    body = Call<Arguments...>::enter;
    body_argument = &call;
    gridDim = dim3{grid};
    blockDim = dim3{block};
    fibres.resize(block);
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) run_block();
    body_argument = nullptr;  // ``call`` ends here
}

template <typename T>
T exchange(T value, unsigned from) {
    Warp& mine = warp();
    std::memcpy(&mine.slots[threadIdx.x % kWarp], &value, sizeof value);
    wait(mine.barrier, warp_size());
    T result;
    std::memcpy(&result, &mine.slots[from], sizeof result);
    wait(warp().barrier, warp_size());
    return result;
}

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::wait(cuda_on_cpu::block_barrier, blockDim.x); }
inline void __syncwarp() { cuda_on_cpu::wait(cuda_on_cpu::warp().barrier, cuda_on_cpu::warp_size()); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
    return cuda_on_cpu::exchange(value, (threadIdx.x % cuda_on_cpu::kWarp) ^ mask);
}

template <typename T>
T __shfl_sync(unsigned, T value, unsigned from) {
    return cuda_on_cpu::exchange(value, from);
}

template <typename Of>
int reduce_over_warp(int value, Of of) {
    for (unsigned distance = 16; distance; distance /= 2) value = of(value, __shfl_xor_sync(0, value, distance));
    return value;
}

inline int __reduce_min_sync(unsigned, int value) {
    return reduce_over_warp(value, [](int x, int y) { return x < y ? x : y; });
}
inline int __reduce_max_sync(unsigned, int value) {
    return reduce_over_warp(value, [](int x, int y) { return x > y ? x : y; });
}
inline int __any_sync(unsigned, int value) {
    return reduce_over_warp(value != 0, [](int x, int y) { return x | y; });
}

// The functions that mma.cuh defines for a GPU.
#define TENSOR_CORES

// c (16, 8) += A (16, 16) B (16, 8) of 16-bit numbers; fragments as in mma.cuh.
inline void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned b[2] = {b0, b1};
    cuda_on_cpu::Warp& mine = cuda_on_cpu::warp();
    const unsigned lane = threadIdx.x % cuda_on_cpu::kWarp;
    std::memcpy(mine.fragments[lane], a, sizeof a);
    std::memcpy(mine.fragments[lane] + 4, b, sizeof b);
    cuda_on_cpu::wait(mine.barrier, cuda_on_cpu::kWarp);
    const auto number = [&](unsigned group, unsigned place, unsigned k) {
        const unsigned two = mine.fragments[4 * group + k % 8 / 2][place], bits = (k % 2 ? two >> 16 : two) << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    };
    for (unsigned i = 0; i < 4; ++i)
        for (unsigned k = 0; k < 16; ++k)
            c[i] += number(lane / 4, i / 2 + k / 8 * 2, k) * number(lane % 4 * 2 + i % 2, 4 + k / 8, k);
    cuda_on_cpu::wait(mine.barrier, cuda_on_cpu::kWarp);
}

template <bool kTransposed>
void load_matrices(unsigned (&x)[4], const void* row) {
    cuda_on_cpu::Warp& mine = cuda_on_cpu::warp();
    const unsigned lane = threadIdx.x % cuda_on_cpu::kWarp, group = lane / 4, first = lane % 4 * 2;
    cuda_on_cpu::check_alignment(row);
    mine.rows[lane] = row;
    cuda_on_cpu::wait(mine.barrier, cuda_on_cpu::kWarp);
    for (unsigned i = 0; i < 4; ++i) {
        const auto number = [&](unsigned r, unsigned column) {
            unsigned short bits;
            std::memcpy(&bits, static_cast<const char*>(mine.rows[8 * i + r]) + 2 * column, sizeof bits);
            return static_cast<unsigned>(bits);
        };
        x[i] = kTransposed ? number(first + 1, group) << 16 | number(first, group)
                           : number(group, first + 1) << 16 | number(group, first);
    }
    cuda_on_cpu::wait(mine.barrier, cuda_on_cpu::kWarp);
}

inline void start_copy(void* to, const void* from, bool exists) {
    cuda_on_cpu::check_alignment(to);
    cuda_on_cpu::check_alignment(from);
    std::memset(to, 0xFF, 16);
    cuda_on_cpu::fibres[cuda_on_cpu::current].copies.push_back({to, exists ? from : nullptr});
}

inline void finish_copies() {
    for (const cuda_on_cpu::Copy& copy : cuda_on_cpu::fibres[cuda_on_cpu::current].copies)
        if (copy.from)
            std::memcpy(copy.to, copy.from, 16);
        else
            std::memset(copy.to, 0, 16);
    cuda_on_cpu::fibres[cuda_on_cpu::current].copies.clear();
}

inline float power_of_two(float x) { return std::exp2(x); }

inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}

inline int min(int x, int y) { return x < y ? x : y; }

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define RUN_ON_CPU(kernel)                                                          \
    extern "C" void run_##kernel(unsigned grid, unsigned block, void** arguments) { \
        cuda_on_cpu::launch(kernel, grid, block, arguments);                        \
    }
