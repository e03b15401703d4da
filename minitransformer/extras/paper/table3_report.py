"""A report of Table 3 in the paper's layout: our numbers beside the paper's, and which comparisons hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from minitransformer.config import ModelConfig
from minitransformer.extras.paper.claims import CLAIMS, Comparison, Results
from minitransformer.extras.paper.statistics import Estimate
from minitransformer.extras.paper.table3 import PRINTED, Result, Scale, short

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


def outcomes_as_markdown(compared: Sequence[Comparison]) -> str:
    """Return a table of the paper's comparisons with our results."""
    lines = ["| against base | by | paper | here | |", "|-|-|-|-|-|"]
    lines += [
        f"| {short(one.row)} | {'PPL' if one.measure == 'perplexity' else 'BLEU'} |"
        f" {one.printed:+.2f} | {'+' if one.measured.mean > 0 else ''}{one.measured} | {one.outcome} |"
        for one in compared
    ]
    return "\n".join(lines) + "\n"


def claims_as_markdown(compared: Sequence[Comparison]) -> str:
    """Return a list of the paper's conclusions, each with the number of its comparisons that hold here, and totals."""
    lines = ["The paper's conclusions, and in how many comparisons each holds here:", ""]
    for claim in CLAIMS:
        counts = [
            f"{name} {_count(claim_comparisons)}"
            for measure, name in (("perplexity", "perplexity"), ("bleu", "BLEU"))
            if (claim_comparisons := claim.among(compared, measure))
        ]
        if counts:
            lines.append(f"- {claim.text}: {', '.join(counts)}")
    signs, equalities = ([one for one in compared if one.is_equality == wanted] for wanted in (False, True))
    lines += [
        "",
        f"Of all comparisons {_count(compared)} hold: of signs {_count(signs)}, of equalities {_count(equalities)}.",
    ]
    if any(one.measured.half_width is None for one in compared):
        lines.append("With one seed there are no confidence intervals: any of these differences may be chance.")
    return "\n".join(lines) + "\n"


def _count(compared: Sequence[Comparison]) -> str:
    undecided = sum(one.outcome == "undecided" for one in compared)
    return f"{sum(one.holds for one in compared)} of {len(compared)}" + (
        f" ({undecided} undecided)" if undecided else ""
    )


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
