"""Objects that a training run calls between updates."""

from minitransformer.training.callbacks.callback import Callback, Callbacks, TrainingReport, ValidationReport
from minitransformer.training.callbacks.metrics_file import MetricsFile
from minitransformer.training.callbacks.progress_bar import ProgressBar

__all__ = ["Callback", "Callbacks", "MetricsFile", "ProgressBar", "TrainingReport", "ValidationReport"]
