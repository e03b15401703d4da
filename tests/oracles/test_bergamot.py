"""Bergamot beside ourselves: Marian's own code, compiled for browsers, translates with the files that we write."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from number_words import sentences, trained_parts
from waiting import TIME_LIMIT

from minitransformer import Transformer, Translator
from minitransformer.extras.convert.formats import output_directory
from minitransformer.extras.paper.compatibility import CONVENTIONS
from minitransformer.inference.search import SearchConfig

WORKER = Path(os.environ.get("NODE_PATH", "")) / "@browsermt/bergamot-translator/worker"
PROGRAM = """
const {Worker} = require("node:worker_threads"), {readFileSync} = require("node:fs");
const worker = new Worker("./worker/translator-worker.js"), content = name => new Uint8Array(readFileSync(name)).buffer;
let last = 0;
const call = (name, ...args) => new Promise((resolve, reject) => {
    worker.once("message", ({result, error}) => error ? reject(error) : resolve(result));
    worker.postMessage({id: ++last, name, args});
});
(async () => {
    const pair = {from: "en", to: "de"}, config = {"beam-size": "1", "gemm-precision": "float32"};
    const files = {model: content("model/model.bin"), vocabs: [content("model/vocab.spm")]};
    await call("initialize", {});
    await call("loadTranslationModel", pair, {...files, shortlist: new ArrayBuffer(0), config});
    const texts = readFileSync(0, "utf8").trim().split("\\n").map(text => ({text, html: false, qualityScores: false}));
    for (const {target} of await call("translate", {models: [pair], texts})) console.log(target.text);
    worker.terminate();
})().catch(error => { console.error(error); process.exit(1); });
"""


@pytest.mark.skipif(
    not (shutil.which("node") and WORKER.is_dir()),
    reason="npm install @browsermt/bergamot-translator, and set NODE_PATH to node_modules",
)
def test_bergamot_translates_as_we_do(tmp_path: Path) -> None:
    parts, lines = trained_parts(**CONVENTIONS["marian"]), sentences(50, seed=2)
    with output_directory(parts, tmp_path / "model", "bergamot", "float32"):
        pass
    shutil.copytree(WORKER, tmp_path / "worker")
    (tmp_path / "package.json").write_text('{"type": "commonjs"}')  # the package's own file says "module"
    done = subprocess.run(
        ["node", "-e", PROGRAM], input="\n".join(lines), cwd=tmp_path, text=True, capture_output=True,
        timeout=TIME_LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    model = Transformer(parts.config, seed=None)
    model.set_weights(parts.weights)
    ours = Translator(model, parts.tokenizer).n_best(lines, SearchConfig(beam=1))
    assert done.stdout.splitlines() == [best.text for best, *_ in ours]
