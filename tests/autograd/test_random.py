"""Counter-based randomness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograd.random import (
    RandomStream,
    StreamId,
    normal,
    permutation,
    philox4x64_10,
    random_uint16,
    random_words,
    uniform,
)

WORDS = st.integers(0, 2**64 - 1)
STREAM_IDS = st.builds(StreamId, seed=WORDS, stream=WORDS, update=WORDS, micro_batch=WORDS)
HERE = np.empty(0)

# Random123's known answers for philox4x64 with 10 rounds (the file kat_vectors of its distribution), as printed there:
# four words of counter and two of key, lowest first; what comes out.  The third is of the digits of π.
KNOWN_ANSWERS = {
    "zeros": (
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000",
        "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
    ),
    "ones": (
        "ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff",
        "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
    ),
    "pi": (
        "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89 452821e638d01377 be5466cf34e90c6c",
        "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
    ),
}


def block_of(counter: list[int], key: list[int]) -> list[int]:
    """Return one block of the reference."""
    return [int(word[0]) for word in philox4x64_10([np.array([word], np.uint64) for word in counter], key)]


@pytest.mark.parametrize("name", KNOWN_ANSWERS)
def test_the_reference_gives_the_known_answers_of_random123(name: str) -> None:
    words, expected = ([int(word, 16) for word in text.split()] for text in KNOWN_ANSWERS[name])
    assert block_of(words[:4], words[4:]) == expected


@given(st.integers(0, 2**256 - 1), st.integers(0, 2**128 - 1))
def test_the_reference_is_numpys_philox_at_every_counter_and_key(counter: int, key: int) -> None:
    """NumPy's generator counts before each block."""
    words, key_words = ([number >> 64 * i & 2**64 - 1 for i in range(n)] for number, n in ((counter, 4), (key, 2)))
    philox = np.random.Philox(key=key, counter=(counter - 1) % 2**256)
    assert block_of(words, key_words) == philox.random_raw(4).tolist()


@given(STREAM_IDS)
def test_a_block_has_counter_b_micro_batch_update_0_and_its_key(stream_id: StreamId) -> None:
    """No two stream ids share a key and the upper words of a counter, so they have no block in common."""
    blocks = random_words.reference(HERE, stream_id=stream_id, count=12).reshape(3, 4).tolist()
    assert blocks == [
        block_of([b, stream_id.micro_batch, stream_id.update, 0], [stream_id.seed, stream_id.stream]) for b in (1, 2, 3)
    ]


@given(STREAM_IDS, st.integers(0, 21))
def test_16_bit_numbers_are_the_words_cut_in_four_lowest_bits_first(stream_id: StreamId, count: int) -> None:
    words = random_words(HERE, stream_id=stream_id, count=6).tolist()
    expected = [word >> 16 * i & 0xFFFF for word in words for i in range(4)]
    assert random_uint16(HERE, stream_id=stream_id, count=count).tolist() == expected[:count]


@given(STREAM_IDS, st.integers(0, 1000))
def test_kernel_is_the_reference(stream_id: StreamId, count: int) -> None:
    np.testing.assert_array_equal(
        random_words(HERE, stream_id=stream_id, count=count),
        random_words.reference(HERE, stream_id=stream_id, count=count),
    )


def test_a_stream_hands_out_distinct_stream_ids_and_repeats_itself() -> None:
    first, again = ([stream.next_id() for _ in range(5)] for stream in (RandomStream(7, 3, 2), RandomStream(7, 3, 2)))
    assert first == again
    assert len(set(first)) == 5
    assert {(stream_id.seed, stream_id.update, stream_id.micro_batch) for stream_id in first} == {(7, 3, 2)}


def test_uniform_and_normal_have_their_moments() -> None:
    u, z = uniform(StreamId(1, 2), (400, 500)), normal(StreamId(1, 3), (400, 500))
    assert 0 <= u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.003
    assert abs(u.var() - 1 / 12) < 0.001
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((np.abs(z) < 1.96).mean() - 0.95) < 0.003


@given(STREAM_IDS, st.integers(0, 200))
def test_permutation_is_one(stream_id: StreamId, n: int) -> None:
    order = permutation(stream_id, n)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(order, permutation(stream_id, n))
