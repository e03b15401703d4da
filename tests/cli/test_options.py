"""Options from a preset, a TOML file and the command line, and what is said of those that do not exist."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path

import pytest
from small_run import plain

from cli.average import average
from cli.options import parse_kind, require_threads
from cli.parse import parse
from cli.prepare import prepare_data
from cli.report import KINDS as REPORTS
from cli.report import report
from cli.reproduce import reproduce
from cli.run_options import read_toml
from cli.score import KINDS, BleuOptions, score
from cli.train import TrainOptions, read_options, train
from cli.translate import translate
from minitransformer.config import ConfigError, DataConfig, presets
from minitransformer.config.run import demo_training
from minitransformer.extras.paper.compatibility import CONVENTIONS, compatible

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def toml(folder: Path, text: str) -> str:
    path = folder / "options.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_without_options_everything_is_the_demonstrations() -> None:
    assert read_options([]) == TrainOptions()


def test_compat_sets_the_models_conventions_which_single_options_change_again() -> None:
    config = read_options(["--preset", "base", "--compat", "fairseq", "--model.start", "zero"])
    assert config.model == dataclasses.replace(compatible(presets.base(), "fairseq"), start="zero")


def test_settings_of_a_file_override_the_conventions_that_it_names(tmp_path: Path) -> None:
    file = toml(tmp_path, 'compat = "fairseq"\n[model]\nstart = "zero"\n')
    assert read_options(["--config", file]).model == dataclasses.replace(
        compatible(presets.tiny(), "fairseq"), start="zero"
    )


def test_a_file_may_name_the_system_and_the_command_line_another(tmp_path: Path) -> None:
    file = toml(tmp_path, 'compat = "marian"\n[model]\nd_ff = 64\n')
    marian = dataclasses.replace(compatible(presets.tiny(), "marian"), d_ff=64)
    assert read_options(["--config", file]).model == marian
    other = read_options(["--config", file, "--compat=tensor2tensor"]).model
    assert (other.softmax_bias, other.start, other.d_ff) == (False, "zero", 64)


def test_keys_of_tables_are_options_of_that_part(tmp_path: Path) -> None:
    text = """
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
    config = read_options(["--config", toml(tmp_path, text)])
    assert config.run == Path("runs/x")
    assert config.data.train_source == ("a.en", "b.en")
    assert config.data.joint_vocabulary is False
    assert config.model.d_ff == 96
    assert config.training.warmup_steps == 7


def test_vocabularies_that_have_nothing_in_common_share_no_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the same size they could: row 7 would be one piece of the source and another one of the target."""
    with pytest.raises(SystemExit):
        read_options(["--data.no-joint-vocabulary"])
    assert 'set model.tied to "target" or "none"' in plain(capsys.readouterr().err)
    assert read_options(["--data.no-joint-vocabulary", "--model.tied", "none"]).model.tied == "none"


def test_what_the_file_does_not_mention_stays(tmp_path: Path) -> None:
    config = read_options(["--config", toml(tmp_path, "[training]\nseed = 9")])
    assert config.model == presets.tiny()
    assert config.training.batch_tokens == demo_training().batch_tokens


def test_the_command_line_wins_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    path = toml(tmp_path, "[model]\nd_ff = 96\nn_layers = 5")
    model = read_options(["--preset", "small", "--config", path, "--model.n-layers", "1"]).model
    assert (model.d_model, model.d_ff, model.n_layers) == (128, 96, 1)


def test_the_order_of_preset_file_and_options_on_the_command_line_is_free(tmp_path: Path) -> None:
    path = toml(tmp_path, "[model]\nd_ff = 96\nn_layers = 5")
    words = [["--preset", "small"], ["--config", path], ["--model.n-layers", "1"]]
    given, reverse = ([word for pair in order for word in pair] for order in (words, words[::-1]))
    assert read_options(given) == read_options(reverse)


def test_a_later_option_wins_over_an_earlier_one() -> None:
    assert read_options(["--training.seed", "2", "--training.seed", "3"]).training.seed == 3


def test_lists_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path, '[data]\ntrain_source = ["a", "b"]\ntrain_target = ["c", "d"]')
    data = read_options(["--config", path, "--data.train-source", "e", "--data.train-target", "f"]).data
    assert (data.train_source, data.train_target) == (("e",), ("f",))


def test_a_switch_of_the_file_can_be_turned_back(tmp_path: Path) -> None:
    path = toml(tmp_path, "[model]\nattention_bias = true\nsoftmax_bias = true")
    model = read_options(["--config", path, "--model.no-attention-bias"]).model
    assert (model.attention_bias, model.softmax_bias) == (False, True)


@pytest.mark.parametrize("words", [["--preset", "base"], ["--preset=base"]])
def test_a_preset_is_a_model_by_name(words: list[str]) -> None:
    assert read_options(words).model == presets.base()


def test_a_preset_may_be_named_in_the_file_and_be_overruled(tmp_path: Path) -> None:
    path = toml(tmp_path, 'preset = "base"')
    assert read_options(["--config", path]).model == presets.base()
    assert read_options(["--config", path, "--preset", "small"]).model == presets.small()


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["--preset", "huge"], "known here: tiny, small, base, big, parsing, "),
        (["--preset", "smal"], "did you mean 'small'?"),
        (["--compat", "opennmt"], "known here: paper, tensor2tensor, fairseq, marian"),
    ],
)
def test_an_unknown_preset_or_system_is_reported_the_known_ones(
    words: list[str], known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_options(words)
    assert f"argument {words[0]}: unknown value '{words[1]}'; {known}" in capsys.readouterr().err


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_every_preset_can_be_trained_with_the_conventions_of_every_system(preset: str) -> None:
    for system in CONVENTIONS:
        model = read_options(["--preset", preset, "--compat", system]).model
        assert model == compatible(presets.named(preset), system)


@pytest.mark.parametrize(
    ("text", "unknown", "known"),
    [
        (
            "[training]\ncolour = 3",
            "'training.colour'",
            "known here: max_updates, batch_tokens, n_micro_batches, warmup_steps",
        ),
        ("[training]\nwarmup_step = 3", "'training.warmup_step'", "did you mean 'training.warmup_steps'?"),
        ("[trainig]\nseed = 3", "'trainig'", "did you mean 'training'?"),
        ('prest = "small"', "'prest'", "did you mean 'preset'?"),
        ('config = "other.toml"', "'config'", "known here: run, data, model,"),
        ("verify_resume = 20", "'verify_resume'", "known here: run, data, model,"),
        ("seed = 3", "'seed'", "did you mean 'training.seed'?"),
        ("colour = 3", "'colour'", "known here: run, data, model, training, device, kernels, init_from, "),
    ],
)
def test_an_unknown_key_names_the_file_and_the_similar_key_or_all(
    tmp_path: Path, text: str, unknown: str, known: str
) -> None:
    path = toml(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_options(["--config", path])
    assert str(caught.value).startswith(f"{path}: unknown key {unknown}; {known}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training.seed]\nvalue = 3", "training.seed must be a whole number; got {'value': 3}"),
        ("training = 3", "training must be a table of settings; got 3"),
        ('[training]\nseed = "1"', "training.seed must be a whole number; got '1'"),
        ('device = "gpu"', "device must be one of ('cpu', 'cuda'); got 'gpu'"),
        ("[training]\nn_micro_batches = 3", "training.n_micro_batches must be a power of two, or 0; got 3"),
        ("preset = 3", "preset must be one of ('tiny', 'small', "),
        (
            'compat = ["marian"]',
            "compat must be one of ('paper', 'tensor2tensor', 'fairseq', 'marian'); got ['marian']",
        ),
    ],
)
def test_a_wrong_value_names_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = toml(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_options(["--config", path, "--preset", "tiny", "--training.seed", "2"])
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_missing_file_is_named_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: not found; expected a TOML file, such as recipes/"):
        read_options(["--config", str(tmp_path / "nowhere.toml")])


def test_a_byte_order_mark_and_other_line_ends_are_no_syntax_error(tmp_path: Path) -> None:
    path = tmp_path / "of-windows.toml"
    path.write_bytes(b"\xef\xbb\xbf[training]\r\nseed = 3\r\n")
    assert read_options(["--config", str(path)]).training.seed == 3


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    path = toml(tmp_path, 'run = "x"\n[training\n')
    with pytest.raises(ConfigError, match="cannot be read as TOML: .*line 2") as caught:
        read_options(["--config", path])
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'run = "gr\xfcn"')
    with pytest.raises(ConfigError, match=r"latin\.toml: cannot be read as TOML"):
        read_toml(path)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as TOML"):
        read_toml(tmp_path)


def train_words(words: list[str], *_: BytesIO) -> int:
    return train(["--training.seed", *words[1:]])


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (translate, '"< test.en" or "--input test.en"'),
        (train_words, '"--config test.en"'),
        (parse, '"< test.en"; .* "--treebank test.en"'),
    ],
    ids=["translate", "train", "parse"],
)
def test_a_file_without_an_option_is_reported_how_to_give_it(
    command: Callable[[list[str], BytesIO, BytesIO], int], remedy: str
) -> None:
    with pytest.raises(ConfigError, match=f"test.en: it follows no option; to .*{remedy}"):
        command(["--beam", "1", "test.en"], BytesIO(), BytesIO())


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (average, ["runs/x"], 'runs/x: it follows no option; to average a run, give "--run runs/x"'),
        (score, ["a", "b"], "unknown word 'a'; known here: bleu, audit, .* give \"bleu\" before the files"),
        (score, ["pair", "a", "b"], "unknown word 'pair'; did you mean 'pairs'\\?"),
        (report, ["a sentence"], 'give "attention" before it'),
        (reproduce, ["table2"], "unknown word 'table2'; did you mean 'table[13]'\\?"),
    ],
    ids=["average", "score", "misspelt", "report", "reproduce"],
)
def test_a_word_that_is_out_of_place_is_answered_with_the_right_words(
    command: Callable[[list[str]], int], words: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        command(words)


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (["--model.d-model", "200"], "model.n_heads · model.d_k = 4 · 32 = 128, but model.d_model is 200"),
        (["--model.n-heads", "8"], "model.n_heads · model.d_k = 8 · 32 = 256, but model.d_model is 128"),
        (["--model.d-model", "256", "--model.d-k", "32"], "= 4 · 32 = 128, but model.d_model is 256"),
        (["--model.d-model", "256", "--model.d-k", "64"], ""),
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


def test_of_two_files_without_an_option_the_first_is_reported() -> None:
    with pytest.raises(ConfigError, match='one.en: it follows no option; .* "--input one.en"'):
        translate(["one.en", "two.en"], BytesIO(), BytesIO())


@pytest.mark.parametrize(("n", "is_allowed"), [(None, True), (0, False), (1, True), (1_024, True), (1_025, False)])
def test_threads_are_between_one_and_the_most(n: int | None, is_allowed: bool) -> None:
    message = f"--threads must be at least 1 and at most 1,024; got {n}"
    with nullcontext() if is_allowed else pytest.raises(ConfigError, match=message):
        require_threads(n)


def test_help_lists_the_settings_and_not_only_where_they_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_options(["--help"])
    assert caught.value.code == 0
    assert "--training.seed" in plain(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "words", "answer"),
    [
        (translate, ["--beem", "1"], "unknown option --beem; did you mean --beam?"),
        (
            lambda words, *_: read_options(words),
            ["--seed", "1"],
            "unknown option --seed; did you mean --training.seed?",
        ),
        (lambda words, *_: read_options(words), ["--model.attention-bais"], "did you mean --model.attention-bias?"),
        (lambda words, *_: read_options(words), ["--xyz=1"], "unknown option --xyz"),
        (lambda words, *_: score(words), ["pairs", "a", "b", "c"], "unexpected value 'c'"),
    ],
)
def test_a_misspelt_option_is_one_line_with_a_similar_one(
    command: Callable[[list[str], BytesIO, BytesIO], int],
    words: list[str],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/program"])
    with pytest.raises(SystemExit) as caught:
        command(words, BytesIO(), BytesIO())
    assert caught.value.code == 2
    kind = f"{words[0]} " if words[0].isalpha() else ""
    assert re.fullmatch(rf"error: .*{re.escape(answer)} \(see program {kind}--help\)\n", capsys.readouterr().err)


def test_options_may_be_spelt_as_the_keys_of_files() -> None:
    config = read_options(["--training.warmup_steps=7", "--model.no_attention_bias", "--init_from", "None"])
    assert (config.training.warmup_steps, config.model.attention_bias, config.init_from) == (7, False, None)


def test_the_word_none_resets_a_setting_of_a_file(tmp_path: Path) -> None:
    path = toml(tmp_path, "[training]\nclip_norm = 1.0\npatience = 3")
    training = read_options(["--config", path, "--training.clip-norm", "None"]).training
    assert (training.clip_norm, training.patience) == (None, 3)


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


def test_a_number_may_be_negative_and_a_word_after_two_hyphens_may_begin_with_one() -> None:
    options = parse_kind(REPORTS, "", ["attention", "--alpha", "-1.5", "--", "--no_options"])
    assert (options.alpha, options.sentence) == (-1.5, "--no_options")


@pytest.mark.parametrize("name", ["--config", "--preset", "--verify-resume"])
def test_an_option_without_its_value_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_options([name])
    assert caught.value.code == 2
    assert f"argument {name}: expected one argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.n-micro-batches", "3"], "n_micro_batches must be a power of two, or 0; got 3"),
        (["--training.max-updates", "0"], "max_updates must be at least 1 and less than"),
        (["--training.batch-tokens", str(10**19)], "batch_tokens must be at least 1"),
        (["--data.vocabulary-size", str(10**10)], "vocabulary_size must be at least 4"),
        (["--model.d-model", "7"], "d_model must be even"),
        (["--model.p-drop", "1"], "p_drop must be at least 0"),
        (["--model.vocabulary-size", "9"], "set data.vocabulary_size"),
        (["--training.seed", "one"], "one"),
        (["--training.sed", "1"], "--training.sed"),
    ],
)
def test_a_value_that_makes_no_sense_ends_with_status_2_and_says_why(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        read_options(words)
    assert caught.value.code == 2
    assert re.fullmatch(rf"error: [^\n]*{re.escape(message)}[^\n]*\n", capsys.readouterr().err)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_read(recipe: Path) -> None:
    data = read_options(["--config", str(recipe)]).data
    assert data.train_source or data.train_trees


def prepared_as(words: list[str], monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """What minitransformer-prepare would prepare."""
    asked: list[DataConfig] = []
    monkeypatch.setattr("cli.prepare.prepare", lambda data, *others: asked.append(data))
    assert prepare_data(words) == 0
    return asked[0]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_prepare_reads_every_recipe_as_training_does(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--config", str(recipe)]
    assert prepared_as(words, monkeypatch) == read_options(words).data


@pytest.mark.parametrize("preset", ["tiny", "base", "table3-A-h4", "parsing-small"])
def test_prepare_starts_from_the_preset_as_training_does(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["--run", str(tmp_path / "run")]
    words = [*run, "--config", toml(tmp_path, f'preset = "{preset}"\n[data]\nmax_length = 99\n')]
    assert prepared_as(words, monkeypatch) == read_options(words).data
    words += ["--data.vocabulary-size", "77"]
    assert prepared_as(words, monkeypatch) == read_options(words).data
    words += ["--preset", "small"]  # counts for more than the file's
    assert prepared_as(words, monkeypatch) == read_options(words).data
    with pytest.raises(ConfigError, match="preset must be one of .*; got 3"):
        prepare_data(["--config", toml(tmp_path, "preset = 3")])


@pytest.mark.parametrize(
    ("text", "message"),
    [(f"a = {'[' * 5_000}", "cannot be read as TOML"), (f"a = {'9' * 5_000}", "cannot be read as TOML")],
)
def test_a_file_that_was_corrupt_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_options(["--config", str(tmp_path / "recipe.toml")])
