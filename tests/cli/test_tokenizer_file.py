"""--data.tokenizer FILE: a new training with the tokenizer of another program."""

import json
from pathlib import Path

import pytest
from small_run import Trained, output_of, write_parallel_text

from cli.prepare import prepare_data
from cli.train import train
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.system.errors import UserError

SMALL = """--model.n-layers 1 --model.d-model 16 --model.d-ff 16 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --training.max-updates 2 --training.validate-every 2 --training.batch-tokens 200"""


def test_a_run_has_the_files_tokenizer_and_goes_on_with_the_same_command(trained: Trained, tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "train", 60, seed=3)
    text = ["--data.raw", str(tmp_path), "--data.train-source", "train.en", "--data.train-target", "train.de"]
    run, file = tmp_path / "run", trained.run / "tokenizer.model"
    options = ["--run", str(run), *text, *SMALL.split(), "--data.tokenizer", str(file)]
    assert "training a bpe tokenizer" not in output_of(lambda: train(options))
    expected = Tokenizer.load(trained.run)
    lines = (tmp_path / "train.en").read_text("utf-8").splitlines()
    assert Tokenizer.load(run).encode_source(lines) == expected.encode_source(lines)
    assert json.loads((run / "run.json").read_text("utf-8"))["data"]["vocabulary_size"] == expected.n_source_words
    for repeated in (options, [*options[:-2], "--data.vocabulary-size", str(expected.n_source_words)]):
        assert "nothing is left to do" in output_of(lambda words=repeated: train(words))
    prepared = ["--run", str(tmp_path / "prepared"), *text, f"--data.tokenizer={file}"]
    prepare_data(prepared)
    assert Tokenizer.load(tmp_path / "prepared" / "data").equals(Tokenizer.load(run))
    other = tmp_path / "other.model"
    pairs = [(line, line) for line in lines]
    other.write_bytes(Tokenizer.train(pairs, vocabulary_size=expected.n_source_words).models[0])
    refused = {
        "was prepared with another tokenizer": [*options[:-1], str(other)],
        "data.vocabulary_size: expected 40, got 50": [*options, "--data.vocabulary-size", "50"],
        "a model to begin from": [*options, "--init-from", str(trained.run)],
        "cannot be read as a file of the model": [*options[:-1], str(tmp_path / "missing.model")],
    }
    for message, words in refused.items():
        with pytest.raises(UserError, match=message):
            train(words)
