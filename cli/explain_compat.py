"""minitransformer-doctor --explain-compat: how other systems differ from the paper, and the effect of each switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from minitransformer.config import RunConfig
from minitransformer.extras.paper.compatibility import CONVENTIONS, conventions_of, penalties
from minitransformer.extras.paper.switch_effects import Subject, Switch, switches

OTHERS = tuple(name for name in CONVENTIONS if name != "paper")
LENGTHS = (5, 20, 80)
UNTRAINED = "A switch may also give an untrained model other initial values."
TRAINED = "The weights stay the same: a switch of initial values has no effect, nor has a new bias, which is 0."


def explain_compat(config: RunConfig, systems: Sequence[str], console: Console) -> None:
    """Print for each system a table of switches, and the length penalties.

    Raises: ConfigError for an unknown system; CheckpointError for a corrupt model or corrupt data.
    """
    subject = Subject.of(config)
    console.print(f"Measured on {subject.what}.", markup=False)
    console.print(
        "Each switch is changed alone. Loss: mean nats per target token, smoothed as in training, without dropout."
        " |Δ log p|: the greatest change of any word's log-probability, in nats."
    )
    console.print(UNTRAINED if subject.weights is None else TRAINED)
    for name in systems:
        console.print()
        console.print(_table(subject, name))
        console.print(_penalties("paper"), _penalties(name), sep="\n")


def _table(subject: Subject, system: str) -> Table:
    table = Table(box=None, pad_edge=False, title=system, title_justify="left", title_style="bold")
    for heading in ("switch", "paper", system, "loss before → after", "|Δ log p|"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "|Δ log p|" else "left")
    for switch in switches(subject, system):
        table.add_row(switch.name, setting(switch.paper_value), setting(switch.system_value), *_effect(switch))
    return table


def _effect(switch: Switch) -> tuple[str, str]:
    if switch.effect is None:
        return "already set in the model", ""
    of = switch.effect
    return f"{of.loss_before:.6f} → {of.loss_after:.6f}", f"{of.largest_change:.2g}"


def setting(value: Any) -> str:
    """Format a setting for display."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _penalties(system: str) -> str:
    divisors = ", ".join(f"{penalty:.2f}" for penalty in penalties(system, LENGTHS))
    at = ", ".join(map(str, LENGTHS))
    return f"length penalty ({conventions_of(system).normalisation}) of {system} at {at} tokens: {divisors}"
