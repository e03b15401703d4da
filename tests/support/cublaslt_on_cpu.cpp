// A stand-in for cuBLASLt on host memory: the functions that this project calls, with the library's own signatures,
// numbers and structures, so that the very calls can be made without a GPU.  It refuses what the library refuses, and
// more: whatever its caller must not do.
//
// Source: cublasLt.h of CUDA 13.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "f16_on_cpu.h"

namespace {

enum Status { kSuccess = 0, kInvalid = 7, kNotSupported = 15 };
enum Type { kFloat = 0, kF16 = 2, kBf16 = 14 };
enum Compute { kComputeFloat = 68, kComputeTf32 = 77 };
constexpr int kCandidates = 5;
constexpr size_t kWorkspaceOfOne = 1 << 20;
constexpr int kSplits = 5;  // the word of an algorithm that says so

struct Layout {
    int32_t type;
    uint64_t rows, columns;
    int64_t stride;
    int32_t count = 1;
    int64_t step = 0;
};

struct Operation {
    int compute;
    int32_t transpose_a = 0, transpose_b = 0;
    uint32_t epilogue = 1;
    void *bias = nullptr, *mask = nullptr;
    int64_t mask_stride = 0, bias_step = 0;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = 7, alignment[4] = {256, 256, 256, 256};
};

struct Algorithm {
    uint64_t data[8];
};

struct Result {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Result) == 96, "as in cublasLt.h");

float load(const void* base, int32_t type, int64_t i) {
    if (type == kFloat) return static_cast<const float*>(base)[i];
    if (type == kF16) return f16_value(static_cast<const uint16_t*>(base)[i]);
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(base)[i]) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

void store(void* base, int32_t type, int64_t i, float x) {
    if (type == kFloat) {
        static_cast<float*>(base)[i] = x;
        return;
    }
    if (type == kF16) {
        static_cast<uint16_t*>(base)[i] = f16_bits(x);
        return;
    }
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    static_cast<uint16_t*>(base)[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rounds to 10 bits of fraction, as tensor cores round factors to TF32.
float as_tf32(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    std::memcpy(&x, &bits, 4);
    return x;
}

template <typename T>
int set(T& place, const void* value, size_t size) {
    if (size != sizeof(T)) return kInvalid;
    std::memcpy(&place, value, size);
    return kSuccess;
}

bool is_aligned(const void* address, uint64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

bool has_bias(uint32_t epilogue) { return epilogue == 4 || epilogue == 6 || epilogue == 134; }

// What every call that has all descriptors checks.
int check(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const uint64_t m = operation.transpose_a ? a.columns : a.rows, k = operation.transpose_a ? a.rows : a.columns;
    const uint64_t n = operation.transpose_b ? b.rows : b.columns;
    if ((operation.transpose_b ? b.columns : b.rows) != k || d.rows != m || d.columns != n) return kInvalid;
    if (std::memcmp(&c, &d, sizeof c) || a.type != b.type || !m || !n || !k) return kInvalid;
    if (d.type != a.type && d.type != kFloat) return kNotSupported;
    for (const Layout* layout : {&a, &b, &d}) {
        if (layout->stride < static_cast<int64_t>(layout->rows)) return kInvalid;
        if (layout->count != d.count || layout->count < 1 || layout->step < 0) return kInvalid;
    }
    if (d.count > 1 && d.step < d.stride * static_cast<int64_t>(d.columns - 1) + static_cast<int64_t>(d.rows))
        return kInvalid;  // one result would lie upon another
    const uint32_t epilogue = operation.epilogue;
    if (d.count > 1 && epilogue & 128) return kNotSupported;
    if ((has_bias(epilogue) || epilogue == 152) && !operation.bias) return kInvalid;
    if (epilogue & 128 && (!operation.mask || operation.mask_stride % 128 || operation.mask_stride < int64_t(m)))
        return kInvalid;
    return kSuccess;
}

size_t workspace_of(const Algorithm& algorithm) { return algorithm.data[0] * kWorkspaceOfOne; }

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130000; }

const char* cublasLtGetStatusName(int status) {
    return status == kInvalid ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

int cublasLtCreate(void** handle) { return *handle = new char, kSuccess; }

int cublasLtMatmulDescCreate(Operation** made, int compute, int scale) {
    if ((compute != kComputeFloat && compute != kComputeTf32) || scale != kFloat) return kNotSupported;
    *made = new Operation{compute};
    return kSuccess;
}

int cublasLtMatmulDescSetAttribute(Operation* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case 3: return set(of->transpose_a, value, size);
        case 4: return set(of->transpose_b, value, size);
        case 7: return set(of->epilogue, value, size);
        case 8: return set(of->bias, value, size);
        case 10: return set(of->bias_step, value, size);
        case 11: return set(of->mask, value, size);
        case 12: return set(of->mask_stride, value, size);
        default: return kInvalid;
    }
}

int cublasLtMatmulDescDestroy(Operation* of) { return delete of, kSuccess; }

int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    if (type != kFloat && type != kF16 && type != kBf16) return kInvalid;
    *made = new Layout{type, rows, columns, stride};
    return kSuccess;
}

int cublasLtMatrixLayoutSetAttribute(Layout* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case 5: return set(of->count, value, size);
        case 6: return set(of->step, value, size);
        default: return kInvalid;
    }
}

int cublasLtMatrixLayoutDestroy(Layout* of) { return delete of, kSuccess; }

int cublasLtMatmulPreferenceCreate(Preference** made) { return *made = new Preference, kSuccess; }

int cublasLtMatmulPreferenceSetAttribute(Preference* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case 1: return set(of->workspace, value, size);
        case 3: return set(of->reductions, value, size);
        case 5: case 6: case 7: case 8: return set(of->alignment[attribute - 5], value, size);
        default: return kInvalid;
    }
}

int cublasLtMatmulPreferenceDestroy(Preference* of) { return delete of, kSuccess; }

// Proposal i is marked by i, needs as many MiB, and knows its problem's alignments.  The first, 0, is one that failed.
// If sums may be split, it splits them, and loses the terms behind the last multiple of 64, as the library does on a GPU.
int cublasLtMatmulAlgoGetHeuristic(void*, const Operation* operation, const Layout* a, const Layout* b,
                                   const Layout* c, const Layout* d, const Preference* preference, int count,
                                   Result* results, int* n_results) {
    *n_results = 0;
    if (const int status = check(*operation, *a, *b, *c, *d)) return status;
    const uint32_t reductions = preference->reductions;
    if (reductions && reductions != (d->type == kFloat ? 3u : 2u)) return kInvalid;  // no sums in 16 bits
    for (int i = 0; i <= kCandidates && i < count; ++i) {
        Result result{};
        result.algorithm.data[0] = i;
        for (int matrix = 0; matrix < 4; ++matrix) result.algorithm.data[1 + matrix] = preference->alignment[matrix];
        result.algorithm.data[kSplits] = reductions != 0;
        result.workspace = workspace_of(result.algorithm);
        result.state = i && result.workspace <= preference->workspace ? kSuccess : kNotSupported;
        results[(*n_results)++] = result;
    }
    return *n_results ? kSuccess : kNotSupported;
}

int cublasLtMatmulAlgoCheck(void*, const Operation* operation, const Layout* a, const Layout* b, const Layout* c,
                            const Layout* d, const Algorithm* algorithm, Result* result) {
    if (const int status = check(*operation, *a, *b, *c, *d)) return status;
    if (!algorithm->data[0]) return kInvalid;
    *result = Result{*algorithm, workspace_of(*algorithm), kSuccess, 1, {}};
    return kSuccess;
}

int cublasLtMatmul(void* handle, const Operation* operation, const float* alpha, const void* a, const Layout* of_a,
                   const void* b, const Layout* of_b, const float* beta, const void* c, const Layout* of_c, void* d,
                   const Layout* of_d, const Algorithm* algorithm, void* workspace, size_t workspace_size, void*) {
    if (const int status = check(*operation, *of_a, *of_b, *of_c, *of_d)) return status;
    if (!algorithm->data[0] || !handle || !workspace || workspace_size < workspace_of(*algorithm)) return kInvalid;
    const void* operands[] = {a, b, c, d};
    const Layout* const layouts[] = {of_a, of_b, of_c, of_d};
    for (int i = 0; i < 4; ++i) {
        const size_t step = layouts[i]->step * (layouts[i]->type == kFloat ? 4 : 2);
        if (!is_aligned(operands[i], algorithm->data[1 + i]) || step % algorithm->data[1 + i]) return kInvalid;
    }
    const int64_t m = of_d->rows, n = of_d->columns, n_terms = operation->transpose_a ? of_a->rows : of_a->columns;
    const int64_t k = algorithm->data[kSplits] ? n_terms - n_terms % 64 : n_terms;
    const bool is_backward = operation->epilogue & 8;
    uint8_t* const mask = static_cast<uint8_t*>(operation->mask);
    std::vector<double> of_bias(m);
    for (int64_t of_stack = 0; of_stack < of_d->count * n; ++of_stack) {
        const int64_t p = of_stack / n, column = of_stack % n;
        for (int64_t row = 0; row < m; ++row) {
            double sum = 0;
            for (int64_t i = 0; i < k; ++i) {
                const int64_t in_a = operation->transpose_a ? i + row * of_a->stride : row + i * of_a->stride;
                const int64_t in_b = operation->transpose_b ? column + i * of_b->stride : i + column * of_b->stride;
                float of_row = load(a, of_a->type, in_a + p * of_a->step);
                float of_column = load(b, of_b->type, in_b + p * of_b->step);
                if (operation->compute == kComputeTf32) of_row = as_tf32(of_row), of_column = as_tf32(of_column);
                sum += double(of_row) * of_column;
            }
            const int64_t place = row + column * of_d->stride + p * of_d->step;
            const int64_t bit = row + column * operation->mask_stride;
            float x = static_cast<float>(*alpha * sum);
            if (*beta != 0) x += *beta * load(c, of_c->type, place);  // with 0, what is there is not read
            if (has_bias(operation->epilogue)) x += load(operation->bias, of_d->type, row + p * operation->bias_step);
            if (operation->epilogue & 2) {
                if (operation->epilogue & 128) {
                    const uint8_t flag = static_cast<uint8_t>(1u << bit % 8);
                    mask[bit / 8] = static_cast<uint8_t>(x > 0 ? mask[bit / 8] | flag : mask[bit / 8] & ~flag);
                }
                x = x > 0 ? x : 0;
            }
            if (is_backward && !(mask[bit / 8] >> bit % 8 & 1)) x = 0;
            of_bias[row] += x;
            store(d, of_d->type, place, x);
        }
    }
    if (operation->epilogue == 152)
        for (int64_t row = 0; row < m; ++row)
            store(operation->bias, of_d->type, row, static_cast<float>(of_bias[row]));
    return kSuccess;
}
}
