"""Noise in training text, as a user sets it: in a file or by options, on one rank or several."""

from pathlib import Path

import pytest
from mpirun import MPIRUN, needs_mpi, run
from small_run import SMALL_MODEL, changed, write_parallel_text

from cli.train import read_options, train
from minitransformer.config import TrainingConfig
from tests.cli.test_differing_ranks import TRAIN


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    write_parallel_text(tmp_path, "train", 60, seed=1)
    write_parallel_text(tmp_path, "valid", 5, seed=2)
    words = [
        *changed(SMALL_MODEL.split(), "--training.max-updates", "12"),
        "--training.noise",
        "typos=0.3",
        "blanks=0.2",
    ]
    return ["--run", str(tmp_path / "run"), "--data.raw", str(tmp_path), *words]


def test_a_file_an_option_and_python_set_the_same_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, words = tmp_path / "options.toml", ("typos=0.3", "no_end_mark=1")
    file.write_text('[training]\nnoise = ["typos=0.3", "no_end_mark=1"]\n')
    found = [read_options(given).training for given in (["--config", str(file)], ["--training.noise", *words])]
    assert [config.noise for config in found] == [words, words]
    assert TrainingConfig(noise=words).noise_shares == {"typos": 0.3, "no_end_mark": 1.0}
    with pytest.raises(SystemExit):
        read_options(["--training.noise", "typo=0.3"])
    assert "training.noise: unknown kind 'typo'; did you mean 'typos'?" in capsys.readouterr().err


@pytest.mark.slow
@needs_mpi
def test_two_ranks_and_one_that_goes_on_have_the_bits_of_one_also_with_weights_and_bpe_dropout(
    options: list[str], tmp_path: Path
) -> None:
    assert MPIRUN is not None
    options += ["--data.weights", "1.5", "--training.bpe-dropout", "0.1"]
    assert train(options) == 0
    ranks = changed(options, "--run", str(tmp_path / "ranks"))
    done = run([MPIRUN, "-n", "2", *TRAIN, *changed(ranks, "--training.max-updates", "7")])
    assert done.returncode == 0, done.stderr
    assert train(ranks) == 0
    last = "checkpoints/step-00000012/model.safetensors"
    one, two = ((tmp_path / name / last).read_bytes() for name in ("run", "ranks"))
    assert one == two
