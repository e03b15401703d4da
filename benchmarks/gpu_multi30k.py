"""The recipe of Multi30k on the card, from prepared text to its BLEU: the whole program, not a benchmark's loop."""

from __future__ import annotations

import dataclasses
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from gpu_card import Card
from gpu_results import ROOT

from minitransformer.config import RunConfig
from minitransformer.config.checks import with_changes
from minitransformer.training.train import train

RECIPE = ROOT / "recipes" / "multi30k-en-de.toml"
SECONDS = {"cuda": 240, "cpu": 20}  # with less the recipe does not begin: its checkpoints are lost with the machine


def run(card: Card) -> bool:
    """Train once."""
    directory = card.multi30k
    assert directory is not None, "expected a directory of --multi30k"
    return card.attempt("recipe", lambda: train_recipe(card, directory), seconds=SECONDS[card.name])


def train_recipe(card: Card, directory: Path) -> dict[str, Any]:
    """Return minutes, and what ``results.json`` says of the final model."""
    start = time.time()
    with tempfile.TemporaryDirectory() as name:
        config = config_of(card, directory, Path(name))
        result = train(config)
        return {"minutes": (time.time() - start) / 60, "updates": result.updates, "results": result.results}


def config_of(card: Card, directory: Path, run: Path) -> RunConfig:
    """Return the recipe as it should run on a GPU: bfloat16, and no micro-batches, so that an update is one graph.

    A dry run makes few updates of a small model, with the CPU's own kernels: emulated ones take too long to score it.
    """
    table = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    config = with_changes(RunConfig.of_preset(table.pop("preset")), table)
    data = dataclasses.replace(config.data, directory=directory)
    training = dataclasses.replace(config.training, precision="bfloat16", n_micro_batches=1)
    config = dataclasses.replace(config, run=run, data=data, training=training, device="cuda")
    if card.name == "cuda":
        return config
    small = dataclasses.replace(config.model, n_layers=1, d_model=128, d_ff=32, n_heads=2, d_k=16, d_v=16)
    short = dataclasses.replace(
        training, max_updates=2, batch_tokens=100, checkpoint_every=1, validate_every=2, average_checkpoints=2
    )
    short = dataclasses.replace(short, precision="float32")
    return dataclasses.replace(config, model=small, training=short, device="cpu")
