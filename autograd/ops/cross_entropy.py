"""Label-smoothed cross-entropy, fused with its softmax, and with the projection before it."""

from __future__ import annotations

from typing import Any, Literal, get_args

from autograd.array import Array, namespace
from autograd.blas import product
from autograd.op import ArgumentError, ShapeError, op
from autograd.tensor import Backward

SmoothedClasses = Literal["V-1", "V", "V-2"]


@op
def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    smoothing: float = 0.0,
    over: SmoothedClasses = "V-1",
    impossible: int | None = None,
) -> tuple[Array, Backward]:
    """Return Σ_t H(q_t, p_t) = −Σ_t Σ_w q_tw log p_tw with p = softmax(logits).

    The target distribution q moves a mass of ε from the target to other classes.  Three conventions are in use.  Their
    names give the number of classes that share ε, where V is the size of the vocabulary (here W):

    - ``"V-1"``: ε/(W − 1) to each class except the target, which keeps 1 − ε;
    - ``"V"``: ε/W to each class, so the target has 1 − ε + ε/W;
    - ``"V-2"``: ε/(W − 2) to each class except the target and ``impossible``, which is never a target and gets 0.

    Source: Szegedy et al. 2016, section 7 ("V").  Vaswani et al. 2017, section 5.4, use ε = 0.1 and name no
        denominator.  tensor2tensor and fairseq use "V-1", PyTorch and Marian "V"; The Annotated Transformer and JoeyNMT
        use "V-2" with padding as the impossible class.
    Shapes: logits (T, W), targets (T,) integers in [0, W), or −1 for a row without a target.  Such a row adds
        nothing to the loss and has gradient 0, for any logits.  Returns a scalar, dtype of logits.
    Units: nats, summed over tokens.  The minimum is the entropy of q, not 0.
    Saves: p (T, W) and the targets.
    Raises: ShapeError if the arguments do not fit together; ValueError unless 0 ≤ ε < 1, or if ε > 0 but no class can
        share it; ValueError if ``impossible`` is not a class, is given without "V-2", or is missing with "V-2".
        Targets are not checked: the caller ensures that none is the impossible class.
    """
    n_tokens, n_classes = checked_shape(logits, targets)
    share, target_mass = smoothed_masses(smoothing, over, impossible, n_classes)
    xp, rows = namespace(logits), namespace(logits).arange(n_tokens)
    confidence = target_mass - share  # q = confidence · [w = target] + share · [w ≠ impossible]

    shifted = logits - logits.max(1, keepdims=True)
    weighted = confidence * shifted[rows, targets]
    if share:  # without ε: 0 · (a logit of −∞, or a sum that overflowed) would be NaN
        sharing = (shifted,) if impossible is None else (shifted[:, :impossible], shifted[:, impossible + 1 :])
        weighted += share * sum(classes.sum(1) for classes in sharing)
    p = xp.exp(shifted, out=shifted)
    total = p.sum(1)
    p /= total[:, None]
    has_none = targets < 0
    loss = xp.where(has_none, 0, xp.log(total) - weighted).sum()

    def backward(dy: Array) -> tuple[Array, None]:
        dlogits = p - share if share else p.copy()
        if impossible is not None:
            dlogits[:, impossible] += share
        dlogits[rows, targets] -= confidence
        dlogits *= dy
        xp.copyto(dlogits, 0, where=has_none[:, None])  # on a GPU a store through a mask would wait for the device
        return dlogits, None

    return xp.asarray(loss), backward


@op
def linear_cross_entropy(
    x: Array,
    weight: Array,
    bias: Array | None,
    targets: Array,
    *,
    smoothing: float = 0.0,
    over: SmoothedClasses = "V-1",
    impossible: int | None = None,
) -> tuple[Array, Backward]:
    """Return ``cross_entropy`` of the logits x Wᵀ + b: dx = (p − q) W, dW = (p − q)ᵀ x, db = Σ_t (p − q)_t.

    As one operation it can have a kernel with one array (T, W) instead of three: logits, p, and the logits' gradient.

    Shapes: x (T, D), weight (W, D), bias (W,) or None, targets (T,) as in ``cross_entropy``.  Returns a scalar.
    Units: nats, summed over tokens.
    Saves: x, the weight, and what ``cross_entropy`` saves.
    Raises: as ``cross_entropy``.
    """
    logits = linear_logits(x, weight, bias)
    loss, logits_backward = cross_entropy.reference(
        logits, targets, smoothing=smoothing, over=over, impossible=impossible
    )

    def backward(dy: Array) -> tuple[Array | None, ...]:
        dlogits: Any = logits_backward(dy)[0]
        return product(dlogits, weight), product(dlogits.T, x), dlogits.sum(0) if bias is not None else None, None

    return loss, backward


def linear_logits(x: Array, weight: Array, bias: Array | None) -> Array:
    """Return x Wᵀ + b.  Shapes: x (T, D), weight (W, D), bias (W,) or None; returns (T, W).  Raises: ShapeError."""
    check_projection(x, weight, bias)
    logits = product(x, weight.T)
    if bias is not None:
        logits += bias
    return logits


def check_projection(x: Array, weight: Array, bias: Array | None) -> None:
    """Check x (T, D), weight (W, D) and bias (W,).  Raises: ShapeError if they do not fit together."""
    fit = x.ndim == weight.ndim == 2 and x.shape[1] == weight.shape[1]
    if not fit or (bias is not None and bias.shape != weight.shape[:1]):
        raise ShapeError(
            f"linear_cross_entropy: expected x (T, D), weight (W, D) and bias (W,) or None;"
            f" got x {x.shape}, weight {weight.shape}, bias {getattr(bias, 'shape', None)}"
        )


def smoothed_masses(
    smoothing: float, over: SmoothedClasses, impossible: int | None, n_classes: int
) -> tuple[float, float]:
    """Return the mass that q gives to each class that shares ε, and to the target; see ``cross_entropy``.

    Raises: ValueError, as ``cross_entropy``.
    """
    if over not in get_args(SmoothedClasses):
        raise ArgumentError(f"cross_entropy: over must be one of {get_args(SmoothedClasses)}, got {over!r}")
    if (over == "V-2") != (impossible is not None):
        raise ArgumentError(f'cross_entropy: "V-2", and only it, needs an impossible class; got {over!r}, {impossible}')
    if impossible is not None and not 0 <= impossible < n_classes:
        raise ArgumentError(f"cross_entropy: the impossible class must be one of {n_classes}, got {impossible}")
    n_sharing = {"V-1": n_classes - 1, "V": n_classes, "V-2": n_classes - 2}[over]
    if not 0 <= smoothing < 1 or (smoothing and n_sharing < 1):
        raise ArgumentError(
            f"cross_entropy: smoothing must be in [0, 1) and leave classes to share it;"
            f" got {smoothing} over {over} = {n_sharing} of {n_classes} classes"
        )
    share = smoothing / n_sharing if smoothing else 0.0
    return share, 1 - smoothing + (share if over == "V" else 0)


def checked_shape(logits: Array, targets: Array) -> tuple[int, int]:
    """Return (T, W), the shape of the logits.  Raises: ShapeError if targets are not (T,)."""
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ShapeError(
            f"cross_entropy: expected logits (T, W) and targets (T,); got {logits.shape} and {targets.shape}"
        )
    n_tokens, n_classes = logits.shape
    return n_tokens, n_classes
