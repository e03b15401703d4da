"""The recipes of the paper's Table 2 and of its section 6.3, number by number."""

import dataclasses
import gzip
import lzma
import random
import re
from pathlib import Path

import pytest
from number_words import NUMBERS
from small_run import SMALLEST, output_of, results_of
from toy_treebank import toy_tree

from cli.prepare import prepare_data
from cli.train import read_options, train
from minitransformer.config import DataConfig, RunConfig, presets
from minitransformer.config.run import resolved
from minitransformer.extras.parsing.parser import PARSING
from minitransformer.inference.search import SearchConfig

RECIPES = Path(__file__).parents[2] / "recipes"
STEP_SECONDS = {"base": 0.4, "big": 1.0}  # section 5.2
NAMES = ["wmt14-en-de", "wmt14-en-de-big", "wmt14-en-fr", "wmt14-en-fr-big"]


def recipe(name: str) -> RunConfig:
    return read_options(["--config", str(RECIPES / f"{name}.toml")])


def test_a_recipe_is_found_anywhere_unless_a_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "recipes/wmt14-en-de.toml"
    assert read_options(["--config", name]).training == recipe("wmt14-en-de").training
    (tmp_path / "recipes").mkdir()
    (tmp_path / name).write_text("[training]\nmax_updates = 7\n")
    assert read_options(["--config", name]).training.max_updates == 7


@pytest.mark.parametrize(("name", "words"), list(zip(NAMES, [37_000, 37_000, 32_000, 32_000], strict=True)))
def test_model_training_and_vocabulary_are_the_papers(name: str, words: int) -> None:
    """Sections 5.1 to 5.4 and 6.1: batches, updates, warm-up, Adam; checkpoints ten minutes apart, 5 or 20 averaged.

    Section 6.1 also has the search: beam 4, α = 0.6.
    """
    config, size = recipe(name), "big" if name.endswith("big") else "base"
    model = presets.named(size)
    assert config.model == (dataclasses.replace(model, p_drop=0.1) if name == "wmt14-en-fr-big" else model)
    training, data = config.training, config.data
    assert (training.batch_tokens, training.warmup_steps) == (25_000, 4_000)
    assert training.max_updates == {"base": 100_000, "big": 300_000}[size]
    assert (training.beta1, training.beta2, training.eps) == (0.9, 0.98, 1e-9)
    assert (training.learning_rate_factor, training.clip_norm) == (1, None)
    assert training.average_checkpoints == {"base": 5, "big": 20}[size]
    assert training.checkpoint_every * STEP_SECONDS[size] == 600
    assert (data.vocabulary_size, data.joint_vocabulary, data.tokenizer) == (words, True, "bpe")
    assert data.validation_source == ("dev/newstest2013.en",)
    search = SearchConfig().for_model(config.model)
    assert (search.beam, search.alpha, search.normalisation) == (4, 0.6, "gnmt")
    assert resolved(config, 1, None).training.n_micro_batches == 8
    for n_gpus in (1, 8):
        training = resolved(dataclasses.replace(config, device="cuda"), n_gpus, None).training
        assert (training.n_micro_batches, training.precision) == (n_gpus, "bfloat16")


def test_the_preset_small_is_the_model_and_the_training_that_were_measured_on_captions() -> None:
    config, small = recipe("multi30k-en-de"), RunConfig.of_preset("small")
    assert (config.model, config.training) == (dataclasses.replace(small.model, alpha=1.4), small.training)
    assert config.data.vocabulary_size == small.data.vocabulary_size


CORPORA = {
    "wmt14-en-de": ["europarl-v7", "commoncrawl", "news-commentary-v9"],
    "wmt14-en-fr": ["europarl-v7", "commoncrawl", "undoc.2000", "giga-fren", "news-commentary-v9"],
}


@pytest.mark.parametrize("pair", CORPORA)
def test_the_text_is_that_of_the_shared_task_of_2014_and_every_file_stands_beside_its_translation(pair: str) -> None:
    assert recipe(pair).data == recipe(f"{pair}-big").data
    assert recipe(pair).run != recipe(f"{pair}-big").run
    data, language = recipe(pair).data, pair[-2:]
    assert [[name for name in CORPORA[pair] if name in file] for file in data.train_source] == [
        [name] for name in CORPORA[pair]
    ]
    for source, target in zip(data.train_source, data.train_target, strict=True):
        assert re.sub(r"\.en(?=$|\.gz)", f".{language}", source) == target
    assert len(data.sha256) == len(CORPORA[pair]) + 1  # archives, one of them with newstest2013


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)(path, "wt", encoding="utf-8") as file:
        file.write(text)


def write_little_text(data: DataConfig, raw: Path) -> None:
    """Under the names of a recipe's files, a few sentences or trees each."""
    draw = random.Random(1)
    for name in (*data.train_trees, *data.validation_trees):
        write_text(raw / name, "".join(f"{toy_tree(draw)}\n" for _ in range(30)))
    texts = (data.train_source, data.train_target), (data.validation_source, data.validation_target)
    for source, target in (pair for sides in texts for pair in zip(*sides, strict=True)):
        lines = [draw.choices(list(NUMBERS), k=draw.randint(1, 5)) for _ in range(30)]
        write_text(raw / source, "".join(f"{' '.join(line)}\n" for line in lines))
        write_text(raw / target, "".join(f"{' '.join(NUMBERS[word] for word in line)}\n" for line in lines))


SIZES = f"""{SMALLEST} --training.max-updates 1 --training.batch-tokens 200 --training.warmup-steps 1
    --training.validate-every 1 --training.checkpoint-every 1"""


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_prepares_and_trains_an_update(path: Path, tmp_path: Path) -> None:
    """As it stands but for sizes, on a little text under the names of its files."""
    data = read_options(["--config", str(path)]).data
    write_little_text(data, tmp_path / "raw")
    words = ["--config", str(path), "--run", str(tmp_path / "run"), "--data.raw", str(tmp_path / "raw")]
    words += ["--data.directory", str(tmp_path / "data"), "--data.vocabulary-size"]
    words += ["24" if data.tokenizer == "word" else "40"]  # the toy trees have few words
    assert "training pairs" in output_of(lambda: prepare_data(words))
    assert "training cost: " in output_of(lambda: train([*words, *SIZES.split()]))
    results = results_of(tmp_path / "run")
    assert results["updates"] == 1
    assert results["flops"] > 0


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
