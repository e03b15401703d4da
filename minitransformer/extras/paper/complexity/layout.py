"""Table 1 as Markdown and as JSON: the paper's claims next to the measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from minitransformer.extras.paper.complexity.table import Growth, Row

HEADINGS = (
    "Layer type", "Complexity per layer", "multiply-adds", "time",
    "Sequential operations", "longest chain", "Maximum path length", "paths",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row in the order of HEADINGS; our measurements follow each claim of the paper."""
    claims = row.type
    return (
        claims.name,
        f"O({claims.complexity})",
        _powers(claims.powers, row.growths, "count_exponent"),
        _powers(claims.powers, row.growths, "time_exponent"),
        f"O({claims.sequential})",
        _chain(row.chains),
        f"O({claims.path})",
        ", ".join(map(str, row.paths.values())),
    )


def markdown(rows: Sequence[Row]) -> str:
    """Return the table in the paper's layout, in Markdown."""
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n" for line in lines
    )


def as_json(rows: Sequence[Row], **about: str) -> dict[str, Any]:
    """Return ``about`` and, for each row, all claims, sizes, times (CPU seconds), counts and exponents."""
    return {**about, "rows": [_row_as_json(row) for row in rows]}


def _row_as_json(row: Row) -> dict[str, Any]:
    growths = [
        dataclasses.asdict(growth)
        | {"time_exponent": growth.time_exponent, "multiply_adds_exponent": growth.count_exponent}
        for growth in row.growths
    ]
    claims = {"complexity": row.type.complexity, "sequential": row.type.sequential, "path": row.type.path}
    return {
        "layer_type": row.type.name,
        "claims": claims,
        "growths": growths,
        "longest_chain": row.chains,
        "path_length": row.paths,
        "path_width": row.type.path_width,
    }


def _powers(order: Mapping[str, int], growths: Sequence[Growth], name: str) -> str:
    """Format fitted powers such as "n^2.00 · d^0.99"; ``name`` is the property of ``Growth`` with the exponent."""
    fitted = {growth.variable: getattr(growth, name) for growth in growths}
    return " · ".join(f"{variable}^{fitted[variable]:.2f}" for variable in order if variable in fitted)


def _chain(chains: Mapping[int, int]) -> str:
    """Format the length of a chain as a function of n: constant, or linear in n."""
    (first, at_first), *_, (last, at_last) = chains.items()
    slope = (at_last - at_first) / (last - first)
    if not slope:
        return str(at_first)
    rest = at_first - slope * first
    return f"{slope:g} n" + (f" + {rest:g}" if rest > 0 else f" − {-rest:g}" if rest else "")
