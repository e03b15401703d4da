"""Every script from text files to translations: what a model knows by heart, it writes byte for byte."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from phrases import CITIES, pairs_of

from minitransformer import RunConfig, Translator, presets, train
from minitransformer.config import DataConfig, TrainingConfig


@pytest.mark.slow
def test_translations_in_eleven_languages_are_the_references_byte_for_byte(tmp_path: Path) -> None:
    pairs = [pair for language in CITIES if language != "en" for pair in pairs_of(language)]
    sources, targets = zip(*pairs, strict=True)

    def files(name: str, lines: Sequence[str]) -> tuple[str, ...]:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return (name,)

    source, target = files("source", sources), files("target", targets)
    held_out = files("held-out.source", sources[::9]), files("held-out.target", targets[::9])
    train(
        RunConfig(
            run=tmp_path / "run",
            data=DataConfig(
                raw=tmp_path,
                train_source=source,
                train_target=target,
                validation_source=held_out[0],
                validation_target=held_out[1],
                vocabulary_size=700,
            ),
            model=dataclasses.replace(presets.tiny(), p_drop=0.0, label_smoothing=0.0),
            training=TrainingConfig(
                max_updates=400,
                batch_tokens=1_000,
                warmup_steps=80,
                learning_rate_factor=0.3,
                schedule="linear",
                validate_every=400,
            ),
        )
    )
    translations = Translator.load(tmp_path / "run").translate(sources, beam=1)
    assert {s: t for s, t, u in zip(sources, translations, targets, strict=True) if t != u} == {}
