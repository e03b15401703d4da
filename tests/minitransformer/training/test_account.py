"""The account of a run: the products that its updates really compute, and the time of all devices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metered import Meter, flops, watched

from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.callbacks import Callback
from minitransformer.training.state import TrainingState
from tests.minitransformer.training.test_trainer import trainer_of


@pytest.mark.parametrize("n_micro_batches", [1, 4])
def test_it_counts_the_matrix_products_that_were_computed_also_after_an_interruption(
    tmp_path: Path, meter: Meter, n_micro_batches: int
) -> None:
    """The sentences have one length, so attention's reference computes no padding."""
    write_store(tmp_path, "train", np.random.default_rng(1).integers(3, 12, (40, 2, 6)).tolist(), 12)
    changes: dict[str, Any] = {"store": TokenStore(tmp_path, "train"), "n_micro_batches": n_micro_batches}
    for max_updates in (3, 8):
        trainer = trainer_of(tmp_path, max_updates=max_updates, **changes)
        trainer.resume()
        watched(trainer.model)
        trainer.train(Callback())
        assert trainer.state.flops == flops(meter) > 0


def test_device_time_is_that_of_all_devices_that_there_were() -> None:
    """One device for 3 seconds; then four for 1.5."""
    state = TrainingState().with_time(3, n_devices=1).with_new_interval().with_time(1.5, n_devices=4)
    assert (state.device_seconds, state.seconds, state.unlogged_seconds) == (3 + 4 * 1.5, 4.5, 1.5)
