"""Training from end to end: what a run holds, how it goes on, its average, the resume check, measures of one's own."""

import dataclasses
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sacrebleu.metrics.chrf import CHRF
from small_run import Trained, changed, contents, log_of, output_of, plain, results_of, translated

from cli.average import average
from cli.prepare import prepare_data
from cli.train import train
from cli.validation_command import ValidationCommand, ValidationCommandError
from minitransformer import Transformer
from minitransformer.config import ConfigError
from minitransformer.data.profile import TextProfile
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.doctor.check import ResumeCheckError
from minitransformer.inference.bleu import bleu
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError, CorruptFileError, read_json
from minitransformer.training import checkpoint as checkpoint_module
from minitransformer.training.callbacks import Callback
from minitransformer.training.run import run_lock
from minitransformer.training.state import TrainingState
from parallel.communicator import SerialCommunicator


def test_training_says_what_it_does(trained: Trained) -> None:
    for line in ("reading the text", "training a bpe tokenizer of 40 pieces", "200 training pairs (dropped: none)"):
        assert line in trained.log
    steps = r"(?m)^\d\d:\d\d:\d\d step (\d+) of 60, epoch \d+: loss .*, \d+ s left$"
    assert re.findall(steps, trained.log) == ["10", "20", "30", "40", "50", "60"]
    assert "\x1b" not in trained.log
    assert re.search(r"[\d,]+ parameters, 200 training pairs; processes 1, threads each \d+", trained.log)
    assert f"done: translate with minitransformer-translate --run {trained.run}" in trained.log


def test_the_command_shown_at_the_end_is_one_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.train.train_run", lambda *_, **__: SimpleNamespace(is_complete=True))
    output = output_of(lambda: train(["--run", str(tmp_path / "x$(y)")]))
    assert f"minitransformer-translate --run '{tmp_path}/x$(y)'\n" in output


def test_the_run_holds_all_that_is_needed_later(trained: Trained) -> None:
    model = {"model.json", "model.safetensors", "checksums.json", "tokenizer.model", "tokenizer.checksums.json"}
    logs = {"text.json", "metrics.jsonl", "report.html", "results.json", "run.json", "translations.jsonl"}
    assert {path.name for path in trained.run.iterdir()} == model | logs | {"best", "checkpoints", "data"}
    steps = sorted(path.name for path in (trained.run / "checkpoints").iterdir())
    assert steps == ["step-00000020", "step-00000040", "step-00000060"]


def test_results_have_signature_code_and_configuration(trained: Trained) -> None:
    results = results_of(trained.run)
    assert results["data"] == {
        "train_pairs": 200, "validation_pairs": 20, "dropped": {}, "source_words": 40, "target_words": 40
    }  # fmt: skip
    assert results["updates"] == 60
    assert results["flops_by_time"] == results["device_seconds"] * results["device_flops_per_second"]
    assert "tok:13a" in results["validation"]["signature"]
    assert re.fullmatch(r"[0-9a-f]{10}", results["configuration"])
    for noted in (results["code"], results["configuration"], results["validation"]["signature"]):
        assert noted
        assert noted in trained.log


def test_the_translations_behind_the_scores_are_kept(trained: Trained) -> None:
    """Of the last model every one; of each validation the first five, which are greedy ones."""
    lines = [json.loads(line) for line in (trained.run / "translations.jsonl").read_text().splitlines()]
    text = [tuple(pair) for pair in json.loads((trained.run / "data" / "validation.json").read_text())]
    assert [(line["split"], line["source"], line["reference"]) for line in lines] == [("validation", *t) for t in text]
    again = bleu([line["translation"] for line in lines], [[line["reference"] for line in lines]])
    assert again.value == results_of(trained.run)["validation"]["bleu"]
    *_, last = log_of(trained.run, "validation")
    tokenizer = Tokenizer.load(trained.run)
    sources, targets = tokenizer.encode_source([s for s, _ in text]), tokenizer.encode_target([t for _, t in text])
    extra = 25 + max(0, *(len(target) - len(source) for source, target in zip(sources, targets, strict=True)))
    best = Translator(Transformer.load(trained.run / "best"), tokenizer)
    found = best.n_best([source for source, _ in text], SearchConfig(beam=1, max_extra_tokens=extra))
    assert last["best"]
    assert [list(sample.values()) for sample in last["samples"]] == [
        [*pair, translation.text] for pair, (translation,) in zip(text[:5], found, strict=False)
    ]


def test_a_finished_run_says_so_and_changes_nothing(trained: Trained) -> None:
    before = contents(trained.run)
    output = output_of(lambda: train(trained.arguments))
    assert "finished after 60 updates; nothing is left to do (to go on, raise training.max_updates)" in plain(output)
    assert contents(trained.run) == before


def test_patience_may_change_within_a_run_and_more_updates_go_on_at_its_end(trained: Trained, run_copy: Path) -> None:
    words = changed(trained.arguments, "--run", str(run_copy), "--training.patience", "5")
    assert "finished after 60 updates" in plain(output_of(lambda: train(words)))
    output = output_of(lambda: train(changed(words, "--training.max-updates", "70")))
    assert "going on from update 60 of 70" in output
    assert results_of(run_copy)["updates"] == 70


def test_a_table_of_settings_that_is_missing_is_named(trained: Trained, run_copy: Path) -> None:
    settings = json.loads((run_copy / "run.json").read_text())
    del settings["model"]
    (run_copy / "run.json").write_text(json.dumps(settings))
    with pytest.raises(CorruptFileError, match=r"run\.json: has no table 'model' of settings, .* restore it from"):
        train(changed(trained.arguments, "--run", str(run_copy)))


def test_prepared_data_is_what_training_would_have_made(trained: Trained, tmp_path: Path) -> None:
    pairs = zip(trained.arguments[::2], trained.arguments[1::2], strict=True)
    data = [word for pair in pairs if pair[0].startswith("--data") for word in pair]
    output = output_of(lambda: prepare_data(["--run", str(tmp_path), *data]))
    assert "200 training pairs (dropped: none), 20 validation pairs" in output
    assert contents(tmp_path / "data") == contents(trained.run / "data")


def test_the_prepared_data_of_a_run_that_has_begun_is_not_replaced(trained: Trained) -> None:
    before = contents(trained.run)
    with pytest.raises(ConfigError, match="its training has begun, so its text is not prepared again; for other text"):
        prepare_data(["--run", str(trained.run), "--data.train-source", "other.en", "--data.train-target", "other.de"])
    assert contents(trained.run) == before


def test_a_run_that_another_process_trains_is_left_to_it(trained: Trained) -> None:
    with run_lock(trained.run, SerialCommunicator()):
        before = contents(trained.run)
        with pytest.raises(CheckpointError, match="another process is training there"):
            train(trained.arguments)
        assert contents(trained.run) == before


LAST = "step-00000060"


def averaged(run: Path, n: int, *words: str) -> str:
    return output_of(lambda: average(["--run", str(run), "--last", str(n), *words]))


def test_the_average_of_checkpoints_is_a_model_that_translates(trained: Trained, tmp_path: Path) -> None:
    output = averaged(trained.run, 2, "--output", str(tmp_path / "mean"))
    assert output == f"averaged step-00000040, {LAST} into {tmp_path / 'mean'}\n"
    mean = dataclasses.replace(trained, run=tmp_path / "mean")
    assert translated(mean, b"one\ntwo\n").count(b"\n") == 2
    assert TextProfile.load(mean.run) == TextProfile.load(trained.run) != TextProfile()


def test_of_two_checkpoints_of_one_update_the_complete_one_is_averaged(run_copy: Path, tmp_path: Path) -> None:
    last = run_copy / "checkpoints" / LAST
    shutil.copytree(last, last.with_name(f"{LAST}.replaced"))
    assert averaged(run_copy, 2, "--output", str(tmp_path / "two")).startswith(f"averaged step-00000040, {LAST} into")
    weights = (last / "model.safetensors").read_bytes()
    (last / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    *warnings, said = averaged(run_copy, 1, "--output", str(tmp_path / "one")).splitlines()
    assert said.startswith(f"averaged {LAST}.replaced into")
    assert [line.partition(":")[0] for line in warnings] == ["warning"]
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == weights
    shutil.rmtree(last.with_name(f"{LAST}.replaced"))
    with pytest.raises(CorruptFileError, match=f"{LAST}/model.safetensors: has changed since it was written"):
        averaged(run_copy, 1)


def test_each_run_has_its_own_average_and_no_model_of_a_run_is_overwritten(trained: Trained, run_copy: Path) -> None:
    before = contents(run_copy)
    for directory in (run_copy, trained.run):
        with pytest.raises(CheckpointError, match=r"run: holds a run \(run\.json\), whose model would be replaced"):
            averaged(run_copy, 2, "--output", str(directory))
    assert contents(run_copy) == before
    assert averaged(run_copy, 2).endswith(f" into {run_copy / 'averaged'}\n")
    assert {name: c for name, c in contents(run_copy).items() if not name.startswith("averaged/")} == before


def test_it_says_what_was_compared_and_leaves_nothing(trained: Trained, tmp_path: Path) -> None:
    """The run has several epochs, and segments its text anew in each."""
    anew = ["--run", str(tmp_path / "run"), "--training.bpe-dropout", "0.3", "--training.schedule", "linear"]
    anew += ["--training.best-by", "measured", "--training.patience-for", "measured", "--training.patience", "1"]
    output = plain(output_of(lambda: train(changed(trained.arguments, *anew, "--verify-resume", "20"))))
    assert "20 updates in one go" in output
    assert "the same command again: 10 updates from the checkpoint after update 10" in output
    assert "the same, bit for bit: 22,272 parameters, 44,544 moments of Adam" in output
    assert "4 logged losses" in output
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("forgotten", "message"),
    [({"next_batch": 0}, r"\d+ of \d+ arrays of model.safetensors, such as"),
     ({"unlogged_loss": 0.0}, "metrics.jsonl: .*'loss'")],
)  # fmt: skip
def test_a_resume_that_forgets_something_is_found(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: dict[str, Any], message: str
) -> None:
    def forgetful(path: Path) -> TrainingState:
        fields = read_json(path) | forgotten
        return TrainingState(**fields)

    monkeypatch.setattr(checkpoint_module, "read_state", forgetful)
    directories = ["--run", str(tmp_path / "run"), "--data.directory", str(trained.run / "data")]
    with pytest.raises(ResumeCheckError, match=f"differs from the one in one go in {message}"):
        train(changed(trained.arguments, *directories, "--verify-resume", "6"))


LINES: Any = (["one", "two"], ["eins", "zwei"], ["eins", "drei"])
OWN = """
import sys
source, reference, translation = (open(path, encoding="utf-8").read().splitlines() for path in sys.argv[1:])
print("exact", sum(map(str.__eq__, reference, translation)))
print("shorter", sum(len(t) < len(s) for s, t in zip(source, translation)))
"""


class Derived(Transformer):
    """A model of the user's own class."""


def measured(command: str) -> dict[str, float]:
    return ValidationCommand(command).validated(None, None, *LINES)  # type: ignore[arg-type]


def printing(text: str) -> str:
    return shlex.join([sys.executable, "-c", f"print({text!r})", "{translation}"])


def test_the_command_gets_the_files_and_its_numbers_are_measures(tmp_path: Path) -> None:
    script = tmp_path / "own metric.py"
    script.write_text(OWN)
    command = shlex.join([sys.executable, str(script)]) + " {source} {reference} {translation}"
    assert measured(command) == {"exact": 1.0, "shorter": 0.0}
    chrf = f"{sys.executable} -m sacrebleu {{reference}} -i {{translation}} -m chrf --chrf-word-order 2 -b -w 6"
    expected = CHRF(word_order=2).corpus_score(LINES[2], [LINES[1]]).score
    assert measured(chrf) == {Path(sys.executable).stem: pytest.approx(expected, abs=1e-5)}


@pytest.mark.parametrize("text", ["", "good", "chrf 1 2", "1\n2"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValidationCommandError, match="printed .*; expected a number, or lines of a name and a number"):
        measured(printing(text))


def test_a_failed_command_is_named_with_its_last_line() -> None:
    command = shlex.join([sys.executable, "-c", "import sys; sys.exit('no model\\nfor German')", "{translation}"])
    with pytest.raises(ValidationCommandError, match="ended with status 1: for German"):
        measured(command)


@pytest.mark.parametrize(
    "command", ["", "no-such-program {translation}", f"{sys.executable} -V", "echo '{translation}"]
)
def test_a_command_that_cannot_be_run_is_refused_before_the_training(command: str) -> None:
    with pytest.raises(ConfigError, match="^--validation-command .*: (expected a program|No closing quotation)"):
        ValidationCommand(command)


def test_a_dry_run_opens_the_run_and_leaves_its_data_alone(trained: Trained, tmp_path: Path) -> None:
    """So another batch can be tried, and then trained with; a run that has begun stays as it is."""
    new = changed(trained.arguments, "--run", str(tmp_path / "run"))
    shown = output_of(lambda: train([*new, "--dry-run"]))
    assert shown.endswith("the training can begin: give the same command without --dry-run\n")
    assert re.search("memory: the largest batch takes [0-9.]+ MB; .* were free", shown)
    assert {"run.json", "model.safetensors", "checkpoints"} & {
        path.name for path in (tmp_path / "run").iterdir()
    } == set()
    prepared = contents(tmp_path / "run" / "data")
    assert train(changed(new, "--training.batch-tokens", "99")) == 0
    assert contents(tmp_path / "run" / "data") == prepared
    before = contents(tmp_path / "run")
    assert train([*changed(new, "--training.batch-tokens", "99"), "--dry-run"]) == 0
    assert contents(tmp_path / "run") == before
    with pytest.raises(ConfigError, match="holds another run: training.batch_tokens is 99 there"):
        train([*new, "--dry-run"])
    with pytest.raises(ConfigError, match="training.best_by must be loss, perplexity, bleu, f1 or measured by a callb"):
        train(changed([*new, "--dry-run"], "--run", str(tmp_path / "other"), "--training.best-by", "own"))
    assert not (tmp_path / "other").exists()


class Seven(Callback):
    def validated(self, model: Any, *texts: Any) -> dict[str, float]:
        return {"seven": 7.0}


def test_callbacks_that_are_named_measure_too(trained: Trained, tmp_path: Path) -> None:
    words = ["--run", str(tmp_path), "--data.directory", str(trained.run / "data"), "--callback", f"{__name__}:Seven"]
    train(changed(trained.arguments, *words))
    assert {line["seven"] for line in log_of(tmp_path, "validation")} == {7}


def test_page_log_and_patience_have_the_commands_measures(trained: Trained, tmp_path: Path) -> None:
    words = ["--run", str(tmp_path), "--data.directory", str(trained.run / "data"), "--training.validate-every", "1"]
    words += ["--training.max-updates", "4", "--training.patience", "2", "--training.patience-for", "own"]
    words += ["--model.implementation", f"{__name__}:Derived", "--validation-command", printing("own 7.5")]
    shown = output_of(lambda: train(changed(trained.arguments, *words)))
    assert [line["own"] for line in log_of(tmp_path, "validation")] == [7.5] * 3
    assert ", own 7.5" in shown
    assert shown.endswith(f"done: load the model with its class, {__name__}:Derived, in Python\n")
    assert '"title":"own"' in (tmp_path / "report.html").read_text().replace('": "', '":"')
