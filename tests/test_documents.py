"""README and recipes say what is so."""

from __future__ import annotations

import hashlib
import html
import json
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from readme import demonstrated
from shared_data import DATA, needs
from small_run import write_parallel_text
from threadpoolctl import threadpool_limits

from autograd import RandomStream, Segments, backward
from autograd.ops import METHODS
from autograd.ops.softmax import softmax_values
from cli.train import read_options
from minitransformer import Batch, Transformer, Translator, fine_tuning, presets, train
from minitransformer.config import ConfigError, DataConfig
from minitransformer.data.corpus import text_files
from minitransformer.data.given_tokenizer import made_by
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.data.profile import TextProfile
from minitransformer.extras.convert.formats import WRITABLE
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.extras.files.download import ARCHIVES
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import TargetScore, score_pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.model.fixed_batch import BufferLayout, Capacity, FixedBatch, fill
from minitransformer.model.masks import self_attention_mask
from tests.support.ctranslate2_models import write_parts
from tests.support.training import WORDS, pairs_of, run_of

ROOT = Path(__file__).resolve().parent.parent
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
PACKAGES = ("autograd", "parallel", "minitransformer", "cli")
PAGES = ("library", "change-the-model", "another-task")
README, LIBRARY, MODEL, TASK = (
    re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in ("README.md", *(f"docs/learn/{page}.md" for page in PAGES))
)


def test_the_librarys_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = README[0].split("Translator.load")[0]
    exec(compile(example, "docs", "exec"), {})
    assert "encoder.layers.0.self_attention.query.weight (128, 128)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_training_trains_and_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a smaller vocabulary and fewer updates."""
    (tmp_path / "text").mkdir()
    write_parallel_text(tmp_path / "text", "train", 200, seed=1)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    example = LIBRARY[0].replace("8_000", "40").replace("6_000", "3")
    exec(compile(example, "docs", "exec"), names)
    bleu, translation = capsys.readouterr().out.splitlines()
    exec(compile(LIBRARY[1], "docs", "exec"), names)
    assert '"chrF++": ' in Path("runs/chrf/metrics.jsonl").read_text()
    assert 0 <= float(bleu) <= 100
    assert translation.startswith("['")
    assert {"model.safetensors", "metrics.jsonl", "results.json"} <= {path.name for path in Path("runs/mine").iterdir()}


def test_the_loop_of_the_library_learns(capsys: pytest.CaptureFixture[str]) -> None:
    """In a fifth of its updates the loss falls from ln 13 = 2.56."""
    example = LIBRARY[2].replace("range(1, 301)", "range(1, 61)")
    assert example != LIBRARY[2]
    with threadpool_limits(1, user_api="blas"):
        exec(compile(example, "docs", "exec"), {})
    assert float(capsys.readouterr().out) < 2.3


def test_the_language_model_of_the_page_learns_its_verse_in_60_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with threadpool_limits(1, user_api="blas"):
        exec(compile(TASK[0], "docs", "exec"), {})
    loss, line = capsys.readouterr().out.splitlines()
    assert float(loss) < 0.1
    assert line == "this is the cat that killed the rat that ate the malt that lay in the house that jack built."
    assert TASK[0].count("\n") <= 60


@pytest.fixture
def page_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations_kept: None) -> Iterator[Path]:
    """The modules rotary and rates, as the page says, and text to train on in the current directory."""
    (tmp_path / "rotary.py").write_text(MODEL[0], encoding="utf-8")
    (tmp_path / "rates.py").write_text(MODEL[2], encoding="utf-8")
    (tmp_path / "terms.py").write_text(MODEL[3], encoding="utf-8")
    (tmp_path / "letters.py").write_text(MODEL[4], encoding="utf-8")
    (tmp_path / "lora.py").write_text(MODEL[5], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("rotary", "rates", "terms", "letters", "lora"):
        sys.modules.pop(name, None)


def test_the_model_of_the_page_trains_and_translates_and_is_taken_for_no_other(page_modules: Path) -> None:
    """With the smallest text and sizes."""
    code = MODEL[1].replace("RunConfig()", "small").replace("The small dog sees three red houses.", "one two")
    assert MODEL[0].count("\n") <= 60
    assert code != MODEL[1]
    names: dict[str, Any] = {"small": run_of(page_modules, schedule="rates:triangle")}
    exec(compile(code, "docs", "exec"), names)
    run, model = names["result"].run, names["result"].model
    rates = [json.loads(line).get("learning_rate") for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [rate for rate in rates if rate is not None] == pytest.approx([5e-4, 1e-3, 5e-4, 0])
    loaded = type(model).load(run)
    assert np.array_equal(loaded.parameters.values, model.parameters.values)
    with pytest.raises(ConfigError, match="has a model of the class rotary:Rotary, not of Transformer"):
        Transformer.load(run)
    for to in WRITABLE:
        with pytest.raises(ConversionError, match="model.implementation = 'rotary:Rotary' is not supported"):
            write_parts(Parts.load(run), page_modules / "written", to)
    with pytest.raises(ConfigError, match="model.implementation must be rotary:Rotary, as of the model in"):
        fine_tuning(replace(names["small"], run=page_modules / "other", init_from=run))


def test_rotary_positions_are_relative_and_the_same_in_a_search(page_modules: Path) -> None:
    model = import_module("rotary").Rotary(replace(presets.tiny(vocabulary_size=13), n_layers=1), dtype="float64")
    ids, segments = np.array([5, 6, 7, 5]), Segments.of_lengths([4])
    mask, positions = self_attention_mask(segments), segments.position_in_segment
    encoded = [model.encode(ids, order, mask).value for order in (positions, positions + 7, positions[::-1].copy())]
    np.testing.assert_allclose(encoded[0], encoded[1], atol=1e-12)
    assert np.abs(encoded[0] - encoded[2]).max() > 1e-3
    model = type(model)(model.config)
    for found in beam_search(model, [[5, 6, 7]], SearchConfig(beam=3, n_best=3, max_extra_tokens=4))[0]:
        (score,) = score_pairs(model, [([5, 6, 7], list(found.ids))])
        assert found.log_probability == pytest.approx(score.log_probability, abs=1e-4)


def test_the_terms_of_the_page_are_kl_divergence_and_weight_decay(page_modules: Path) -> None:
    config = replace(presets.tiny(vocabulary_size=13), n_layers=1, p_drop=0.3)
    model, plain = import_module("terms").Consistent(config, dtype="float64"), Transformer(config, dtype="float64")
    batch = Batch.from_token_ids([[5, 6, 7], [4]], [[5, 9], [7, 7, 8]])
    stream = RandomStream(seed=1, update=2)
    p, q = (softmax_values(model.logits(batch, stream).value) for _ in range(2))
    divergence = (p * np.log(p / q) + q * np.log(q / p)).sum()
    stream = RandomStream(seed=1, update=2)
    losses = [float(plain.loss(batch, stream)) for _ in range(2)]
    assert divergence > 0.1
    found = float(model.loss(batch, RandomStream(seed=1, update=2)))
    assert found == pytest.approx(sum(losses) / 2 + divergence / 4, rel=1e-10)
    assert float(model.loss(batch)) == pytest.approx(float(plain.loss(batch)), rel=1e-12)
    weight = model.encoder.layers[0].feed_forward.hidden.weight.value
    assert float(model.penalty()) == pytest.approx(1e-4 * (weight**2).sum(), rel=1e-10)
    backward(model.loss(batch, RandomStream(seed=1, update=2)) + model.penalty())
    capacity = Capacity.of([np.stack([batch.source.lengths, batch.target.lengths], 1)], 16)
    arrays = BufferLayout(capacity.shapes()).views(np.zeros(BufferLayout(capacity.shapes()).n_bytes, np.uint8))
    filled_up = FixedBatch.of(arrays, fill(arrays, batch, None))
    assert float(model.loss(filled_up, RandomStream(seed=1, update=2))) == pytest.approx(found, rel=1e-10)


def test_lora_trains_its_own_numbers_and_is_merged_into_a_plain_model(page_modules: Path) -> None:
    """With the smallest text and sizes: two words have other translations than in the text of the pretrained model."""
    demo = run_of(page_modules, max_updates=200)
    demo = replace(demo, run=Path("runs/demo"))
    train(demo, callbacks=[])
    Path("swiss").mkdir()
    swiss = pairs_of({**WORDS, "one": "zwei", "two": "eins"})
    for side, language in enumerate(("en", "swiss")):
        lines = [f"{pair[side]}\n" for pair in swiss]
        Path(f"swiss/valid.{language}").write_text("".join(lines[::10]), encoding="utf-8")
        Path(f"swiss/train.{language}").write_text("".join(lines), encoding="utf-8")
    assert MODEL[5].count("\n") <= 50
    names: dict[str, Any] = {}
    exec(compile(MODEL[6], "docs", "exec"), names)
    model, plain = names["result"].model, Transformer.load("models/lora")
    before, after = Transformer.load("runs/demo").weights(), model.weights()
    assert all(np.array_equal(array, after[name]) for name, array in before.items())
    new = after.keys() - before.keys()
    assert len(new) == 12, "two matrices beside queries and values of three attentions"
    assert all(np.abs(after[name]).max() > 1e-3 for name in new if name.endswith(".up"))
    initial = type(model)(model.config).weights()
    assert not any(np.array_equal(after[name], initial[name]) for name in new)
    store = PreparedData.open(Path("runs/lora/data")).stores["validation"].read()
    pairs = [store.pair(i) for i in range(len(store))]
    losses = [TargetScore.sum(score_pairs(each, pairs)).loss for each in (Transformer.load("runs/demo"), plain)]
    batch = Batch.from_token_ids([[5, 6, 7], [8, 9]], [[7, 5], [6, 6, 8]])
    np.testing.assert_allclose(plain.log_probabilities(batch), model.log_probabilities(batch), atol=1e-5)
    assert losses[1] < 0.95 * losses[0]
    for to in set(WRITABLE) - {"marian-npz", "bergamot"}:  # Marian has other positions
        parts = replace(Parts.load(Path("models/lora")), profile=TextProfile("en", "de"))
        write_parts(parts, Path("written", to), to)
    assert Translator.load("models/lora").translate(["one two"])
    assert train(fine_tuning(names["run"]), model=type(model), callbacks=[]).updates == 300, "it is finished already"
    other = fine_tuning(replace(names["run"], run=Path("runs/other"), init_optimizer=True))
    with pytest.raises(ConfigError, match=r"init_optimizer is set, but .* has no moments of encoder.layers.0.*down"):
        train(other, model=type(model), callbacks=[])


def test_the_tokenizer_of_the_page_is_trained_with_and_stored(page_modules: Path) -> None:
    config = run_of(page_modules, max_updates=2)
    result = train(replace(config, data=replace(config.data, tokenizer="letters:letters", max_length=200)))
    sys.modules.pop("letters")
    tokenizer = Translator.load(result.run).tokenizer
    assert tokenizer.source_pieces("one two") == ["▁", "o", "n", "e", "▁", "t", "w", "o"]
    assert json.loads((result.run / "run.json").read_text())["data"]["tokenizer"] == "letters:letters"
    prepared = PreparedData.open(config.data_directory)
    assert prepared.manifest["config"]["tokenizer"] == "letters:letters"
    with pytest.raises(ConfigError, match="the tokenizer of letters:letters must be two, one for each language; got"):
        made_by("letters:letters", [("ab", "cd")], DataConfig(joint_vocabulary=False))
    with pytest.raises(ConfigError, match="the result of data.tokenizer operator:is_ must be a Tokenizer; got False"):
        made_by("operator:is_", [("ab", "cd")], DataConfig())
    with pytest.raises(ConfigError, match="data.tokenizer: letters:letters is for text; a treebank has its own"):
        DataConfig(tokenizer="letters:letters", train_trees=("a",), validation_trees=("b",), joint_vocabulary=False)
    with pytest.raises(ConfigError, match="data.tokenizer must be one of .*, the Path of a file, or package.module:"):
        DataConfig(tokenizer="letters")


TRAINING = {7}  # exercises whose solutions train for some seconds
EXERCISES = (ROOT / "docs/learn/exercises.md").read_text("utf-8")
SOLUTIONS = re.findall(r"^\*\*(\d+)\.\*\*(.*?)(?=^\*\*\d|\Z)", EXERCISES, re.MULTILINE | re.DOTALL)
PROGRAMS = {int(number): "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)) for number, text in SOLUTIONS}


@pytest.mark.parametrize("number", [
    pytest.param(n, marks=[pytest.mark.slow] if n in TRAINING else []) for n, program in PROGRAMS.items() if program
])  # fmt: skip
def test_the_solution_of_an_exercise_prints_what_it_says(
    number: int, capsys: pytest.CaptureFixture[str], operations_kept: None
) -> None:
    """A line begins as promised; a number with a point is within 0.15."""
    with threadpool_limits(1, user_api="blas"):
        exec(compile(PROGRAMS[number], "docs", "exec"), {})
    promised = re.findall(r"^ *print\(.*\)  # (.*)$", PROGRAMS[number], re.MULTILINE)
    for line, promise in zip(capsys.readouterr().out.splitlines(), promised, strict=True):
        is_number = re.fullmatch(r"\d+\.\d+", promise)
        assert abs(float(line) - float(promise)) < 0.15 if is_number else line.startswith(promise)


@pytest.mark.slow
def test_the_loop_learns_as_fast_without_the_root_as_an_exercise_says(capsys: pytest.CaptureFixture[str]) -> None:
    with_root = LIBRARY[2].replace("p_drop=0.1", "p_drop=0").replace("range(1, 301)", "range(1, 151)")
    without = with_root.replace("\nadam, ", "\nmodel.source_embedding.scale = 1.0\nadam, ")
    with threadpool_limits(1, user_api="blas"):
        for program in (without, with_root):
            exec(compile(program, "docs", "exec"), {})
    promised = re.search(r"with `p_drop=0`, both have about (\S+)\s+nats after 150 updates", EXERCISES)
    assert promised is not None
    found = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert found == pytest.approx(2 * [float(promised[1])], abs=0.06)  # it depends on the processor's rounding


def test_the_page_on_autograd_lists_the_methods_of_tensors() -> None:
    page = (ROOT / "docs/learn/autograd.md").read_text("utf-8")
    (listed,) = re.findall(r"and NumPy's\s(.*?)\. \[All others\]", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == {name for name in METHODS if not name.startswith("__")}


def test_every_exercise_has_a_solution() -> None:
    assert [number for number, _ in SOLUTIONS] == [str(n) for n in range(1, 16)]
    assert all(text.count("<details") == text.count("</details>") == 1 for _, text in SOLUTIONS)


def test_every_extra_that_a_text_installs_exists_and_has_no_name_of_an_index() -> None:
    """Whether the text has its name, or the function that imports a module of an extra is given it.

    Only a clone has the extras: pip install -e ".[mpi]".
    """
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"].keys()
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
    paths += [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    assert [path for path, text in texts.items() if "minitransformer[" in text] == []
    named: set[str] = set()
    for text in texts.values():
        groups = re.findall(r"pip (?:install|wheel) [^`\n]*-e ['\"]\.\[([\w,]+)\]['\"]", text)
        named |= {extra for group in groups for extra in group.split(",")}
        named |= set(re.findall(r"import_extra\(['\"](\w+)", text))
    assert named >= {"mpi", "cuda12", "serve", "hub", "convert", "test"}
    assert named <= known


def test_the_pictures_of_pages_show_the_pages_of_today() -> None:
    """If not, make them again: python docs/figures/pictures.py"""
    pictures = runpy.run_path(str(ROOT / "docs" / "figures" / "pictures.py"))
    kept = json.loads((ROOT / "docs" / "figures" / "pictures.json").read_text(encoding="utf-8"))
    assert kept == pictures["hashes"]()
    svg = (ROOT / "docs" / "figures" / "terminal.svg").read_text(encoding="utf-8")
    shown = html.unescape(re.sub("<[^>]*>", "", svg)).replace("\xa0", " ")
    assert [command for command in pictures["TERMINAL"] if command not in shown] == []
    assert len([german for _, german in demonstrated() if german in shown]) == 3


def test_the_index_of_benchmarks_names_every_file_and_no_other() -> None:
    index = (ROOT / "benchmarks/README.md").read_text("utf-8")
    named = re.findall(r"`([\w*]+\.py)\b", index)
    assert len(named) > 10
    found = {name: set((ROOT / "benchmarks").glob(name)) for name in named}
    assert [name for name, paths in found.items() if not paths] == []
    assert set().union(*found.values()) == set((ROOT / "benchmarks").glob("*.py"))
    run = re.findall(r"benchmarks/(\w+\.py)", (ROOT / "Makefile").read_text("utf-8"))
    assert set(re.findall(r"`(\w+\.py)` \*", index)) == set(run)


def anchors_of(document: Path) -> set[str]:
    """What follows a "#" to lead to a heading: its letters, digits and hyphens in lower case, hyphens for blanks."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


PATTERNS = ("*.md", "benchmarks/README.md", "docs/**/*.md", "docs/**/*.ipynb")
DOCUMENTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    if document.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text)
    targets = [((document.parent / path) if path else document, anchor) for path, anchor in links]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [link for link in targets if link[1] and link[1] not in anchors_of(link[0])] == []


@pytest.mark.parametrize("document", ["results.md", "lab/results.md", "lab/table3.md"])
def test_commands_of_the_results_leave_nothing_out(document: str) -> None:
    blocks = re.findall(r"```(?:console|bash)\n(.*?)```", (ROOT / "docs" / document).read_text("utf-8"), re.DOTALL)
    assert blocks
    assert [block for block in blocks if "…" in block] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_are_options(recipe: Path) -> None:
    config = read_options(["--config", str(recipe)])
    assert config.run == Path("runs") / recipe.stem
    assert config.data.train_source or config.data.train_trees
    assert all(re.fullmatch(r".+:[0-9a-f]{64}", entry) for entry in config.data.sha256)
    named = {entry.rpartition(":")[0] for entry in config.data.sha256}
    if config.data.download_from:
        assert all(name.endswith(ARCHIVES) for name in named) or named >= text_files(config.data).keys()


@needs("multi30k")
def test_checksums_of_the_multi30k_recipe_are_those_of_the_real_files() -> None:
    config = read_options(["--config", str(ROOT / "recipes" / "multi30k-en-de.toml")])
    for entry in config.data.sha256:
        name, _, expected = entry.partition(":")
        assert hashlib.sha256((DATA / "multi30k" / name).read_bytes()).hexdigest() == expected


@pytest.mark.slow
@needs("multi30k")
def test_multi30k_is_prepared_without_loss(tmp_path: Path) -> None:
    words = ["--config", str(ROOT / "recipes" / "multi30k-en-de.toml"), "--data.raw", str(DATA / "multi30k")]
    config = read_options(words)
    data = prepare(config.data, tmp_path)
    assert (data.manifest["train_pairs"], data.manifest["validation_pairs"]) == (29_000, 1_014)
    assert data.manifest["dropped"] == {}
    text, store = data.text("validation"), data.stores["validation"].read()
    decoded = data.tokenizer.decode_target([store.pair(i)[1] for i in range(len(store))])
    same = sum(line == " ".join(german.split()) for line, (_, german) in zip(decoded, text, strict=True))
    assert same >= 1_010  # the rest differ by Unicode normalisation of odd quotes
