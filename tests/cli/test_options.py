"""Options from a preset, a TOML file and the command line, what is said of unknown ones, and the table of presets."""

import dataclasses
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from small_run import plain

from cli.completion import options_of_commands
from cli.convert import ConvertOptions
from cli.options import Option, options_in, parse_kind, parse_options, require_threads
from cli.prepare import prepare_data
from cli.presets import list_presets
from cli.report import KINDS as REPORTS
from cli.score import KINDS, BleuOptions
from cli.train import TrainOptions, read_options
from cli.translate import TranslateOptions
from minitransformer.config import ConfigError, DataConfig, presets
from minitransformer.config.run import demo_training
from minitransformer.extras.paper.compatibility import CONVENTIONS, compatible


def toml(folder: Path, text: str) -> str:
    path = folder / "options.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_without_options_everything_is_the_demonstrations() -> None:
    assert read_options([]) == TrainOptions()


PARTS = """
run = "runs/x"
[data]
train_source = ["a.en", "b.en"]
train_target = ["a.de", "b.de"]
joint_vocabulary = false
[model]
d_ff = 96
tied = "target"
[training]
warmup_steps = 7
"""
SIZES = "[model]\nd_ff = 96\nn_layers = 5"
TEXT = '[data]\ntrain_source = ["a", "b"]\ntrain_target = ["c", "d"]'
SWITCHES = "[model]\nattention_bias = true\nsoftmax_bias = true"


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (PARTS, "", {"run": Path("runs/x"), "model.d_ff": 96, "model.tied": "target", "training.warmup_steps": 7}),
        (PARTS, "", {"data.train_source": ("a.en", "b.en"), "data.joint_vocabulary": False}),
        ("[training]\nseed = 9", "", {"model": presets.tiny(), "training.batch_tokens": demo_training().batch_tokens}),
        (SIZES, "--preset small --model.n-layers 1", {"model.d_model": 128, "model.d_ff": 96, "model.n_layers": 1}),
        ("", "--training.seed 3", {"training.seed": 3}),
        (TEXT, "--data.train-source e --data.train-target f", {"data.train_source": ("e",)}),
        (SWITCHES, "--model.no-attention-bias", {"model.attention_bias": False, "model.softmax_bias": True}),
        ("", "--data.no-joint-vocabulary --model.tied none", {"model.tied": "none"}),
        ("", "--preset base", {"model": presets.base()}),
        ("", "--preset=base", {"model": presets.base()}),
        ('preset = "base"', "", {"model": presets.base()}),
        ('preset = "base"', "--preset small", {"model": presets.small()}),
        (
            "", "--training.warmup_steps=7 --model.no_attention_bias --init_from None",
            {"training.warmup_steps": 7, "model.attention_bias": False, "init_from": None},
        ),
        (
            "[training]\nclip_norm = 1.0\npatience = 3", "--training.clip-norm None",
            {"training.clip_norm": None, "training.patience": 3},
        ),
        ('kernels = "reference"', "", {"kernels": "reference"}),
    ],
)  # fmt: skip
def test_the_command_line_counts_for_more_than_the_file_and_the_file_for_more_than_the_preset(
    tmp_path: Path, text: str, words: str, expected: dict[str, object]
) -> None:
    """Lists replace lists; "None" resets a setting; what nothing mentions stays."""
    given = words.split() + (["--config", toml(tmp_path, text)] if text else [])
    config = read_options(given)
    assert {path: attrgetter(path)(config) for path in expected} == expected


def test_the_order_of_preset_file_and_options_on_the_command_line_is_free(tmp_path: Path) -> None:
    words = [["--preset", "small"], ["--config", toml(tmp_path, SIZES)], ["--model.n-layers", "1"]]
    given, reverse = ([word for pair in order for word in pair] for order in (words, words[::-1]))
    assert read_options(given) == read_options(reverse)


@pytest.mark.parametrize(
    ("text", "words", "system", "changes"),
    [
        ("", "--compat fairseq --model.start zero", "fairseq", {"start": "zero"}),
        ('compat = "fairseq"\n[model]\nstart = "zero"', "", "fairseq", {"start": "zero"}),
        ('compat = "marian"\n[model]\nd_ff = 64', "", "marian", {"d_ff": 64}),
        ('compat = "marian"\n[model]\nd_ff = 64', "--compat=tensor2tensor", "tensor2tensor", {"d_ff": 64}),
    ],
)
def test_compat_sets_the_models_conventions_which_single_settings_change_again(
    tmp_path: Path, text: str, words: str, system: str, changes: dict[str, Any]
) -> None:
    config = read_options([*words.split(), "--config", toml(tmp_path, text)])
    assert config.model == dataclasses.replace(compatible(presets.tiny(), system), **changes)


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_every_preset_can_be_trained_with_the_conventions_of_every_system(preset: str) -> None:
    for system in CONVENTIONS:
        model = read_options(["--preset", preset, "--compat", system]).model
        assert model == compatible(presets.named(preset), system)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nwarmup_step = 3", "unknown key 'training.warmup_step'; did you mean 'training.warmup_steps'?"),
        ('prest = "small"', "unknown key 'prest'; did you mean 'preset'?"),
        ('config = "other.toml"', "unknown key 'config'; known here: run, data, model,"),
        ("verify_resume = 20", "unknown key 'verify_resume'; known here: run, data, model,"),
        ("seed = 3", "unknown key 'seed'; did you mean 'training.seed'?"),
        ("colour = 3", "unknown key 'colour'; known here: run, data, model, training, device, kernels, init_from, "),
        ("[training.seed]\nvalue = 3", "training.seed must be a whole number; got {'value': 3}"),
        ('[training]\nseed = "1"', "training.seed must be a whole number; got '1'"),
        ("[training]\nn_micro_batches = 3", "training.n_micro_batches must be a power of two, or 0; got 3"),
        ("preset = 3", "preset must be one of ('tiny', 'small', "),
        ('compat = ["marian"]', "compat must be one of ('paper', 'tensor2tensor', 'fairseq', 'marian'); got ['mari"),
    ],
)
def test_an_unknown_key_and_a_wrong_value_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    """The similar key or all, and which values there are, though an option of the command line counts for more."""
    path = toml(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_options(["--config", path, "--preset", "tiny", "--training.seed", "2"])
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_byte_order_mark_and_other_line_ends_are_no_syntax_error(tmp_path: Path) -> None:
    path = tmp_path / "of-windows.toml"
    path.write_bytes(b"\xef\xbb\xbf[training]\r\nseed = 3\r\n")
    assert read_options(["--config", str(path)]).training.seed == 3


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    directory, path = tmp_path / "directory", tmp_path / "options.toml"
    directory.mkdir()
    for content in (b'run = "x"\n[training\n', b'run = "gr\xfcn"', b"a = " + b"[" * 5_000, b"a = " + b"9" * 5_000):
        path.write_bytes(content)
        reason = ".*line 2" if b"training" in content else ""
        with pytest.raises(ConfigError, match=f"^{path}: cannot be read as TOML: {reason}"):
            read_options(["--config", str(path)])
    with pytest.raises(ConfigError, match=f"^{directory}: cannot be read as TOML: "):
        read_options(["--config", str(directory)])


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (["--model.d-model", "200"], "model.n_heads · model.d_k = 4 · 32 = 128, but model.d_model is 200"),
        (["--model.n-heads", "8"], "model.n_heads · model.d_k = 8 · 32 = 256, but model.d_model is 128"),
        (["--model.d-model", "256", "--model.d-k", "32"], "= 4 · 32 = 128, but model.d_model is 256"),
        (["--model.n-heads", "8", "--model.d-k", "16"], ""),
        (["--model.d-model", "96", "--model.n-heads", "2", "--model.d-k", "16"], ""),
        ([], ""),
    ],
)
def test_sizes_of_heads_that_were_left_behind_are_warned_of(
    words: list[str], warning: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who chose all three has decided; so has a preset."""
    read_options(["--preset", "small", *words])
    shown = capsys.readouterr().err
    assert shown.startswith("warning: ") == bool(warning)
    assert warning in shown
    monkeypatch.setenv("PMI_RANK", "1")
    read_options(["--preset", "small", *words])
    assert capsys.readouterr().err == ""


def test_threads_are_between_one_and_the_most() -> None:
    for n in (None, 1, 1_024):
        require_threads(n)
    for n in (0, 1_025):
        with pytest.raises(ConfigError, match=f"--threads must be at least 1 and at most 1,024; got {n}"):
            require_threads(n)


def test_help_shows_the_defaults_of_preset_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["--preset", "base", "--config", toml(tmp_path, "[model]\nd_ff = 96\n"), "--help"])
    shown = plain(capsys.readouterr().out)
    assert re.search(r"--model.d-model INT [^(]*\(default: 512\)", shown)
    assert re.search(r"--model.d-ff INT [^(]*\(default: 96\)", shown)


def test_values_may_stand_before_after_and_between_options() -> None:
    first, second = Path("a"), Path("b")
    for words in (["a", "b", "--lowercase"], ["--lowercase", "a", "b"], ["a", "--lowercase", "b"]):
        options = parse_kind(KINDS, "", ["bleu", *words])
        assert options == BleuOptions(first, (second,), lowercase=True)


def test_the_options_that_are_typed_daily_have_short_names() -> None:
    words = ["-i", "in.txt", "-o", "out.txt", "-n", "4"]
    expected = TranslateOptions(input=Path("in.txt"), output=Path("out.txt"), n_best=4)
    assert parse_options(TranslateOptions, "", words) == expected
    assert parse_options(ConvertOptions, "", ["model", "-o", "b"]) == ConvertOptions(Path("model"), Path("b"))


def test_a_number_may_be_negative_and_a_word_after_two_hyphens_may_begin_with_one() -> None:
    options = parse_kind(REPORTS, "", ["attention", "--alpha", "-1.5", "--", "--no_options"])
    assert (options.alpha, options.sentence) == (-1.5, "--no_options")


@pytest.mark.parametrize("preset", ["tiny", "base", "table3-A-h4", "parsing-small"])
def test_prepare_starts_from_presets_as_training(preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DataConfig] = []
    monkeypatch.setattr("cli.prepare.prepare", lambda data, *others: asked.append(data))
    words = ["--run", str(tmp_path / "run")]
    words += ["--config", toml(tmp_path, f'preset = "{preset}"\n[data]\nmax_length = 99\n')]
    for more in ([], ["--data.vocabulary-size", "77"], ["--preset", "small"]):  # counts for more than the file's
        words += more
        assert prepare_data(words) == 0
        assert asked.pop() == read_options(words).data
    with pytest.raises(ConfigError, match="preset must be one of .*; got 3"):
        prepare_data(["--config", toml(tmp_path, "preset = 3")])


LAYER = 4 * 512**2 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512  # of base's encoder: attention, feed-forward, two norms
DECODER_LAYER = LAYER + 4 * 512**2 + 2 * 512


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    assert list_presets(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return {line.split()[0]: line.split()[1:] for line in lines}


def test_each_preset_has_a_line_with_sizes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = rows(capsys)
    assert list(table) == ["name", *presets.PRESETS]
    headings = ["layers", "d_model", "d_ff", "heads", "d_k", "dropout", "vocabulary", "parameters"]
    assert table["name"] == headings
    n_base = 37_000 * 512 + 6 * (LAYER + DECODER_LAYER)
    assert table["base"] == ["6", "512", "2,048", "8", "64", "0.1", "37,000", f"{n_base:,}"]
    assert table["big"][:-1] == ["6", "1,024", "4,096", "16", "64", "0.3", "37,000"]
    assert table["small"] == ["4", "128", "256", "4", "32", "0.25", "6,000", "2,086,912"]
    base = rows(capsys, "--vocabulary-size", "8000")["base"]
    assert base[-2:] == ["8,000", f"{8_000 * 512 + 6 * (LAYER + DECODER_LAYER):,}"]
    assert table["tiny"][:-1] == ["2", "128", "512", "4", "32", "0.0", "2,000"]


COMMANDS = options_of_commands()


def word_of(option: Option) -> str:
    return option.choices[0] if option.choices else {int: "5", float: "0.5"}.get(option.types[0], "x")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_of_a_command_replaces_an_earlier_one_in_silence(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only options with one value for each occurrence may be repeated."""
    for option in options_in(COMMANDS[name]):
        n_words = 0 if option.types == (bool,) or option.is_list else len(option.types)
        given = [word_of(option)] * n_words
        if option.mark or not option.names:
            continue
        first, second = option.names[0], option.names[-1]
        with pytest.raises(SystemExit, match="2"):
            parse_options(COMMANDS[name], "", [first, *given, second, *given])
        message = capsys.readouterr().err
        expected = f"error: {second} is given twice, with {' '.join(given)} and with "
        assert message.startswith(
            "error: " + f"{first} and {second} contradict" if option.types == (bool,) else expected
        )


def test_an_option_given_twice_is_an_error_that_names_both_values(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--data.train-source", "a", "b", "--data.train-source", "c"]
    for words, message in (
        (["--run", "a", "--run=b"], "--run is given twice, with a and with b; it takes one value"),
        (["--training.seed", "2", "--training.seed", "2"], "--training.seed is given twice, with 2 and with 2; it "),
        (files, "--data.train-source is given twice, with a b and with c; all its values follow one name"),
        (
            ["--model.attention-bias", "--model.no-attention-bias"],
            "--model.attention-bias and --model.no-attention-bias contradict each other; give one of them",
        ),
    ):
        with pytest.raises(SystemExit, match="2"):
            read_options(words)
        assert capsys.readouterr().err.startswith(f"error: {message}")


def test_runs_of_an_ensemble_and_a_switch_may_be_repeated() -> None:
    assert parse_options(TranslateOptions, "", ["--run", "a", "--run", "b"]).run == (Path("a"), Path("b"))
    assert read_options(["--model.attention-bias", "--model.attention-bias"]).model.attention_bias
