"""The programs of pages that compute, run by Node: pieces, translations and numbers of the live page."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from waiting import TIME_LIMIT

from autograd.packed_weight import PackedDtype, nearest_bfloat16, quantised
from minitransformer import Translator
from minitransformer.extras.report.attended import END_MARK, START_MARK
from minitransformer.extras.report.live import live_page, model_data
from minitransformer.extras.report.run_record import read_run
from minitransformer.extras.report.sentence_page import N_BEST
from minitransformer.inference.search import SearchConfig

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node here (Debian: apt install nodejs)")

PROGRAM = """
const model = new Model(data.model), source = new Tokenizer(data.model.source);
const target = data.model.target ? new Tokenizer(data.model.target) : source;
for (const name of data.off) model.off.add(name);
const shownToken = (id) => id === END ? data.marks[1] : shownPieces(["", target.pieces[id]])[1]; // as on the page
const found = data.lines.map((line) => {
  const begin = process.cpuUsage(), pieces = source.encode(line);
  const ids = pieces.map(({id}) => id).slice(0, data.model.longest);
  const {translations, steps} = translate(model, target, ids, data.settings);
  const {user, system} = process.cpuUsage(begin), ms = (user + system) / 1000;
  const view = data.numbers ? viewData(model, target, pieces, translations[0].ids) : null;
  const listed = ([name, {shape, values}]) => [name, {shape, values: [...values]}];
  return {
    ms, pieces: pieces.map(({piece}) => piece), ids: pieces.map(({id}) => id), target: translations[0]?.ids,
    translations: translations.map(({text, logP, score, ids}) => ({text, logP, score, ids})),
    fates: steps.map((step) => step.map(({fate}) => fate)), places: view?.places, attention: view?.attention.pieces,
    numbers: view && Object.fromEntries(Object.entries(view.arrays).map(listed)),
  };
});
console.log(JSON.stringify(found));
"""


def computed(
    model: dict[str, Any],
    lines: Sequence[str],
    *,
    beam: int = 4,
    alpha: float | None = None,
    temperature: float = 1,
    off: Sequence[str] = (),
    numbers: bool = False,
) -> list[dict[str, Any]]:
    """Return what the page's program finds for each line; ``model`` is what ``model_data`` returns."""
    config = model["config"]
    settings = {
        "beam": beam, "alpha": config["alpha"] if alpha is None else alpha, "normalisation": config["normalisation"],
        "temperature": temperature,
    }  # fmt: skip
    asked = {
        "model": model, "lines": list(lines), "settings": settings, "off": list(off),
        "numbers": numbers, "marks": [START_MARK, END_MARK], "nBest": N_BEST, "colours": [], "blocks": [],
    }  # fmt: skip
    scripts = [f"live_page/{name}.js" for name in ("tokenizer", "model", "search", "views")]
    found: list[dict[str, Any]] = in_node(scripts, PROGRAM, asked)
    return found


def in_node(scripts: Sequence[str], program: str, data: Any) -> Any:
    """Run scripts of a page on its ``data``, then a program; return the JSON that the program prints."""
    folder = files("minitransformer.extras.report")
    document = 'const document = {getElementById: () => ({textContent: require("fs").readFileSync(0, "utf-8")})};'
    code = [document, *((folder / name).read_text("utf-8") for name in ("shared/base.js", *scripts)), program]
    assert NODE
    ran = subprocess.run(
        [NODE, "--eval", "\n".join(code)],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


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
    found = computed(model_data(translator, weights), lines)
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


def main() -> None:
    """Print how the program's translations of a run's held-out sentences differ from Python's."""
    run = Path(sys.argv[1])
    translator, lines = Translator.load(run), [source for source, _ in read_run(run).pairs()[:300]]
    plain = [best[0].text for best in translator.n_best(lines, SearchConfig())]
    for weights in get_args(PackedDtype):
        found = computed(model_data(translator, weights), lines)
        changed = sum(one["translations"][0]["text"] != text for one, text in zip(found, plain, strict=True))
        size = len(live_page(translator, lines[:1], weights)) / 1e6
        print(
            f"{weights}: {size:.1f} MB; differ from Python, log p by: {differences(translator, lines, weights)}; in"
            f" float64: {differences(translator, lines, weights, 'float64')}; differ from float32: {changed};"
            f" median CPU time {np.median([one['ms'] for one in found]):.0f} ms"
        )


if __name__ == "__main__":
    main()
