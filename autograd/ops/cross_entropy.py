"""Label-smoothed cross-entropy, fused with its softmax."""

from __future__ import annotations

from autograd.array import Array, namespace
from autograd.op import ShapeError, op
from autograd.tensor import Backward


@op
def cross_entropy(logits: Array, targets: Array, *, smoothing: float = 0.0) -> tuple[Array, Backward]:
    """Σ_t H(q_t, p_t) = −Σ_t Σ_w q_tw log p_tw with p = softmax(logits), summed over tokens.

    The target distribution q gives 1 − ε to the target and ε/(W − 1) to every other class.
    Source: Szegedy et al. 2016, section 7, in the paper's use (Vaswani et al. 2017, section 5.4, ε = 0.1);
        the ε over the W − 1 other classes as in tensor2tensor.
    Shapes: logits (T, W), targets (T,) integers in [0, W).  Returns a scalar, dtype of logits.
    Units: nats, summed over tokens; at its least it is the entropy of q, not 0.
    Saves: p (T, W) and the targets.
    Raises: ShapeError if the arguments do not fit; ValueError unless 0 ≤ ε < 1 and, if ε > 0, W ≥ 2.
    """
    n_tokens, n_classes = _checked_shape(logits, targets, smoothing)
    xp = namespace(logits)
    rows = xp.arange(n_tokens)
    other = smoothing / max(1, n_classes - 1)
    confidence = 1 - smoothing - other  # q = confidence · [w = target] + other

    shifted = logits - logits.max(-1, keepdims=True)
    of_target, of_all = shifted[rows, targets], shifted.sum(-1)
    p = xp.exp(shifted, out=shifted)
    total = p.sum(-1, keepdims=True)
    p /= total
    log_total = xp.log(total[:, 0])
    loss = (log_total - confidence * of_target - other * of_all).sum()

    def backward(dy: Array) -> tuple[Array, None]:
        dlogits = p - other if other else p.copy()
        dlogits[rows, targets] -= confidence
        dlogits *= dy
        return dlogits, None

    return xp.asarray(loss), backward


def _checked_shape(logits: Array, targets: Array, smoothing: float) -> tuple[int, int]:
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ShapeError(
            f"cross_entropy: expected logits (T, W) and targets (T,); got {logits.shape} and {targets.shape}"
        )
    n_tokens, n_classes = logits.shape
    if not 0 <= smoothing < 1 or (smoothing and n_classes < 2):
        raise ValueError(f"cross_entropy: smoothing must be in [0, 1) over two classes or more, got {smoothing}")
    return n_tokens, n_classes
