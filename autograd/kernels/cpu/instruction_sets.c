/* The instructions that the compiler has used, as text in memory: a function might not run on this processor. */

#include "bfloat16.h"
#include "int8.h"

#if defined(__AVX512BF16__)
#include <cpuid.h>
#endif

/* The instructions that products of each type of numbers use, those in vector registers. */
const char instruction_sets[] = "float32=" FLOAT32_SET "\nbfloat16=" BFLOAT16_SET "\nint8=" INT8_SET;

/* Return 1 if products of bfloat16 use AMX instead; -1 if they take twice the time of float32, as on Intel's processors
   without AMX; else 0. */
int64_t bfloat16_difference(void) {
#if defined(__AVX512BF16__)
    unsigned largest, ebx = 0, ecx, edx;
    if (has_tiles()) return 1;
    return __get_cpuid(0, &largest, &ebx, &ecx, &edx) && ebx == signature_INTEL_ebx ? -1 : 0;
#else
    return 0;
#endif
}

/* Extensions of processors, by their names in the compiler's options; /proc/cpuinfo adds "_" to some.  The value is 1
   if the compiler may use the extension anywhere; a macro that is not defined stays as it is. */
#define TEXT(macro) #macro
#define USED(macro) TEXT(macro) "\n"
const char used_extensions[] =
    "ssse3=" USED(__SSSE3__) "sse4.1=" USED(__SSE4_1__) "sse4.2=" USED(__SSE4_2__) "popcnt=" USED(__POPCNT__)
    "avx=" USED(__AVX__) "avx2=" USED(__AVX2__) "fma=" USED(__FMA__) "f16c=" USED(__F16C__) "bmi2=" USED(__BMI2__)
    "avxvnni=" USED(__AVXVNNI__) "avx512f=" USED(__AVX512F__) "avx512cd=" USED(__AVX512CD__)
    "avx512bw=" USED(__AVX512BW__) "avx512dq=" USED(__AVX512DQ__) "avx512vl=" USED(__AVX512VL__)
    "avx512ifma=" USED(__AVX512IFMA__) "avx512vbmi=" USED(__AVX512VBMI__) "avx512vbmi2=" USED(__AVX512VBMI2__)
    "avx512vnni=" USED(__AVX512VNNI__) "avx512bitalg=" USED(__AVX512BITALG__)
    "avx512vpopcntdq=" USED(__AVX512VPOPCNTDQ__) "avx512bf16=" USED(__AVX512BF16__) "avx512fp16=" USED(__AVX512FP16__)
    "amx-tile=" USED(__AMX_TILE__) "amx-bf16=" USED(__AMX_BF16__) "amx-int8=" USED(__AMX_INT8__)
    "atomics=" USED(__ARM_FEATURE_ATOMICS) "asimddp=" USED(__ARM_FEATURE_DOTPROD)
    "bf16=" USED(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) "i8mm=" USED(__ARM_FEATURE_MATMUL_INT8)
    "fphp=" USED(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC) "asimdhp=" USED(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
    "sve=" USED(__ARM_FEATURE_SVE) "sve2=" USED(__ARM_FEATURE_SVE2);

/* Return 1 if this processor and its system run build n of a wheel (BUILDS of options.py), else 0. */
int64_t runs_build(int64_t n) {
#if defined(FOR_WHEEL) && defined(__x86_64__)
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
    const int bf16 = avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
    return n == 0 || (n == 1 && avx2) || (n == 2 && avx512) || (n == 3 && bf16);
#else
    return n == 0;
#endif
}
