"""The commands refuse wrong options and files in one line, before they compute, print or write anything."""

import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from small_run import Command, Trained, contents

from cli.score import KINDS

TREE = "(S (NN a))\n"
FILES = {
    "empty": "", "nothing": "", "one": "a b\n", "eins": "a b\n", "two": "a b\n" * 2, "three": "a b\n" * 3,
    "p.tsv": "one\teins\n", "tree": TREE, "trees": 2 * TREE, "open.tree": "(S (NN a)\n",
    "old/model": "", "onnx/encoder.onnx": "", "mine/notes": "mine",
}  # fmt: skip
ORIGINS = ("example.org", "https://example.org/", "https://Example.org", "https://example.org:443", "https://*")
ORIGIN = r'--allow-origin must be "\*", moz-extension://\*, or scheme://host'
CODE = """must be a code such as "en" or "pt-BR"; got 'english'"""

REFUSED = {  # RUN is a trained run
    # a run that is missing
    "translate --run nowhere": "^error: nowhere: ",
    "parse --run nowhere": "^error: nowhere: ",
    "score pairs one eins --run nowhere": "^error: nowhere: ",
    "serve --run nowhere": "^error: nowhere: there is no model here",
    "average --run nowhere --last 1": "^error: nowhere: no such directory; give the directory of a training run",
    "average --run old --last 1": "^error: old: has no checkpoints; give the directory of a training run",
    **{f"average --run RUN --last {n}": f"has 3 checkpoints; cannot average the last {n}" for n in (0, 4, -1)},
    # words out of place
    "entry trian": r"^error: unknown command 'trian'; did you mean 'train'\?\n",
    "entry --train": r"^error: unknown command '--train'; did you mean 'train'\?\n",
    "entry xyz": "^error: unknown command 'xyz'; known here: train, translate, serve, score",
    "entry --print-completion ksh": "^error: --print-completion: name the shell after it: bash, zsh, fish\n",
    "entry --print-completion": "^error: --print-completion: name the shell after it: bash, zsh, fish\n",
    "translate --run runs/a runs/b": 'runs/b: .*"< runs/b" or "--input runs/b"; for one more model, "--run runs/b"',
    "train --training.seed 1 a.en": 'a.en: it follows no option; to .*"--config a.en"',
    "parse --beam 1 a.en": 'a.en: it follows no option; to .*"< a.en"; .* "--treebank a.en"',
    "average runs/x": 'runs/x: it follows no option; to average a run, give "--run runs/x"',
    "serve nowhere": 'nowhere: it follows no option; .* give "--run nowhere"',
    "score a b": "unknown word 'a'; known here: bleu, audit, .* give \"bleu\" before the files",
    "score pair a b": r"unknown word 'pair'; did you mean 'pairs'\?",
    "report hello": 'give "attention" before it',
    "reproduce table2": r"unknown word 'table2'; did you mean 'table[13]'\?",
    # options and values
    "translate --beem 1": r"unknown option --beem; did you mean --beam\? \(see translate --help\)",
    "train --seed 1": r"unknown option --seed; did you mean --training.seed\?",
    "train --model.attention-bais": r"did you mean --model.attention-bias\?",
    "train --xyz=1": "unknown option --xyz",
    "score": f"^error: name the kind first: {', '.join(KINDS)} ",
    "score --lowercase bleu a b": f"^error: name the kind first: {', '.join(KINDS)} ",
    "score pairs a b c": r"unexpected value 'c' \(see score pairs --help\)",
    "train --preset huge": "argument --preset: unknown value 'huge'; known here: tiny, small, base, big, ",
    "train --preset smal": r"argument --preset: unknown value 'smal'; did you mean 'small'\?",
    "train --compat x": "argument --compat: unknown value 'x'; known here: paper, tensor2tensor, fairseq, marian",
    "train --data.tokenizer bpee": r"argument --data.tokenizer: unknown value 'bpee'; did you mean 'bpe'\?",
    **{
        f"train --{setting} nowhere:name": rf"^error: {setting}: 'nowhere:name' cannot be imported \(ModuleNotFound"
        for setting in ("model.implementation", "training.schedule", "training.optimizer", "data.tokenizer", "callback")
    },
    "train --data.tokenizer math:pi": "^error: data.tokenizer must be the name of a function; got 3.14",
    "train --training.schedule math:pi": "^error: training.schedule must be the name of a function; got 3.14",
    "train --callback math:pi --dry-run": "^error: callback must be a class derived from .*Callback; got 3.14",
    "train --config nowhere.toml": "^error: nowhere.toml: not found; expected a TOML file, such as recipes/",
    "reproduce table3 --corpus nowhere.toml": "^error: nowhere.toml: not found; expected a TOML file",
    "train --config": "argument --config: expected one argument",
    "train --preset": "argument --preset: expected one argument",
    "train --verify-resume": "argument --verify-resume: expected one argument",
    "train --training.seed one": "argument --training.seed: ",
    "train --training.n-micro-batches 3": "n_micro_batches must be a power of two, or 0; got 3",
    f"train --training.batch-tokens {10**19}": "batch_tokens must be at least 1",
    f"train --data.vocabulary-size {10**10}": "vocabulary_size must be at least 4",
    "train --model.vocabulary-size 9": "set data.vocabulary_size",
    "train --data.no-joint-vocabulary": 'set model.tied to "target" or "none"',
    "train --run new --verify-resume 1": "needs at least 2 updates; got 1",
    "train --run one/run --verify-resume 2": "^error: one: File exists; choose another path, ",
    f"translate --run {'x' * 300}": r"^error: x{300}/\S+: File name too long; choose another path, ",
    # the name of a language in place of its code
    "train --data.languages english german": f"^error: data.languages {CODE}",
    "prepare --data.languages english german": f"^error: data.languages {CODE}",
    "doctor --data.languages english german": f"^error: data.languages {CODE}",
    "translate --languages english german --input a.tmx --output b.tmx": f"^error: --languages {CODE}",
    "score bleu a b --language english": f"^error: --language {CODE}",
    "score tune-length --language english": f"^error: --language {CODE}",
    "serve --source english --target german --run RUN": f"^error: language {CODE}",
    # translate
    "translate --run absent --prefix x --prefix-text y": "--prefix: does not go with --prefix-text; give one of",
    "translate --run absent --temperature 2": "--temperature: needs --sample",
    "translate --run absent --seed 0": "--seed: needs --sample",
    "translate --run absent --sample --top-p 0": "sampling.top_p: expected",
    "translate --run absent --sample --temperature -1": "sampling.temperature",
    "translate --run absent --alignments x --prefix x": "x: is the file of prefixes, too",
    "translate --run absent --input x --alignments ./x": "--alignments x: is the input, too",
    "translate --run absent --output out": "--output: needs --input",
    "translate --run absent --input in --resume": "--resume: needs --input and --output; add what is missing, or leave",
    "translate --run absent --input in --output out.gz": "out.gz: the output is plain text; choose a name without .gz",
    "translate --run absent --n-best 5": "^error: --n-best 5 needs a beam of at least 5: give --beam 5\n",
    "translate --run absent --beam 0": "search: expected 1,000 ≥ beam",
    "translate --run absent --sample --n-best 0": "expected 1,000 ≥ beam ≥ n_best ≥ 1; got beam 1, n_best 0",
    "translate --run absent --alpha -1": "alpha",
    "translate --run absent --threads -1": "--threads must be at least 1",
    "translate --run absent --languages en de": "--languages: are those of a .tmx, .xlf or .po file; name one",
    "translate --run absent --input t --output o.tmx.gz": "the output is plain text; choose a name without .gz",
    "translate --run RUN --input absent.tmx": "absent.tmx: cannot be read after line 1: .*No such file",
    "translate --run absent --input a --output o.tmx --n-best 1": "--n-best: is for text, not for o.tmx, a translation",
    "translate --run absent --input t --output o.po": "o.po: is written only for an input of its kind",
    "translate --run absent --input a.xlf": "a.xlf: give --output FILE with the same ending",
    "translate --run absent --input a.po --output b.pot": "a.po: give --output FILE with the same ending",
    "translate --run absent --input a.po --output a.po": "a.po: is the input, too",
    "translate --run RUN --alignments absent/al": "--alignments absent/al: cannot be written .No such file",
    "translate --run RUN --input a.po --output b.po": "^error: a.po: cannot be read: ",
    "translate --run RUN --input a.pot --output b.po": "^error: a.pot: cannot be read: ",
    **{
        f"translate --run absent {step} {option}": f"{option.split('=')[0]}: does not go with {step.split('=')[0]}, bec"
        for option in ("--prefix=x", "--prefix-text=", "--alignments=x")
        for step in ("--split-sentences=en", "--terms=x", "--skip=codes")
    },
    "translate --run absent --as-is --skip codes": "--as-is: does not go with --skip, because it leaves out all",
    "translate --run absent --no-repeat -1": "expected 0 ≤ no_repeat ≤ 100; got -1",
    "translate --run absent --skip all": "--skip",
    "translate --run RUN --split-sentences xx": "language 'xx': expected a code such as",
    "translate --run RUN --terms absent.tsv": "absent.tsv",
    **{
        f"translate --run absent --input a.po --output o.po {option}=1": f"{option}: is for text, not for a.po, a docu"
        for option in ("--n-best", "--prefix", "--prefix-text", "--alignments")
    },
    # score and parse
    "score bleu empty empty": "^error: empty: is empty",
    "score audit empty empty": "^error: empty: is empty",
    "score bleu two": "name at least one file of references",
    "score bleu three three two": "^error: two: ends after line 2",
    "score bleu two two three": "^error: two: ends after line 2",
    "score pairs two one --run RUN": "^error: one: ends after line 1",
    "score compare": "expected two files of translations or more, then the references; got 0 files",
    "score compare one eins": "expected .*; got 2 files",
    "score compare three three two": "^error: two: ends after line 2, but three has 3; line n of one file",
    "score compare three two three": "^error: two: ends after line 2, but three has 3; line n of one file",
    "score compare empty empty empty": "^error: empty: is empty",
    "score compare one absent one": "^error: absent: not found",
    "score tune-length empty nothing --run RUN": "^error: empty: is empty",
    "score tune-length two one --run RUN": "^error: one: ends after line 1",
    "score tune-length one --run RUN": "expected a file of sources and one of references; got 1 files",
    "score tune-length one eins --run absent": "^error: absent: .* no model here",
    "score tune-length one eins --run RUN --alphas -1": "alpha must be at least 0 and less than 50; got -1.0",
    "score tune-length one eins --run RUN --alphas 0 50": "alpha must be at least 0 and less than 50; got 50.0",
    "score trees trees tree": "tree: has 1 trees, but .*trees has 2",
    "score trees empty empty": "^error: empty: is empty",
    "score trees tree open.tree": "open.tree, line 1: .*expected complete trees in one line",
    "parse --run absent --threads 0": "--threads must be at least 1",
    "parse --run absent --treebank t --words blanks": "--words: does not go with --treebank, because the trees",
    **{
        f"train --verify-resume 4 {option}": f"--verify-resume: does not go with {option.split()[0]}, because it is a"
        for option in ("--diversify 9", "--back-translate x", "--tensorboard", "--validation-command x")
    },
    "train --diversify 9 --back-translate x": "--diversify: does not go with --back-translate, because each makes its",
    "train --back-translate-search sampling": "--back-translate-search: needs --back-translate",
    "parse --run absent --beam 0": "search: expected 1,000 ≥ beam",
    # report and reproduce
    "report training absent": "absent: holds no training run",
    "report training": "runs/demo: holds no training run",
    "report training absent --output a.gif": "a.gif: is written as a page; expected a name that ends in .html",
    "report sentence one --output a.png --run RUN": "a.png: is written as a page; expected",
    "report learning --output a.gif": "a.gif: is written as a page; expected a name that ends in .html",
    "report live one --output a.png --run RUN": "a.png: is written as a page; expected",
    "report attention one --output a.gif --run RUN": "a.gif: is written as a page; expected a name that ends in .html",
    "report attention '' --output a.html --run RUN": "the sentence is empty",
    "report attention one --beam 0 --run RUN": "beam ≥ n_best ≥ 1",
    "report attention one --output one/a.html --run RUN": "a.html: cannot be written",
    "reproduce table1 --output one/new": "table1.json: cannot be written ",
    "presets --vocabulary-size 2": "--vocabulary-size must be more than 2, .*; got 2",
    "reproduce table1 --repeats 0": "--repeats must be at least 1, got 0",
    # serve
    "serve --port 70000": "--port must be between 0 and 65535",
    "serve --proxy '*'": r"--proxy must be an IP address or a network; got \*",
    "serve --longest-text 0": "--longest-text must be between 1 and 1,000,000",
    "serve --tokens-waiting 19999": "--tokens-waiting must be between 20,000 and 1,000,000,000",
    "serve --run RUN --run en-de=RUN": "^error: --run: .* and .* both translate English to German; give one of them",
    "serve --run de-en=RUN --source de": "^error: --source and --target go with one --run PATH; .* --run en-de=PATH",
    "serve --run english-german=RUN": f"^error: language {CODE}",
    "serve --run de-en=nowhere": "^error: nowhere: there is no model here",
    "serve --beam 0": "beam ≥ n_best",
    **{f"serve --allow-origin '*' {origin}": ORIGIN for origin in ORIGINS},
    # convert
    "convert old --output new": "^error: old: no known format; .*minitransformer: model.json and model.safetensors",
    "convert onnx --output new": "onnx is written, not read; give the model from which",
    "convert RUN/model.safetensors --output new": "model.safetensors: is a file; give the directory of a",
    "convert RUN --output mine": "^error: mine: exists and is not an empty directory; choose another",
    "convert RUN --output mine/notes/new": r"new: cannot be written \(.*\); .* choose another directory\n",
    "convert nowhere --output new": "^error: nowhere: not found; ",
    "convert nowhere --output new --storage int8": r"no int8 weights; possible: .* \(float32\)",
    "convert RUN --output new --licence CC0": "--licence: .* records no licence; use --to bundle",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_it_is_refused_in_one_line_and_nothing_is_printed_or_written(
    words: str, trained: Trained, command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    before = contents(here)
    ended = command(*shlex.split(words.replace("RUN", str(trained.run))))
    assert re.search(REFUSED[words], ended.refusal)
    assert ended.status == (2 if re.search(r" --help\)$|unknown command", ended.refusal) else 1)
    assert (ended.output, contents(here)) == ("", before)
