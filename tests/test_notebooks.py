"""The notebooks run, in a clone and elsewhere, and print what they show."""

import re
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest
from executed import ADDRESS, NOTEBOOKS, ROOT, addressed, executed
from nbformat import NotebookNode
from small_run import write_parallel_text
from waiting import TIME_LIMIT

from minitransformer import DataConfig, ModelConfig, RunConfig, TrainingConfig, train

TRAINING = {"attention_heads", "training_loop"}  # notebooks that train a model for many updates
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def shown(notebook: NotebookNode) -> list[tuple[str, str]]:
    """The format of each output, and its text; of a picture, which depends on the machine, the size.

    Without warnings on stderr: a machine may have no C compiler.
    """
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", []) if each.get("name") != "stderr"]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    pairs = [
        (output.name, output.text) if "text" in output else (min(output.data), output.data["text/plain"])
        for output in outputs
    ]
    return [(kind, " ".join(text.split())) for kind, text in pairs]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in TRAINING else [], id=path.stem) for path in NOTEBOOKS],
)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    require_same_outputs(executed(path), path)


def require_same_outputs(notebook: NotebookNode, path: Path) -> None:
    """Words are the same; numbers are within 20 % or 0.05, because rounding in training differs between processors."""
    stored, new = shown(nbformat.read(path, as_version=4)), shown(notebook)
    without_numbers = [[(kind, NUMBER.sub("#", text)) for kind, text in each] for each in (new, stored)]
    assert without_numbers[0] == without_numbers[1]
    for (_, text), (_, expected) in zip(new, stored, strict=True):
        numbers, expected_numbers = ([float(number) for number in NUMBER.findall(each)] for each in (text, expected))
        assert numbers == pytest.approx(expected_numbers, rel=0.2, abs=0.05), text


@pytest.mark.slow
def test_outside_a_clone_a_notebook_installs_the_package_and_in_a_clone_it_uses_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has Jupyter's kernel only.  The wheel of this tree replaces the repository's address."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    venv.create(tmp_path, with_pip=True)
    for command in (
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT],
        [tmp_path / "bin/pip", "install", "--quiet", "ipykernel"],
        [tmp_path / "bin/python", "-m", "ipykernel", "install", "--prefix", tmp_path, "--name", "elsewhere"],
    ):
        subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=TIME_LIMIT)
    (wheel,) = tmp_path.glob("*.whl")
    path = ROOT / "docs" / "notebooks" / "attention_heads.ipynb"
    (tmp_path / path.name).write_bytes(path.read_bytes())
    notebook = executed(tmp_path / path.name, {f"git+{ADDRESS}": wheel.as_uri()}, kernel="elsewhere")
    assert "restart the kernel" in notebook.cells[1].outputs.pop().text, "pip has installed something"
    require_same_outputs(notebook, path)
    start = "random = np.random.default_rng(1)"
    changes = {start: f"import minitransformer\n\nprint(minitransformer.__file__)\n{start}"}
    of_clone = executed(ROOT / "docs" / "notebooks" / "gradients.ipynb", changes, kernel="elsewhere")
    assert of_clone.cells[2].outputs[0].text.strip() == str(ROOT / "minitransformer/__init__.py")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_address_of_the_repository(path: Path) -> None:
    assert addressed(path, ADDRESS) == nbformat.read(path, as_version=4)
    address = "https://github.com/me/mini"
    title, start = addressed(path, address).cells[:2]
    colab = "https://colab.research.google.com/github/me/mini/blob/main/docs/notebooks"
    assert f"[Open in Colab]({colab}/{path.name})" in title.source
    assert f'"minitransformer@git+{address}"' in start.source
    assert start == addressed(NOTEBOOKS[0], address).cells[1]


@pytest.mark.slow
def test_the_notebook_on_heads_reads_a_trained_run(tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "train", 60, seed=1)
    data = DataConfig(raw=tmp_path, train_source=("train.en",), train_target=("train.de",), vocabulary_size=40)
    model = ModelConfig(n_layers=1, n_decoder_layers=2, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
    training = TrainingConfig(max_updates=40, batch_tokens=300, n_micro_batches=2, warmup_steps=20, precision="float32")
    run = train(RunConfig(tmp_path / "run", data, model, training)).run
    changes = {"RUN = None": f"RUN = {str(run)!r}", "The small dog sees three red houses.": "one two three"}
    notebook = executed(ROOT / "docs" / "notebooks" / "attention_heads.ipynb", changes)
    texts = "".join(text for _, text in shown(notebook))
    assert "one two three →" in texts
    assert "decoder, layer 2" in texts
    assert "encoder, layer 2" not in texts.replace("encoder-decoder", "")


def test_notebooks_use_public_names_only() -> None:
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert "import" in code
    assert re.findall(r"(?:import|\.)\s*_\w+", code) == []
