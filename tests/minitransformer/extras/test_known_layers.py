"""A changed layer, of a user's class or of a changed copy of this project, is drawn or exported as no other layer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searching import TINY, VARIANTS

from autograd import Parameter, RandomStream, Tensor, ops
from autograd.parameters import zeros
from minitransformer import Transformer
from minitransformer.extras.convert.formats import WRITABLE, read_parts
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.extras.known_layers import UnknownLayerError, require_known_layers
from minitransformer.extras.paper.compatibility import CONVENTIONS
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.sentence import sentence_numbers
from minitransformer.model.layers import FeedForward, LayerNorm, Linear, Residual
from minitransformer.model.stacks import EncoderLayer
from tests.support.ctranslate2_models import subword_parts, write_parts

OWN_FORMATS = ("minitransformer", "bundle")
HIDDEN = "encoder.layers.0.feed_forward.hidden.weight"


@pytest.mark.parametrize("changes", [
    *VARIANTS, {"activation": "gelu_tanh"}, {"activation": "swish", "norm": "pre"}, {"start": "zero", "tied": "none"},
    {"start": "zero", "positions": "learned", "tied": "target"}, {"start": "end", "n_decoder_layers": 1},
])  # fmt: skip
def test_the_papers_layers_are_known_with_all_settings(changes: dict[str, Any]) -> None:
    require_known_layers(Transformer(type(TINY)(**{**vars(TINY), **changes})))


def swiglu(patch: pytest.MonkeyPatch) -> None:
    make = FeedForward.__init__

    def make_with_gate(self: Any, config: Any) -> None:
        make(self, config)
        self.gate = Linear(config.d_model, config.d_ff, bias=False)

    def call(self: Any, x: Tensor, random: RandomStream | None = None) -> Tensor:
        return self.output(ops.swish(self.gate(x)) * self.hidden(x))  # type: ignore[no-any-return]

    patch.setattr(FeedForward, "__init__", make_with_gate)
    patch.setattr(FeedForward, "__call__", call)


def squared_relu(patch: pytest.MonkeyPatch) -> None:
    def call(self: Any, x: Tensor, random: RandomStream | None = None) -> Tensor:
        hidden = ops.linear_relu(x, self.hidden.weight, self.hidden.bias)
        return self.output(hidden * hidden)  # type: ignore[no-any-return]

    patch.setattr(FeedForward, "__call__", call)


def scaled_residual(patch: pytest.MonkeyPatch) -> None:
    call = Residual.__call__
    patch.setattr(Residual, "__call__", lambda self, x, y, random: call(self, x * 2.0, y, random))


def parallel_sublayers(patch: pytest.MonkeyPatch) -> None:
    def call(self: Any, x: Tensor, mask: Any, random: RandomStream | None = None) -> Tensor:
        y = self.self_attention(*self.self_attention.queries_keys_values(x), mask, random)
        x = self.self_attention_residual(x, self.feed_forward(x), random)
        return self.feed_forward_residual(x, y, random)  # type: ignore[no-any-return]

    patch.setattr(EncoderLayer, "__call__", call)


def unread_parameter(patch: pytest.MonkeyPatch) -> None:
    make = LayerNorm.__init__

    def make_with_shift(self: Any, d_model: int, *, eps: float = 1e-6) -> None:
        make(self, d_model, eps=eps)
        self.shift = Parameter((d_model,), zeros)

    patch.setattr(LayerNorm, "__init__", make_with_shift)


KNOWN = "in the layers that are known here it is"
FORKS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (swiglu, rf"linear with encoder.layers.0.feed_forward.gate.weight; {KNOWN} linear_relu with {HIDDEN}"),
    (squared_relu, rf"multiply; {KNOWN} linear with encoder.layers.0.feed_forward.output.weight"),
    (scaled_residual, rf"scale; {KNOWN} add_norm with encoder.layers.0.self_attention_residual.norm.gain"),
    (parallel_sublayers, rf"linear_relu with {HIDDEN}; {KNOWN} add_norm with encoder.layers.0.self_attention_residual"),
    (unread_parameter, r"no operation that is known here reads the parameter \w+.layers.0.\w+.norm.shift"),
]


@pytest.mark.parametrize(("change", "message"), FORKS)
def test_a_changed_copy_of_this_project_draws_and_exports_its_layers_as_no_others(
    change: Callable[[pytest.MonkeyPatch], None], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own format keeps its layers."""
    change(monkeypatch)
    parts = subword_parts(CONVENTIONS["marian"])  # all formats can express these settings
    with pytest.raises(ReportError, match=rf"^sentence: the page cannot draw this model: .*{message}"):
        sentence_numbers(Transformer(parts.config), [3, 5], [4])
    for name in WRITABLE:
        if name in OWN_FORMATS:
            write_parts(parts, tmp_path / name, name)
            assert read_parts(tmp_path / name).weights.keys() == parts.weights.keys()
            continue
        with pytest.raises(ConversionError, match=rf"^\w+ cannot express this model: .*{message}"):
            write_parts(parts, tmp_path / name, name)
        assert not (tmp_path / name).exists()


class Capped(Transformer):
    def project(self, decoded: Tensor) -> Tensor:
        return ops.tanh(super().project(decoded))


class Quiet(Transformer):
    """The paper's layers under another name."""


def test_a_users_class_is_drawn_if_it_computes_the_papers_layers() -> None:
    require_known_layers(Quiet(TINY))
    assert sentence_numbers(Quiet(TINY), [3], [4]).logits.shape == (2, TINY.vocabulary_size)
    with pytest.raises(UnknownLayerError, match=r"is tanh; in the layers that are known here it is none"):
        require_known_layers(Capped(TINY))
