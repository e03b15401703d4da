"""The construction of an ONNX graph: nodes, inputs, outputs and initialisers, with names that are made here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

from minitransformer.convert.parts import ConversionError

OPSET, IR_VERSION = 17, 8  # 17 is the first with LayerNormalization; ONNX 1.12 (2022) has this pair
LARGEST = 2**31 - 2**20  # bytes: protobuf refuses files of 2 GiB, and nodes need some of them

Value: TypeAlias = str  # the name of a value in a graph
Shape: TypeAlias = tuple[str | int, ...]  # a string names a dynamic axis


class GraphBuilder:
    """A graph under construction.  Weights become initialisers, under their own names, when a node first uses them."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._weights = weights
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._initialisers: dict[Value, np.ndarray[Any, Any]] = {}

    def add_input(self, name: str, shape: Shape, *, integers: bool = False) -> Value:
        """Add an input of float32, or of int64, and return it."""
        self._inputs.append(_described(name, shape, integers=integers))
        return name

    def add_output(self, name: str, value: Value, shape: Shape) -> None:
        """Make a value of float32 an output under this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_described(name, shape))

    def node(self, operator: str, *inputs: Value, **attributes: Any) -> Value:
        """Add a node with one output, and return the output."""
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def has_weight(self, name: str) -> bool:
        """Return whether the model has a weight of this name."""
        return name in self._weights

    def weight(self, name: str) -> Value:
        """Return a weight of the model."""
        self._initialisers[name] = np.asarray(self._weights[name], np.float32)
        return name

    def floats(self, value: Any, name: str | None = None) -> Value:
        """Return a constant of float32."""
        return self._constant(np.asarray(value, np.float32), name)

    def integers(self, value: Any) -> Value:
        """Return a constant of int64."""
        return self._constant(np.asarray(value, np.int64), None)

    def _constant(self, value: np.ndarray[Any, Any], name: str | None) -> Value:
        name = name or f"constant_{len(self._initialisers)}"
        self._initialisers[name] = value
        return name

    def model(self, name: str, metadata: Mapping[str, str]) -> ModelProto:
        """Return the graph as a model that ONNX's checker accepts.

        Raises: ConversionError if the weights are too large for one file.
        """
        n_bytes = sum(array.nbytes for array in self._initialisers.values())
        if n_bytes > LARGEST:
            raise ConversionError(
                f"ONNX: the graph {name!r} has {n_bytes:,} bytes of weights, and a file of this format at most"
                f" {LARGEST:,}; convert the model to CTranslate2, which has no such limit"
            )
        initialisers = [numpy_helper.from_array(array, name) for name, array in self._initialisers.items()]
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, initialisers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="minitransformer",
            producer_version=version("minitransformer"),
        )
        helper.set_model_props(model, dict(metadata))
        checker.check_model(model, full_check=True)
        return model


def _described(name: str, shape: Shape, *, integers: bool = False) -> ValueInfoProto:
    of = TensorProto.INT64 if integers else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, of, shape)
