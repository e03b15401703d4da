"""Every command that README, Start and Guides show is tested: its options are read, and most commands are run.

``make test`` reads the options of all calls of our commands.  ``make test-all`` also runs the commands of each document
from top to bottom in one shell, as a user does, with a tiny model and little text in place of the user's
(``SMALLER`` is appended to the options).  ``NOT_RUN`` lists what is not run, with the reason.
"""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from number_words import NUMBERS
from small_run import SMALL_MODEL, changed, write_parallel_text
from waiting import TIME_LIMIT

from cli.completion import options_of_commands
from cli.entry import COMMANDS
from cli.options import parse_options
from cli.run_options import parse_run_options
from minitransformer.extras.files.memories import CLOSING, opening, unit_of

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md", *sorted((ROOT / "docs/start").glob("*.md")), *sorted((ROOT / "docs/guide").glob("*.md")),
    ROOT / "docs/parsing.md", ROOT / "docs/learn/class.md",
]  # fmt: skip
"""README, Start, Guides and the plan of a class: every command in them is tested."""

LAUNCHERS = ("mpirun", "srun")
SKIPPED = ""
OPERATORS = ("|", "<", ">", ">>", "&&", ";", "&", "||", "(", ")")


def steps_of(document: Path) -> list[tuple[str, str]]:
    """Return the commands and the Python programs of a document in order, as ("console" or "python", text)."""
    blocks = re.findall(
        r"^ *```(console|python)\n(.*?)^ *```", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return [(kind, text) for kind, block in blocks for text in (_commands(block) if kind == "console" else [block])]


def commands_of(document: Path) -> list[str]:
    """Return the commands of a document in order: lines after "$ ", with those that continue them."""
    return [text for kind, text in steps_of(document) if kind == "console"]


def is_definition(command: str) -> bool:
    """Return whether a command only defines a variable of the shell, for the commands after it."""
    return re.fullmatch(r'\w+="[^"]*"', command) is not None


def shown_in(document: Path) -> list[str]:
    """Return the commands of a document, and besides lines of scripts and commands within sentences and tables."""
    text = document.read_text("utf-8")
    scripts = [
        line for block in re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.M) for line in block.splitlines()
    ]
    for block in re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.M):  # command: [mpirun, -n, "16", …]
        scripts += [re.sub(r"^ *command:|[\[\],]", " ", line) for line in block.splitlines()]
    spans = re.findall(
        r"`((?:mpirun|srun|minitransformer)[^`]* --[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    )
    shown = [*commands_of(document), *scripts, *spans]
    for name, _, value in [command.partition("=") for command in shown if is_definition(command)]:
        shown = [command.replace(f"${name}", value.strip('"')) for command in shown]
    return shown


def _commands(block: str) -> Iterator[str]:
    """Yield the commands of a block; what they print is left out."""
    lines = iter(re.sub(r"^ +(?=\$ )", "", block, flags=re.MULTILINE).splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\") or not _is_complete(command):
                command += "\n" + next(lines)
            if here := re.search(r"<<'(\w+)'$", command):
                command += "".join(f"\n{each}" for each in iter(lines.__next__, here[1])) + f"\n{here[1]}"
            yield command


def _is_complete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:  # a quotation goes on
        return False
    return True


def calls_in(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the calls of our commands in a line of the shell: the name, and the arguments without redirections."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="|<>&;()")
    lexer.whitespace_split = True
    simple: list[str] = []
    for word in [*lexer, ";"]:
        if word not in OPERATORS:
            simple.append(word)
            continue
        while simple and (simple[0] in LAUNCHERS or simple[0].startswith("-") or simple[0].isdigit()):
            simple = simple[1:]  # mpirun -n 2
        if simple[:1] == ["minitransformer"] and simple[1:2] and simple[1] in COMMANDS:
            simple = [f"minitransformer-{simple[1]}", *simple[2:]]
        name = simple[0].removeprefix("minitransformer-") if simple else ""
        if name in COMMANDS and name != simple[0]:
            yield name, [each for each in simple[1:] if not re.fullmatch(r"…|--\w+\.", each)]
        simple = [SKIPPED] if word in ("<", ">", ">>") else []


NOT_RUN = {
    r"^git clone|^cd ": "needs the repository's address",
    r"^make ": "installs packages; that the target exists is tested below",
    r"^wsl|^sudo apt": "changes the system",
    r"^pip (install|wheel)|^python3 -m venv|^source ": "changes the environment; test_documents tests the extras",
    r"--download": "needs a network",
    r"--device cuda": "needs a GPU",
    r"--training.noise": "needs text with capitals, tested in tests/cli/test_noise_options.py",
    r"^mpirun": "several processes are tested in tests/parallel",
    r"^rclone|--callback copies": "needs rclone and a bucket; the callback is tested in tests/test_copied_files.py",
    r"^podman": "needs a network; the image is tested in tests/test_copied_files.py",
    r"^curl|^minitransformer-serve": "a server, tested in tests/cli/test_serve_command.py",
    r"opus|models/en-de|fairseq-model|joeynmt-model": "needs models of others",
    r"multi30k": "needs Multi30k, or a model of it",
    r"import (torch|yaml|ctranslate2)|onnxruntime": "needs other programs, tested in tests/oracles",
    r"fine_tuning\(run\)": "trains for minutes, tested in tests/minitransformer/training/test_pretrained.py",
    r"models/onnx|models/certified": "needs onnxruntime, tested in tests/oracles/test_onnx.py",
    r"argostranslate|^marian-decoder": "needs other programs; of these only argostranslate is tested in tests/oracles",
    r"^python docs/learn/exercises": "needs the files of a clone, tested in tests/test_exercises.py",
    r"MarianMTModel": "needs transformers, tested in tests/oracles/test_marian_directory.py",
    r"parsing-craft|--treebank|score trees": "needs a treebank, tested in tests/cli/test_parse_command.py",
    r"^minitransformer-translate(\s+#|$)": "reads from the keyboard",
    r"…$": "is not complete; the options that it shows are read",
    r"^xdg-open|tensorboard --logdir": "opens a window",
    r"train\(config": "is a part of a program",
    r"--print-completion": "writes into the home directory, tested in tests/cli/test_one_name.py",
}
"""Commands that are not run, by a pattern, and why."""

TINY = """--training.max-updates 2 --training.batch-tokens 200 --training.n-micro-batches 1 --training.warmup-steps 2
    --training.validate-every 2 --training.checkpoint-every 1 --model.n-layers 1 --model.d-model 16 --model.d-ff 16
    --model.n-heads 2 --model.d-k 8 --model.d-v 8 --model.alpha 0.6"""
VOCABULARY = ["--data.vocabulary-size", "40"]
TEXT = SMALL_MODEL.partition("--model")[0].split()
SMALLER = {"train": [*TINY.split(), *VOCABULARY], "doctor": [*TINY.split(), *VOCABULARY], "prepare": VOCABULARY}
"""Options that replace those of a document, by command, as far as they fit (``appended`` in SHIM)."""

OPTIONS = options_of_commands()
CALLS = [
    pytest.param(name, arguments, id=f"{document.relative_to(ROOT)}: {name} {' '.join(arguments)}"[:90])
    for document in DOCUMENTS
    for command in shown_in(document)
    for name, arguments in calls_in(command)
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_the_options_of_every_command_exist(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if "--help" in arguments:
        return
    if name not in OPTIONS:  # the first argument is the kind
        name, arguments = f"{name} {arguments[0]}", arguments[1:]
    read = parse_run_options if "--config" in arguments else parse_options  # the file is valid, too
    read(OPTIONS[name], "", arguments)


def test_commands_are_found_as_a_shell_reads_them() -> None:
    line = 'echo "a | b" | mpirun -n 2 minitransformer-translate --beam 2 < in > out && minitransformer score bleu x y'
    assert list(calls_in(line)) == [("translate", ["--beam", "2"]), ("score", ["bleu", "x", "y"])]
    assert len(CALLS) > 50


def test_make_has_the_targets_that_documents_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {word for path in DOCUMENTS for line in commands_of(path) for word in re.findall(r"^make ([a-z-]+)", line)}
    assert named >= {"demo"}
    assert named <= targets


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_without_a_target_lists_all_of_them() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (targets,) = re.findall(r"^\.PHONY: help (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert sorted(re.findall(r"^make ([a-z-]+) ", shown, re.MULTILINE)) == sorted(targets.split())


SHIM = """#!{python}
from __future__ import annotations
import shutil, sys
{changed}
sys.path.insert(0, {root!r})
words = sys.argv[1:]
if {name!r} == "minitransformer":
    name, *words = words or ["--help"]
else:
    name = {name!r}.removeprefix("minitransformer-")
appended = {smaller!r}.get(name, [])
if {{"--help", "--verify-resume"}} & set(words):
    appended = []
if "--init-from" in words:  # sizes are the other model's
    pairs = zip(appended[::2], appended[1::2])
    appended = [each for pair in pairs if pair[0].startswith("--training") for each in pair]
if "--data.vocabulary-size 500 " in " ".join(words):  # small already
    appended = [each for each in appended if each not in {vocabulary!r}]
if appended and "--data.train-source" not in words:  # for the demonstration
    words = changed(words, *{text!r})
words = changed(words, *appended)
if "--diversify" in words:
    words = changed(words, "--diversify", "2", "--training.warmup-steps", "1")
if name == "train":  # anew, whatever an earlier line left there
    shutil.rmtree(words[words.index("--run") + 1] if "--run" in words else "runs/demo", ignore_errors=True)
sys.argv = ["minitransformer", name, *words]
import cli.entry
sys.exit(cli.entry.main())
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with commands that train tiny models, the text that documents name, and runs of that text."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "bin").mkdir()
    for name in ["minitransformer", *(f"minitransformer-{name}" for name in COMMANDS)]:
        shim = folder / "bin" / name
        text = SHIM.format(
            python=sys.executable, root=str(ROOT), name=name, smaller=SMALLER, vocabulary=VOCABULARY, text=TEXT,
            changed=inspect.getsource(changed),
        )  # fmt: skip
        shim.write_text(text, encoding="utf-8")
        shim.chmod(0o755)
    for name in ("train", "valid", "test", "news", "web", "captions", "book", "val", "text", "mono"):
        write_parallel_text(folder, name, 300, seed=len(name))
    write_parallel_text(folder, "all", 3_000, seed=1)  # a document takes 1,000 lines of it for testing
    (folder / "book.de").unlink()  # a document writes it
    shell(folder, "gzip --keep web.*")
    for name in ("old", "new", "other"):
        shutil.copy(folder / "test.de", folder / f"{name}.de")
    pairs = [(f"{one} {other}", f"{NUMBERS[one]} {NUMBERS[other]}") for one in NUMBERS for other in NUMBERS]
    units = b"".join(unit_of(("en", "fr"), pair) for pair in pairs)
    (folder / "memory.tmx").write_bytes(opening("en") + units + CLOSING)
    shutil.copy(folder / "web.de", folder / "web.fr")
    (folder / "messages.po").write_text('msgid "one"\nmsgstr ""\n')
    unit = '<trans-unit id="1"><source>one <g id="1">two</g></source></trans-unit>'
    (folder / "site.xlf").write_text(f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>')
    (folder / "en.json").write_text('{"one": "one"}')
    (folder / "values").mkdir()
    (folder / "values/strings.xml").write_text('<resources><string name="one">one</string></resources>')
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    entry = "import sys; sys.argv[0] = 'train'; import cli.entry; sys.exit(cli.entry.train())"
    shell(
        folder, f'PYTHONPATH="{ROOT}" "{sys.executable}" -c "{entry}" --run runs/mine {" ".join(SMALL_MODEL.split())}'
    )
    for name in ("demo", "news", "other"):
        shutil.copytree(folder / "runs/mine", folder / "runs" / name)
    return folder


def shell(folder: Path, command: str) -> None:
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    words = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout[-1_000:]}\n{done.stderr[-2_000:]}"


def is_run(text: str) -> bool:
    return not any(re.search(pattern, text, re.MULTILINE) for pattern in NOT_RUN)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_run_from_top_to_bottom(document: Path, trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    shutil.copytree(trained, folder, symlinks=True)
    defined = ""
    for kind, text in steps_of(document):
        if not is_run(text):
            continue
        if is_definition(text):
            defined += f"{text}\n"
            continue
        if kind == "python":
            (folder / "example.py").write_text(text, encoding="utf-8")
        shell(folder, defined + text if kind == "console" else f'PYTHONPATH="{ROOT}" python example.py')


def test_nothing_is_left_out_without_need() -> None:
    """Every pattern of NOT_RUN is used."""
    commands = [text for document in DOCUMENTS for _, text in steps_of(document)]
    unused = [pattern for pattern in NOT_RUN if not any(re.search(pattern, command) for command in commands)]
    assert unused == []
    assert sum(map(is_run, commands)) > 20
