// Philox4x64-10 (Salmon et al. 2011), as in autograd.random: block 0 has the counter 1.

#pragma once

typedef unsigned long long word;

struct StreamId {
    word seed, stream, update, micro_batch;
};

// The update may be read from memory, so that it can change between runs of a captured launch.
__device__ __forceinline__ StreamId stream_id_of(word seed, word stream, word update, const word* update_at,
                                                 word micro_batch) {
    return StreamId{seed, stream, update_at ? *update_at : update, micro_batch};
}

__device__ __forceinline__ void philox_block(const StreamId& at, word block, word (&out)[4]) {
    word c0 = block + 1, c1 = at.micro_batch, c2 = at.update, c3 = 0, k0 = at.seed, k1 = at.stream;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const word high0 = __umul64hi(0xD2E7470EE14C6C93ull, c0), low0 = 0xD2E7470EE14C6C93ull * c0;
        const word high1 = __umul64hi(0xCA5A826395121157ull, c2), low1 = 0xCA5A826395121157ull * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B97F4A7C15ull;
        k1 += 0xBB67AE8584CAA73Bull;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}
