"""A choice that a format does not know is refused: no writer or reader takes it for another one."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from ctranslate2_models import change_variables, ctranslate2_directory, random_parts, write_parts
from marian_npz_files import write_marian as write_marian_npz
from state_dict_files import write_fairseq, write_joeynmt

from minitransformer.config import model as config_module
from minitransformer.config.model import CHOICES, ModelConfig
from minitransformer.extras.convert.formats import WRITABLE, read_parts
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.system.files import CorruptFileError

TRAINING_ONLY = {"label_smoothing_over"}


def test_every_choice_of_a_model_is_checked() -> None:
    kinds = get_type_hints(ModelConfig)
    assert set(CHOICES) == {name for name, kind in kinds.items() if get_origin(kind) is Literal}


def parts_with(monkeypatch: pytest.MonkeyPatch, name: str) -> Parts:
    """A model whose setting has a value that was added to the choices after all formats were written."""
    parts = random_parts({})
    more = Literal[(*get_args(CHOICES[name]), "added")]  # type: ignore[valid-type]
    monkeypatch.setattr(config_module, "CHOICES", {**CHOICES, name: more})
    return dataclasses.replace(parts, config=dataclasses.replace(parts.config, **{name: "added"}))


@pytest.mark.parametrize("name", sorted(set(CHOICES) - TRAINING_ONLY))
@pytest.mark.parametrize("to", WRITABLE)
def test_no_writer_mistakes_an_added_value(to: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = parts_with(monkeypatch, name)
    with pytest.raises(ConversionError, match=rf"^(?!/).+: model\.{name} = 'added' is not supported; only '\w+'"):
        write_parts(parts, tmp_path / "written", to)
    assert not (tmp_path / "written").exists()


def change_settings(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8")


def ours(directory: Path) -> None:
    random_parts({}).save(directory)
    for path in directory.glob("*checksums.json"):
        path.unlink()
    change_settings(directory / "model.json", positions="added")


def ctranslate2_with(**changes: Any) -> Callable[[Path], object]:
    def write(directory: Path) -> None:
        ctranslate2_directory(directory, random_parts({}))
        names = [(f"{stack}/{name}", name) for stack in ("encoder", "decoder") for name in changes]
        numbers = {full: np.int8(changes[name]) for full, name in names}
        change_variables(directory, numbers)

    return write


def marian(directory: Path) -> None:
    write_parts(random_parts({"layer_norm_eps": 1e-5}), directory, "marian")
    change_settings(directory / "config.json", activation_function="added")


def fairseq(directory: Path) -> None:
    write_fairseq(directory)
    (directory / "args.json").write_text('{"activation_fn": "added"}')


def joeynmt(directory: Path) -> None:
    write_joeynmt(directory)
    stack = {"type": "transformer", "num_heads": 2, "layer_norm": "added", "embeddings": {"scale": True}}
    change_settings(directory / "config.json", model={"encoder": stack, "decoder": stack})


READ: dict[str, tuple[Callable[[Path], object], str]] = {
    "ours": (ours, r"model.positions must be one of \('interleaved', 'halves', 'learned'\); got 'added'"),
    "activation of ctranslate2": (ctranslate2_with(activation=9), "activation = 9 is not supported; only 0, 1, 2, 3$"),
    "norms of ctranslate2": (ctranslate2_with(pre_norm=2), "pre_norm = 2 is not supported; only 0, 1$"),
    "marian": (marian, "activation_function = 'added' is not supported; only 'relu"),
    "marian-npz": (lambda directory: write_marian_npz(directory, **{"transformer-ffn-activation": "added"}),
        "transformer-ffn-activation = 'added' is not supported; only 'relu', 'swish', 'gelu'$"),
    "fairseq": (fairseq, "activation_fn = 'added' is not supported; only 'relu"),
    "joeynmt": (joeynmt, "model.decoder.layer_norm = 'added' is not supported; only 'pre"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_no_reader_takes_an_unknown_value_for_another_one(name: str, tmp_path: Path) -> None:
    write, message = READ[name]
    write(tmp_path)
    with pytest.raises((ConversionError, CorruptFileError), match=message) as caught:
        read_parts(tmp_path)
    assert str(tmp_path) in str(caught.value)
