"""The layers' weights under CTranslate2's names and under ours, for both directions.

CTranslate2 stores matrices as (out, in).  It stores the queries, keys and values of self-attention in one matrix, and
the keys and values of encoder-decoder attention in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.convert.ctranslate2_variables import Variables

Array = np.ndarray[Any, Any]


class LinearMap(NamedTuple):
    """One of CTranslate2's linear maps, and those of ours whose outputs it concatenates.

    ``sizes`` are the numbers of outputs of ours.
    """

    theirs: str
    ours: tuple[str, ...]
    n_inputs: int
    sizes: tuple[int, ...]

    @property
    def has_optional_bias(self) -> bool:
        """True for maps of attention: only ``attention_bias`` gives them a bias."""
        return "attention/" in self.theirs


def stacks_of(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of layers of each stack."""
    yield "encoder", config.n_layers
    yield "decoder", config.decoder_depth


def linear_maps(config: ModelConfig) -> Iterator[LinearMap]:
    """Yield all linear maps of the layers."""
    d, keys, values = config.d_model, config.n_heads * config.d_k, config.n_heads * config.d_v
    for stack, n_layers in stacks_of(config):
        for i in range(n_layers):
            theirs, ours = f"{stack}/layer_{i}", f"{stack}.layers.{i}"
            own, source, network = f"{ours}.self_attention", f"{ours}.source_attention", f"{ours}.feed_forward"
            of_all = (f"{own}.query", f"{own}.key", f"{own}.value")
            yield LinearMap(f"{theirs}/self_attention/linear_0", of_all, d, (keys, keys, values))
            yield LinearMap(f"{theirs}/self_attention/linear_1", (f"{own}.output",), values, (d,))
            if stack == "decoder":
                of_source = (f"{source}.key", f"{source}.value")
                yield LinearMap(f"{theirs}/attention/linear_0", (f"{source}.query",), d, (keys,))
                yield LinearMap(f"{theirs}/attention/linear_1", of_source, d, (keys, values))
                yield LinearMap(f"{theirs}/attention/linear_2", (f"{source}.output",), values, (d,))
            yield LinearMap(f"{theirs}/ffn/linear_0", (f"{network}.hidden",), d, (config.d_ff,))
            yield LinearMap(f"{theirs}/ffn/linear_1", (f"{network}.output",), config.d_ff, (d,))


def norms(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield CTranslate2's name and ours of every layer norm."""
    for stack, n_layers in stacks_of(config):
        for i in range(n_layers):
            theirs, ours = f"{stack}/layer_{i}", f"{stack}.layers.{i}"
            yield f"{theirs}/self_attention/layer_norm", f"{ours}.self_attention_residual.norm"
            if stack == "decoder":
                yield f"{theirs}/attention/layer_norm", f"{ours}.source_attention_residual.norm"
            yield f"{theirs}/ffn/layer_norm", f"{ours}.feed_forward_residual.norm"
        if config.norm == "pre":
            yield f"{stack}/layer_norm", f"{stack}.norm"


def read_layers(variables: Variables, config: ModelConfig) -> dict[str, Array]:
    """Return the weights of all layers under our names; a bias that the model lacks is 0.

    Raises: ConversionError if a variable is missing, or has another shape than the configuration says.
    """
    weights: dict[str, Array] = {}
    for linear in linear_maps(config):
        n_outputs, cuts = sum(linear.sizes), np.cumsum(linear.sizes)[:-1]
        matrix = variables.array(f"{linear.theirs}/weight", (n_outputs, linear.n_inputs))
        bias = variables.optional(f"{linear.theirs}/bias", (n_outputs,))
        parts = np.split(matrix, cuts), np.split(np.zeros(n_outputs, np.float32) if bias is None else bias, cuts)
        for name, of_matrix, of_bias in zip(linear.ours, *parts, strict=True):
            weights[f"{name}.weight"] = np.ascontiguousarray(of_matrix.T)
            if config.attention_bias or not linear.has_optional_bias:
                weights[f"{name}.bias"] = of_bias
    for theirs, ours in norms(config):
        weights[f"{ours}.gain"] = variables.array(f"{theirs}/gamma", (config.d_model,))
        weights[f"{ours}.bias"] = variables.array(f"{theirs}/beta", (config.d_model,))
    return weights


def layers_as_variables(config: ModelConfig, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights of all layers under CTranslate2's names."""
    variables: dict[str, Array] = {}
    for linear in linear_maps(config):
        matrices = [weights[f"{name}.weight"].T for name in linear.ours]
        variables[f"{linear.theirs}/weight"] = np.concatenate(matrices)
        if config.attention_bias or not linear.has_optional_bias:
            biases = [weights[f"{name}.bias"] for name in linear.ours]
            variables[f"{linear.theirs}/bias"] = np.concatenate(biases)
    for theirs, ours in norms(config):
        variables[f"{theirs}/gamma"] = weights[f"{ours}.gain"]
        variables[f"{theirs}/beta"] = weights[f"{ours}.bias"]
    return variables
