"""Operations, an encoder layer, the optimizer and the loss in all three conventions against PyTorch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import DTYPES, assert_near, compare, random_arrays, torch, twin_of

from autograd import Layer, Parameter, ParameterBuffer, Segments, ops
from autograd.optim import Adam, adam_update, clip, sum_squares
from autograd.parameters import scaled_normal
from minitransformer import ModelConfig
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask
from minitransformer.model.stacks import EncoderLayer

functional = torch.nn.functional
in_both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


@in_both_dtypes
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_layer_norm_equals_torch(eps: float, dtype: str) -> None:
    x, gain, bias = random_arrays((5, 6), (6,), (6,), dtype=dtype)
    x *= np.array([[1], [1e-1], [1e-2], [1e-3], [1e-4]], dtype)  # below a variance of eps it is eps that counts
    compare(
        lambda x, gain, bias: ops.layer_norm(x, gain, bias, eps=eps),
        lambda x, gain, bias: functional.layer_norm(x, (6,), gain, bias, eps=eps),
        [x, gain, bias],
    )


@in_both_dtypes
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_its_logarithm_equal_torch(name: str, dtype: str) -> None:
    (x,) = random_arrays((2, 3, 7), dtype=dtype)
    x[1] = 30 * x[1] + 1_000  # where an exponential without a shift would overflow
    compare(getattr(ops, name), lambda x: getattr(functional, name)(x, dim=-1), [x])


@in_both_dtypes
def test_linear_equals_torch(dtype: str) -> None:
    x, weight, bias = random_arrays((5, 4), (4, 3), (3,), dtype=dtype)
    compare(ops.linear, lambda x, weight, bias: functional.linear(x, weight.T, bias), [x, weight, bias])
    compare(lambda x, w: ops.linear(x, w, None), lambda x, w: functional.linear(x, w.T), [x, weight])
    compare(ops.linear_transposed, functional.linear, [x, weight.T.copy()])


@in_both_dtypes
def test_embedding_equals_torch_where_ids_repeat_and_where_they_are_absent(dtype: str) -> None:
    ids = np.array([3, 3, 0, 6, 3, 0])
    compare(
        lambda table: ops.embedding(table, ids),
        lambda table: functional.embedding(torch.tensor(ids), table),
        random_arrays((8, 4), dtype=dtype),
    )


LENGTHS = {
    "one sentence": ([6], [6]),
    "one of another length": ([4], [7]),
    "one token": ([1], [1]),
    "unequal sentences": ([5, 1, 3], [2, 7, 1]),
}


def padded(x: Any, lengths: list[int]) -> Any:
    """Packed (T, H, K) → (B, H, L, K), padding zero."""
    return torch.nn.utils.rnn.pad_sequence(x.split(lengths), batch_first=True).transpose(1, 2)


def is_token(lengths: list[int]) -> Any:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def torch_attention(q: Any, k: Any, v: Any, queries: list[int], keys: list[int], *, causal: bool) -> Any:
    """PyTorch's own on a padded batch under a key-padding mask; what stands at padding is dropped."""
    mask = is_token(keys)[:, None, None, :]
    if causal:
        mask = mask & torch.ones(max(queries), max(keys), dtype=torch.bool).tril()
    q, k, v = padded(q, queries), padded(k, keys), padded(v, keys)
    attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return attended.transpose(1, 2)[is_token(queries)]


@in_both_dtypes
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_torch(causal: bool, name: str, dtype: str) -> None:
    """To whole sentences, and to earlier tokens of the same."""
    queries, keys = LENGTHS[name]
    keys = queries if causal else keys
    mask = encoder_decoder_mask(Segments.of_lengths(queries), Segments.of_lengths(keys))
    if causal:
        mask = causal_mask(Segments.of_lengths(queries))
    compare(
        lambda q, k, v: ops.attention(q, k, v, mask=mask),
        lambda q, k, v: torch_attention(q, k, v, queries, keys, causal=causal),
        random_arrays((sum(queries), 3, 5), (sum(keys), 3, 5), (sum(keys), 3, 2), dtype=dtype),
    )


class TwoMatrices(Layer):
    """40,401 elements and 63 between them: more than the CPU kernel of Adam takes at once, and no multiple of that."""

    def __init__(self) -> None:
        self.weight = Parameter((400, 101), scaled_normal)
        self.other = Parameter((1, 1), scaled_normal)


def parameters_from_zero(dtype: str) -> tuple[ParameterBuffer, list[Any]]:
    """Parameters and their twins; at zero, so that their values are the sums of their updates and hide nothing."""
    buffer = ParameterBuffer(TwoMatrices(), seed=None, dtype=dtype)
    return buffer, [torch.nn.Parameter(twin_of(parameter.value)) for parameter in buffer.named.values()]


def give_gradients(buffer: ParameterBuffer, twins: list[Any], random: Any, *, scale: float) -> None:
    for parameter, twin in zip(buffer.named.values(), twins, strict=True):
        parameter.view_of(buffer.gradients)[...] = random.standard_normal(parameter.shape) * scale
        twin.grad = torch.tensor(parameter.grad, dtype=torch.float64)


@in_both_dtypes
@pytest.mark.parametrize("implementation", ["reference", "fastest"])
def test_twenty_updates_of_adam_equal_torch(implementation: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert adam_update.kernels, "there is a kernel for the CPU to compare with"
    if implementation == "reference":
        monkeypatch.setattr(adam_update, "kernels", [])
    buffer, twins = parameters_from_zero(dtype)
    random, ours = np.random.default_rng(12), Adam(buffer)
    theirs = torch.optim.Adam(twins, betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 21):
        give_gradients(buffer, twins, random, scale=10.0 ** random.integers(-9, 2))
        theirs.param_groups[0]["lr"] = learning_rate = 1e-3 * step / (1 + step % 7)
        ours.step(learning_rate, step)
        theirs.step()
        for parameter, twin in zip(buffer.named.values(), twins, strict=True):
            assert_near(parameter.value, twin, roundings=2)
            assert_near(parameter.view_of(ours.m), theirs.state[twin]["exp_avg"], roundings=2)
            assert_near(parameter.view_of(ours.v), theirs.state[twin]["exp_avg_sq"], roundings=2)


@in_both_dtypes
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_clipping_of_gradients_that_are_short_enough_or_too_long_equals_torch(scale: float, dtype: str) -> None:
    """PyTorch divides by the norm plus 10⁻⁶, which is why the gradients that are too long are very long."""
    buffer, twins = parameters_from_zero(dtype)
    give_gradients(buffer, twins, np.random.default_rng(13), scale=scale)
    longest = 2.5 if scale > 1 else 1.001 * torch.nn.utils.clip_grad_norm_(twins, np.inf).item()
    _, norm, clipping = clip(sum_squares(buffer.gradients), np.zeros(()), np.ones(3), max_norm=longest)
    expected = torch.nn.utils.clip_grad_norm_(twins, longest)
    assert norm == pytest.approx(expected.item(), rel=1e-12 if dtype == "float64" else 1e-6)
    assert (clipping == 1) == (scale == 1)
    for parameter, twin in zip(buffer.named.values(), twins, strict=True):
        twin.grad *= 1 if scale == 1 else 1 + 1e-6 / expected
        assert_near(parameter.grad * parameter.grad.dtype.type(clipping), twin.grad)


def in_torchs_shape(layer: EncoderLayer, what: str) -> dict[str, Any]:
    """The layer's values or gradients ("value", "grad") by PyTorch's names: matrices (out, in); q, k and v in one.

    Attention biases that our layer has not are zero there.
    """
    attention, feed_forward = layer.self_attention, layer.feed_forward
    arrays = {}
    for name, parts in {
        "self_attn.in_proj_": [attention.query, attention.key, attention.value],
        "self_attn.out_proj.": [attention.output],
        "linear1.": [feed_forward.hidden],
        "linear2.": [feed_forward.output],
    }.items():
        weights = [getattr(part.weight, what).T for part in parts]
        biases = [
            np.zeros(len(weight)) if part.bias is None else getattr(part.bias, what)
            for part, weight in zip(parts, weights, strict=True)
        ]
        arrays |= {f"{name}weight": np.concatenate(weights), f"{name}bias": np.concatenate(biases)}
    for name, residual in (("norm1", layer.self_attention_residual), ("norm2", layer.feed_forward_residual)):
        gain, bias = (getattr(parameter, what) for parameter in (residual.norm.gain, residual.norm.bias))
        arrays |= {f"{name}.weight": gain, f"{name}.bias": bias}
    return arrays


@in_both_dtypes
@pytest.mark.parametrize("changes", [{}, {"attention_bias": True, "layer_norm_eps": 1e-2}], ids=["paper", "biases"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_encoder_layer_equals_torch(norm: Any, changes: Any, dtype: str) -> None:
    config = ModelConfig(vocabulary_size=1, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, norm=norm, **changes)
    layer = EncoderLayer(config)
    buffer = ParameterBuffer(layer, seed=6, dtype=dtype)
    buffer.values += 0.2 * np.random.default_rng(7).standard_normal(buffer.values.shape)
    settings = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64}
    twin = torch.nn.TransformerEncoderLayer(
        12, 3, 20, layer_norm_eps=config.layer_norm_eps, norm_first=norm == "pre", **settings
    )
    twin.load_state_dict({name: twin_of(value) for name, value in in_torchs_shape(layer, "value").items()})
    segments = Segments.of_lengths([5, 5])
    compare(
        lambda x: layer(x, self_attention_mask(segments)),
        lambda x: twin(x.reshape(2, 5, 12)).reshape(10, 12),
        random_arrays((10, 12), dtype=dtype),
        roundings=10,
    )
    gradients = in_torchs_shape(layer, "grad")
    for name, parameter in twin.named_parameters():
        if config.attention_bias or not name.startswith("self_attn") or not name.endswith("bias"):
            assert_near(gradients[name], parameter.grad, roundings=10)


with_every_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])

N_CLASSES, PADDING = 7, 2
LOSS_TARGETS = np.array([3, 0, 6, 6, 1, 4, 5])  # never padding


def logits(dtype: str) -> list[Any]:
    """Of ordinary size; one row far from zero, and one that is all but certain of its target."""
    (rows,) = random_arrays((len(LOSS_TARGETS), N_CLASSES), dtype=dtype)
    rows[0] += 100
    rows[2, LOSS_TARGETS[2]] += 30
    return [rows]


def fairseq_loss(log_p: Any, target: Any, epsilon: float) -> Any:
    """``label_smoothed_nll_loss`` of fairseq, criterions/label_smoothed_cross_entropy.py, summed."""
    share = epsilon / (log_p.size(-1) - 1)
    target_loss = -log_p.gather(-1, target[:, None]).sum()
    return (1 - epsilon - share) * target_loss + share * -log_p.sum()


def annotated_transformer_loss(log_p: Any, target: Any, smoothing: float) -> Any:
    """``LabelSmoothing`` of The Annotated Transformer: Σ KL(q ‖ p)."""
    q = torch.full_like(log_p.detach(), smoothing / (log_p.size(-1) - 2))
    q.scatter_(-1, target[:, None], 1 - smoothing)
    q[:, PADDING] = 0
    return torch.nn.KLDivLoss(reduction="sum")(log_p, q)


@in_both_dtypes
@with_every_smoothing
def test_smoothing_over_all_classes_with_and_without_the_target(smoothing: float, dtype: str) -> None:
    """With it that is PyTorch's, without it fairseq's.

    Of what PyTorch takes from the target, 1/V falls back on it: fairseq's is PyTorch's of a little more.
    """
    targets, more = torch.tensor(LOSS_TARGETS), smoothing * N_CLASSES / (N_CLASSES - 1)
    theirs: list[tuple[Any, Any]] = [
        ("V", lambda x: functional.cross_entropy(x, targets, reduction="sum", label_smoothing=smoothing)),
        ("V-1", lambda x: fairseq_loss(x.log_softmax(-1), targets, smoothing)),
        ("V-1", lambda x: functional.cross_entropy(x, targets, reduction="sum", label_smoothing=more)),
    ]
    for over, their_loss in theirs:
        compare(
            lambda x, over=over: ops.cross_entropy(x, LOSS_TARGETS, smoothing=smoothing, over=over),
            their_loss,
            logits(dtype),
        )


@in_both_dtypes
@with_every_smoothing
def test_smoothing_without_the_impossible_class_is_the_annotated_transformers(smoothing: float, dtype: str) -> None:
    """Its loss is a divergence and ours an entropy: they differ by H(q), and their gradients by nothing."""
    entropy, targets = 0.0, torch.tensor(LOSS_TARGETS)
    if smoothing:
        of_others = smoothing * np.log(smoothing / (N_CLASSES - 2))
        entropy = -len(LOSS_TARGETS) * float((1 - smoothing) * np.log(1 - smoothing) + of_others)
    compare(
        lambda x: ops.cross_entropy(x, LOSS_TARGETS, smoothing=smoothing, over="V-2", impossible=PADDING),
        lambda x: annotated_transformer_loss(x.log_softmax(-1), targets, smoothing) + entropy,
        logits(dtype),
    )
