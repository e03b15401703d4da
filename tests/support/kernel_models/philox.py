"""philox.cuh, and who draws which number in dropout.cu and layer_norm.cu."""

from __future__ import annotations

from autograd.random import StreamId

WORD = 2**64
DRAWS_OF_A_WARP = 512


def philox_block(stream_id: StreamId, block: int) -> list[int]:
    """The four words of a block: ten rounds of two 128-bit products, in whole numbers.  Salmon et al. 2011."""
    c0, c1, c2, c3, k0, k1 = (
        block + 1,
        stream_id.micro_batch,
        int(stream_id.update),
        0,
        stream_id.seed,
        stream_id.stream,
    )
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, WORD)
        high1, low1 = divmod(0xCA5A826395121157 * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % WORD, (k1 + 0xBB67AE8584CAA73B) % WORD
    return [c0, c1, c2, c3]


def draws_of_dropout(stream_id: StreamId, n: int) -> list[int]:
    """dropout.cu: element 512 g + i is judged by bits 16 (i % 4) … of word i / 4 among those of the g-th warp.

    Lane l of that warp draws block 32 g + l, which are the words 4 l … 4 l + 3.
    """
    draws = []
    for group in range(-(-n // DRAWS_OF_A_WARP)):
        words = [word for lane in range(32) for word in philox_block(stream_id, 32 * group + lane)]
        draws += [
            words[i // 4] >> 16 * (i % 4) & 0xFFFF for i in range(min(DRAWS_OF_A_WARP, n - DRAWS_OF_A_WARP * group))
        ]
    return draws


def draws_of_row(stream_id: StreamId, row: int, width: int) -> list[int]:
    """layer_norm.cu: of a row a lane holds four neighbours of every 128 columns, which word 32 j + lane judges.

    The row's words are those of the blocks from row · width / 16 on.
    """
    words = [word for block in range(width // 16) for word in philox_block(stream_id, row * (width // 16) + block)]
    draws = [-1] * width
    for lane in range(32):
        for i in range(width // 32):
            column = i // 4 * 128 + 4 * lane + i % 4
            draws[column] = words[32 * (i // 4) + lane] >> 16 * (i % 4) & 0xFFFF
    return draws
