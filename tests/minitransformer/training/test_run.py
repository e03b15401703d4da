"""A run as a whole: what mistakes, interruptions and changes of mind leave behind; the weights that it ends with."""

import dataclasses
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from autograd.kernels.cpu.library import bfloat16_set
from minitransformer import Transformer, train
from minitransformer.config import ConfigError, RunConfig
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.data.survey import CorpusError
from minitransformer.inference.bleu import Score
from minitransformer.inference.length_penalty import ALPHAS
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.task import Evaluation, TranslationTask
from minitransformer.inference.translator import Translator
from minitransformer.model.files import load_model_files
from minitransformer.system.files import CheckpointError, temporary_path
from minitransformer.system.provenance import short_hash
from minitransformer.training import automatic_settings
from minitransformer.training import open_run as opening
from minitransformer.training.automatic_settings import resolve
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import average_weights, checkpoint_path, checkpoints
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.open_run import OpenRun
from minitransformer.training.run import _Rounds, finish, is_finished
from minitransformer.training.validation import BEST, Validation, exceeds
from parallel.communicator import SerialCommunicator
from tests.support.training import PAIRS, StoppingMonitor, changed, corrupt, finished, job_of, run_of, weights


def test_a_failed_first_start_leaves_the_directory_free(tmp_path: Path) -> None:
    config = run_of(tmp_path)
    with pytest.raises(CorpusError, match="cannot make 9000 pieces"):
        train(changed(config, "data", vocabulary_size=9_000), callbacks=[])
    assert not config.run.exists()
    assert job_of(config).trainer.state.step == 0


def test_an_interruption_and_a_corrupt_newest_checkpoint_leave_no_trace_in_the_final_model_and_cost(
    shared_run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    """The largest batch is tried at each start, unless training has ended."""
    config, tried = run_of(tmp_path), mock.Mock(wraps=opening.try_largest_batch)
    monkeypatch.setattr(opening, "try_largest_batch", tried)
    for step in (7, 14):
        assert not job_of(config).trainer.train(StoppingMonitor(step))
    corrupt(config.run / "checkpoints" / "step-00000014" / "optimizer.safetensors")
    cost = finished(config)
    assert any("step-00000014 is corrupt: " in line and "optimizer.safetensors: has changed" in line for line in logged)
    assert any("using the newest complete checkpoint, step-00000012" in line for line in logged)
    job_of(config)
    assert tried.call_count == 3
    np.testing.assert_array_equal(weights(config), weights(shared_run))
    assert cost["flops"] == json.loads((shared_run.run / "results.json").read_text())["flops"] > 0
    assert cost["flops_by_time"] == cost["device_seconds"] * cost["device_flops_per_second"] > 0


def test_weights_change_the_pairs_of_an_epoch_and_not_the_prepared_data(tmp_path: Path) -> None:
    config = run_of(tmp_path)
    plain = job_of(config)
    manifest = (config.data_directory / "manifest.json").read_bytes()
    data = dataclasses.replace(config.data, weights=(1.5,), directory=config.data_directory)
    weighted = dataclasses.replace(config, data=data, run=tmp_path / "weighted")
    n_pairs = len(plain.trainer.store)
    assert len(job_of(weighted).trainer.store) == round(1.5 * n_pairs)
    assert (config.data_directory / "manifest.json").read_bytes() == manifest
    with pytest.raises(ConfigError, match=r"data.weights is \[1.5\] there, \[3.0\] here"):
        job_of(changed(weighted, "data", weights=(3.0,)))
    rare = changed(dataclasses.replace(weighted, run=tmp_path / "rare"), "data", weights=(1e-5,))
    with pytest.raises(ConfigError, match=rf"data.weights: 1e-05 leaves none of .*'s {n_pairs} pairs"):
        job_of(rare)
    fields = json.loads(manifest)
    del fields["train_pairs_of_files"]  # as an earlier version has prepared it
    (config.data_directory / "manifest.json").write_text(json.dumps(fields))
    assert len(job_of(config).trainer.store) == n_pairs
    with pytest.raises(CheckpointError, match="did not note the pairs of each file, which data.weights needs; set"):
        job_of(weighted)


def test_a_finished_run_can_be_extended_and_another_interval_removes_no_checkpoint(finished_run: RunConfig) -> None:
    before = checkpoints(finished_run.run)
    assert [path.name[-2:] for path in before] == ["12", "16", "20"]
    assert is_finished(job_of(changed(finished_run, checkpoint_every=7)))
    assert checkpoints(finished_run.run) == before
    longer = changed(finished_run, checkpoint_every=7, keep_checkpoints=4, max_updates=22)
    assert not is_finished(job_of(longer))
    assert finished(longer)["updates"] == 22
    assert [path.name[-2:] for path in checkpoints(finished_run.run)] == ["16", "20", "21", "22"]


@pytest.mark.parametrize(("n", "more"), [(4, ""), (5, "; and 1 more")])
def test_another_runs_settings_are_named_unless_they_are_for_divergence(tmp_path: Path, n: int, more: str) -> None:
    config = RunConfig(run=tmp_path)
    config.claim_directory()
    changed(config, learning_rate_factor=0.1, clip_norm=1.0).check_directory()
    names = ("batch_tokens", "n_micro_batches", "warmup_steps", "seed", "validation_sentences")
    remedies = rf" here{more}\. To go on with that run, give the settings with which it began \(run.json .*; for a"
    with pytest.raises(ConfigError, match=remedies) as caught:
        changed(config, **dict.fromkeys(names[:n], 64)).check_directory()
    assert str(caught.value).count(" there, 64 here") == 4


def test_files_hash_and_a_resumed_run_have_all_settings_and_the_values_of_automatic_ones(tmp_path: Path) -> None:
    config = run_of(tmp_path, n_micro_batches=0, precision="automatic")
    results = finished(config)
    chosen = changed(config, n_micro_batches=2, precision="bfloat16" if bfloat16_set() else "float32")
    record = json.loads((config.run / "run.json").read_text())
    facts = {"data_digest": PreparedData.open(config.data_directory).digest, "languages": []}
    assert record == json.loads(chosen.to_json()) | facts
    assert results["configuration"] == short_hash(chosen.to_json())
    others = {changed(chosen, **{name: 1}).to_json() for name in ("max_updates", "average_checkpoints", "warmup_steps")}
    assert len(others | {chosen.to_json()}) == 4
    assert job_of(config).config == chosen
    with pytest.raises(ConfigError, match="training.n_micro_batches is 2 there, 4 here"):
        job_of(changed(config, n_micro_batches=4))


def test_bfloat16_needs_fast_instructions(tmp_path: Path, logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def precision_of(config: RunConfig) -> str:
        return resolve(config, SerialCommunicator())[0].training.precision

    config = run_of(tmp_path, precision="automatic")
    assert precision_of(dataclasses.replace(config, kernels="reference")) == "float32"
    fast = {"AMX": "bfloat16", "AVX-512 BF16": "bfloat16", "NEON BF16": "float32", None: "float32"}
    for name, precision in fast.items():
        monkeypatch.setattr(automatic_settings, "bfloat16_set", lambda name=name: name)
        assert precision_of(config) == precision
    job_of(changed(config, precision="bfloat16"))
    assert "warning: training.precision is bfloat16, but it was not seen to be faster here than float32" in logged


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (("checkpoints",), "run: has been trained to its end .*; set run to another directory, or remove"),
        (("checkpoints", "data"), "has been trained to its end"),
        (("checkpoints", "data", "results.json"), "prepared with another tokenizer than .* was trained with"),
        ((), "prepared with another tokenizer than .* was trained with"),
    ],
)
def test_a_model_keeps_its_tokenizer_where_data_would_be_prepared_from_other_text(
    finished_run: RunConfig, tmp_path: Path, removed: tuple[str, ...], message: str
) -> None:
    for path in (finished_run.run / name for name in removed):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (tmp_path / "t.en").write_text("".join(f"{source[::-1]}\n" for source, _ in PAIRS))
    if not removed:
        prepare(finished_run.data, finished_run.data_directory)
    kept = [finished_run.run / name for name in ("tokenizer.model", "model.safetensors")]
    before = [path.read_bytes() for path in kept]
    for same_or_longer in (finished_run, changed(finished_run, max_updates=28)):
        with pytest.raises(CheckpointError, match=message):
            job_of(same_or_longer)
    assert [path.read_bytes() for path in kept] == before
    assert finished_run.data_directory.exists() == (removed != ("checkpoints", "data"))


def test_a_run_goes_on_with_the_data_with_which_it_began(tmp_path: Path) -> None:
    """Also if its tokenizer is the same, and the data is prepared again."""
    config = changed(run_of(tmp_path), "data", validation_source=("v.en",), validation_target=("v.de",))

    def job_with(translation: str) -> OpenRun:
        (tmp_path / "v.en").write_text("one two\n")
        (tmp_path / "v.de").write_text(f"{translation}\n")
        shutil.rmtree(config.data_directory, ignore_errors=True)
        return job_of(config)

    job_with("eins drei")
    assert not job_with("eins zwei").trainer.train(StoppingMonitor(2))  # nothing was trained on the first text
    with pytest.raises(CheckpointError, match=r"run/data: was prepared from other text than .*run was trained with"):
        job_with("eins drei")
    assert job_with("eins zwei").trainer.state.step == 2


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
@pytest.mark.parametrize(
    ("value", "changes", "message"),
    [
        (np.nan, {"validate_every": 1}, "update 10: the loss is not finite, as in 10 updates in a row"),
        (1e30, {"max_updates": 1}, r"validation: the loss is nan: .* Lower training\.learning_rate"),
    ],
)
def test_weights_without_results_end_it(tmp_path: Path, value: float, changes: dict[str, int], message: str) -> None:
    job = job_of(run_of(tmp_path, log_every=100, **changes))
    job.trainer.model.parameters.values[:] = value
    with pytest.raises(TrainingDivergedError, match=message):
        job.trainer.train(Callback())
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "best").exists()
    validation = job.trainer.validation
    with pytest.raises(TrainingDivergedError, match="validation: search: source 0 has no translation"):
        validation.evaluate(job.trainer.model, validation.text, beam=1)


def test_threads_without_work_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    for n_threads in (2, 3):
        monkeypatch.setattr(opening, "cores_of", lambda rank, places, n_threads=n_threads: n_threads)
        job_of(run_of(tmp_path, n_micro_batches=2))
    idle = [line for line in logged if "idle" in line]
    assert idle == ["warning: 1 of 3 threads are idle: raise training.n_micro_batches to use them"]


def test_sentences_longer_than_the_learned_positions_are_noticed_at_the_start(tmp_path: Path) -> None:
    """With just enough positions no sentence of the validation is cut, and no translation runs past the table."""
    config = run_of(tmp_path, max_updates=1, validate_every=1)
    few, enough = (changed(config, "model", positions="learned", max_positions=n, first_position=5) for n in (15, 21))
    with pytest.raises(ConfigError, match=r"max_positions is 15 and leaves room for 10 tokens, .* has 16 tokens"):
        job_of(few)
    job = job_of(enough)
    job.trainer.train(Callback())
    validation = job.trainer.validation
    translator = Translator(job.trainer.model, validation.tokenizer)
    assert not any(len(source) > translator.longest_source for source, _ in validation.pairs)


@pytest.mark.parametrize("name", ["best", "checkpoints/step-00000016"])
def test_a_model_corrupt_at_the_end_is_named_and_omitted(finished_run: RunConfig, logged: list[str], name: str) -> None:
    corrupt(finished_run.run / name / "model.safetensors")
    finish(job_of(finished_run), Callback())
    left_out = [line for line in logged if "the final model is made without" in line]
    assert len(left_out) == 1
    assert f"{name}/model.safetensors: has changed since it was written" in left_out[0]
    assert json.loads((finished_run.run / "results.json").read_text())["updates"] == 20


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    config = run_of(tmp_path)
    (config.run / "best").mkdir(parents=True)
    for folder in (config.run, config.run / "best"):
        for name in (temporary_path(folder / "model.json").name, ".a.4711.tmp", ".tmpJrcgCB", "kept.tmp"):
            (folder / name).touch()
    job_of(config)
    assert not list(config.run.rglob(".*"))
    assert len(list(config.run.rglob("kept.tmp"))) == 2


class InterruptingValidation(Callback):
    """Presses Ctrl-C as soon as a validation has finished a sentence; remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def validating(self, n_done: int, n_sentences: int) -> None:
        if n_done and not self.seen[-1][0]:
            signal.raise_signal(signal.SIGINT)
        self.seen.append((n_done, n_sentences))


def test_ctrl_c_ends_a_validation_before_all_sentences_are_translated(tmp_path: Path) -> None:
    job, monitor = job_of(run_of(tmp_path, max_updates=1)), InterruptingValidation()
    model = job.trainer.model
    validation = dataclasses.replace(job.trainer.validation, text=PAIRS * 20, n_threads=2)
    job.trainer.validation = validation
    assert not job.trainer.train(monitor)
    assert job.trainer.state.validation_is_due
    assert monitor.seen[0] == (0, len(validation.text))  # shown at once: an untrained model finishes nothing for long
    assert 0 < monitor.seen[-1][0] < len(validation.text)
    told: list[tuple[int, int]] = []
    validation.evaluate(model, PAIRS[:40], beam=2, progress=lambda *n: told.append(n))
    assert told[-1] == (40, 40)
    assert told == sorted(told)


def test_a_validation_translates_first_sentences_and_its_loss_is_of_all(tmp_path: Path) -> None:
    job = job_of(run_of(tmp_path, validation_sentences=3))
    validation = job.trainer.validation
    assert validation.text == job.data.text("validation")[:3]
    assert len(validation.pairs) == 10
    monitor = mock.Mock(wraps=Callback())
    validation.report(job.trainer.model, 1, monitor)
    assert monitor.validating.call_args.args == (3, 3)


def test_in_training_translations_exceed_sources_by_few_tokens(tmp_path: Path) -> None:
    config = run_of(tmp_path, max_updates=10)
    with mock.patch.object(Translator, "n_best", autospec=True, side_effect=Translator.n_best) as search:
        finished(config)
    pairs = job_of(config).trainer.validation.pairs
    extra = 25 + max(0, *(len(target) - len(source) for source, target in pairs))
    searches = [(call.args[2].beam, call.args[2].max_extra_tokens) for call in search.call_args_list]
    assert searches == [(1, extra), (4, 256)]


# The weights that a run ends with


def kept_weights(config: RunConfig) -> str:
    return str(json.loads((config.run / "results.json").read_text())["weights"])


def require_equal(config: RunConfig, expected: dict[str, Any]) -> None:
    weights = Transformer.load(config.run).weights()
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, expected[name])


def test_results_say_which_weights_the_model_has_and_the_average_can_be_insisted_on(finished_run: RunConfig) -> None:
    """So early in training the last model is better than the average with those before it."""
    config, job = finished_run, job_of(finished_run)
    best, average = load_model_files(config.run / BEST)[1], average_weights(checkpoints(config.run))
    finish(job, Callback())
    assert kept_weights(config) == f"best single model, validation loss {(job.trainer.state.best or ('', 0))[1]:.4f}"
    require_equal(config, best)
    finish(job, Callback(), always_average=True)
    assert kept_weights(config) == "average of the last 3 checkpoints"
    require_equal(config, average)
    shutil.rmtree(config.run / BEST)
    finish(job, Callback())
    assert kept_weights(config) == "average of the last 3 checkpoints"


@pytest.mark.parametrize(
    ("name", "value", "kept", "expected"),
    [
        ("loss", 2.0, None, True), ("loss", 2.0, 2.0, False), ("loss", 2.0, float(np.nextafter(2.0, 99)), True),
        ("bleu", 2.0, 2.0, False), ("bleu", 2.0, 1.0, True), ("-ter", 2.0, 1.0, False), ("-ter", 1.0, 2.0, True),
        ("perplexity", 1.0, 2.0, True), ("lossless", 2.0, 1.0, True),
    ],
)  # fmt: skip
def test_only_a_better_figure_exceeds_another(name: str, value: float, kept: float | None, expected: bool) -> None:
    assert exceeds((name, value), None if kept is None else (name, kept)) == expected
    assert exceeds((name, value), ("another", 99.0))


def test_a_best_single_model_that_is_only_as_good_as_the_average_is_not_chosen(finished_run: RunConfig) -> None:
    config, job = finished_run, job_of(finished_run)
    job.trainer.model.set_weights(average := average_weights(checkpoints(config.run)))
    loss = job.trainer.validation.loss(job.trainer.model).loss
    for best_loss, expected in ((loss, "average of the last"), (np.nextafter(loss, 0), "best single model")):
        job.trainer.state = dataclasses.replace(job.trainer.state, best=("loss", float(best_loss)))
        finish(job, Callback())
        assert kept_weights(config).startswith(expected)
        if best_loss == loss:
            require_equal(config, average)


@pytest.mark.parametrize(
    ("of_average", "of_best", "expected"),
    [(20.0, 19.9, "average of"), (19.9, 19.9, "best single"), (0, 1, "best single")],
)
def test_a_best_single_model_with_worse_translations_than_the_average_is_not_chosen(
    finished_run: RunConfig, logged: list[str], of_average: float, of_best: float, expected: str
) -> None:
    """In a long training on little text the loss rises while BLEU still rises."""
    config, job = finished_run, job_of(finished_run)
    average, best = average_weights(checkpoints(config.run)), load_model_files(config.run / BEST)[1]
    searches = iter([(average, of_average), (best, of_best)])

    def greedy(self: Validation, model: Transformer, callback: Callback) -> Evaluation:
        weights, score = next(searches)
        assert all(np.array_equal(value, weights[name]) for name, value in model.weights().items())
        return Evaluation(Score("BLEU", score, "", ""), ())

    job.trainer.state = dataclasses.replace(job.trainer.state, best=("loss", 0.5))
    with mock.patch.object(Validation, "greedy", greedy):
        finish(job, Callback())
    assert next(searches, None) is None
    assert kept_weights(config).startswith(expected)
    require_equal(config, average if expected == "average of" else best)
    assert any("but the worse greedy BLEU (19.90; average: 20.00)" in line for line in logged) == (
        of_best == 19.9 < of_average
    )


def test_an_average_with_old_checkpoints_says_so(tmp_path: Path, logged: list[str]) -> None:
    """A disk that is full for a while leaves a gap."""
    config = run_of(tmp_path, keep_checkpoints=5)
    job = job_of(config)
    assert job.trainer.train(Callback())
    finish(job, Callback(), always_average=True)
    assert not any(line.startswith("warning") for line in logged)
    for missing, older, gap in (
        (16, "step-00000008", "update 16"),
        (12, "step-00000004, step-00000008", "update 12, update 16"),
    ):
        shutil.rmtree(checkpoint_path(config.run, missing))
        finish(job, Callback(), always_average=True)
        assert [line for line in logged if line.startswith("warning")][-1] == (
            f"warning: the average takes in {older}, older than the last 3 intervals: there is no complete checkpoint"
            f" after {gap}"
        )


def test_the_length_penalty_is_chosen_unless_the_run_has_one(finished_run: RunConfig, logged: list[str]) -> None:
    job, free = job_of(finished_run), dataclasses.replace(finished_run.model, alpha=None)
    for model, n_tried in ((finished_run.model, 0), (free, len(ALPHAS)), (free, len(ALPHAS))):
        logged.clear()
        job.trainer.model.config = dataclasses.replace(job.trainer.model.config, alpha=model.alpha)
        finish(dataclasses.replace(job, config=dataclasses.replace(finished_run, model=model)), Callback())
        said = [line for line in logged if line.startswith("length penalty: ")]
        scores = dict(re.findall(r"([0-9.]+): ([0-9.]+)", " ".join(said)))
        stored = [json.loads((finished_run.run / name).read_text()) for name in ("results.json", "model.json")]
        assert len(scores) == n_tried
        assert stored[0]["alpha"] == stored[1]["alpha"]
        if scores:
            alpha = stored[0]["alpha"]
            assert f"chose α {alpha:g}; " in said[0]
            assert scores[f"{alpha:g}"] == f"{stored[0]['validation']['bleu']:.2f}"
            assert float(scores[f"{alpha:g}"]) >= float(scores["0.6"])
    assert job.trainer.model.config.alpha == stored[1]["alpha"]


def test_alpha_is_chosen_on_some_sentences_and_an_interrupted_round_alone_is_repeated(
    finished_run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.training.run.ALPHA_SENTENCES", 4)
    config = changed(finished_run, "model", alpha=None)
    rounds: list[tuple[int, float]] = []
    n_all, translate = len(PreparedData.open(config.data_directory).text("validation")), TranslationTask.evaluate

    def evaluate(self: Any, translator: Any, text: Any, search: SearchConfig, **others: Any) -> Any:
        if search.beam == 1:  # the choice between the best model and the average
            return translate(self, translator, text, search, **others)
        rounds.append((len(text), search.alpha))
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return translate(self, translator, text, search, **others)

    monkeypatch.setattr(TranslationTask, "evaluate", evaluate)
    job = dataclasses.replace(job_of(finished_run), config=config)
    with pytest.raises(KeyboardInterrupt):
        finish(job, Callback())
    finish(job, Callback())
    alpha = json.loads((config.run / "results.json").read_text())["alpha"]
    assert n_all > 4
    assert rounds == [(4, ALPHAS[0]), (4, ALPHAS[1]), *((4, each) for each in ALPHAS[2:3] + ALPHAS[2:]), (n_all, alpha)]
    assert not (config.run / "evaluation").exists()
    finish(job, Callback())  # nothing is kept of a finished evaluation
    assert len(rounds) == 9 + len(ALPHAS) + 1


def test_rounds_of_other_weights_or_a_corrupt_file_are_not_kept(finished_run: RunConfig) -> None:
    job = job_of(finished_run)
    text, model = job.data.text("validation"), job.trainer.model
    with mock.patch.object(TranslationTask, "evaluate", autospec=True, side_effect=TranslationTask.evaluate) as made:
        found = _Rounds(job, job.trainer.validation, Callback())("validation", text, 0.6)
        assert _Rounds(job, job.trainer.validation, Callback())("validation", text, 0.6) == found
        assert made.call_count == 1
        (path,) = (finished_run.run / "evaluation").iterdir()
        path.write_text(path.read_text()[:-3])
        assert _Rounds(job, job.trainer.validation, Callback())("validation", text, 0.6) == found
        model.parameters.values[0] += 1
        _Rounds(job, job.trainer.validation, Callback())("validation", text, 0.6)
        assert made.call_count == 3


def test_a_training_that_diverged_is_no_success_and_chooses_no_alpha(tmp_path: Path) -> None:
    config = changed(run_of(tmp_path, learning_rate_factor=100.0), "model", alpha=None)
    message = (
        r"the loss of the final model is \d+.*, but to guess each of 50 tokens has a loss of 3.912: the training has"
    )
    for _ in range(2):  # nor is it when it is started again
        with pytest.raises(TrainingDivergedError, match=message):
            train(config, callbacks=[])
    assert not (config.run / "results.json").exists()
    assert load_model_files(config.run)[0].alpha is None


def test_ctrl_c_before_the_training_or_in_the_final_evaluation_says_how_to_go_on(
    finished_run: RunConfig, logged: list[str]
) -> None:
    (finished_run.run / "results.json").unlink()
    told = "interrupted; the same run, started again, goes on from what is saved"
    with mock.patch("minitransformer.training.run.open_run", side_effect=KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            train(finished_run, callbacks=[])
        assert logged == [told]
    monitor = InterruptingValidation()
    with pytest.raises(KeyboardInterrupt):
        train(finished_run, callbacks=[monitor])
    assert monitor.seen[0][0] == 0 < monitor.seen[-1][0]
    assert not (finished_run.run / "results.json").exists()
    assert logged[-1] == told
    assert train(finished_run, callbacks=[]).results["updates"] == finished_run.training.max_updates
