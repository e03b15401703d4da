"""The recipes of the paper's Table 2 and of its section 6.3, number by number."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cli.train import read_options
from minitransformer import presets
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.parser import PARSING
from minitransformer.run import RunConfig

RECIPES = Path(__file__).parents[2] / "recipes"
STEP_SECONDS = {"base": 0.4, "big": 1.0}  # section 5.2
NAMES = ["wmt14-en-de", "wmt14-en-de-big", "wmt14-en-fr", "wmt14-en-fr-big"]


def recipe(name: str) -> RunConfig:
    return read_options(["--config", str(RECIPES / f"{name}.toml")])


def size_of(name: str) -> str:
    return "big" if name.endswith("big") else "base"


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_the_papers(name: str) -> None:
    expected = presets.named(size_of(name))
    if name == "wmt14-en-fr-big":
        expected = dataclasses.replace(expected, p_drop=0.1)  # section 6.1
    assert recipe(name).model == expected


@pytest.mark.parametrize("name", NAMES)
def test_training_is_the_papers(name: str) -> None:
    """Sections 5.1 to 5.4 and 6.1: batches, updates, warm-up, Adam; checkpoints ten minutes apart, 5 or 20 averaged."""
    training, size = recipe(name).training, size_of(name)
    assert (training.batch_tokens, training.n_shards, training.warmup_steps) == (25_000, 8, 4_000)
    assert training.max_updates == {"base": 100_000, "big": 300_000}[size]
    assert (training.beta1, training.beta2, training.eps) == (0.9, 0.98, 1e-9)
    assert (training.learning_rate_factor, training.clip_norm) == (1, None)
    assert training.average_checkpoints == {"base": 5, "big": 20}[size]
    assert training.checkpoint_every * STEP_SECONDS[size] == 600


@pytest.mark.parametrize(("name", "words"), list(zip(NAMES, [37_000, 37_000, 32_000, 32_000], strict=True)))
def test_the_vocabulary_is_joint_and_of_the_papers_size(name: str, words: int) -> None:
    data = recipe(name).data
    assert (data.vocabulary_size, data.joint_vocabulary, data.tokenizer) == (words, True, "bpe")
    assert data.validation_source == ("newstest2013.en",)


@pytest.mark.parametrize("pair", ["wmt14-en-de", "wmt14-en-fr"])
def test_base_and_big_share_their_prepared_data(pair: str) -> None:
    assert recipe(pair).data == recipe(f"{pair}-big").data
    assert recipe(pair).run != recipe(f"{pair}-big").run


def test_the_search_is_the_papers() -> None:
    """Section 6.1: beam 4, α = 0.6, at most the length of the input + 50."""
    search = SearchConfig().for_model(recipe("wmt14-en-de").model)
    assert (search.beam, search.alpha, search.max_extra_tokens, search.normalisation) == (4, 0.6, 50, "gnmt")


@pytest.mark.parametrize(("name", "words"), [("parsing-wsj", 16_000), ("parsing-semi-supervised", 32_000)])
def test_parsing_is_the_papers(name: str, words: int) -> None:
    """Section 6.3: four layers of width 1024, else the base model; beam 21, α = 0.3, input + 300."""
    config = recipe(name)
    model = presets.base()
    assert (config.model.n_layers, config.model.d_model) == (4, 1024)
    assert (config.model.d_ff, config.model.n_heads) == (model.d_ff, model.n_heads)
    assert config.model.n_heads * config.model.d_k == config.model.n_heads * config.model.d_v == config.model.d_model
    assert (config.data.vocabulary_size, config.data.leaf_symbols) == (words, "normalised")
    assert config.data.train_trees[0] == "wsj-02-21.mrg"
    search = PARSING.for_model(config.model)
    assert (search.beam, search.alpha, search.max_extra_tokens, search.normalisation) == (21, 0.3, 300, "gnmt")
