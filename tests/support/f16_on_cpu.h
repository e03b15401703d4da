// float16 on a CPU whose compiler may lack the type: the functions that common.cuh defines for a GPU.

#pragma once

#include <cmath>

inline float f16_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    float x = std::ldexp(static_cast<float>(exponent ? fraction + 0x400 : fraction), (exponent ? exponent : 1) - 25);
    if (exponent == 31) x = fraction ? NAN : INFINITY;
    return bits >> 15 ? -x : x;
}

inline unsigned short f16_bits(float x) {
    const unsigned sign = std::signbit(x) ? 0x8000 : 0;
    if (x != x) return 0x7fff;
    if (std::fabs(x) >= 65520) return static_cast<unsigned short>(sign | 0x7c00);
    int exponent = 0;
    std::frexp(x, &exponent);
    if (exponent < -13) exponent = -13;  // numbers below 2^-14 have the spacing of those above
    const int steps = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(x), 11 - exponent)));  // ties to even
    return static_cast<unsigned short>(sign | (steps ? ((exponent + 13) << 10) + steps : 0));
}
