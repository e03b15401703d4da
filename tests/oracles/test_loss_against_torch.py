"""The label-smoothed loss in all three conventions against PyTorch's own and against the definitions in circulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import DTYPES, compare, random_arrays, torch

from autograd import ops

functional = torch.nn.functional
in_both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
with_every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])

N_CLASSES, PADDING = 7, 2
TARGETS = np.array([3, 0, 6, 6, 1, 4, 5])  # never padding


def logits(dtype: str) -> list[Any]:
    """Of ordinary size; one row far from zero, and one that is all but certain of its target."""
    (rows,) = random_arrays((len(TARGETS), N_CLASSES), dtype=dtype)
    rows[0] += 100
    rows[2, TARGETS[2]] += 30
    return [rows]


def fairseq_loss(log_p: Any, target: Any, epsilon: float) -> Any:
    """``label_smoothed_nll_loss`` of fairseq, criterions/label_smoothed_cross_entropy.py, summed."""
    share = epsilon / (log_p.size(-1) - 1)
    target_loss = -log_p.gather(-1, target[:, None]).sum()
    return (1 - epsilon - share) * target_loss + share * -log_p.sum()


def annotated_transformer_loss(log_p: Any, target: Any, smoothing: float) -> tuple[Any, float]:
    """``LabelSmoothing`` of The Annotated Transformer: Σ KL(q ‖ p), and Σ H(q), by which cross-entropy exceeds it."""
    q = torch.full_like(log_p.detach(), smoothing / (log_p.size(-1) - 2))
    q.scatter_(-1, target[:, None], 1 - smoothing)
    q[:, PADDING] = 0
    return torch.nn.KLDivLoss(reduction="sum")(log_p, q), -torch.special.xlogy(q, q).sum().item()


@in_both_dtypes
def test_without_smoothing_every_convention_is_torchs_cross_entropy(dtype: str) -> None:
    for convention in ({"over": "V-1"}, {"over": "V"}, {"over": "V-2", "impossible": PADDING}):
        compare(
            lambda x, convention=convention: ops.cross_entropy(x, TARGETS, smoothing=0.0, **convention),
            lambda x: functional.cross_entropy(x, torch.tensor(TARGETS), reduction="sum"),
            logits(dtype),
        )


@in_both_dtypes
@with_every_smoothing
def test_smoothing_over_all_classes_with_and_without_the_target(smoothing: float, dtype: str) -> None:
    """With it that is PyTorch's, without it fairseq's.

    Of what PyTorch takes from the target, 1/V falls back on it: fairseq's is PyTorch's of a little more.
    """
    targets, more = torch.tensor(TARGETS), smoothing * N_CLASSES / (N_CLASSES - 1)
    theirs: list[tuple[Any, Any]] = [
        ("V", lambda x: functional.cross_entropy(x, targets, reduction="sum", label_smoothing=smoothing)),
        ("V-1", lambda x: fairseq_loss(x.log_softmax(-1), targets, smoothing)),
        ("V-1", lambda x: functional.cross_entropy(x, targets, reduction="sum", label_smoothing=more)),
    ]
    for over, their_loss in theirs:
        compare(
            lambda x, over=over: ops.cross_entropy(x, TARGETS, smoothing=smoothing, over=over),
            their_loss,
            logits(dtype),
        )


@in_both_dtypes
@with_every_smoothing
def test_smoothing_without_the_impossible_class_is_the_annotated_transformers(smoothing: float, dtype: str) -> None:
    """Its loss is a divergence and ours an entropy: they differ by H(q), and their gradients by nothing."""

    def theirs(x: Any) -> Any:
        divergence, entropy = annotated_transformer_loss(x.log_softmax(-1), torch.tensor(TARGETS), smoothing)
        assert entropy == pytest.approx(entropy_of_q(smoothing), rel=1e-12)
        return divergence + entropy

    compare(
        lambda x: ops.cross_entropy(x, TARGETS, smoothing=smoothing, over="V-2", impossible=PADDING),
        theirs,
        logits(dtype),
    )


def entropy_of_q(smoothing: float) -> float:
    """In nats: the least that the summed loss can be."""
    if not smoothing:
        return 0.0
    of_others = smoothing * np.log(smoothing / (N_CLASSES - 2))
    return -len(TARGETS) * float((1 - smoothing) * np.log(1 - smoothing) + of_others)


def test_the_three_conventions_are_three_different_losses() -> None:
    (x,) = logits("float64")
    conventions: list[Any] = [{"over": "V-1"}, {"over": "V"}, {"over": "V-2", "impossible": PADDING}]
    losses = sorted(float(ops.cross_entropy(x, TARGETS, smoothing=0.1, **convention)) for convention in conventions)
    assert np.diff(losses).min() > 0.01
