"""The conventions of other systems: the value of each switch, and the page that lists them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import ConfigError
from minitransformer.extras.paper.compatibility import CONVENTIONS, compatible

SMALL = ModelConfig(vocabulary_size=12, n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
BATCH = Batch.from_token_ids([[3, 4, 5], [8]], [[6, 7], [11, 3, 3]])


HALVES_AND_ZERO = {"positions": "halves", "start": "zero"}


@pytest.mark.parametrize(("system", "switches"), [
    ("paper", {}), ("tensor2tensor", HALVES_AND_ZERO),
    ("fairseq", {"positions": "halves", "start": "end", "first_position": 2, "layer_norm_eps": 1e-5,
        "attention_bias": True, "attention_gain": pytest.approx(1 / np.sqrt(2)), "normalisation": "length"}),
    ("marian", HALVES_AND_ZERO | {"label_smoothing_over": "V", "softmax_bias": True, "attention_bias": True,
        "normalisation": "length"}),  # its epsilon is 1e-6 (layers/generic.h); 1e-9 is that of the operator alone
])  # fmt: skip
def test_the_switches_of_each_system(system: str, switches: dict[str, Any]) -> None:
    """Read in their sources; every switch is a difference that somebody has met."""
    config = compatible(SMALL, system)
    assert {name: value for name, value in vars(config).items() if value != getattr(SMALL, name)} == switches
    assert (SMALL.label_smoothing_over, SMALL.layer_norm_eps, SMALL.normalisation) == ("V-1", 1e-6, "gnmt")
    assert np.isfinite(float(Transformer(config).loss(BATCH)))


def test_the_table_of_the_page_has_every_setting_of_every_system() -> None:
    page = (Path(__file__).parents[4] / "docs/paper.md").read_text("utf-8").split("## What other systems do")[1]
    rows = {name: cells.split("|")[1:-1] for name, cells in re.findall(r"^\| `(\w+)`(.*\|)$", page, re.MULTILINE)}
    assert rows.keys() == {name for each in CONVENTIONS.values() for name in each}
    words = {"True": "yes", "False": "no", "1e-06": "1e−6", "1e-05": "1e−5", str(0.5**0.5): "1/√2", "1.0": "1"}
    penalties = {
        r"$((5 + \mathrm{length})/6)^\alpha$": "gnmt",
        "the same": "gnmt",
        r"$\mathrm{length}^\alpha$": "length",
    }
    for name, cells in rows.items():
        for system, cell in zip(CONVENTIONS, map(str.strip, cells), strict=True):
            value = str(getattr(compatible(SMALL, system), name))
            assert penalties.get(cell, cell) == words.get(value, value.replace("-", "−")), (name, system)


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="^compat: expected one of paper, tensor2tensor, fairseq, marian; got 's"):
        compatible(SMALL, "sockeye")
