"""What a rank does in tests under mpirun: the program that its command line names."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failing_ranks import (
    add_up_for_ever,
    die_on_one_rank,
    disagree,
    exchange_values,
    exit_on_one_rank,
    freeze_before_allocation,
    freeze_before_barrier,
    freeze_before_split,
    freeze_one_rank,
    freeze_rank_0_at_work,
    raise_on_one_rank,
    return_nothing,
    wait_at_barrier,
    wait_patiently,
)
from graph_ranks import sum_in_a_graph, train_in_graphs
from summing_ranks import (
    ask_whether_mpi_reads_gpus,
    begin_with_values,
    count_what_leaves,
    round_what_is_not_float32,
    share_no_memory,
    sum_by_the_library,
    sum_in_fast_order,
    sum_often,
    sum_on_gpus,
    sum_rounded,
    sum_summands,
)
from training_ranks import train, train_and_report, train_on_stand_in_for_gpu, train_with_faults

from parallel.launch import all_or_none, communicator

PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (
        sum_summands,
        sum_rounded,
        round_what_is_not_float32,
        count_what_leaves,
        sum_by_the_library,
        sum_in_fast_order,
        sum_on_gpus,
        ask_whether_mpi_reads_gpus,
        sum_often,
        begin_with_values,
        share_no_memory,
        exchange_values,
        wait_at_barrier,
        raise_on_one_rank,
        exit_on_one_rank,
        die_on_one_rank,
        freeze_one_rank,
        freeze_rank_0_at_work,
        freeze_before_barrier,
        freeze_before_allocation,
        freeze_before_split,
        wait_patiently,
        add_up_for_ever,
        disagree,
        return_nothing,
        train,
        train_and_report,
        train_on_stand_in_for_gpu,
        train_with_faults,
        train_in_graphs,
        sum_in_a_graph,
    )
}


def run_as_rank(program: str, directory: str, *arguments: str) -> None:
    world = communicator()
    with all_or_none(world):
        result = PROGRAMS[program](world, Path(directory), *arguments)
        (Path(directory) / f"{world.rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    run_as_rank(*sys.argv[1:])
