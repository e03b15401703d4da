"""minitransformer-doctor: what is there to train on, and whether it works."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograd import DeviceError
from autograd.array import Device
from cli.command import all_end_together, run_command
from cli.explain_compat import explain_compat
from cli.options import take_option, take_word
from cli.train import read_options
from minitransformer.doctor.finding import Finding, merged
from minitransformer.doctor.machine import machine, shared_memory
from minitransformer.doctor.plan import plan
from minitransformer.doctor.replay import diagnosis
from minitransformer.doctor.together import together
from minitransformer.place import take_place
from minitransformer.run import RunConfig
from parallel.communicator import Communicator, SerialCommunicator
from parallel.launch import LaunchError, communicator, n_launched_here, rank_launched
from parallel.placement import Place

DESCRIPTION = """Tell what is there to train on, and try it: versions, libraries, cores, GPUs, and under mpirun whether
processes agree and what a sum over them costs. With the options of minitransformer-train (--config FILE, --preset
NAME and --compat SYSTEM, too): what that run needs. Exit status 0 if nothing is wrong; else 1, and what mends it.
Start it as you will start the training: mpirun -n 8 minitransformer-doctor ...

Three more options: --try-largest-batch computes the largest batch once, and tells what memory that took.
--explain-compat [SYSTEM] tells what tensor2tensor, fairseq or marian decides otherwise than the paper, and what each of
it changes in the run's model. --replay DIRECTORY computes the update of a divergence capsule again, in float32 and in
float64, and tells where to look."""

TRY, EXPLAIN, REPLAY = "--try-largest-batch", "--explain-compat", "--replay"


def main() -> int:
    """Entry point."""
    return run_command(lambda: doctor(sys.argv[1:]))


def doctor(arguments: Sequence[str]) -> int:
    """Examine, explain or replay as the options say; 0 if nothing is wrong."""
    capsule, words = take_option(arguments, REPLAY)
    system, words = take_word(words, EXPLAIN)
    try_largest, words = TRY in words, [word for word in words if word != TRY]
    if capsule is None and system is None:
        return examination(words, try_largest=try_largest)
    config = read_options(words, DESCRIPTION)
    if rank_launched() == 0:
        console = Console(highlight=False)
        if capsule is not None:
            for line in diagnosis(Path(capsule)):
                console.print(line, markup=False, soft_wrap=True)
        if system is not None:
            explain_compat(config, system, console)
    return 0


def examination(words: Sequence[str], *, try_largest: bool) -> int:
    """Examine a run of these options, and show what was found; 0 if nothing is wrong."""
    world, of_launch = launch()  # before options are read: the other ranks would wait for one that refuses its own
    with all_end_together(world):
        config = read_options(words, DESCRIPTION)
        findings = merged(world.allgather([*of_launch, *examine(config, world, try_largest=try_largest)]))
    if rank_launched() == 0:
        Console(highlight=False).print(shown(findings), verdict(findings))
    return int(any(finding.remedy for finding in findings))


def launch() -> tuple[Communicator, list[Finding]]:
    """The communicator, and what is to be said of getting one.

    MPI is not started where it would crash for want of memory.  Where processes cannot speak to each other, the first
    examines its own place alone.
    """
    room = shared_memory(n_launched_here())
    if room.remedy:
        return SerialCommunicator(), [room]
    try:
        return communicator(), [room]
    except LaunchError as error:
        return SerialCommunicator(), [room, Finding("launch", error.problem, error.remedy)]


def examine(config: RunConfig, world: Communicator, *, try_largest: bool) -> list[Finding]:
    """What this rank finds, and what all find together; all must call."""
    device, places = place_of_ranks(config.device, world)
    training = config.training
    return [
        *machine(config.device, world, places),
        *together(world, places, device, training.n_shards, training.sum),
        *plan(dataclasses.replace(config, device=device), world, places, try_largest=try_largest),
    ]


def place_of_ranks(wanted: Device, world: Communicator) -> tuple[Device, list[Place]]:
    """Where ranks can compute: on the device that is wanted, if all have it, else on the CPU."""
    try:
        places, missing = take_place(wanted, world), False
    except DeviceError:
        places, missing = [], True
    return ("cpu", take_place("cpu", world)) if world.any(missing) else (wanted, places)


def shown(findings: Sequence[Finding]) -> Table:
    """A line for each finding, with its remedy below it; as wide as the terminal allows."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark = Text("wrong", style="bold red") if finding.remedy else Text("ok", style="green")
        told = Text(finding.found)
        if finding.remedy:
            told.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(mark, Text(finding.what), told)
    return table


def verdict(findings: Sequence[Finding]) -> Text:
    """The last line."""
    n_wrong = sum(bool(finding.remedy) for finding in findings)
    if not n_wrong:
        return Text("nothing is wrong", style="bold green")
    things = "one thing is" if n_wrong == 1 else f"{n_wrong} things are"
    return Text(f"{things} wrong: what mends it stands below each (→)", style="bold red")
