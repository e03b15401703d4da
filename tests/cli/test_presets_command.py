"""The table of presets: sizes as the paper prints them, parameters counted by hand."""

import pytest

from cli.presets import list_presets
from minitransformer.config import ConfigError, presets

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


def test_a_vocabulary_without_room_for_a_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="--vocabulary-size must be more than 2, .*; got 2"):
        list_presets(["--vocabulary-size", "2"])
