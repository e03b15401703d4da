"""The complete model: from token ids to logits and to the loss."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from autograd import AttentionMask, Layer, Parameter, ParameterBuffer, RandomStream, Tensor, no_tape, ops
from autograd.array import Array, Device, IntArray, namespace, to_device, to_host
from autograd.kernel_registry import register_kernels
from autograd.ops.linear import linear, linear_logits, linear_transposed, pack_weight
from autograd.ops.linear_maps import joint_linear_maps
from autograd.ops.softmax import log_softmax_values
from autograd.ops.top_k import linear_top_k, log_softmax_top
from autograd.packed_weight import PackedDtype
from autograd.parameters import Allocate, zeros
from autograd.precision import dtype_named, is_16_bit, lack_of_bfloat16, upcast
from minitransformer.config import ModelConfig
from minitransformer.config.checks import ConfigError, imported_class, require
from minitransformer.model.batch import NO_ORDERS, Batch, Orders
from minitransformer.model.files import load_model_files, require_enough_weights, save_model_files
from minitransformer.model.fixed_batch import ModelInput
from minitransformer.model.layers import (
    Embedding,
    KeysValues,
    drop,
    is_exactly,
    keeps_methods,
    layer_with_packed_weights,
)
from minitransformer.model.positions import SamePosition, positions_of
from minitransformer.model.stacks import Decoder, Encoder, KeyValueCache
from minitransformer.model.symbols import END, START
from minitransformer.system.errors import UserError
from minitransformer.system.threads import available_cores, map_in_threads

DTYPES = ("float32", "float64", "bfloat16", "float16")
WeightsChoice: TypeAlias = Literal["automatic", "float32", "float16", "bfloat16", "int8"]  # of a search
WEIGHTS_ON: dict[Device, tuple[WeightsChoice, ...]] = {
    "cpu": ("automatic", "float32", "bfloat16", "int8"), "cuda": ("automatic", "float32", "float16", "bfloat16"),
}  # fmt: skip
_PRODUCTS = linear, ops.linear_relu, linear_transposed, joint_linear_maps


class WeightsError(UserError, ValueError):
    """An error: weights do not fit the model."""


class Transformer(Layer):
    """The Transformer of Vaswani et al. 2017.

    Args:
        config: the hyperparameters; ``vocabulary_size`` must be set.
        seed: determines the initial weights, together with each parameter's name; None leaves them zero.
        dtype: of weights and activations: "float32", "float64" for checks, "bfloat16", or "float16" for a search.  With
            16 bits the master weights (updated and saved), gradients, statistics and sums are float32.
        device: "cpu" or "cuda".
        allocate: see ``ParameterBuffer``; if several processes train the model, the ``allocate`` of their reducer.

    In the methods, S and T are the numbers of source and target tokens of a batch, D is d_model, and W the number of
    words in the vocabulary.
    ``rounds_to_tf32`` says that a search with this model is computed within ``tf32_products``.
    Raises: TypeError, ValueError or ConfigError if an argument is invalid; DeviceError if there is no such device.
    """

    rounds_to_tf32 = False

    def __init__(
        self,
        config: ModelConfig,
        *,
        seed: int | None = 1,
        dtype: str = "float32",
        device: Device = "cpu",
        allocate: Allocate | None = None,
    ) -> None:
        if not isinstance(config, ModelConfig):
            raise TypeError(
                "Transformer: expected a ModelConfig, such as presets.tiny(vocabulary_size=2_000); got"
                f" {type(config).__name__} {config!r:.80}"
            )
        least = min(config.vocabulary_size, config.n_source_words)
        if least <= END:
            raise ValueError(
                f"Transformer: a vocabulary must have more than the {END + 1} reserved ids (unknown, start and end);"
                f" got {least}"
            )
        if dtype not in DTYPES:
            raise ValueError(f"Transformer: dtype must be one of {DTYPES}, got {dtype!r}")
        own, its = type(self), config.implementation
        if its is not None and not names_class(its, own):
            raise ConfigError(f"{own.__name__}: the model is of the class {its}; make it, or load it, with that class")
        register_kernels(device)
        self.config, self.device = dataclasses.replace(config, implementation=implementation_of(own)), device
        self.make_layers(self.config)
        self.parameters = ParameterBuffer(self, seed=seed, dtype=dtype, device=device, allocate=allocate)
        self._projection_by_columns: Array | None = None

    def make_layers(self, config: ModelConfig) -> None:
        """Set the attributes that hold the embeddings and layers, such as ``encoder``, ``decoder`` and ``projection``.

        A derived class may override this method: call the inherited one, then replace some of the attributes.
        """
        self.source_embedding = Embedding(config.n_source_words, config.d_model)
        self.target_embedding = (
            self.source_embedding if config.tied == "all" else Embedding(config.vocabulary_size, config.d_model)
        )
        self.source_positions = positions_of(config)
        self.target_positions = positions_of(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = (
            Embedding(config.vocabulary_size, config.d_model) if config.tied == "none" else self.target_embedding
        )
        self.softmax_bias = Parameter((config.vocabulary_size,), zeros) if config.softmax_bias else None

    def named_parameters(self) -> Iterable[tuple[str, Parameter]]:
        """Return pairs of a name, such as "encoder.layers.0.self_attention.query.weight", and its parameter."""
        return self.parameters.named.items()

    @property
    def n_parameters(self) -> int:
        """The number of learned numbers, frozen parameters included."""
        return self.parameters.n_parameters

    def encode(
        self,
        ids: Array,
        positions: Array,
        mask: AttentionMask,
        random: RandomStream | None = None,
        orders: Orders = NO_ORDERS,
    ) -> Tensor:
        """Compute the encoder's output (S, D) from packed source ids (S,) and their positions (S,) in their sentences.

        ``mask`` is that of self-attention (``batch.masks(…).encoder``).  ``random`` turns dropout on.  ``orders`` are
        ``batch.source_orders``, or nothing.
        """
        x = self.source_embedding.with_positions(
            ids, self.source_positions, positions, self.config.p_drop, random, orders
        )
        return self.encoder(x, mask, random)

    def decode(
        self,
        ids: Array,
        positions: Array | SamePosition,
        memory: list[KeysValues],
        self_mask: AttentionMask,
        source_mask: AttentionMask,
        random: RandomStream | None = None,
        caches: list[KeyValueCache] | None = None,
        orders: Orders = NO_ORDERS,
    ) -> Tensor:
        """Compute the decoder's output (T, D) from its inputs (T,) and their positions (T,) in their sentences.

        ``memory`` is ``decoder.memory`` of the encoder's output.  The masks are those of self-attention and of
        attention to the source (``decoder`` and ``source`` of ``batch.masks(…)``).  ``random`` turns dropout on.
        With ``caches``, one key/value cache for each layer, ``ids`` has only the newest token of each sequence.
        """
        x = self._embed_targets(ids, positions, random, orders)
        return self.decoder(x, memory, self_mask, source_mask, random, caches)

    def _embed_targets(
        self, ids: IntArray, positions: IntArray | SamePosition, random: RandomStream | None, orders: Orders
    ) -> Tensor:
        """Return the decoder's input (T, D) for ids (T,) and their positions, after dropout.

        ``config.start`` determines the embedding of the start symbol.
        """
        embedding, encoding, rate = self.target_embedding, self.target_positions, self.config.p_drop
        if self.config.start == "zero":
            x = embedding(ids, orders.ids)
            x = x * to_device((ids != START)[:, None].astype(x.dtype), self.device)
            return drop(encoding.add_to(x, positions, orders.positions), rate, random)
        if self.config.start == "end":
            ids = namespace(ids).where(ids == START, END, ids)  # their order stays: no id is between START and END
        return embedding.with_positions(ids, encoding, positions, rate, random, orders)

    def project(self, decoded: Tensor) -> Tensor:
        """Compute unnormalised log-probabilities (T, W) of the next token from the decoder's output (T, D)."""
        by_columns = self._projection_by_columns
        if by_columns is None:
            logits = self.projection.logits(decoded)
        elif is_16_bit(by_columns):
            logits = Tensor(linear_logits(decoded.value, by_columns, None))
        else:
            logits = ops.linear(decoded, by_columns, None)
        return logits if self.softmax_bias is None else logits + self.softmax_bias

    def top_k(self, decoded: Tensor, *, n: int, forbidden: Array, rule: Array | None = None) -> tuple[Array, Array]:
        """Return log p (nats) and ids of the n best next tokens that are not forbidden, best first, on the device.

        Shapes: decoded (T, D), the decoder's output; for ``forbidden`` and ``rule`` see ``log_softmax_top``; returns
        two (T, n), float64 and int64.
        """
        found: tuple[Array, Array]
        if not self._projects_plainly("linear_top_k"):
            found = log_softmax_top(upcast(self.project(decoded).value), forbidden, rule, n=n)
            return found
        by_columns = self._projection_by_columns
        weight = self.projection.weight.value.T if by_columns is None else by_columns
        bias = None if self.softmax_bias is None else self.softmax_bias.value
        found = linear_top_k(decoded.value, weight, bias, n=n, forbidden=forbidden, rule=rule)
        return found

    def for_search(self, *, dtype: WeightsChoice = "float32") -> Transformer:
        """Return a copy of the model for search: the weights of layers and projection are packed (``pack_weight``).

        The copy is valid only until the parameters change.  On a CPU, both factors of products with packed weights are
        rounded to ``dtype``; all else is float32, for any dtype of the parameters.  On a GPU, "float16" and "bfloat16"
        are the dtype of weights, activations, keys and values, and logits are float32.  "automatic" is float32, on a
        GPU with ``rounds_to_tf32`` if its products passed their check in TF32.
        The projection weight is packed as (D, W).
        Raises: ConfigError for a dtype in which this device cannot compute, and for weights too great for float16.
        """
        possible = WEIGHTS_ON[self.device]
        require(dtype in possible, "weights", f'one of {possible} on "{self.device}"', dtype)
        is_narrow = self.device == "cuda" and dtype in ("float16", "bfloat16")
        packed_in = "float32" if is_narrow or dtype == "automatic" else cast(PackedDtype, dtype)
        model = copy.copy(self._in_16_bits(dtype) if is_narrow else self.in_float32())
        multiplies_tf32 = self.device == "cuda" and all(each.may_run("cuda", "tf32") for each in _PRODUCTS)
        model.rounds_to_tf32 = dtype == "automatic" and multiplies_tf32
        packs_projection = is_exactly(Embedding, "pack_weight", model.projection)
        packing: list[Callable[[], Any]] = [
            lambda: pack_weight(model.projection.weight.value.T, dtype=packed_in) if packs_projection else None,
            lambda: layer_with_packed_weights(model.encoder, dtype=packed_in),
            lambda: layer_with_packed_weights(model.decoder, dtype=packed_in),
        ]
        n_threads = available_cores() if model.device == "cpu" else 1
        packed = map_in_threads(lambda pack: pack(), packing, n_threads)
        model._projection_by_columns, model.encoder, model.decoder = packed
        return model

    def in_float32(self) -> Transformer:
        """Return the model with its float32 master weights: itself, or a copy if the weights have 16 bits."""
        return self if self.parameters.low_precision is None else self.with_values(self.parameters.values)

    def _in_16_bits(self, dtype: str) -> Transformer:
        """Return the model in "float16" or "bfloat16", which must be multiplied on its GPU: itself, or a copy.

        Raises: ConfigError if no kernel multiplies this dtype here, or if a weight is too great for it.
        """
        lack = lack_of_bfloat16() if dtype == "bfloat16" else None
        if not linear.may_run(self.device, dtype):
            lack = f"no kernel of products in {dtype} has passed its check, or kernels are references"
        require(lack is None, "weights", f'"automatic" or "float32" here ({lack})', dtype)
        greatest = float(abs(self.parameters.values).max())
        fits = dtype == "bfloat16" or not greatest > float(np.finfo(np.float16).max)
        require(fits, "weights", f'"bfloat16" or "float32", because a weight is {greatest:.6g}', dtype)
        stored = self.parameters.low_precision
        is_stored = stored is not None and stored.dtype == dtype_named(dtype)
        return self if is_stored else self.with_values(self.parameters.values, dtype)

    def with_values(self, values: Array, dtype: str | None = None) -> Transformer:
        """Return a copy of the model with these master weights, a flat array like ``parameters.values``, on its device.

        The copy computes in ``dtype``; None is the dtype of the master weights, which never has 16 bits.
        """
        dtype = dtype or self.parameters.values.dtype.name
        model = type(self)(self.config, seed=None, dtype=dtype, device=self.device)
        model.parameters.values[...] = values[: len(model.parameters.values)]  # a reducer may have padded them
        model.parameters.refresh_low_precision()
        return model

    def decoded(self, batch: ModelInput, random: RandomStream | None = None) -> Tensor:
        """Compute the decoder's output at every target token.  Shapes: returns (T, D), packed in sentence order."""
        masks = batch.masks(self.config.neighbourhood)
        encoded = self.encode(batch.source_ids, batch.source_positions, masks.encoder, random, batch.source_orders)
        memory = self.decoder.memory(encoded)
        return self.decode(
            batch.decoder_ids,
            batch.target_positions,
            memory,
            masks.decoder,
            masks.source,
            random,
            orders=batch.target_orders,
        )

    def logits(self, batch: Batch, random: RandomStream | None = None) -> Tensor:
        """Compute unnormalised log-probabilities of next tokens.  Shapes: returns (T, W), packed in sentence order."""
        return self.project(self.decoded(batch, random))

    def loss(self, batch: ModelInput, random: RandomStream | None = None) -> Tensor:
        """Compute the label-smoothed cross-entropy in nats, summed over target tokens.

        Dropout is applied if and only if ``random`` is given.  Divide by ``batch.n_target_tokens`` for the mean.
        Shapes: returns ().  Raises: TypeError for another batch or ``random``, and in float16.
        A training calls this once for each micro-batch, and adds the results.
        """
        if not isinstance(batch, ModelInput):
            raise TypeError(
                f"Transformer.loss: expected a batch, such as Batch.from_token_ids([[5, 6]], [[7]]); got {batch!r:.80}"
            )
        if not isinstance(random, RandomStream | None):
            raise TypeError(f"Transformer.loss: random must be a RandomStream or None; got {random!r:.80}")
        if self.parameters.low_precision is not None and self.parameters.low_precision.dtype == np.float16:
            raise TypeError("Transformer.loss: float16 is for a search only; train in bfloat16 or float32")
        over, decoded = self.config.label_smoothing_over, self.decoded(batch, random)
        labels = to_device(batch.labels, self.device)
        smoothing: dict[str, Any] = {
            "smoothing": self.config.label_smoothing, "over": over, "impossible": START if over == "V-2" else None,
        }  # fmt: skip
        if not self._projects_plainly("linear_cross_entropy"):
            return ops.cross_entropy(self.project(decoded), labels, **smoothing)
        return ops.linear_cross_entropy(decoded, self.projection.weight, self.softmax_bias, labels, **smoothing)

    def penalty(self) -> Tensor | None:
        """Compute a term of the mean loss that depends on the parameters alone; None if there is none.

        A derived class may override this method.  A training calls it once for each update.  It minimises the loss of
        the whole batch, divided by the batch's target tokens, plus this term.
        Shapes: returns ().
        """
        return None

    def _projects_plainly(self, operation: str) -> bool:
        """Return whether ``operation`` may compute ``project``: no class of a user changes it, or its layer."""
        is_plain = keeps_methods(self, Transformer, operation, "project")
        return is_exactly(Embedding, operation, self.projection) and is_plain

    def log_probabilities(self, batch: Batch) -> Array:
        """Compute log p(token | source, preceding tokens) of every token of the vocabulary, without dropout.

        Shapes: returns (target tokens, W), packed in sentence order, in nats.
        """
        with no_tape():
            return log_softmax_values(self.in_float32().logits(batch).value)

    def weights(self) -> dict[str, Array]:
        """Return the parameters' values by name, as NumPy arrays; on a CPU they are views, not copies."""
        return {name: to_host(values) for name, values in self.parameters.named_values().items()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Copy ``weights``, arrays by the names of ``named_parameters``, into all parameters.

        Raises: WeightsError, which lists up to five missing names, unknown names or wrong shapes, before any change.
        """
        expected = {name: parameter.shape for name, parameter in self.named_parameters()}
        got = {name: tuple(value.shape) for name, value in weights.items()}
        problems = [f"missing {name} {expected[name]}" for name in expected.keys() - got.keys()]
        problems += [f"unknown {name} {got[name]}" for name in got.keys() - expected.keys()]
        problems += [
            f"{name} has shape {got[name]}, expected {expected[name]}"
            for name in expected.keys() & got.keys()
            if got[name] != expected[name]
        ]
        if problems:
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise WeightsError(f"weights do not fit this model: {'; '.join(sorted(problems)[:5])}{more}")
        for name, values in self.parameters.named_values().items():
            values[...] = to_device(weights[name], self.device)
        self.parameters.refresh_low_precision()

    def save(self, directory: str | Path) -> None:
        """Write ``model.json`` and ``model.safetensors`` into a directory; each is always complete or absent.

        Raises: CheckpointError if the directory cannot be written.
        """
        save_model_files(Path(directory), self.config, self.weights())

    @classmethod
    def load(cls, directory: str | Path, *, dtype: str = "float32", device: Device = "cpu") -> Transformer:
        """Return the model that ``save`` wrote to a directory, in ``dtype`` on ``device``.

        Raises: CheckpointError if a file is missing or corrupt; WeightsError if the weights do not fit the
        configuration; ConfigError if the model is of another class.
        """
        config, weights = load_model_files(Path(directory))
        require_enough_weights(Path(directory), config, weights)
        if not names_class(config.implementation, cls):
            its, own = (name or "Transformer" for name in (config.implementation, implementation_of(cls)))
            raise ConfigError(f"{directory}: has a model of the class {its}, not of {own}; load it with {its}")
        model = cls(config, seed=None, dtype=dtype, device=device)
        model.set_weights(weights)
        return model


def implementation_of(model: type[Transformer]) -> str | None:
    """Return the ``implementation`` setting for a class.  Raises: ConfigError if ``model`` is no Transformer class."""
    is_model = isinstance(model, type) and issubclass(model, Transformer)
    require(is_model, "model", "a class derived from Transformer (its name: in model.implementation)", model)
    return None if model is Transformer else f"{model.__module__}:{model.__qualname__}"


def names_class(name: str | None, model: type[Transformer]) -> bool:
    """Return whether a setting ``implementation`` names the class.

    A class that is defined in a script or in a function cannot be imported; then only the last part of a name counts.
    """
    own = implementation_of(model)
    if name and own and re.search("^__main__:|<locals>", f"{name}\n{own}", re.MULTILINE):
        return re.split("[:.]", name)[-1] == model.__name__
    return name == own


def class_of(config: ModelConfig) -> type[Transformer]:
    """Return the class that a configuration names.  Raises: ConfigError if it cannot be imported, or is no model."""
    if config.implementation is None:
        return Transformer
    return imported_class("model.implementation", config.implementation, Transformer)
