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
    --model.alpha 0.6 --training.max-updates 2 --training.validate-every 2 --training.batch-tokens 200"""


def test_a_run_has_the_files_tokenizer_and_goes_on_with_the_same_command(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parallel_text(tmp_path, "train", 60, seed=3)
    text = ["--data.raw", str(tmp_path), "--data.train-source", "train.en", "--data.train-target", "train.de"]
    run, file = tmp_path / "run", trained.run / "tokenizer.model"
    options = ["--run", str(run), *text, *SMALL.split(), "--data.tokenizer", str(file)]
    assert "training a bpe tokenizer" not in output_of(lambda: train(options))
    expected = Tokenizer.load(trained.run)
    lines = (tmp_path / "train.en").read_text("utf-8").splitlines()
    assert Tokenizer.load(run).encode_source(lines) == expected.encode_source(lines)
    assert json.loads((run / "run.json").read_text("utf-8"))["data"]["vocabulary_size"] == expected.n_source_words
    toml = tmp_path / "tokenizer.toml"
    toml.write_text(f"[data]\ntokenizer = {str(file)!r}\n", encoding="utf-8")
    size = ["--data.vocabulary-size", str(expected.n_source_words)]  # as the file has it
    for repeated in (options, [*options, *size], [*options[:-2], "--config", str(toml)]):
        assert "nothing is left to do" in output_of(lambda words=repeated: train(words))
    prepared = ["--run", str(tmp_path / "prepared"), *text, f"--data.tokenizer={file}"]
    prepare_data(prepared)
    assert Tokenizer.load(tmp_path / "prepared" / "data").equals(Tokenizer.load(run))
    other = tmp_path / "other.model"
    pairs = [(line, line) for line in lines]
    other.write_bytes(Tokenizer.train(pairs, vocabulary_size=expected.n_source_words).models[0])
    unigram = tmp_path / "unigram.model"
    unigram.write_bytes(Tokenizer.train(pairs, vocabulary_size=23, kind="unigram").models[0])
    misspelt = tmp_path / "misspelt.toml"
    misspelt.write_text("[data]\ntokenizer = 'bpee'\n", encoding="utf-8")
    refused = {
        "holds another run: data.tokenizer is .*run/tokenizer.model' there, .*other.model' here": [
            *options[:-1],
            str(other),
        ],
        "was prepared with other settings: data.tokenizer is": [
            *["--run", str(tmp_path / "new"), "--data.directory", str(run / "data"), *options[2:-1]],
            str(other),
        ],
        "data.vocabulary_size: expected 40, got 50": [*options, "--data.vocabulary-size", "50"],
        "which keeps its tokenizer. data.tokenizer: expected 'bpe', got": [
            *["--run", str(tmp_path / "tuned"), *text, "--data.tokenizer", str(file), "--init-from", str(trained.run)]
        ],
        "data.tokenizer must be one of .* or a file; got 'bpee'": ["--config", str(misspelt)],
        "training.bpe_dropout needs byte pairs; the tokenizer is unigram": [
            *["--run", str(tmp_path / "dropout"), *options[2:-1], str(unigram), "--training.bpe-dropout", "0.1"]
        ],
        "cannot be read as a file of the model": [*options[:-1], str(tmp_path / "missing.model")],
    }
    for message, words in refused.items():
        with pytest.raises(UserError, match=message):
            train(words)
    with pytest.raises(SystemExit):  # after one line
        train(["--data.tokenizer", "bpee"])
    assert "argument --data.tokenizer: unknown value 'bpee'; did you mean 'bpe'?" in capsys.readouterr().err
