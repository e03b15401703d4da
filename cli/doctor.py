"""minitransformer-doctor: examine the machine for training, and test it."""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograd import DeviceError
from autograd.array import Device
from autograd.kernel_registry import references_only
from cli.command import all_end_together, run_command, say
from cli.run_options import RunStart, parse_run_options
from minitransformer.config import RunConfig
from minitransformer.extras.doctor.check import diagnosis
from minitransformer.extras.doctor.finding import Finding, merged
from minitransformer.extras.doctor.machine import machine, memory, precision, prepared_data, shared_memory
from minitransformer.extras.doctor.together import together
from minitransformer.system.ranks import choose_placements
from minitransformer.training.automatic_settings import resolve
from parallel.communicator import Communicator, SerialCommunicator
from parallel.launch import LaunchError, communicator, is_first_launched_here, n_launched_here, rank_launched
from parallel.placement import Placement

DESCRIPTION = """Examine the machine for training, and test it: versions, libraries, cores, GPUs; under mpirun also
whether the processes agree, and the time of a sum over them. If the run's data is prepared, all of its bytes are
compared with their checksums. The exit status is 0 if nothing is wrong; else it
is 1, and each problem comes with its remedy. Start it as you will start the training:
mpirun -n 8 minitransformer-doctor ... What a training needs, minitransformer-train --dry-run examines."""


@dataclass(frozen=True)
class DoctorOptions(RunConfig, RunStart):
    """The options of minitransformer-doctor."""

    replay: Path | None = None
    """Instead of examining the machine, compute the update of a repro bundle again, in float32 and in float64.
    Training that diverges writes such a bundle."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: doctor(sys.argv[1:]))


def doctor(arguments: Sequence[str]) -> int:
    """Examine or replay as the options request; return 0 if nothing is wrong."""
    world, launch_findings = launch()  # before options are read: if a rank rejects them, no rank may wait for it
    console = Console(highlight=False)
    with all_end_together(world):
        options = parse_run_options(DoctorOptions, DESCRIPTION, arguments)
        if options.replay is None:
            with references_only(when=options.kernels == "reference"):
                findings = merged(world.allgather([*launch_findings, *examine(options, world)]))
            if rank_launched() == 0:
                console.print(shown(findings), summary(findings))
            return int(any(finding.remedy for finding in findings))
        if rank_launched() == 0:
            for line in diagnosis(options.replay):
                console.print(line, markup=False, soft_wrap=True)
    return 0


def launch() -> tuple[Communicator, list[Finding]]:
    """Return the communicator, and findings about the launch.

    MPI is not started if it would crash for lack of shared memory.  If processes cannot communicate, rank 0 reports on
    its own machine only.  On every other machine without enough shared memory, the first process prints an error.
    """
    memory = shared_memory(n_launched_here())
    if memory.remedy:
        if rank_launched() != 0 and is_first_launched_here():
            say(f"error: {socket.gethostname()}: {memory.found}; {memory.remedy}")
        return SerialCommunicator(), [memory]
    try:
        return communicator(), [memory]
    except LaunchError as error:
        return SerialCommunicator(), [memory, Finding("launch", error.problem, error.remedy)]


def examine(options: DoctorOptions, world: Communicator) -> list[Finding]:
    """Return the findings of this rank alone, then the findings of all ranks together; every rank must call this."""
    device, placements = placements_of_ranks(options.device, world)
    planned, why_no_bfloat16 = resolve(dataclasses.replace(options, device=device), world)
    training = planned.training
    return [
        *machine(options.device, options.kernels, world, placements),
        *together(world, placements, device, training.n_micro_batches, training.sum),
        precision(training.precision, why_no_bfloat16),
        memory(world),
        prepared_data(planned.data_directory, world),
    ]


def placements_of_ranks(wanted: Device, world: Communicator) -> tuple[Device, list[Placement]]:
    """Return the device (``wanted`` if all ranks have it, else the CPU), and the placement of each rank."""
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
