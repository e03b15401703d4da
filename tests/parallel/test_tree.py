"""The tree of micro-batches: who computes which, and that threads change nothing in the sum."""

from itertools import product
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any
from unittest import mock

import cuda_kernels  # noqa: F401  (takes back what the import of a CUDA kernel registers)
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits
from waiting import TIME_LIMIT

import parallel.communicator
from autograd import RandomStream, backward
from autograd.kernels.cpu import bfloat16
from autograd.kernels.cpu.library import library
from autograd.kernels.cuda import clip
from autograd.parameters import ALIGNMENT, Buckets
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.training.update import GradientAccumulator
from parallel import nccl_reducer
from parallel.communicator import SerialCommunicator, SumOrder, micro_batches_of_rank, shard_of_rank, working_ranks

SIZES = st.integers(1, 70)
POWERS_OF_TWO = st.integers(0, 6).map(lambda exponent: 2**exponent)

CONFIG = ModelConfig(
    vocabulary_size=17, n_layers=1, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=4, p_drop=0.2, p_drop_attention=0.1
)


@given(size=SIZES, n_micro_batches=POWERS_OF_TWO, order=st.sampled_from(["exact", "fast"]))
def test_working_ranks_share_micro_batches_evenly(size: int, n_micro_batches: int, order: SumOrder) -> None:
    """In the fixed order they are the largest power of two that ranks and micro-batches allow, and share equally."""
    owned = [list(micro_batches_of_rank(rank, size, n_micro_batches, order)) for rank in range(size)]
    assert [micro_batch for micro_batches in owned for micro_batch in micro_batches] == list(range(n_micro_batches))
    n_working, shares = working_ranks(size, n_micro_batches, order), [len(micro_batches) for micro_batches in owned]
    assert shares[n_working:] == [0] * (size - n_working)
    if order == "exact":
        assert n_working.bit_count() == 1
        assert n_working <= min(size, n_micro_batches) < 2 * n_working
        assert set(shares[:n_working]) == {n_micro_batches // n_working}
    else:
        assert n_working == min(size, n_micro_batches)
        assert max(shares[:n_working]) - min(shares[:n_working]) <= 1


@given(size=SIZES, n_elements=st.integers(0, 20_000))
def test_every_element_belongs_to_one_rank_and_parts_are_even_and_begin_at_runs(size: int, n_elements: int) -> None:
    parts = [shard_of_rank(rank, size, n_elements) for rank in range(size)]
    assert [i for part in parts for i in range(n_elements)[part]] == list(range(n_elements))
    assert all(part.start % parallel.communicator.ALIGNMENT == 0 or part.start == n_elements for part in parts)
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= 2 * parallel.communicator.ALIGNMENT


def test_what_is_never_divided_is_what_the_norm_adds_up_in_one_go() -> None:
    assert parallel.communicator.ALIGNMENT % ALIGNMENT == 0
    assert nccl_reducer.RUN % clip.RUN == nccl_reducer.RUN % parallel.communicator.ALIGNMENT == 0


def model() -> Transformer:
    return Transformer(CONFIG, seed=2, dtype="float32")


def micro_batch(number: int) -> Batch:
    random = np.random.default_rng(number)
    sentences = [
        [random.integers(3, 17, random.integers(0, 7)).tolist() for _ in range(3)] for _ in ("source", "target")
    ]
    return Batch.from_token_ids(*sentences)


def stream(number: int) -> RandomStream:
    return RandomStream(seed=1, update=5, micro_batch=number)


def summed(micro_batches: list[Batch | None], streams: list[RandomStream], *, n_threads: int) -> tuple[float, Any]:
    """Loss and gradients of micro-batches, on ``n_threads``; what stood in the gradients before must not matter.

    Each bucket of the gradients must be final when it is said to be.
    """
    network = model()
    gradients = network.parameters.gradients
    gradients[...], final = 7.0, np.zeros_like(gradients)
    buckets = Buckets((slice(0, 999), slice(999, len(final))), lambda part, _: final[part].__iadd__(gradients[part]))
    with threadpool_limits(1, user_api="blas"):
        loss = GradientAccumulator(network, n_threads=n_threads).compute(micro_batches, streams, buckets)
    assert np.array_equal(final, gradients) or not micro_batches
    return float(loss), gradients_of(network)


def gradients_of(network: Transformer) -> Any:
    return np.concatenate([np.ravel(parameter.grad) for _, parameter in network.named_parameters()])


def gradient_alone(number: int) -> tuple[float, Any]:
    network = model()
    loss = network.loss(micro_batch(number), stream(number))
    backward(loss)
    return float(loss), gradients_of(network)


EIGHT = [micro_batch(number) for number in range(8)]


def eight_streams() -> list[RandomStream]:
    return [stream(number) for number in range(8)]


@pytest.mark.parametrize("n_threads", [1, 2, 3, 11])
def test_the_gradient_is_the_sum_along_the_binary_tree_for_any_number_of_threads(n_threads: int) -> None:
    losses, leaves = zip(*(gradient_alone(number) for number in range(8)), strict=True)
    pairs = [leaves[i] + leaves[i + 1] for i in range(0, 8, 2)]
    expected = (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])
    loss, got = summed(EIGHT, eight_streams(), n_threads=n_threads)
    assert np.array_equal(got, expected)
    assert not np.array_equal(got, sum(leaves)), "the order of the tree shows in the bits"
    assert loss == pytest.approx(sum(losses), rel=1e-15)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("empty", [0, 1])
def test_an_empty_micro_batch_contributes_nothing(empty: int, n_threads: int) -> None:
    micro_batches: list[Batch | None] = [EIGHT[3], EIGHT[3]]
    micro_batches[empty] = None
    loss, got = summed(micro_batches, [stream(3), stream(3)], n_threads=n_threads)
    expected_loss, expected = gradient_alone(3)
    assert loss == expected_loss
    assert np.array_equal(got, expected)


def test_a_batch_of_empty_micro_batches_leaves_a_gradient_of_zero_and_an_idle_rank_a_loss_of_zero() -> None:
    loss, got = summed([None] * 4, [stream(number) for number in range(4)], n_threads=2)
    assert loss == 0
    assert not got.any()
    assert float(GradientAccumulator(model(), n_threads=1).compute([], [])) == 0


@pytest.mark.parametrize("n_threads", [1, 3])
def test_buffers_of_an_earlier_batch_leave_no_trace_in_the_next(n_threads: int) -> None:
    network, next_micro_batches = model(), [None, *EIGHT[1:4], None, None, None, EIGHT[7]]
    gradient = GradientAccumulator(network, n_threads=n_threads)
    with threadpool_limits(1, user_api="blas"):
        gradient.compute(EIGHT, eight_streams())
        gradient.compute(next_micro_batches, eight_streams())
    assert np.array_equal(gradients_of(network), summed(next_micro_batches, eight_streams(), n_threads=1)[1])


@pytest.mark.parametrize("n_threads", [1, 3, 8])
def test_each_thread_computes_one_micro_batch_at_a_time(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ``n_threads`` micro-batches wait for each other: on fewer threads the last would never begin."""
    network, together, lock, began = model(), Barrier(n_threads), Lock(), []
    compute_loss = network.loss

    def loss(batch: Batch, random_stream: RandomStream) -> Any:
        with lock:
            began.append(random_stream)
            is_early = len(began) <= n_threads
        if is_early:
            try:
                together.wait(timeout=TIME_LIMIT)
            except BrokenBarrierError:
                pytest.fail(f"{n_threads} micro-batches were not computed at once")
        return compute_loss(batch, random_stream)

    monkeypatch.setattr(network, "loss", loss)
    GradientAccumulator(network, n_threads=n_threads).compute(EIGHT, eight_streams())
    assert len(began) == 8


@pytest.mark.skipif(not library().functions, reason="no C compiler")
def test_an_update_packs_each_weight_once_for_each_orientation() -> None:
    network = model()
    with mock.patch.object(bfloat16, "_pack", wraps=bfloat16._pack) as pack:
        GradientAccumulator(network, n_threads=2, rounds_factors=True).compute(EIGHT, eight_streams())
    packed = [(weight.ctypes.data, transposed) for (weight, *_, transposed, _), _ in pack.call_args_list]
    matrices = [p.value.ctypes.data for _, p in network.named_parameters() if p.value.ndim == 2]
    assert sorted(packed) == sorted(product(matrices, (False, True)))


def test_the_shared_embedding_is_the_last_parameter_whose_gradient_is_final() -> None:
    """So sums that run while backward does cannot begin with it: docs/parallel.md."""
    network, final = model(), list[Any]()
    backward(network.loss(micro_batch(0), stream(0)), completed=final.append)
    names = {parameter: name for name, parameter in network.named_parameters()}
    assert len(set(final)) == len(final) == len(names)
    assert names[final[-1]] == "source_embedding.weight"


def test_an_error_in_one_micro_batch_is_raised_from_any_thread() -> None:
    broken = Batch.from_token_ids([[3]], [[10_000]])
    with pytest.raises(IndexError):
        summed([*EIGHT[:7], broken], eight_streams(), n_threads=4)


def test_a_process_alone_is_the_first_and_only_one_and_has_the_machine_to_itself() -> None:
    world = SerialCommunicator()
    assert (world.rank, world.size, world.local_size) == (0, 1, 1)
    assert (world.allreduce(2.5), world.any(True), world.any(False), world.bcast("x")) == (2.5, True, False, "x")
