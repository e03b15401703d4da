"""A page about a run, in the run's directory, written again as training goes."""

from __future__ import annotations

import logging
from pathlib import Path

from minitransformer.config.run import METRICS_FILE, RUN_FILE
from minitransformer.report.run_page import run_page
from minitransformer.report.run_record import read_run
from minitransformer.system.errors import UserError
from minitransformer.system.files import write_text
from minitransformer.training.callbacks.callback import Callback, TrainingReport, ValidationReport

REPORT_FILE = "report.html"
_log = logging.getLogger(__name__)


class ReportPage(Callback):
    """The file ``report.html``: a page of what the run has logged, written after each validation and at the end.

    It must come after ``MetricsFile``, whose lines it reads.  If it cannot be written, training goes on.
    """

    def __init__(self, run: Path) -> None:
        self._run = run

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Write the page after a validation."""
        if isinstance(report, ValidationReport):
            self._write()

    def end(self) -> None:
        """Write the page, with the final scores if the run is complete."""
        self._write()

    def _write(self) -> None:
        if not all((self._run / name).exists() for name in (RUN_FILE, METRICS_FILE)):
            return  # nothing is logged yet; or the directory was moved or removed, and must not be made again
        try:
            write_text(self._run / REPORT_FILE, run_page([read_run(self._run)]))
        except UserError as error:
            _log.warning(f"{self._run / REPORT_FILE}: not written: {error}; training goes on")
