"""minitransformer-report training: the curves, figures and translations of training runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cli.command import say
from cli.options import Positional
from minitransformer.config import RunConfig
from minitransformer.extras.report.errors import PICTURES, check_suffix
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_runs
from minitransformer.system.errors import import_extra
from minitransformer.system.files import write_text


@dataclass(frozen=True)
class TrainingReportOptions:
    """Show curves, scores, translations, costs and settings of training runs, finished or not, side by side.

    BLEU of several runs is compared by a paired bootstrap test, if they have translated the same validation set.
    """

    runs: Positional[tuple[Path, ...]] = (RunConfig.run,)
    """Directories of training runs."""
    output: Path = Path("training.html")
    """File to write: .html for the self-contained page; .png, .svg or .pdf for a picture of the curves."""


def report_training(options: TrainingReportOptions) -> int:
    """Write the page or the picture that the options describe."""
    check_suffix(options.output, (".html", *PICTURES))
    runs = read_runs(options.runs)
    if options.output.suffix.lower() == ".html":
        write_text(options.output, run_page(runs))
    else:
        import_extra("report", "matplotlib")
        from minitransformer.extras.report.run_picture import run_picture  # noqa: PLC0415
        from minitransformer.extras.report.saving import save_picture  # noqa: PLC0415

        save_picture(run_picture(runs), options.output)
    say(f"wrote {options.output}")
    return 0
