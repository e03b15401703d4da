"""The program of the page that computes, run by Node: its pieces, translations and numbers."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from waiting import TIME_LIMIT

from autograd.packed_weight import PackedDtype, nearest_bfloat16, quantised
from minitransformer import Translator
from minitransformer.extras.report.live import model_data
from minitransformer.inference.search import SearchConfig

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node here (Debian: apt install nodejs)")

PROGRAM = """
const document = {getElementById: () => ({textContent: require("fs").readFileSync(0, "utf-8")})};
SCRIPTS
const model = new Model(data.model), source = new Tokenizer(data.model.source);
const target = data.model.target ? new Tokenizer(data.model.target) : source;
for (const name of data.off) model.off.add(name);
const finite = (row) => [...row].map((x) => Number.isFinite(x) ? x : null);
const found = data.lines.map((line) => {
  const begin = performance.now(), pieces = source.encode(line);
  const ids = pieces.map(({id}) => id).slice(0, data.model.longest);
  const {translations, steps} = translate(model, target, ids, data.settings, data.nBest);
  const ms = performance.now() - begin;
  const {rows, logits} = data.numbers ? recordNumbers(model, ids, translations[0].ids) : {};
  return {
    ms, pieces: pieces.map(({piece}) => piece), ids: pieces.map(({id}) => id), target: translations[0]?.ids,
    translations: translations.map(({text, logP, score}) => ({text, logP, score})),
    fates: steps.map((step) => step.map(({fate}) => fate)), logits: logits?.map(finite),
    numbers: rows && Object.fromEntries(Object.entries(rows).map(([name, each]) => [name, each.map(finite)])),
  };
});
console.log(JSON.stringify(found));
"""


def computed(
    model: dict[str, Any],
    lines: Sequence[str],
    *,
    beam: int = 4,
    n_best: int = 4,
    alpha: float | None = None,
    temperature: float = 1,
    off: Sequence[str] = (),
    numbers: bool = False,
) -> list[dict[str, Any]]:
    """What the page's program finds for each line; ``model`` is what ``model_data`` returns."""
    folder = files("minitransformer.extras.report")
    names = ["shared/base.js", *(f"live_page/{name}.js" for name in ("tokenizer", "model", "search"))]
    program = PROGRAM.replace("SCRIPTS", "\n".join((folder / name).read_text("utf-8") for name in names))
    config = model["config"]
    settings = {
        "beam": beam, "alpha": config["alpha"] if alpha is None else alpha, "normalisation": config["normalisation"],
        "temperature": temperature,
    }  # fmt: skip
    asked = {
        "model": model, "lines": list(lines), "settings": settings, "nBest": n_best, "off": list(off),
        "numbers": numbers,
    }  # fmt: skip
    assert NODE
    ran = subprocess.run(
        [NODE, "--eval", program],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def differences(
    translator: Translator, lines: Sequence[str], weights: PackedDtype, dtype: str = "float32"
) -> tuple[int, float]:
    """Return how many lines the program translates otherwise than Python, and the greatest difference in log p.

    Both take the weights rounded to ``weights``, and the best translation of each line.  Pieces must be the same.
    Python computes in ``dtype``, the program always in float64.
    """
    model, rounding = translator.model, {"float32": lambda x: x, "bfloat16": nearest_bfloat16, "int8": nearest_int8}
    plain = type(model)(model.config, seed=None, dtype=dtype)
    plain.set_weights({name: rounding[weights](x) if x.ndim == 2 else x for name, x in model.weights().items()})
    found = computed(model_data(translator, weights), lines, n_best=1)
    assert [each["ids"] for each in found] == translator.tokenizer.encode_source(lines)
    expected = [best[0] for best in Translator(plain, translator.tokenizer).n_best(lines, SearchConfig())]
    ours = [each["translations"][0] for each in found]
    n_different = sum(one["text"] != other.text for one, other in zip(ours, expected, strict=True))
    return n_different, max(
        abs(one["logP"] - other.log_probability)
        for one, other in zip(ours, expected, strict=True)
        if one["text"] == other.text
    )


def nearest_int8(values: Any) -> Any:
    """Round each row of a matrix to 255 levels."""
    levels, scales = quantised(values)
    return (levels * scales).astype(np.float32)
