"""The results of checks, with remedies for problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parallel.placement import named_ranks, ranks_by_value

SAME_EVERYWHERE = (
    "install the same version on all machines: different ones round differently, or refuse to train together"
)


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    found: str
    remedy: str | None = None
    """The remedy; None if nothing is wrong."""
    if_ranks_differ: str | None = None
    """The remedy if ranks have different results; None if the results may differ."""


def merged(rank_findings: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Merge the findings of all ranks; if ranks differ in a check, the merged finding lists the result of each rank."""
    return [_merge_findings(findings) for findings in zip(*rank_findings, strict=True)]


def _merge_findings(findings: Sequence[Finding]) -> Finding:
    ranks = ranks_by_value([finding.found for finding in findings])
    first, remedies = findings[0], [finding.remedy for finding in findings if finding.remedy]
    remedy = remedies[0] if remedies else None
    if len(ranks) == 1:
        return replace(first, remedy=remedy)
    found = "\n".join(f"{named_ranks(of)}: {found}" for found, of in ranks.items())
    return replace(first, found=found, remedy=remedy or first.if_ranks_differ)
