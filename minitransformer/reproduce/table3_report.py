"""Table 3 as the paper lays it out, with our figures beside the paper's, and which of its comparisons hold."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from minitransformer.config import ModelConfig
from minitransformer.reproduce.statistics import Estimate
from minitransformer.reproduce.table3 import PRINTED, Result, Scale

Results = Mapping[str, Mapping[int, Result]]  # by row, by seed; the base model's are among them

_COLUMNS = {
    "n_layers": "N", "d_model": "d_model", "d_ff": "d_ff", "n_heads": "h", "d_k": "d_k", "d_v": "d_v",
    "p_drop": "P_drop", "label_smoothing": "ε_ls",
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """A row against the base model by one measure: the paper's difference, and ours, paired by seed."""

    row: str
    measure: str
    printed: float
    measured: Estimate

    @property
    def verdict(self) -> str:
        """Whether the paper's sign is ours; "undecided" where the interval of our difference holds zero.

        Where the paper prints no difference, any that we can tell from zero is one too many.
        """
        if self.measured.half_width is None:
            same = self.printed * self.measured.mean > 0
            return "same sign" if same else "other sign" if self.printed else "no sign to compare"
        if not self.measured.is_not_zero:
            return "undecided" if self.printed else "holds"
        return "holds" if self.printed * self.measured.mean > 0 else "does not hold"


def comparisons(results: Results) -> Iterator[Comparison]:
    """Every row against the base model, by perplexity (less is better) and by BLEU, over the seeds that both have."""
    base = results["base"]
    for row, by_seed in results.items():
        seeds = sorted(by_seed.keys() & base.keys())
        if row == "base" or not seeds:
            continue
        for measure in ("perplexity", "bleu"):
            measured = [getattr(by_seed[seed], measure) - getattr(base[seed], measure) for seed in seeds]
            printed = getattr(PRINTED[row], measure) - getattr(PRINTED["base"], measure)
            yield Comparison(row, measure, round(printed, 2), Estimate.of(measured))


def as_markdown(results: Results, scale: Scale) -> str:
    """The table: what a row changes, held-out perplexity and BLEU over seeds, the paper's, parameters, FLOPs."""
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
    letter = {"base": "base", "big": "big"}.get(row, f"({row.removeprefix('table3-')[0]})")
    if config.positions == "learned":
        letter += " learned positions"
    perplexity, bleu = (Estimate.of([getattr(result, name) for result in results]) for name in ("perplexity", "bleu"))
    numbers = (
        f"{results[0].updates:,}", str(perplexity), f"{PRINTED[row].perplexity:.2f}", str(bleu),
        f"{PRINTED[row].bleu:.1f}", f"{results[0].parameters / 1e6:.2f}", _flops(results),
    )  # fmt: skip
    return f"| {letter} | {' | '.join([*changed, *numbers])} |"


def _flops(results: Sequence[Result]) -> str:
    """What one training cost, in the mean of the cells of which it is known."""
    counted = [result.flops for result in results if result.flops is not None]
    return f"{statistics.fmean(counted):.2g}" if counted else "?"


def verdicts_as_markdown(results: Results) -> str:
    """What the paper's comparisons come to here."""
    lines = ["| against base | by | paper | here | |", "|-|-|-|-|-|"]
    lines += [
        f"| {one.row.removeprefix('table3-')} | {'PPL' if one.measure == 'perplexity' else 'BLEU'} |"
        f" {one.printed:+.2f} | {'+' if one.measured.mean > 0 else ''}{one.measured} | {one.verdict} |"
        for one in comparisons(results)
    ]
    return "\n".join(lines) + "\n"
