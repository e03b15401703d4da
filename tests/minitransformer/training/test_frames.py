"""The frames, the files and the types from an update to its first matrix product."""

import inspect
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import pytest

from autograd.optim import Adam
from minitransformer import Batch, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.training.loop import Trainer
from minitransformer.training.update import GradientAccumulator, TrainingStep
from parallel.reducer import LocalReducer
from tests.support.training import TINY

OUTER_FRAMES = ("train", "train_to_end", "Trainer.train", "Trainer.step")  # up to TrainingStep.__call__
OUTER_TYPES = {"Trainer"}
MOST_FRAMES, MOST_TYPES, MOST_FILES = 16, 8, 7
TREE = {"compute", "_sum"}  # the sum over micro-batches


class Reached(Exception):  # noqa: N818 (no error: the product that was looked for)
    """The first matrix product of the weights."""


class Watched(np.ndarray):
    """Weights whose first matrix product raises ``Reached``."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        if ufunc is np.matmul:
            raise Reached
        plain = [x.view(np.ndarray) if isinstance(x, Watched) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **more)


def test_few_frames_files_and_types_lie_between_an_update_and_its_first_product() -> None:
    """In an update of one micro-batch, from ``TrainingStep.__call__`` on."""
    model, config = Transformer(TINY), TrainingConfig(n_micro_batches=1)
    step = TrainingStep(
        GradientAccumulator(model, n_threads=1), LocalReducer(), Adam(model.parameters), config, range(1)
    )
    for _, parameter in model.named_parameters():
        parameter.value = parameter.value.view(Watched)
    with pytest.raises(Reached) as reached:
        step([Batch.from_token_ids([[3, 4]], [[5, 6]])], 1, [np.array([[3, 3]])])
    _, *frames, _ = (frame for frame, _ in walk_tb(reached.tb))
    assert frames[0].f_code.co_qualname == "TrainingStep.__call__"
    chain = [frame for frame in frames if frame.f_code.co_name not in TREE]
    types = {type(frame.f_locals["self"]).__name__ for frame in chain if "self" in frame.f_locals}
    passed = " → ".join(frame.f_code.co_qualname for frame in chain)
    assert [Path(frame.f_code.co_filename).name for frame in chain[-2:]] == ["linear.py", "blas.py"], passed
    assert len(OUTER_FRAMES) + len(chain) <= MOST_FRAMES, passed
    paths = {Path(frame.f_code.co_filename) for frame in chain} | {Path(inspect.getfile(Trainer))}
    files = {path for path in paths if path.parent.name != "ops" and path.name != "blas.py"}
    assert len(files) <= MOST_FILES, f"{sorted(path.name for path in files)}: {passed}"
    assert len(types | OUTER_TYPES) <= MOST_TYPES, f"{sorted(types)}: {passed}"
