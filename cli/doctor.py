"""minitransformer-doctor: examine the machine for training, and test it."""

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
from minitransformer.config import RunConfig
from minitransformer.system.placement import choose_placements
from minitransformer.training.doctor.finding import Finding, merged
from minitransformer.training.doctor.machine import machine, shared_memory
from minitransformer.training.doctor.plan import plan
from minitransformer.training.doctor.replay import diagnosis
from minitransformer.training.doctor.together import together
from parallel.communicator import Communicator, SerialCommunicator
from parallel.launch import LaunchError, communicator, n_launched_here, rank_launched
from parallel.placement import Placement

DESCRIPTION = """Examine the machine for training, and test it: versions, libraries, cores, GPUs; under mpirun also
whether the processes agree, and the time of a sum over them. With the options of minitransformer-train (--config FILE,
--preset NAME and --compat SYSTEM, too), also what that run needs. The exit status is 0 if nothing is wrong; else it is
1, and each problem comes with its remedy. Start it as you will start the training:
mpirun -n 8 minitransformer-doctor ...

Three more options: --try-largest-batch computes the largest batch once, and prints the memory that it took.
--explain-compat [SYSTEM] lists how tensor2tensor, fairseq or marian differs from the paper, and what each difference
changes in the run's model. --replay DIRECTORY repeats the step of a repro bundle, which training writes when it
diverges, in float32 and in float64, and prints where to look."""

TRY, EXPLAIN, REPLAY = "--try-largest-batch", "--explain-compat", "--replay"


def main() -> int:
    """Run the command."""
    return run_command(lambda: doctor(sys.argv[1:]))


def doctor(arguments: Sequence[str]) -> int:
    """Examine, explain or replay as the options request; return 0 if nothing is wrong."""
    bundle, words = take_option(arguments, REPLAY)
    system, words = take_word(words, EXPLAIN)
    try_largest, words = TRY in words, [word for word in words if word != TRY]
    if bundle is None and system is None:
        return examination(words, try_largest=try_largest)
    config = read_options(words, DESCRIPTION)
    if rank_launched() == 0:
        console = Console(highlight=False)
        if bundle is not None:
            for line in diagnosis(Path(bundle)):
                console.print(line, markup=False, soft_wrap=True)
        if system is not None:
            explain_compat(config, system, console)
    return 0


def examination(words: Sequence[str], *, try_largest: bool) -> int:
    """Examine a run with these options, and print the findings; return 0 if nothing is wrong."""
    world, of_launch = launch()  # before reading options: if a rank rejects them, the others must not wait for it
    with all_end_together(world):
        config = read_options(words, DESCRIPTION)
        findings = merged(world.allgather([*of_launch, *examine(config, world, try_largest=try_largest)]))
    if rank_launched() == 0:
        Console(highlight=False).print(shown(findings), summary(findings))
    return int(any(finding.remedy for finding in findings))


def launch() -> tuple[Communicator, list[Finding]]:
    """Return the communicator, and findings about the launch.

    MPI is not started if it would crash for lack of shared memory.  If processes cannot communicate, rank 0
    reports on its own machine alone.
    """
    memory = shared_memory(n_launched_here())
    if memory.remedy:
        return SerialCommunicator(), [memory]
    try:
        return communicator(), [memory]
    except LaunchError as error:
        return SerialCommunicator(), [memory, Finding("launch", error.problem, error.remedy)]


def examine(config: RunConfig, world: Communicator, *, try_largest: bool) -> list[Finding]:
    """Return the findings of this rank, and those of all ranks together; every rank must call this."""
    device, placements = placements_of_ranks(config.device, world)
    training = config.training
    return [
        *machine(config.device, world, placements),
        *together(world, placements, device, training.n_shards, training.sum),
        *plan(dataclasses.replace(config, device=device), world, placements, try_largest=try_largest),
    ]


def placements_of_ranks(wanted: Device, world: Communicator) -> tuple[Device, list[Placement]]:
    """Return the device, and each rank's placement: the wanted device if all ranks have it, else the CPU."""
    try:
        placements, missing = choose_placements(wanted, world), False
    except DeviceError:
        placements, missing = [], True
    return ("cpu", choose_placements("cpu", world)) if world.any(missing) else (wanted, placements)


def shown(findings: Sequence[Finding]) -> Table:
    """Return a table with a line for each finding and its remedy below; rows fold to the terminal's width."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark = Text("wrong", style="bold red") if finding.remedy else Text("ok", style="green")
        description = Text(finding.found)
        if finding.remedy:
            description.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(mark, Text(finding.what), description)
    return table


def summary(findings: Sequence[Finding]) -> Text:
    """Return the last line: the number of problems."""
    n_wrong = sum(bool(finding.remedy) for finding in findings)
    if not n_wrong:
        return Text("nothing is wrong", style="bold green")
    things = "one thing is" if n_wrong == 1 else f"{n_wrong} things are"
    return Text(f"{things} wrong; each remedy is in the line that begins with →", style="bold red")
