"""A report of Table 3 in the paper's layout: our numbers and differences beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from minitransformer.config import ModelConfig
from minitransformer.extras.paper.table3 import PRINTED, Result, Scale, short

Results = Mapping[str, Mapping[int, Result]]  # by row and seed; the base model is one of the rows

# 97.5 % quantiles: of Student's t for 1, 2, … degrees of freedom, and of the normal distribution.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.95996
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


@dataclass(frozen=True)
class Estimate:
    """A mean, and half the width of its 95 % confidence interval by Student's t.

    The width is None for a single number, and if the mean is not finite.
    """

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Estimate:
        """Estimate the mean of independent measurements.  Raises: ValueError if there are none."""
        if not numbers:
            raise ValueError("Estimate: expected at least one number; got none")
        mean, n = fmean(numbers), len(numbers)
        if n == 1 or not math.isfinite(mean):
            return cls(mean, None)
        return cls(mean, _quantile(n - 1) * stdev(numbers) / math.sqrt(n))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half_width is None else f"{self.mean:.2f} ± {self.half_width:.2f}"


def _quantile(freedom: int) -> float:
    """Return t with P(T ≤ t) = 0.975 for ``freedom`` degrees of freedom, to four digits.

    Source: Abramowitz & Stegun (1964), Handbook of Mathematical Functions, 26.7.5, for values beyond the table ``_T``.
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _NORMAL
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
