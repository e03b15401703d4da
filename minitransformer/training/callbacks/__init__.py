"""Objects that a training run calls between updates."""

from minitransformer.training.callbacks.callback import (
    Callback,
    Callbacks,
    Sample,
    TrainingReport,
    ValidationReport,
)
from minitransformer.training.callbacks.metrics_file import MetricsFile
from minitransformer.training.callbacks.progress_bar import ProgressBar
from minitransformer.training.callbacks.report_page import ReportPage

__all__ = [
    "Callback",
    "Callbacks",
    "MetricsFile",
    "ProgressBar",
    "ReportPage",
    "Sample",
    "TrainingReport",
    "ValidationReport",
]
