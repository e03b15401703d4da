"""A check that a model computes the paper's layers and no other operation, for code that draws or exports layers.

Such code reads weights by their names.  It would show or write a changed layer, of a user's class or of a changed copy
of this project, as if it were the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, TypeAlias

from autograd import no_tape
from autograd.array import Array
from autograd.op import Operation, Run, observed
from autograd.tensor import Backward
from minitransformer.config import ModelConfig
from minitransformer.model.batch import Batch
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError

Step: TypeAlias = tuple[str, str]  # an operation, and the first parameter that it reads, "" if it reads none


class UnknownLayerError(UserError, ValueError):
    """An error: a model computes an operation that is not in the paper's layers, or leaves one out."""


def require_known_layers(model: Transformer) -> None:
    """Raise UnknownLayerError unless a forward pass has the operations of the paper's model with these settings.

    The message names the first operation that differs, or a parameter that no operation reads.  The model must have
    float32 weights that are not packed.
    """
    names = {id(parameter.value): name for name, parameter in model.named_parameters()}
    found, read = list[Step](), set[str]()

    def observe(operation: Operation, run: Run, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        parameters = [names[id(x)] for x in arguments if id(x) in names]
        read.update(parameters)
        if operation.__name__ != "reshape":
            found.append((operation.__name__, parameters[0] if parameters else ""))
        return run(*arguments, **static)

    with no_tape(), observed(observe):
        model.logits(Batch.from_token_ids([[0]], [[]], source_end=model.config.source_end))
    for number, (ours, theirs) in enumerate(zip_longest(_forward_pass(model.config), found), 1):
        if ours != theirs:
            raise UnknownLayerError(
                f"operation {number} of the model is {_description(theirs)}; in the layers that are known here it is"
                f" {_description(ours)}"
            )
    if unread := sorted(set(names.values()) - read):
        raise UnknownLayerError(f"no operation that is known here reads the parameter {unread[0]}")


def _description(step: Step | None) -> str:
    if step is None:
        return "none"
    return f"{step[0]} with {step[1]}" if step[1] else step[0]


def _forward_pass(config: ModelConfig) -> Iterator[Step]:
    """Yield the operations of the paper's model for one source token and one decoder input, without reshapes."""
    source, target = "source_embedding.weight", "target_embedding.weight"
    projection = target if config.tied == "target" else "projection.weight"
    if config.tied == "all":
        target = projection = source
    yield "embedding_with_positions", source
    for i in range(config.n_layers):
        yield from _attention(config, f"encoder.layers.{i}.self_attention", ("query", "key", "value"))
        yield from _feed_forward(config, f"encoder.layers.{i}.feed_forward")
    yield from _last_norm(config, "encoder")
    for kind in ("key", "value"):
        for i in range(config.decoder_depth):
            yield "linear", f"decoder.layers.{i}.source_attention.{kind}.weight"
    yield from _embedded_target(config, target)
    for i in range(config.decoder_depth):
        yield from _attention(config, f"decoder.layers.{i}.self_attention", ("query", "key", "value"))
        yield from _attention(config, f"decoder.layers.{i}.source_attention", ("query",))
        yield from _feed_forward(config, f"decoder.layers.{i}.feed_forward")
    yield from _last_norm(config, "decoder")
    yield "linear_transposed", projection
    if config.softmax_bias:
        yield "add", "softmax_bias"


def _embedded_target(config: ModelConfig, weight: str) -> Iterator[Step]:
    if config.start != "zero":
        yield "embedding_with_positions", weight
        return
    positions = "target_positions.weight" if config.positions == "learned" else ""
    yield from (("embedding", weight), ("scale", ""), ("multiply", ""), ("embedding", positions), ("add", ""))


def _attention(config: ModelConfig, name: str, maps: tuple[str, ...]) -> Iterator[Step]:
    yield from _norm_before(config, name)
    for each in maps:
        yield "linear", f"{name}.{each}.weight"
    yield "attention", ""
    yield "linear", f"{name}.output.weight"
    yield _residual(config, name)


def _feed_forward(config: ModelConfig, name: str) -> Iterator[Step]:
    yield from _norm_before(config, name)
    yield "linear_relu" if config.activation == "relu" else "linear", f"{name}.hidden.weight"
    if config.activation != "relu":
        yield config.activation, ""
    yield "linear", f"{name}.output.weight"
    yield _residual(config, name)


def _norm_before(config: ModelConfig, name: str) -> Iterator[Step]:
    if config.norm == "pre":
        yield "layer_norm", f"{name}_residual.norm.gain"


def _residual(config: ModelConfig, name: str) -> Step:
    return ("add_norm", f"{name}_residual.norm.gain") if config.norm == "post" else ("add", "")


def _last_norm(config: ModelConfig, stack: str) -> Iterator[Step]:
    if config.norm == "pre":
        yield "layer_norm", f"{stack}.norm.gain"
