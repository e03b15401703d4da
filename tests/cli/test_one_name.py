"""The commands: their names, help, completion, what they import, and what they set before."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from small_run import Command, plain
from waiting import TIME_LIMIT

from cli import entry
from cli.completion import options_of_commands
from cli.options import options_in
from cli.processor import name_processor_to_openblas

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_commands_are_those_that_have_a_hyphen() -> None:
    hyphenated = {f"minitransformer-{name}": f"cli.entry:{name}" for name in entry.COMMANDS}
    assert PROJECT["scripts"] == {"minitransformer": "cli.entry:main"} | hyphenated


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_alone_it_lists_the_commands(words: list[str], command: Command) -> None:
    status, output, _ = command("entry", *words)
    lines = output.splitlines()
    assert (status, max(map(len, lines)) <= 80) == (0, True)
    for name in entry.COMMANDS:
        assert [line for line in lines if re.match(rf"  {name} +\w{{3,}}", line)], name


@pytest.mark.parametrize("name", entry.COMMANDS)
def test_a_command_starts_by_the_first_word_or_its_entry_point(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(import_module(f"cli.{name}"), "main", lambda: started.append(list(sys.argv)) or 7)
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/minitransformer", name, "--run", "x"])
    assert entry.main() == getattr(entry, name)() == 7
    assert started[0] == [f"minitransformer {name}", "--run", "x"]


def test_version_has_project_and_commit(command: Command) -> None:
    status, output, _ = command("entry", "--version")
    assert status == 0
    assert re.fullmatch(rf"minitransformer {re.escape(PROJECT['version'])}, code \S+\n", output)


def test_help_and_errors_name_the_command_as_it_was_typed(command: Command) -> None:
    assert "usage: minitransformer average [OPTIONS]" in command("entry", "average", "--help").output
    assert "(see minitransformer average --help)" in command("entry", "average", "--lsat", "3").refusal


LINES = {
    "minitransformer tr": "train translate",
    "minitransformer train --training.max-u": "--training.max-updates",
    "minitransformer score tune": "tune-length",
    "minitransformer score pairs --de": "--debug",
    "minitransformer report attention --tar": "--target",
    "minitransformer train --data.filter mo": "mojibake",
    "minitransformer-train --training.max-u": "--training.max-updates",
    "minitransformer-train --preset ti": "tiny",
    "minitransformer-score tune": "tune-length",
}
"""The beginnings of lines, and the words that may complete them."""
COMPLETE = {
    "bash": """
COMP_WORDS=({line})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p {program} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
echo "${{COMPREPLY[*]}}"
""",
    "fish": """
echo (complete -C '{line}')
""",
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_shells_complete_words(shell: str, command: Command) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = command("entry", "--print-completion", shell).output
    script += "".join(COMPLETE[shell].format(line=line, program=line.split()[0]) for line in LINES)
    done = subprocess.run([shell], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(LINES.values())


def test_bash_completes_file_after_options(command: Command) -> None:
    """No word of ours is offered, and the script asks bash for names of files then."""
    script = command("entry", "--print-completion", "bash").output
    assert "complete -o default -F _minitransformer minitransformer minitransformer-train " in script
    script += COMPLETE["bash"].format(line="minitransformer train --config ''", program="minitransformer")
    assert subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout == "\n"


ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; source {script}; echo RE""ADY'
zpty -r shell output '*READY*'
zpty -n -w shell $'minitransformer train --training.max-u\t'
zpty -r shell output '*--training.max-updates*'
print completed
zpty -d shell
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_options(command: Command, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(command("entry", "--print-completion", "zsh").output)
    code = ZSH.format(script=tmp_path / "script")
    done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "completed\n"


COMMANDS = options_of_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_all_options_fits_the_terminal_breaks_no_word(
    name: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of values are broken after a comma, so blanks after commas do not count."""
    texts = {}
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        status, shown, _ = command(*name.split(), "--help")
        assert (status, [line for line in shown.splitlines() if len(line) > width]) == (0, [])
        texts[width] = plain(shown)
    assert texts[80].replace(", ", ",") == texts[100].replace(", ", ",")
    known = [", ".join(option.names) or option.path.upper() for option in options_in(COMMANDS[name])]
    for option in [*known, "--debug"]:
        explained = re.search(rf" {option} (?!--|\|)(.*?)\((?:default|required)", texts[100])
        assert explained, option
        assert re.search(r" [A-Za-z]{2,}", explained[1]), option
    head = texts[100][: texts[100].index(" --")]
    assert re.search(rf"usage: {name} .*\] ([A-Z][\w-]* )*[A-Z][\w ,;:()`'-]{{15,}}", head), head


@pytest.mark.parametrize(
    ("name", "in_order"),
    [
        ("train", ["--run", "--preset", "--config", "--device", "--compat", "--verify-resume", "--debug"]),
        ("train", ["data", "--data.train-source", "--data.vocabulary-size", "--data.raw", "--data.directory"]),
        ("train", ["training", "--training.max-updates", "--training.precision", "--training.beta1"]),
        ("train", ["data", "training", "model", "--model.n-layers", "--model.vocabulary-size"]),
        ("translate", ["--run", "--input", "--output", "--beam", "--kernels", "--debug"]),
    ],
)
def test_the_options_that_are_used_most_come_first(name: str, in_order: list[str], command: Command) -> None:
    heads = [re.split("[ ,]", line.strip())[0] for line in command(name, "--help").output.splitlines()]
    places = [heads.index(option) for option in in_order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("score bleu", ["[OPTIONS] HYPOTHESIS [REFERENCES ...]", "aligned line by line. (required)"]),
        ("train", ["Held-out text, target side. (default: none)", "{tiny, small, base, "]),
        ("translate", ["--skip [{sentences,codes,unknown,capitals,loops} ...]"]),
        ("convert", ["--storage {float32,float16,int8}"]),
        ("score", ["tune-length Translate held-out text"]),
    ],
)
def test_help_tells_what_is_required_the_values_of_a_choice_and_the_kinds(
    name: str, texts: list[str], command: Command
) -> None:
    shown = plain(command(*name.split(), "--help").output)
    assert [text for text in texts if text not in shown] == []
    assert "``" not in shown


ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = {
    "--mpi", "--shm-size", "--short", "--porcelain", "--untracked-files", "--international-tokenization", "--task",
    "--help", "--debug", "--version", "--print-completion",
}  # fmt: skip


def options_in_texts_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[a-z][a-z0-9-]*)*", node.value)


def test_every_option_that_is_spoken_of_exists() -> None:
    known = {name for options in COMMANDS.values() for option in options_in(options) for name in option.names}
    paths = [path for package in ("parallel", "minitransformer", "cli") for path in (ROOT / package).rglob("*.py")]
    spoken_of = {option: path.name for path in paths for option in options_in_texts_of(path)}
    assert {o: name for o, name in spoken_of.items() if o not in known | OF_OTHERS} == {}


def test_no_line_of_an_options_help_begins_with_a_sign() -> None:
    """Such a line would stand apart, as if another paragraph began."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "cli").glob("*.py")]
    for options in [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]:
        helps = [each.value.value for each in options.body if isinstance(each, ast.Expr)]  # type: ignore[attr-defined]
        if options.name.endswith("Options"):
            lines = [line.strip() for text in helps[1:] for line in text.splitlines()[1:]]
            assert [line for line in lines if not line[0].isalpha()] == [], options.name


UNNEEDED = {"minitransformer.training", "minitransformer.extras.demo", "sacrebleu", "mpi4py.MPI", "pooch", "rich"}


def loaded_by(module: str) -> list[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_translating_loads_nothing_of_training() -> None:
    loaded = loaded_by("cli.translate")
    assert "cli.translate" in loaded
    assert not UNNEEDED & set(loaded)


def test_the_entry_points_import_no_command_before_they_start_one() -> None:
    ours = ("numpy", "minitransformer", "autograd", "parallel", "cli.")
    assert [name for name in loaded_by("cli.entry") if name.startswith(ours)] == ["cli.processor", "cli.entry"]


INTERRUPTED_IMPORT = """
import signal, types, cli.entry

def import_module(name):  # as a module written in C may do
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("initialization failed")
    return types.SimpleNamespace(main=lambda: 0)

cli.entry.import_module = import_module
raise SystemExit(cli.entry.score())
"""


@pytest.mark.parametrize(
    ("before", "status", "error"),
    [("", 130, "interrupted\n"), ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)", 0, "")],
    ids=["Ctrl-C", "ignored by the shell"],
)
def test_an_interrupt_of_a_commands_imports_is_one_line_and_status_130(before: str, status: int, error: str) -> None:
    code = [sys.executable, "-c", before + INTERRUPTED_IMPORT]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, error)


ZEN_5 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
flags\t\t: fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl
"""


@pytest.mark.parametrize(
    ("text", "set_to", "expected"),
    [
        (ZEN_5, {}, {"OPENBLAS_CORETYPE": "SkylakeX"}),
        (ZEN_5, {"OPENBLAS_CORETYPE": "Haswell"}, {"OPENBLAS_CORETYPE": "Haswell"}),
        (ZEN_5.replace("avx512vl", ""), {}, {}),
        (ZEN_5.replace("26", "25"), {}, {}),
        (ZEN_5.replace("AuthenticAMD", "GenuineIntel"), {}, {}),
        (None, {}, {}),
    ],
)
def test_only_zen_5_with_avx512_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, set_to: dict[str, str], expected: dict[str, str]
) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr("cli.processor.CPU_INFO", tmp_path / "cpuinfo")
    environment = dict(set_to)
    name_processor_to_openblas(environment)
    assert environment == expected


def test_a_command_names_it_before_numpy_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import io, os, pathlib, sys
pathlib.Path.open = lambda *_, **__: io.StringIO(sys.argv[1])
import cli
print(os.environ["OPENBLAS_CORETYPE"], "numpy" in sys.modules)
"""
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    command = [sys.executable, "-c", program, ZEN_5]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=True)
    assert done.stdout == "SkylakeX False\n"
