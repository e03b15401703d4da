/* Philox4x64-10: see autograd/random.py. */

#ifndef PHILOX_H
#define PHILOX_H

#include <stdint.h>

static inline void philox_block(uint64_t out[4], uint64_t block, uint64_t micro_batch, uint64_t update, uint64_t seed,
                                uint64_t stream) {
    uint64_t c0 = block, c1 = micro_batch, c2 = update, c3 = 0;
    for (int round = 0; round < 10; round++) {
        const unsigned __int128 a = (unsigned __int128)c0 * 0xD2E7470EE14C6C93u;
        const unsigned __int128 b = (unsigned __int128)c2 * 0xCA5A826395121157u;
        c0 = (uint64_t)(b >> 64) ^ c1 ^ seed;
        c1 = (uint64_t)b;
        c2 = (uint64_t)(a >> 64) ^ c3 ^ stream;
        c3 = (uint64_t)a;
        seed += 0x9E3779B97F4A7C15u;
        stream += 0xBB67AE8584CAA73Bu;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

#endif
