"""Directories of runs with known figures, as training writes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ODD = "<script>alert(1)</script> </script> <!-- \u2028 שלום 🙂 $title __proto__"
TEXT = [("one two", "eins zwei"), ("three", "drei"), (ODD, ODD), ("five six", "fünf sechs")]
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def training_line(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "training",
        "time": 1.7e9 + step,
        "peak_memory": 5 * 10**8 + step,
        "step": step,
        "epoch": step // 20,
        "loss": 10 / step,
        "learning_rate": step / 1_000,
        "gradient_norm": 1 + step / 7,
        "target_tokens_per_second": 4_000.0 + step,
        "seconds": step / 4,
        "flops": step * 10**12,
    } | changes


def validation_line(step: int, translations: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    pairs = zip(TEXT, translations, strict=False)
    return {
        "kind": "validation",
        "time": 1.7e9 + step,
        "step": step,
        "loss": 8 / step,
        "perplexity": 3.25,
        "bleu": step + 0.5,
        "signature": SIGNATURE,
        "best": True,
        "seconds": 0.5,
        "samples": [{"source": s, "reference": r, "translation": t} for (s, r), t in pairs],
    } | changes


LOG = [
    training_line(10), training_line(20), validation_line(20, ["eins eins", "drei"]), training_line(30),
    training_line(40), validation_line(40, ["eins zwei", "drei"]),
]  # fmt: skip


def write_logged_run(
    directory: Path, log: Sequence[dict[str, Any]] = LOG, *, data: dict[str, Any] | None = None, **settings: Any
) -> Path:
    """Write the settings and the log of a run that is not finished."""
    directory.mkdir(parents=True)
    training = {"max_updates": 40, "seed": 1} | settings
    run_settings = {"model": {"d_model": 8}, "data": data or {}, "training": training}
    (directory / "run.json").write_text(json.dumps(run_settings))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    return directory


def finish(directory: Path, translations: Sequence[str], **changes: Any) -> Path:
    """Write the results and the translations of TEXT by the final model."""
    scores = {"bleu": 62.25, "detail": "detail", "signature": SIGNATURE, "perplexity": 3.0}
    results = {
        "code": "0123456789", "configuration": "abcdefabcd", "updates": 40, "training_seconds": 10.0,
        "parameters": 1_234, "weights": "average of the last 2 checkpoints", "flops": 4 * 10**13,
        "flops_by_time": 5e13, "validation": scores,
        "data": {"train_pairs": 5_678, "validation_pairs": 4, "dropped": {"too long": 7}, "source_words": 40},
    } | changes  # fmt: skip
    (directory / "results.json").write_text(json.dumps(results))
    lines = [
        {"split": "validation", "source": source, "reference": reference, "translation": translation}
        for (source, reference), translation in zip(TEXT, translations, strict=True)
    ]
    (directory / "translations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory
