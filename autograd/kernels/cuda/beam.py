"""The arrays of a beam search, changed in place by one kernel launch for a step, and one for each layer's cache."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import launch
from autograd.ops.beam import append_to_cache, extend_beams

SOURCE = "beam.cu"
EXTEND, APPEND = "extend_beams", {4: "append_32_bits_to_cache", 2: "append_16_bits_to_cache"}  # by bytes of a number
THREADS = 128
N_STATE = 11  # arrays of the state, which come first
MOST = 16  # live hypotheses, and finished ones, of a sentence


def _is_supported(*arrays: Array, beam: int, n_ranked: int, end: int) -> bool:
    del end
    log_p, finished_scores, token = arrays[0], arrays[4], arrays[12]
    n_rows, n_tokens = token.shape
    fits = log_p.shape[1] == beam <= MOST and finished_scores.shape[1] <= MOST and n_tokens <= 2 * MOST
    fits = fits and n_rows > 0 and n_ranked <= min(2 * MOST, beam * n_tokens)
    return fits and all(x.flags.c_contiguous for x in arrays)


@extend_beams.kernel("cuda", supports=_is_supported)
def extend_beams_in_place(*arrays: Array, beam: int, n_ranked: int, end: int) -> tuple[Array, ...]:
    """Compute the reference's result, and overwrite the state; a block computes a sentence."""
    log_p, ids, finished_scores, token = arrays[0], arrays[2], arrays[4], arrays[12]
    parents = namespace(log_p).empty((len(log_p), beam), np.int64)
    sizes = np.int32(beam), np.uint32(token.shape[1])
    more = map(np.int32, (n_ranked, finished_scores.shape[1], ids.shape[2]))
    launch(SOURCE, EXTEND, len(log_p), THREADS, *arrays, parents, *sizes, *more, np.int64(end))
    return (*arrays[:N_STATE], parents)


def _is_cache(keys: Array, values: Array, new_keys: Array, new_values: Array, n_steps: int | Array) -> bool:
    arrays = keys, values, new_keys, new_values
    fits = keys.dtype.itemsize in APPEND and all(x.dtype == keys.dtype and x.flags.c_contiguous for x in arrays)
    return fits and not isinstance(n_steps, int)


@append_to_cache.kernel("cuda", supports=_is_cache)
def append_to_cache_in_one_pass(
    keys: Array, values: Array, new_keys: Array, new_values: Array, n_steps: int | Array
) -> None:
    """Write what the reference writes; a block copies the key and the value of a hypothesis."""
    (n_sentences, capacity, n_slots), n_tokens = keys.shape[:3], len(new_keys)
    arrays = keys, values, new_keys, new_values, n_steps
    widths = (np.int32(x.size // n_tokens) for x in (new_keys, new_values))
    slots = np.uint32(n_tokens // n_sentences), np.int32(n_slots), np.int64(capacity)
    launch(SOURCE, APPEND[keys.dtype.itemsize], n_tokens, THREADS, *arrays, *slots, *widths)
