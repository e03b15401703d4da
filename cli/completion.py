"""minitransformer --tyro-print-completion: complete all commands and their options in a shell."""

from __future__ import annotations

import sys

from cli import report, reproduce, score
from cli.average import AverageOptions
from cli.command import run_command
from cli.convert import ConvertOptions
from cli.doctor import DoctorOptions
from cli.options import one_of, read
from cli.parse import ParseOptions
from cli.prepare import PrepareOptions
from cli.presets import PresetsOptions
from cli.serve import ServeOptions
from cli.train import TrainOptions
from cli.translate import TranslateOptions

OPTIONS = {
    "train": TrainOptions,
    "translate": TranslateOptions,
    "serve": ServeOptions,
    "score": one_of(score.KINDS),
    "prepare": PrepareOptions,
    "presets": PresetsOptions,
    "doctor": DoctorOptions,
    "report": one_of(report.KINDS),
    "average": AverageOptions,
    "convert": ConvertOptions,
    "parse": ParseOptions,
    "reproduce": one_of(reproduce.KINDS),
}
"""The options of each command of ``cli.entry.COMMANDS``."""


def main() -> int:
    """Write the script for the shell that the arguments name."""
    return run_command(lambda: read(one_of(OPTIONS), sys.argv[1:], description=""))
