"""The variables of a CTranslate2 model, of which everything must be used: what is left over is not supported."""

from __future__ import annotations

from minitransformer.convert.foreign_files import WeightsFile
from minitransformer.convert.parts import Array, ConversionError

_IGNORED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
_UNSUPPORTED = {  # parts of variables' names, and what they are; the first that fits is named
    "relative_": "relative positions",
    "rotary_": "rotary positions",
    "alibi": "attention with linear biases (ALiBi)",
    "linear_0_noact": "gated feed-forward networks",
    "layernorm_embedding": "a layer norm after the embeddings",
    "encoder/embeddings_1": "source features",
    "multi_query": "multi-query attention",
    "num_heads_kv": "multi-query attention",
    "queries_scale": "another factor of the queries than 1/√d_k",
    "q_norm": "layer norms of queries and keys",
    "k_norm": "layer norms of queries and keys",
    "sliding_window": "attention in a sliding window",
    "project_": "projections before and after the decoder",
    "scale_outputs": "a factor of the decoder's output",
    "softcapping": "limited logits",
    "low_rank": "matrices of low rank",
    "shared_layer_norm": "parallel residual connections",
    "input_layer_norm": "more layer norms than one for each sublayer",
    "merged_encoder_attention": "one attention to source and target",
}


class Variables(WeightsFile):
    """The variables of a model: matrices and vectors in float32, and single numbers with their types."""

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return a variable of this shape.  Raises: ConversionError if there is none."""
        found = self.optional(name, shape)
        if found is None:
            raise self.unfit(name, f"shape {shape}")
        return found

    def optional(self, name: str, shape: tuple[int, ...]) -> Array | None:
        """Return a variable of this shape, or None.  Raises: ConversionError if it has another shape."""
        if name in self._arrays and self._arrays[name].shape != shape:
            raise self.unfit(name, f"shape {shape}")
        return self.take_if_there(name)

    def table(self, name: str, n_columns: int) -> Array | None:
        """Return a matrix with this number of columns, or None.  Raises: ConversionError if it has another shape."""
        return self.array(name, (self.shape(name)[0], n_columns)) if name in self._arrays else None

    def scalar(self, *names: str) -> Array | None:
        """Return the number with the first of these names that exists, with its type, or None.

        Raises: ConversionError if it is no number.
        """
        found = [self._arrays.pop(name) for name in names if name in self._arrays]
        if found and found[0].size != 1:
            raise ConversionError(f"{self.path}: {names[0]}: expected a number, got an array {found[0].shape}")
        return found[0].reshape(()) if found else None

    def integer(self, default: int, *names: str) -> int:
        """Return the number with the first of these names that exists.  Raises: ConversionError if it is no integer."""
        found = self.scalar(*names)
        if found is not None and not (found.dtype.kind == "i" or float(found).is_integer()):
            raise ConversionError(f"{self.path}: {names[0]}: expected a whole number, got {found}")
        return default if found is None else int(found)

    def ending_with(self, *endings: str) -> list[str]:
        """Return the names that end so."""
        return [name for name in self._arrays if name.endswith(endings)]

    def expect_supported(self) -> None:
        """Raise ConversionError if a variable's name says that the model has what ours lacks."""
        for part, feature in _UNSUPPORTED.items():
            if found := [name for name in self.left() if part in name]:
                raise ConversionError(
                    f"{self.path}: the model has {feature} ({found[0]}), which this Transformer does not"
                )

    def left(self) -> list[str]:
        """Return the names of the variables that are left and have an effect: flags that are 0 have none."""
        return sorted(
            name
            for name, array in self._arrays.items()
            if name.rpartition("/")[2] not in _IGNORED and not (array.ndim == 0 and not array)
        )
