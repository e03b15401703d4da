"""What is made of the figures of Table 3: the table, the verdicts, and what becomes of the paper's claims."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from minitransformer.extras.paper.claims import Comparison, comparisons, printed_difference
from minitransformer.extras.paper.statistics import Estimate
from minitransformer.extras.paper.table3 import PRINTED, Result, Scale
from minitransformer.extras.paper.table3_report import (
    as_markdown,
    claims_as_markdown,
    outcomes_as_markdown,
    provenance_as_markdown,
)

RESULTS = Path(__file__).parents[4] / "docs" / "lab" / "table3.md"


def result(perplexity: float, bleu: float) -> Result:
    return Result(
        perplexity,
        bleu,
        parameters=1_234_567,
        updates=1_000,
        seconds=9.0,
        code="abc",
        flops=12_345_678,
        weights="average",
        configuration="0123456789",
        signature="tok:13a",
        text="fedc",
    )


@pytest.mark.parametrize(("measured", "outcome"), [
    ([-0.5], "same sign"), ([0.5], "other sign"), ([0.0], "no difference"), ([0.004], "no difference"),
    ([-0.5, -0.6, -0.5], "holds"), ([0.5, 0.6, 0.5], "does not hold"), ([-0.5, 0.6, -0.5], "undecided"),
    ([0.0, 0.0], "undecided"),
])  # fmt: skip
def test_a_sign_holds_when_it_is_the_papers_and_no_accident(measured: list[float], outcome: str) -> None:
    comparison = Comparison("table3-A-h1", "bleu", -0.9, Estimate.of(measured))
    assert comparison.outcome == outcome
    assert comparison.holds == (outcome in ("same sign", "holds"))


@pytest.mark.parametrize(("row", "printed"), [("table3-E", -0.1), ("table3-A-h16", 0.0), ("table3-D-ls2", -0.1)])
@pytest.mark.parametrize(("measured", "outcome"), [
    ([0.0], "nearly identical"), ([0.39], "nearly identical"), ([-0.4], "further apart"), ([0.05, -0.05, 0.0], "holds"),
    ([-5.0, -5.1, -4.9], "does not hold"), ([5.0, 5.1, 4.9], "does not hold"),
    ([0.05, 0.06, 0.05], "holds"),  # a difference that is no accident, but a small one
    ([0.7, -0.7, 0.1], "undecided"),  # none is seen, but neither could one be that the paper calls worse
    ([0.3, 0.7, 0.5], "undecided"),
])  # fmt: skip
def test_an_equality_holds_when_a_difference_that_matters_can_be_ruled_out(
    row: str, printed: float, measured: list[float], outcome: str
) -> None:
    comparison = Comparison(row, "bleu", printed, Estimate.of(measured))
    assert comparison.outcome == outcome
    assert comparison.holds == (outcome in ("nearly identical", "holds"))


def test_perplexities_are_near_by_their_ratio() -> None:
    results = {
        "base": {1: result(13.8, 20.0)},
        "table3-E": {1: result(13.6, 20.0)},
        "table3-A-h16": {1: result(14.1, 20)},
    }
    learned, _, heads, _ = comparisons(results)
    assert (learned.scale, learned.outcome) == (pytest.approx(13.8 / 4.92), "nearly identical")
    assert (heads.printed, heads.outcome) == (-0.01, "further apart")


@pytest.mark.parametrize("row", ["table3-A-h1", "table3-E"])
def test_a_model_that_diverged_is_called_that(row: str) -> None:
    results = {"base": {1: result(5.0, 20.0)}, row: {1: result(float("nan"), 20.0)}}
    perplexity, _ = comparisons(results)
    assert perplexity.outcome == "not finite"
    assert not perplexity.holds


def test_a_wide_interval_leaves_an_equality_undecided_in_the_counts() -> None:
    results = {
        "base": {seed: result(5.0, 20.0) for seed in (1, 2)},
        "table3-E": {1: result(9.0, 25.0), 2: result(1.0, 15.0)},
    }
    assert claims(results)[2:] == [
        "- (E) learned positions do nearly the same as sinusoids: perplexity 0 of 1 (1 undecided),"
        " BLEU 0 of 1 (1 undecided)",
        "",
        "Of all comparisons 0 of 2 (2 undecided) hold: of signs 0 of 0, of equalities 0 of 2 (2 undecided).",
    ]


def claims(results: dict[str, dict[int, Result]]) -> list[str]:
    return claims_as_markdown(list(comparisons(results))).splitlines()


def test_by_the_papers_own_figures_all_that_it_claims_holds() -> None:
    results = {row: {1: result(printed.perplexity, printed.bleu)} for row, printed in PRINTED.items()}
    assert claims(results)[2:] == [
        "- (A) with 1 or 32 heads models are worse than with 8: perplexity 2 of 2, BLEU 2 of 2",
        "- (B) smaller d_k is worse: perplexity 2 of 2, BLEU 2 of 2",
        "- (C) bigger models are better: perplexity 7 of 7",
        "- (D) dropout helps: perplexity 1 of 1, BLEU 1 of 1",
        "- (D) label smoothing hurts perplexity and improves BLEU: perplexity 2 of 2, BLEU 1 of 1",
        "- (E) learned positions do nearly the same as sinusoids: perplexity 1 of 1, BLEU 1 of 1",
        "",
        "Of all comparisons 38 of 38 hold: of signs 33 of 33, of equalities 5 of 5.",
        "With one seed there are no confidence intervals: any of these differences may be chance.",
    ]


def test_claims_of_which_nothing_was_trained_are_left_out_and_what_is_undecided_is_counted() -> None:
    results = {
        "base": {seed: result(5.0, 20.0) for seed in (1, 2)},
        "table3-B-dk16": {1: result(6.0, 19.0), 2: result(6.0, 22.0)},
        "big": {1: result(4.0, 21.0), 2: result(4.0, 21.0)},
    }
    assert claims(results)[2:] == [
        "- (B) smaller d_k is worse: perplexity 1 of 1, BLEU 0 of 1 (1 undecided)",
        "",
        "Of all comparisons 3 of 4 (1 undecided) hold: of signs 3 of 4 (1 undecided), of equalities 0 of 0.",
    ]


def test_the_committed_outcomes_and_claims_are_those_of_the_committed_figures() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    names = {row.removeprefix("table3-"): row for row in PRINTED}
    base = re.search(r"^\| base \|(?: \S+ \|){9} (\S+) ±", text, re.M)
    assert base
    lines = re.findall(r"^\| (\S+) \| (PPL|BLEU) \| (\S+) \| (\S+)(?: ± (\S+))? \| (.+) \|$", text, re.M)
    compared = []
    for name, by, printed, mean, half_width, outcome in lines:
        row, measure = names[name], {"PPL": "perplexity", "BLEU": "bleu"}[by]
        measured = Estimate(float(mean), float(half_width) if half_width else None)
        scale = float(base[1]) / PRINTED["base"].perplexity if by == "PPL" else 1.0
        compared.append(Comparison(row, measure, float(printed), measured, scale))
        assert compared[-1].printed == printed_difference(row, measure)
        assert compared[-1].outcome == outcome, (name, by)
    assert len(compared) == 38
    assert claims_as_markdown(compared) in text


def test_differences_are_paired_by_seed() -> None:
    """Seeds differ much, the two models always by the same."""
    results = {
        "base": {1: result(5.0, 20.0), 2: result(9.0, 30.0), 3: result(7.0, 10.0)},
        "big": {1: result(4.0, 21.0), 3: result(6.0, 11.0)},
        "table3-E": {},
    }
    perplexity, bleu = comparisons(results)
    assert (perplexity.row, perplexity.printed, perplexity.measured) == ("big", -0.59, Estimate(-1.0, 0.0))
    assert (bleu.printed, bleu.measured, bleu.outcome) == (0.6, Estimate(1.0, 0.0), "holds")


def test_the_table_prints_what_a_row_changes_beside_the_papers_figures() -> None:
    results: dict[str, dict[int, Any]] = {
        "base": {1: result(5.0, 20.0)}, "table3-A-h1": {1: result(6.0, 19.0)}, "table3-E": {1: result(5.0, 20.0)},
        "big": {},
    }  # fmt: skip
    header, rule, base, h1, learned = as_markdown(results, Scale(d_model=128, n_layers=3)).splitlines()
    assert header.count("|") == rule.count("|") == base.count("|") == h1.count("|") == 17
    assert (
        base
        == "| base | 3 | 128 | 512 | 8 | 16 | 16 | 0.1 | 0.1 | 1,000 | 5.00 | 4.92 | 20.00 | 25.8 | 1.23 | 1.2e+07 |"
    )
    assert h1 == "| (A) |  |  |  | 1 | 128 | 128 |  |  | 1,000 | 6.00 | 5.29 | 19.00 | 24.9 | 1.23 | 1.2e+07 |"
    assert learned.startswith("| (E) learned positions |  |  |")
    outcomes = outcomes_as_markdown(list(comparisons(results))).splitlines()
    assert outcomes[2] == "| A-h1 | PPL | +0.37 | +1.00 | same sign |"
    assert outcomes[3] == "| A-h1 | BLEU | -0.90 | -1.00 | same sign |"
    assert outcomes[4] == "| E | PPL | +0.00 | 0.00 | nearly identical |"
    assert len(outcomes) == 6


def test_cells_of_other_text_or_code_or_with_other_weights_are_named() -> None:
    noted, single = result(5.0, 20.0), "best single model"
    results = {
        "base": {1: noted, 2: dataclasses.replace(noted, code="def")},
        "big": {
            1: dataclasses.replace(noted, updates=3_000, text="ba98"),
            2: dataclasses.replace(noted, weights=single),
        },
    }
    assert provenance_as_markdown(results, "x.toml").splitlines() == [
        "Text: x.toml, fedc; NOT THE SAME: ba98 (big-seed-1). Seeds: 1, 2. Updates: 1,000 or 3,000."
        " Configuration of base-seed-1: 0123456789.",
        "Code: abc; NOT THE SAME: def (base-seed-2). Weights: average; NOT THE SAME: best single model (big-seed-2)."
        " BLEU: beam 4, tok:13a.",
    ]
