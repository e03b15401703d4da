"""Entry points of the commands; each imports its command only when started, so that Ctrl-C can end the import."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version

INTERRUPTED = 130  # the exit status after Ctrl-C, as in shells

COMMANDS = {
    "train": "train a model: the demonstration's, or one of your own text",
    "translate": "translate lines of text with a trained model",
    "serve": "serve a page to translate on, and an API for programs",
    "score": "score translations (BLEU, chrF), sentence pairs, or parsed trees",
    "prepare": "convert raw text to subword tokens, before the training",
    "presets": "list the models that --preset names, with their sizes",
    "doctor": "examine this machine, and what a training needs of it",
    "report": "show a training, or a model's attention, as a page",
    "average": "average the last checkpoints of a run into one model",
    "convert": "read a model of another program, or write one for it",
    "parse": "parse sentences into constituency trees",
    "reproduce": "measure the tables of the paper",
}
"""The commands, in the order of the help: each is the module ``cli.NAME``."""


def main() -> int:
    """Start the command that the first argument names; without arguments, list the commands."""
    name, *others = sys.argv[1:] or ["--help"]
    if name in COMMANDS:
        sys.argv = [f"minitransformer {name}", *others]
        return start(name)
    if name in ("-h", "--help"):
        print(usage())
    elif name == "--version":
        commit = import_module("minitransformer.system.provenance").code_version()
        print(f"minitransformer {version('minitransformer')}, code {commit}")
    elif name == "--print-completion":
        sys.argv = [f"minitransformer {name}", *others]
        return start("completion")
    else:
        hint = import_module("minitransformer.config.checks").suggestion(name, list(COMMANDS))
        print(f"error: unknown command {name!r}; {hint}", file=sys.stderr)
        return 2
    return 0


def usage() -> str:
    """Return the help text of ``minitransformer``, which lists the commands."""
    lines = [f"  {name:10} {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "usage: minitransformer COMMAND [OPTIONS]",
            "",
            'The Transformer of "Attention Is All You Need", from scratch.',
            "",
            *lines,
            "",
            "  --version                   show the version",
            "  --print-completion SHELL    print a script that completes commands and options",
            "                              in bash, zsh or fish",
            "",
            "minitransformer COMMAND --help shows the options of a command; add --debug to",
            "see where an error arose. minitransformer-COMMAND is the same command.",
        ]
    )


def start(name: str) -> int:
    """Import the command ``name`` and run it; return its status.

    During the import, Ctrl-C ends the process at once: C modules would turn KeyboardInterrupt into other errors.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False if the shell ignores Ctrl-C
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    try:
        import_module("minitransformer")  # first, because it checks that the other packages are ours
        run = import_module(f"{__package__}.{name}").main
    except Exception as error:  # a package that is incomplete, or of another Python, may raise any error
        if "--debug" in sys.argv:
            raise
        print(f"error: {_fault(error)}", file=sys.stderr)
        return 1
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = int(run())
    if status == INTERRUPTED and import_module("minitransformer.system.threads").is_still_computing():
        os._exit(status)  # a normal exit would wait until the library has computed its result
    return status


def __getattr__(name: str) -> Callable[[], int]:
    """Return the entry point of a command: the scripts in pyproject.toml start ``cli.entry:NAME``."""
    if name not in COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(start, name)


def _fault(error: BaseException) -> str:
    """Return why the packages cannot be imported, with the remedy, in one line."""
    if type(error) is ImportError and error.name == "minitransformer":  # raised by our own check, with a remedy
        return str(error)
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    is_virtual = sys.prefix != sys.base_prefix
    remedy = f"remove {sys.prefix} and" if is_virtual else "in a virtual environment,"
    return f"{reason}: the packages of {sys.executable} are incomplete; {remedy} install minitransformer again"


def _end(*_: object) -> None:
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
