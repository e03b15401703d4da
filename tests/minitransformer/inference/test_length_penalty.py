"""The choice of α: never worse than the model's own, no translations that are much too long, and always the same."""

import itertools

import pytest

from minitransformer.inference.bleu import Score
from minitransformer.inference.length_penalty import Tried, choose_alpha
from minitransformer.inference.task import Evaluation, Sample

OWN = 0.6


def tried(alpha: float, score: float, length: float = 1.0) -> Tried:
    sample = Sample("source", "r" * 100, "t" * round(100 * length))
    return Tried(alpha, Evaluation(Score("BLEU", score, "signature", "detail"), (sample,)))


@pytest.mark.parametrize(
    ("alphas", "scores", "chosen", "n_best"),
    [
        ("0 0.3 0.6", [50, 50, 50], 0.6, 3),
        ("0 0.3 0.6", [0, 0.004, 0], 0.6, 3),
        ("0.3 0.6 0.9", [50, 50, 40], 0.6, 2),
        ("0.3 0.6 0.9", [40, 50, 40], 0.6, 1),
        ("0.3 0.6", [50, 50.5], 0.6, 1),
        ("0.6 1.5 0.9 1.2", [40, 50, 50, 50], 1.2, 3),
        ("0 0.3 0.6 0.9", [50, 50, 40, 30], 0.3, 2),
        ("0 0.6 0.9", [40, 50, 50.5], 0.9, 1),
    ],
)
def test_another_exponent_is_chosen_only_if_it_is_better(
    alphas: str, scores: list[float], chosen: float, n_best: int
) -> None:
    all_tried = [tried(float(alpha), score) for alpha, score in zip(alphas.split(), scores, strict=True)]
    choice = choose_alpha(all_tried, OWN)
    assert (choice.chosen.alpha, len(choice.best)) == (chosen, n_best)


@pytest.mark.parametrize(
    ("lengths", "scores", "chosen"),
    [
        ([1.0, 1.1, 2.2], [4, 5, 6], 0.6),  # better by its score, and much too long
        ([1.0, 2.2, 2.4], [5, 5, 5], 0.3),  # the own one is too long, and another is no worse
        ([1.0, 2.2, 2.4], [4, 5, 6], 0.6),  # all that are no worse are too long: the shortest of them
        ([1.5, 2.2, 2.4], [0, 0, 0], 0.3),
    ],
)
def test_translations_that_are_much_too_long_are_avoided(
    lengths: list[float], scores: list[float], chosen: float
) -> None:
    all_tried = [tried(alpha, *each) for alpha, *each in zip((0.3, 0.6, 0.9), scores, lengths, strict=True)]
    assert choose_alpha(all_tried, OWN).chosen.alpha == chosen
    said = [f" (translations {length} times as long as the references)" if length > 1.2 else "" for length in lengths]
    assert [one.remark for one in all_tried] == said


def test_no_choice_is_worse_than_the_own_exponent_and_the_order_does_not_matter() -> None:
    for numbers in itertools.product((0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.9, 2.0), (0.9, 2.0), (0.9, 2.0)):
        all_tried = [tried(alpha, numbers[i], numbers[3 + i]) for i, alpha in enumerate((0.3, OWN, 0.9))]
        choices = {choose_alpha(order, OWN) for order in itertools.permutations(all_tried)}
        assert len(choices) == 1
        assert choices.pop().chosen.score >= all_tried[1].score
