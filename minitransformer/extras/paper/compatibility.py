"""The conventions of other Transformers: how each system differs from the paper.

Sources, from their code: tensor2tensor bafdc1b6 (``transformer_base_v1``, the settings of the paper's models),
    fairseq 3d262bb2 (``transformer_wmt_en_de``), marian-dev 0888d122 (``--task transformer-base``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from minitransformer.config import ConfigError, ModelConfig, Normalisation


@dataclass(frozen=True)
class Conventions:
    """The settings of a system: the fields of ``ModelConfig`` that differ from the paper's, and the length penalty.

    Two differences of initial values are left out, because they vanish with the first updates.  Marian draws initial
    embeddings from a uniform distribution; ours are normal, with the same variance.  fairseq draws feed-forward
    matrices and biases, and the biases of queries, keys and values, uniformly from ±1/√inputs (PyTorch's Linear); our
    matrices are initialised by Glorot's rule, and our biases are 0.

    One trained parameter is left out: the vector that tensor2tensor adds to every source embedding for the kind of
    target (``use_target_space_embedding``).  If there is only one kind, the vector is the same for all sentences.
    """

    model: dict[str, Any]
    normalisation: Normalisation


CONVENTIONS: dict[str, Conventions] = {
    "paper": Conventions({}, "gnmt"),
    "tensor2tensor": Conventions({"positions": "halves", "start": "zero"}, "gnmt"),
    "fairseq": Conventions(
        {
            "positions": "halves",
            "first_position": 2,  # its first two positions belong to the padding symbol
            "start": "end",
            "layer_norm_eps": 1e-5,
            "attention_bias": True,
            "attention_gain": 0.5**0.5,
        },
        "length",
    ),
    "marian": Conventions(
        {
            "positions": "halves",
            "start": "zero",
            "label_smoothing_over": "V",
            "attention_bias": True,
            "softmax_bias": True,
        },
        "length",
    ),
}


def compatible(config: ModelConfig, system: str) -> ModelConfig:
    """Return ``config`` with a system's conventions, including its length penalty.

    Raises: ConfigError for an unknown system.
    """
    if system not in CONVENTIONS:
        raise ConfigError(f"compat: expected one of {', '.join(CONVENTIONS)}; got {system!r}")
    conventions = CONVENTIONS[system]
    return dataclasses.replace(config, **conventions.model, normalisation=conventions.normalisation)
