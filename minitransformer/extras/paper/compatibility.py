"""The conventions of other Transformers: how each system differs from the paper.

Two differences of initial values are left out, because they vanish with the first updates.  Marian draws initial
embeddings from a uniform distribution; ours are normal, with the same variance.  fairseq draws feed-forward matrices
and biases, and the biases of queries, keys and values, uniformly from ±1/√inputs (PyTorch's Linear); our matrices are
initialised by Glorot's rule, and our biases are 0.

One trained parameter is left out: the vector that tensor2tensor adds to every source embedding for the kind of target
(``use_target_space_embedding``).  If there is only one kind, the vector is the same for all sentences.

Sources, from their code: tensor2tensor bafdc1b6 (``transformer_base_v1``, the settings of the paper's models),
    fairseq 3d262bb2 (``transformer_wmt_en_de``), marian-dev 0888d122 (``--task transformer-base``).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from minitransformer.config import ConfigError, ModelConfig

CONVENTIONS: dict[str, dict[str, Any]] = {  # system → the fields of ModelConfig that can differ from the paper's
    "paper": {"normalisation": "gnmt"},
    "tensor2tensor": {"positions": "halves", "start": "zero", "normalisation": "gnmt"},
    "fairseq": {
        "positions": "halves",
        "first_position": 2,  # its first two positions belong to the padding symbol
        "start": "end",
        "layer_norm_eps": 1e-5,
        "attention_bias": True,
        "attention_gain": 0.5**0.5,
        "normalisation": "length",
    },
    "marian": {
        "positions": "halves",
        "start": "zero",
        "label_smoothing_over": "V",
        "attention_bias": True,
        "softmax_bias": True,
        "normalisation": "length",
    },
}


def compatible(config: ModelConfig, system: str) -> ModelConfig:
    """Return ``config`` with a system's conventions, including its length penalty.

    Raises: ConfigError for an unknown system.
    """
    if system not in CONVENTIONS:
        raise ConfigError(f"compat: expected one of {', '.join(CONVENTIONS)}; got {system!r}")
    return dataclasses.replace(config, **CONVENTIONS[system])
