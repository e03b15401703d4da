"""What was found, and what to do if it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parallel.placement import numbered

SAME_EVERYWHERE = "install the same on all machines: ranks that differ round differently, or refuse to train together"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    remedy: str = ""
    """What mends it; empty if nothing is wrong."""
    if_ranks_differ: str = ""
    """What mends it if ranks found different things; empty if they may."""


def merged(of_ranks: Sequence[Sequence[Finding]]) -> list[Finding]:
    """One finding for each thing, given those of every rank; where ranks differ, it tells which found what."""
    return [_merged_one(findings) for findings in zip(*of_ranks, strict=True)]


def _merged_one(findings: Sequence[Finding]) -> Finding:
    ranks: dict[str, list[int]] = {}
    for rank, finding in enumerate(findings):
        ranks.setdefault(finding.found, []).append(rank)
    first, remedies = findings[0], [finding.remedy for finding in findings if finding.remedy]
    remedy = remedies[0] if remedies else ""
    if len(ranks) == 1:
        return replace(first, remedy=remedy)
    found = "\n".join(f"{numbered('rank', of)}: {found}" for found, of in ranks.items())
    return replace(first, found=found, remedy=remedy or first.if_ranks_differ)
