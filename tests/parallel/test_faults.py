"""Numbers that go wrong on one rank: all do what one process would, and end alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpirun import needs_mpi, run_ranks
from small_run import contents
from training_ranks import SPOILT_PARAMETER, corpus_in, train_with_faults

from parallel.communicator import SerialCommunicator


def test_one_process_skips_and_counts_goes_back_and_at_last_gives_up(tmp_path: Path) -> None:
    """What the ranks below are held against: four batches an epoch, a checkpoint after every third update."""
    seen = train_with_faults(SerialCommunicator(), corpus_in(tmp_path), "gradient nan")
    updates = [event.split(": parameters ") for event in seen["events"] if ": parameters " in event]
    assert [event for event in seen["events"] if ": parameters " not in event] == [
        skipped(2, 1),
        skipped(5, 1),
        skipped(6, 2),
        "going on from update 3, without 2 batches",
        "back to update 3",
        skipped(9, 1),
        skipped(10, 2),
    ]
    assert [int(name.removeprefix("update ")) for name, _ in updates] == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]
    values = [checksum for _, checksum in updates]
    unchanged = [updates[i][0] for i in range(1, len(values)) if values[i] == values[i - 1]]
    # Update 4, done again, leads where it led before, which is where update 5 left the parameters.
    assert unchanged == ["update 2", "update 5", "update 4", "update 9"]
    assert seen["end"].startswith("update 10: the gradient's norm is nan, as in 2 updates in a row; checkpoints are")


def skipped(update: int, in_a_row: int) -> str:
    return f"update {update}: the gradient's norm is nan; it is skipped, {in_a_row} in a row (at 2 training goes back)"


@needs_mpi
@pytest.mark.parametrize(
    ("n_ranks", "fault", "way"),
    [
        (2, "gradient nan", ""), (4, "gradient nan", ""), (2, "loss nan", ""), (4, "loss nan", ""),
        (2, "gradient inf", "messages"), (4, "gradient nan", "pairs"),
    ],
)  # fmt: skip
def test_a_fault_of_one_rank_is_the_same_to_all_as_to_one_process(
    n_ranks: int, fault: str, way: str, tmp_path: Path
) -> None:
    """Every event, the bits of the parameters after every update, and every byte of the one repro bundle."""
    alone, together = corpus_in(tmp_path / "alone"), corpus_in(tmp_path / "together")
    expected = train_with_faults(SerialCommunicator(), alone, fault)
    assert run_ranks(n_ranks, "train_with_faults", together, fault, way) == [expected] * n_ranks
    bundle = contents(together / "run" / "divergence")
    assert bundle == contents(alone / "run" / "divergence")
    assert {name.split("/")[0] for name in bundle} == {"step-00000010"}
    norms = json.loads(bundle["step-00000010/update.json"])["norms"]
    wrong = {name: of["gradient"] for name, of in norms.items() if not isinstance(of["gradient"], float)}
    assert wrong == ({} if fault == "loss nan" else {SPOILT_PARAMETER: fault.split()[1]})
    assert min(of["gradient"] for name, of in norms.items() if name not in wrong) > 0
