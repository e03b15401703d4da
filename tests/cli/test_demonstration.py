"""The demonstration, trained as a user trains it: it answers what README shows, and reaches its score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from readme import demonstrated
from small_run import output_of

from cli.train import train
from minitransformer import Translator
from minitransformer.demo import SHOWCASE


@pytest.mark.slow
def test_the_trained_demonstration_answers_what_readme_shows(tmp_path: Path) -> None:
    run = tmp_path / "demo"
    output_of(lambda: train(["--run", str(run)]))
    english, german = zip(*demonstrated(), strict=True)
    translator = Translator.load(run)
    assert translator.translate(english, beam=4) == list(german)
    bare = [pair for pair in SHOWCASE if not pair[0].endswith("?")]
    assert translator.translate([source for source, _ in bare], beam=4) == [target for _, target in bare]
    assert json.loads((run / "results.json").read_text())["test"]["bleu"] >= 95
