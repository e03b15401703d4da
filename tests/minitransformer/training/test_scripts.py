"""Every script from text files to translations: what a model knows by heart, it writes byte for byte."""

import dataclasses
from pathlib import Path

import pytest
from scripts import SCRIPTS

from minitransformer import RunConfig, Translator, presets, train
from minitransformer.config import DataConfig, TrainingConfig


@pytest.mark.slow
def test_translations_into_every_script_are_the_references_byte_for_byte(tmp_path: Path) -> None:
    """A source names a script and the order of the words in its target."""
    orders = {"forwards": 1, "backwards": -1}
    pairs = {
        f"{script} {order}": " ".join(line.split(" ")[::step])
        for script, line in SCRIPTS.items()
        for order, step in orders.items()
    }
    for name, lines in (("source", pairs.keys()), ("target", pairs.values())):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines) * 10, encoding="utf-8")
        (tmp_path / f"held-out.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    held_out = {"validation_source": ("held-out.source",), "validation_target": ("held-out.target",)}
    text = {"train_source": ("source",), "train_target": ("target",), **held_out}
    data = DataConfig(raw=tmp_path, vocabulary_size=420, **text)
    model = dataclasses.replace(presets.tiny(), p_drop=0.0, label_smoothing=0.0, alpha=0.6)
    rate = {"warmup_steps": 80, "learning_rate_factor": 0.3}
    training = TrainingConfig(max_updates=400, batch_tokens=1_000, schedule="linear", validate_every=400, **rate)
    train(RunConfig(tmp_path / "run", data, model, training))
    translations = Translator.load(tmp_path / "run").translate(list(pairs), beam=1)
    assert {s: t for (s, target), t in zip(pairs.items(), translations, strict=True) if t != target} == {}
