"""The attention weights of a model for one pair of sentences.

Attention kernels do not return the weights, and the fastest kernel never has them in one array.  So this module takes
queries and keys from each attention operation of the model, and calls the operation with the identity matrix as values:
Attention(Q, K, I) = softmax(Q Kᵀ / √d_k).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from autograd import AttentionMask, Tensor, namespace, no_tape, ops, to_host
from autograd.array import Array, FloatArray
from autograd.op import Operation, Run, observed
from autograd.precision import upcast
from autograd.tensor import Backward
from minitransformer.model.batch import Batch, Ids
from minitransformer.model.stacks import Decoder, DecoderLayer, Encoder, EncoderLayer
from minitransformer.model.symbols import BLANK
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.text.words import WORD

Stack = TypeVar("Stack", Encoder, Decoder)
StackLayer = TypeVar("StackLayer", EncoderLayer, DecoderLayer)


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """Attention weights as arrays [layer, head, query, key]; each row sums to 1.

    Shapes: encoder (N, H, S, S), decoder (M, H, T, T), encoder_decoder (M, H, T, S).  The encoder has N layers, the
    decoder M.  S is the number of source tokens with the end symbol, T the number of decoder inputs with the start
    symbol.
    """

    encoder: FloatArray
    decoder: FloatArray
    encoder_decoder: FloatArray


def attention_weights(model: Transformer, source: Ids, target: Ids) -> AttentionWeights:
    """Compute the attention weights of every head and layer for a source and a target.

    Args:
        source, target: ids without start and end symbols.
    """
    recording = copy.copy(model)
    recording.encoder, recording.decoder = _recording_stack(model.encoder), _recording_stack(model.decoder)
    with no_tape():
        recording.decoded(Batch.from_token_ids([source], [target], source_end=model.config.source_end))
    encoder, decoder = recording.encoder.layers, recording.decoder.layers
    return AttentionWeights(
        encoder=_stack_weights([layer.self_attention for layer in encoder]),
        decoder=_stack_weights([layer.self_attention for layer in decoder]),
        encoder_decoder=_stack_weights([layer.source_attention for layer in decoder]),
    )


def source_attention_weights(model: Transformer, source: Ids, target: Ids, layer: int) -> FloatArray:
    """Compute the encoder-decoder weights (H, T, S) of one decoder layer; see ``AttentionWeights``."""
    recording = copy.copy(model)
    recording.decoder = _recording_stack(model.decoder, [layer])
    with no_tape():
        recording.decoded(Batch.from_token_ids([source], [target], source_end=model.config.source_end))
    weights: FloatArray = _stack_weights([recording.decoder.layers[layer].source_attention])[0]
    return weights


def word_starts(pieces: Sequence[str]) -> list[int]:
    """Return the index of each word's first piece; a piece "▁" belongs to the word after it.

    In scripts without blanks between words, a word is a piece with the punctuation after it.
    """
    text, blanks = "".join(pieces).replace(BLANK, " "), set(starts_at_blanks(pieces))
    characters = {word.start() for word in WORD.finditer(text)}
    places = list(accumulate(map(len, pieces), initial=0))
    return [i for i in range(len(pieces)) if i in blanks or (places[i] in characters and pieces[i - 1] != BLANK)]


def starts_at_blanks(pieces: Sequence[str]) -> list[int]:
    """Return the indices of the first piece and of each piece that begins with "▁".

    A piece after the piece "▁" belongs to the same word, even if it begins with "▁".
    """
    marked = [piece.startswith(BLANK) and (i == 0 or pieces[i - 1] != BLANK) for i, piece in enumerate(pieces)]
    return [i for i, begins in enumerate(marked) if begins or i == 0]


class AttentionError(UserError, ValueError):
    """An error: a layer of a user's class computes no attention whose weights can be recorded."""


class _AttentionRecorder:
    """A base class that, put before the class of an attention layer, keeps the weights (T, H, S) of the last call.

    The layer's own ``__call__`` runs.  An observer takes queries and keys from the layer's attention operation.
    """

    recorded: FloatArray

    def __call__(self, *arguments: Any, **named: Any) -> Tensor:
        found: list[tuple[Array, Array, AttentionMask]] = []

        def observe(operation: Operation, run: Run, *arrays: Any, **static: Any) -> tuple[Array, Backward]:
            if operation is ops.attention:
                found.append((*arrays[:2], static["mask"]))
            return run(*arrays, **static)

        with observed(observe):
            y: Tensor = super().__call__(*arguments, **named)  # type: ignore[misc]
        if len(found) != 1:
            raise AttentionError(
                f"attention: {type(self).__bases__[1].__qualname__} computes {len(found)} operations"
                " autograd.ops.attention in a call; its weights can be recorded only if it computes one"
            )
        (queries, keys), mask = (Tensor(upcast(x)) for x in found[0][:2]), found[0][2]
        self.recorded = to_host(ops.attention(queries, keys, _identity(keys), mask=mask).value)
        return y


def _identity(keys: Tensor) -> Tensor:
    """Return the identity matrix as values (S, H, S): in every head, the value of key j is the j-th unit vector."""
    xp, (n_keys, n_heads, _) = namespace(keys.value), keys.shape
    values, j = xp.zeros((n_keys, n_heads, n_keys), keys.dtype), xp.arange(n_keys)
    values[j, :, j] = 1
    return Tensor(values)


def _recording_stack(stack: Stack, numbers: Sequence[int] | None = None) -> Stack:
    """Return a copy of a stack whose layers record their attention weights: all layers, or the layers ``numbers``."""
    recording = copy.copy(stack)
    recording.layers = [
        _recording_layer(layer) if numbers is None or i in numbers else layer for i, layer in enumerate(stack.layers)
    ]
    return recording


def _recording_layer(layer: StackLayer) -> StackLayer:
    """Return a copy of a layer whose attention sublayers record their weights; parameters are shared."""
    recording = copy.copy(layer)
    for name in {"self_attention", "source_attention"} & vars(layer).keys():
        sublayer = copy.copy(getattr(layer, name))
        sublayer.__class__ = type("Recording", (_AttentionRecorder, type(sublayer)), {})
        setattr(recording, name, sublayer)
    return recording


def _stack_weights(layers: Sequence[Any]) -> FloatArray:
    """Stack the weights (T, H, S) that N layers have recorded into (N, H, T, S)."""
    return np.stack([layer.recorded.transpose(1, 0, 2) for layer in layers])
