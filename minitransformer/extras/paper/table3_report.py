"""A report of Table 3 in the paper's layout: our numbers and differences beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from minitransformer.config import ModelConfig
from minitransformer.extras.paper.statistics import Estimate
from minitransformer.extras.paper.table3 import PRINTED, Result, Scale, short

Results = Mapping[str, Mapping[int, Result]]  # by row and seed; the base model is one of the rows

_COLUMNS = {
    "n_layers": "N", "d_model": "d_model", "d_ff": "d_ff", "n_heads": "h", "d_k": "d_k", "d_v": "d_v",
    "p_drop": "P_drop", "label_smoothing": "ε_ls",
}  # fmt: skip


def as_markdown(results: Results, scale: Scale) -> str:
    """Return the table.

    A row shows its differences from the base model, updates, held-out perplexity and BLEU (ours and the paper's),
    parameters and FLOPs.
    """
    lines = [
        f"| | {' | '.join(_COLUMNS.values())} | updates | PPL | paper | BLEU | paper | params ×10⁶ | FLOPs |",
        f"|{'-|' * (len(_COLUMNS) + 8)}",
    ]
    base = scale.of("base")
    for row, by_seed in results.items():
        if by_seed:
            lines.append(_line(row, scale.of(row), base, list(by_seed.values())))
    return "\n".join(lines) + "\n"


def _line(row: str, config: ModelConfig, base: ModelConfig, results: Sequence[Result]) -> str:
    changed = [
        str(getattr(config, name)) if row == "base" or getattr(config, name) != getattr(base, name) else ""
        for name in _COLUMNS
    ]
    letter = {"base": "base", "big": "big"}.get(row, f"({short(row)[0]})")
    if config.positions == "learned":
        letter += " learned positions"
    perplexity, bleu = (Estimate.of([getattr(result, name) for result in results]) for name in ("perplexity", "bleu"))
    numbers = (
        f"{results[0].updates:,}", str(perplexity), f"{PRINTED[row].perplexity:.2f}", str(bleu),
        f"{PRINTED[row].bleu:.1f}", f"{results[0].parameters / 1e6:.2f}", f"{fmean(one.flops for one in results):.2g}",
    )  # fmt: skip
    return f"| {letter} | {' | '.join([*changed, *numbers])} |"


def differences_as_markdown(results: Results) -> str:
    """Return a table of each row's differences from the base model, paired by seed, beside the paper's.

    With several seeds, ± is half a 95 % interval: if it contains 0, the difference may be chance.
    """
    base, lines = results["base"], ["| against base | PPL | paper | BLEU | paper |", "|-|-|-|-|-|"]
    for row, by_seed in results.items():
        seeds = sorted(by_seed.keys() & base.keys())
        if row == "base" or not seeds:
            continue
        cells = [short(row)]
        for measure in ("perplexity", "bleu"):
            ours = Estimate.of([getattr(by_seed[seed], measure) - getattr(base[seed], measure) for seed in seeds])
            printed = getattr(PRINTED[row], measure) - getattr(PRINTED["base"], measure)
            cells += [f"{'+' if ours.mean > 0 else ''}{ours}", f"{round(printed, 2):+.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def provenance_as_markdown(results: Results, corpus: str) -> str:
    """Return the provenance of the numbers: text, seeds, updates, configuration, code, weights, BLEU's signature.

    If cells differ in a value, give the most frequent value, and name the cells that have another value.
    """
    cells = {f"{row}-seed-{seed}": cell for row, by_seed in results.items() for seed, cell in by_seed.items()}
    seeds = sorted({seed for by_seed in results.values() for seed in by_seed})
    updates = " or ".join(f"{number:,}" for number in sorted({cell.updates for cell in cells.values()}))
    base = results["base"][seeds[0]]
    return (
        f"Text: {corpus}, {_common_value(cells, 'text')}. Seeds: {', '.join(map(str, seeds))}. Updates: {updates}."
        f" Configuration of base-seed-{seeds[0]}: {base.configuration}.\n"
        f"Code: {_common_value(cells, 'code')}. Weights: {_common_value(cells, 'weights')}."
        f" BLEU: beam 4, {_common_value(cells, 'signature')}.\n"
    )


def _common_value(cells: Mapping[str, Result], name: str) -> str:
    """Return the most frequent value of a field of ``Result``, and the cells that have another value."""
    named: dict[str, list[str]] = {}
    for cell, result in cells.items():
        named.setdefault(getattr(result, name), []).append(cell)
    most = max(named, key=lambda value: len(named[value]))
    others = [f"{value} ({', '.join(named[value])})" for value in named if value != most]
    return most if not others else f"{most}; NOT THE SAME: {'; '.join(others)}"
