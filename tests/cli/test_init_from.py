"""Training that begins from a model or a tokenizer, as a user gives it: options, files, what is said, what goes on."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from mpirun import MPIRUN, needs_mpi, run
from small_run import SMALLEST, Trained, changed, contents, output_of, plain, results_of, write_parallel_text, written
from toy_treebank import write_toy_treebank

from cli.prepare import prepare_data
from cli.train import read_options, train
from minitransformer import ModelConfig, Transformer
from minitransformer.config import ConfigError, DataConfig, presets
from minitransformer.data.prepare import prepare
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.parsing.task import ParsingTask
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError, read_arrays
from tests.cli.test_differing_ranks import TRAIN
from tests.cli.test_report_training import data_of

FEW = [
    "--training.max-updates", "8", "--training.batch-tokens", "300", "--training.n-micro-batches", "2",
    "--training.warmup-steps", "4", "--training.validate-every", "8", "--training.checkpoint-every", "4",
]  # fmt: skip


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    """Return the options of a text with a character that the first one lacks."""
    write_parallel_text(tmp_path, "train", 60, seed=3)
    target = tmp_path / "train.de"
    target.write_text(target.read_text(encoding="utf-8").replace("zwei", "zwo").replace("drei", "drœi"), "utf-8")
    return ["--data.raw", str(tmp_path), "--data.train-source", "train.en", "--data.train-target", "train.de"]


@pytest.fixture
def options(trained: Trained, text: list[str], tmp_path: Path) -> list[str]:
    return ["--init-from", str(trained.run), "--run", str(tmp_path / "run"), *text, *FEW]


def test_the_model_sets_what_no_option_says_and_a_preset_only_the_training(trained: Trained, tmp_path: Path) -> None:
    given = ["--init-from", str(trained.run), "--run", str(tmp_path)]
    config = read_options(given)
    assert config.model == dataclasses.replace(
        presets.tiny(), n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16
    )
    assert config.data.vocabulary_size == 40
    base = read_options([*given, "--preset", "base", "--model.p-drop", "0.3"])
    assert base.model == dataclasses.replace(config.model, p_drop=0.3)
    assert (base.data.vocabulary_size, base.training.warmup_steps) == (40, 4_000)


def test_a_file_may_name_the_model_and_the_command_line_another(trained: Trained, tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text(f'init_from = "{trained.run}"\ninit_optimizer = true\nrun = "x"\n[model]\np_drop = 0.2\n')
    config = read_options(["--config", str(file)])
    assert (config.init_from, config.init_optimizer, config.run) == (trained.run, True, Path("x"))
    assert (config.model.d_model, config.model.p_drop) == (32, 0.2)
    with pytest.raises(CheckpointError, match="nowhere: there is no such directory; init_from must be"):
        read_options(["--config", str(file), "--init-from", "nowhere"])


def test_a_parser_of_whole_words_needs_only_the_names_of_other_trees(tmp_path: Path) -> None:
    write_toy_treebank(tmp_path / "t.mrg", 40, seed=1)
    data = DataConfig(
        raw=tmp_path, train_trees=("t.mrg",), validation_trees=("t.mrg",), tokenizer="word", vocabulary_size=24,
        joint_vocabulary=False, leaf_symbols="tags",
    )  # fmt: skip
    parser, tokenizer = tmp_path / "parser", prepare(data, tmp_path / "data", ParsingTask().corpus).tokenizer
    assert tokenizer.lexicon
    sizes = ModelConfig(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8, tied="target")
    words = tokenizer.n_target_words, tokenizer.n_source_words
    Transformer(dataclasses.replace(sizes, vocabulary_size=words[0], source_vocabulary_size=words[1])).save(parser)
    tokenizer.save(parser)
    trees = ["--data.raw", str(tmp_path), "--data.train-trees", "t.mrg", "--data.validation-trees", "t.mrg"]
    given = ["--init-from", str(parser), "--run", str(tmp_path / "run"), *trees]
    config = read_options(given)
    assert (config.data, config.model) == (data, sizes)
    assert prepare_data(given) == 0


def test_it_names_the_model_it_begins_from_and_leaves_it(trained: Trained, options: list[str], tmp_path: Path) -> None:
    before = contents(trained.run)
    output = plain(output_of(lambda: train(options)))
    assert f"begun from the model in {trained.run} (SHA-256 of its weights " in output
    assert "with its tokenizer and new moments of the optimizer" in output
    assert "the tokenizer lacks characters of the training text: œ " in output
    assert contents(trained.run) == before
    assert "finished after 8 updates; nothing is left to do" in plain(output_of(lambda: train(options)))
    results = results_of(tmp_path / "run")
    assert results["pretrained"]["weights"] == str(trained.run / "model.safetensors")
    data = data_of(tmp_path / "run" / "report.html")
    (begun,) = (row["values"][0] for row in data["facts"]["Result"] if row["name"] == "begun from")
    assert begun == f"{trained.run / 'model.safetensors'}\nSHA-256 {results['pretrained']['sha256'][:10]}…"
    assert {"name": "init_from", "values": [str(trained.run)], "differs": False} in data["settings"]


def test_a_dry_run_names_options_against_the_model_before_text_is_prepared(options: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model.n_layers: expected 1, got 2"):
        train([*options, "--model.n-layers", "2", "--dry-run"])
    assert not (tmp_path / "run" / "data").exists()


def test_no_text_is_prepared_in_the_directory_of_the_model(trained: Trained, options: list[str]) -> None:
    before = contents(trained.run)
    with pytest.raises(ConfigError, match="run and init_from are both"):
        prepare_data(changed(options[: -len(FEW)], "--run", str(trained.run)))
    assert contents(trained.run) == before


def test_text_can_be_prepared_with_the_models_tokenizer(trained: Trained, options: list[str], tmp_path: Path) -> None:
    words = [*options[: -len(FEW)], "--init-extend-vocabulary"]
    output = output_of(lambda: prepare_data(words))
    assert "characters appended to the tokenizer: œ " in output
    tokenizer = Tokenizer.load(tmp_path / "run" / "data")
    assert tokenizer.models[0].startswith(Tokenizer.load(trained.run).models[0])
    assert tokenizer.n_target_words == 41
    assert "writing tokens" not in output_of(lambda: train([*options, "--init-extend-vocabulary"]))
    with pytest.raises(ConfigError, match="init_extend_vocabulary is set, but no model to begin from: set init_from"):
        prepare_data(words[2:])


def test_the_resume_check_begins_from_the_model_both_times(trained: Trained, options: list[str]) -> None:
    output = plain(output_of(lambda: train([*options, "--init-optimizer", "--verify-resume", "4"])))
    assert "the optimizer's moments of 60 updates" in output
    assert "the same, bit for bit: 22,272 parameters" in output


@pytest.mark.slow
@needs_mpi
def test_two_ranks_begin_and_one_goes_on_to_the_bits_of_one_alone(options: list[str], tmp_path: Path) -> None:
    """With moments, of which each rank takes its shard, and with an extended vocabulary."""
    assert MPIRUN is not None
    given = [*options, "--init-optimizer", "--init-extend-vocabulary"]
    assert train(given) == 0
    given = changed(given, "--run", str(tmp_path / "ranks"))
    done = run([MPIRUN, "-n", "2", *TRAIN, *changed(given, "--training.max-updates", "4")])
    assert done.returncode == 0, done.stderr
    assert f"begun from the model in {options[1]}" in done.stderr
    assert "begun from the model" not in output_of(lambda: train(given))
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (read_arrays(tmp_path / r / "checkpoints/step-00000008" / name) for r in ("run", "ranks"))
        assert all(np.array_equal(array, other[key]) for key, array in one.items())


def test_a_run_has_the_tokenizer_of_a_file_and_goes_on_with_the_same_command(
    trained: Trained, text: list[str], tmp_path: Path
) -> None:
    run, file, expected = tmp_path / "run", trained.run / "tokenizer.model", Tokenizer.load(trained.run)

    def given(name: str, tokenizer: Path, *words: str) -> list[str]:
        sizes = [*SMALLEST.split(), "--training.max-updates", "2", "--training.validate-every", "2"]
        return ["--run", str(tmp_path / name), *text, *sizes, *words, "--data.tokenizer", str(tokenizer)]

    assert "training a bpe tokenizer" not in output_of(lambda: train(given("run", file)))
    lines = (tmp_path / "train.en").read_text("utf-8").splitlines()
    assert Tokenizer.load(run).encode_source(lines) == expected.encode_source(lines)
    assert json.loads((run / "run.json").read_text("utf-8"))["data"]["vocabulary_size"] == expected.n_source_words
    toml = written(tmp_path / "tokenizer.toml", f"[data]\ntokenizer = {str(file)!r}\n")
    size = ["--data.vocabulary-size", str(expected.n_source_words)]  # as the file has it
    for repeated in (given("run", file), given("run", file, *size), [*given("run", file)[:-2], "--config", toml]):
        assert "nothing is left to do" in output_of(lambda words=repeated: train(words))
    prepare_data(["--run", str(tmp_path / "prepared"), *text, f"--data.tokenizer={file}"])
    assert Tokenizer.load(tmp_path / "prepared" / "data").equals(Tokenizer.load(run))
    other, unigram = tmp_path / "other.model", tmp_path / "unigram.model"
    pairs = [(line, line) for line in lines]
    other.write_bytes(Tokenizer.train(pairs, vocabulary_size=expected.n_source_words).models[0])
    unigram.write_bytes(Tokenizer.train(pairs, vocabulary_size=23, kind="unigram").models[0])
    for words, message in (
        (given("run", other), "holds another run: data.tokenizer is .*run/tokenizer.model' there, .*other.model' here"),
        (given("run", file, "--data.vocabulary-size", "50"), "data.vocabulary_size: expected 40, got 50"),
        (given("run", tmp_path / "missing.model"), "cannot be read as a file of the model"),
        (given("new", other, "--data.directory", str(run / "data")), "prepared with other settings: data.tokenizer is"),
        (given("dropout", unigram, "--training.bpe-dropout", "0.1"), "bpe_dropout needs byte pairs; .* is unigram"),
        (
            ["--run", str(tmp_path / "tuned"), *text, "--data.tokenizer", str(file), "--init-from", str(trained.run)],
            "which keeps its tokenizer. data.tokenizer: expected 'bpe', got",
        ),
        (
            ["--config", written(tmp_path / "misspelt.toml", "[data]\ntokenizer = 'bpee'\n")],
            "data.tokenizer must be one of .*, a file or package.module:name; got 'bpee'",
        ),
    ):
        with pytest.raises(UserError, match=message):
            train(words)
