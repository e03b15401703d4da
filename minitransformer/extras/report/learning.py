"""A page in which a small Transformer learns: forward pass, backward pass and Adam in the browser, as one HTML file."""

from __future__ import annotations

import dataclasses

from minitransformer.config import ModelConfig, TrainingConfig
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.self_contained import page_with_plots

CONFIG = ModelConfig(  # three symbols and ten digits
    vocabulary_size=13, n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16, p_drop=0.0
)
TRAINING = TrainingConfig(warmup_steps=200)
SCRIPTS = ("operations.js", "learner.js", "page.js")


def learning_page() -> str:
    """Return the page; it needs no run."""
    data = {
        "model": dataclasses.asdict(CONFIG),
        "training": dataclasses.asdict(TRAINING),
        "colours": head_colours(CONFIG.n_heads + 6),
    }
    return page_with_plots("learning_page", SCRIPTS, "A Transformer that learns in this page", data)
