"""Bracketing scores: by hand, by what must hold of all trees, and line for line as EVALB itself prints them."""

import dataclasses
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from shared_data import DATA, needs
from tree_draws import trees, trees_of_treebanks

from minitransformer.data.survey import CorpusError
from minitransformer.extras.parsing.evalb import (
    COLLINS,
    Parameters,
    SentenceCounts,
    Status,
    Summary,
    bracketing_f1,
    compare,
    with_tags_of,
)
from minitransformer.extras.parsing.evalb_report import read_parameters, report
from minitransformer.extras.parsing.penn import read_candidates, read_gold_trees, read_tree
from minitransformer.extras.parsing.plain import plain
from minitransformer.extras.parsing.tree import Leaf, Tree

SAMPLE = DATA / "evalb-expected"

GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .))"


def compared(gold: str, candidate: str, parameters: Parameters = COLLINS) -> SentenceCounts:
    return compare(read_tree(gold), read_tree(candidate), parameters)


def test_worked_out_by_hand() -> None:
    """The dog-sees bracket [0, 3) crosses the verb phrase [2, 5); S and both noun phrases agree."""
    flat = "(TOP (S (X (NP (DT the) (NN dog)) (VBZ sees)) (NP (DT a) (JJ cat)) (. .)))"
    assert compared(GOLD, flat) == SentenceCounts(
        length=6, status=Status.VALID, matched=3, gold=4, candidate=4, crossing=1, words=5, correct_tags=4
    )


@pytest.mark.parametrize(("gold", "candidate", "matched"), [
    ("(ADVP (RB up))", "(PRT (RB up))", 1),  # count as the same
    ("(NP-SBJ-1 (NN a))", "(NP=2 (NN a))", 1),
    ("( (NP (NN a)))", "(TOP (NP (NN a)))", 1),  # an outermost bracket does not count, whatever it is called
    ("(NP (NP (NP (NN a))))", "(NP (NP (NN a)))", 2),  # equal brackets pair off one by one
    ("(S (NP (-NONE- *)) (VP (VB go)))", "(S (VP (VB go)))", 2),  # nor does a bracket around a trace
    ("(S (NN a) (PRN (, ,) (, ,)) (NN b))", "(S (NN a) (, ,) (, ,) (NN b))", 1),  # or around punctuation
    ("(S (NP (NN a) (, ,)) (NN b))", "(S (NP (NN a)) (, ,) (NN b))", 2),  # where it hangs does not matter
])  # fmt: skip
def test_what_counts_as_a_bracket(gold: str, candidate: str, matched: int) -> None:
    found = compared(gold, candidate)
    assert (found.status, found.matched) == (Status.VALID, matched)


def quotes(labels: str) -> Parameters:
    return dataclasses.replace(COLLINS, quote_labels=frozenset(labels.split()))


COMMA = "(S (NN a) (, ,) (NN b))", "(S (NN a) (NN ,) (NN b))"
QUOTE = "(S (NP (NN a)) ('' ') (NP (-NONE- *)))", "(S (NP (NN a)) (POS '))"
WITH_QUOTES = quotes("`` '' POS ,")


@pytest.mark.parametrize(("gold", "candidate", "length", "status", "parameters"), [
    ("(S (NN a))", "(S (NN b))", 1, Status.ERROR, COLLINS), ("(S (NN a))", "(S (NN A))", 1, Status.ERROR, COLLINS),
    ("(S (NN a))", "(S (NN a) (NN a))", 1, Status.ERROR, COLLINS), ("(S (NN a))", "", 1, Status.SKIPPED, COLLINS),
    ("", "", 0, Status.SKIPPED, COLLINS), ("", "(S (NN a))", 0, Status.ERROR, COLLINS),
    ("(S (. .))", "(S (. .))", 1, Status.SKIPPED, COLLINS), ("(S (. .))", "(S (NN .))", 1, Status.ERROR, COLLINS),
    ("(S (NN a) (. .))", "(S (. a) (. .))", 2, Status.SKIPPED, COLLINS),
    # trees that do not agree on punctuation have different words
    *((*pair, 3, Status.ERROR, each) for pair in (COMMA, COMMA[::-1]) for each in (COLLINS, WITH_QUOTES)),
    *(("(S (NN a) (, ,))", "(S (, a) (NN ,))", 2, Status.ERROR, each) for each in (COLLINS, WITH_QUOTES)),
    # a quote that counts in one tree only counts in both if both tags are quote labels
    (*QUOTE, 2, Status.ERROR, COLLINS), (*QUOTE, 2, Status.ERROR, quotes("''")),
    # of quotes side by side none is inserted twice; EVALB has the other status in the first two cases
    ("(S ('' ') (POS ') (NN a))", "(S (POS ') (POS ') (NN a))", 3, Status.VALID, WITH_QUOTES),
    ("(S ('' ') (POS ') ('' ') (NN a))", "(S ('' ') (POS ') (POS ') (NN a))", 4, Status.ERROR, WITH_QUOTES),
    ("(S ('' ') (NN a) (POS '))", "(S (POS ') (NN a) ('' '))", 3, Status.ERROR, WITH_QUOTES),  # as many words count
])  # fmt: skip
def test_sentences_of_other_words_are_errors_and_empty_ones_or_punctuation_alone_are_skipped(
    gold: str, candidate: str, length: int, status: Status, parameters: Parameters
) -> None:
    found = compared(gold, candidate, parameters)
    assert (found.length, found.status) == (length, status)
    assert status is Status.VALID or found == SentenceCounts(length, status)


def test_a_quote_counts_in_both_trees_if_it_does_in_one_where_it_stands() -> None:
    both = SentenceCounts(2, Status.VALID, matched=2, gold=2, candidate=2, words=2, correct_tags=1)
    assert compared(*QUOTE, WITH_QUOTES) == compared(*QUOTE[::-1], WITH_QUOTES) == both
    gold = "(S ('' ') (NP (NN a)) (VP (VB b) (POS ')) (POS '))"  # the first in the candidate only, the others here
    found = compared(gold, "(S (POS ') (NP (NN a)) (VP (VB b) ('' ')) ('' '))", WITH_QUOTES)
    assert found == SentenceCounts(5, Status.VALID, matched=3, gold=3, candidate=3, words=5, correct_tags=2)


def test_a_phrase_whose_label_begins_with_a_hyphen_keeps_it() -> None:
    """In EVALB its label is empty, and it counts."""
    trees = [f"(S ({label} (NN a)) (NN b))" for label in ("-NONE-", "-LRB-")]
    assert [compared(tree, tree).gold for tree in trees] == [1, 2]


def test_figures_of_nothing_are_zero() -> None:
    """EVALB prints -nan."""
    for gold, candidate in (("(S (NN a))", "(NP (NN a))"), ("(TOP (NN a))", "(TOP (NN a))")):
        assert list(report([compared(gold, candidate)])).count("Bracketing FMeasure       =   0.00") == 2


def test_tags_of_gold_trees_go_over_where_there_are_as_many_words() -> None:
    gold, candidate = read_tree("(S (NP (NN a) (-NONE- *)) (. .))"), read_tree("(S (NP (XX a)) (XX .))")
    assert with_tags_of(gold, candidate) == read_tree("(S (NP (NN a)) (. .))")
    assert with_tags_of(gold, read_tree("(XX a)")) == read_tree("(XX a)")


@given(trees_of_treebanks)
def test_a_tree_agrees_with_itself_and_with_its_plain_form(tree: Tree) -> None:
    for candidate in (tree, plain(tree)):
        found = compare(tree, candidate)
        if all(COLLINS.is_deleted(leaf) for leaf in tree.leaves):
            assert found.status is Status.SKIPPED
        else:
            assert found.status is Status.VALID
            assert found.matched == found.gold == found.candidate
            assert (found.crossing, found.correct_tags) == (0, found.words)


@given(trees, trees)
def test_recall_one_way_is_precision_the_other_way(one: Tree, other: Tree) -> None:
    """Over the same words: those of the shorter tree, put on both."""
    if len(one.words) != len(other.words):
        one = other = min(one, other, key=lambda tree: len(tree.words))
    one, other = (tree.with_leaves(Leaf("NN", str(i)) for i in range(len(tree.words))) for tree in (one, other))
    there, back = compare(one, other), compare(other, one)
    assert (there.matched, there.gold, there.candidate) == (back.matched, back.candidate, back.gold)
    assert 0 <= there.matched <= min(there.gold, there.candidate)
    assert (there.crossing == 0) == (back.crossing == 0)


def test_a_summary_adds_brackets_up_before_it_divides() -> None:
    one = SentenceCounts(50, Status.VALID, matched=1, gold=2, candidate=1, crossing=0, words=4, correct_tags=4)
    two = SentenceCounts(40, Status.VALID, matched=8, gold=8, candidate=11, crossing=3, words=6, correct_tags=3)
    three = SentenceCounts(3, Status.VALID, matched=1, gold=1, candidate=1, crossing=1, words=2, correct_tags=2)
    everything = Summary.of([one, two, three, SentenceCounts(7, Status.ERROR), SentenceCounts(0, Status.SKIPPED)])
    assert everything.recall == pytest.approx(100 * 10 / 11)
    assert everything.precision == pytest.approx(100 * 10 / 13)
    assert everything.f1 == pytest.approx(100 * 20 / 24)
    assert everything.complete_match == pytest.approx(100 / 3)
    assert everything.average_crossing == pytest.approx(4 / 3)
    assert everything.crossing_at_most(0) == pytest.approx(100 / 3)
    assert everything.crossing_at_most(2) == pytest.approx(200 / 3)
    assert everything.tagging_accuracy == pytest.approx(100 * 9 / 12)
    assert (everything.n_with(Status.ERROR), everything.n_with(Status.SKIPPED), len(everything.valid)) == (1, 1, 3)
    assert Summary.of([one, two], longest=40).recall == 100
    assert Summary.of([]).f1 == Summary.of([]).average_crossing == 0


def test_the_figure_of_a_validation_has_its_signature() -> None:
    gold = [read_tree(GOLD), read_tree("(NP (NN x))")]
    score = bracketing_f1([read_tree("(S (NP (XX the) (XX dog)) (XX sees) (XX a) (XX cat) (XX .))"), gold[1]], gold)
    assert score.value == pytest.approx(100 * 2 * 3 / (5 + 3))
    assert score.name == "F1"
    assert "evalb:COLLINS" in score.signature
    assert score.detail.startswith("F1 = 75.00 (recall 60.00, precision 100.00, complete match 50.00; errors 0 of 2)")


@needs("evalb-expected")
def test_evalbs_own_sample_gives_its_own_output(tmp_path: Path) -> None:
    """Made with T = TT and This = this besides what COLLINS.prm says: sentences 18 and 19 tell."""
    assert read_parameters(SAMPLE / "COLLINS.prm") == COLLINS
    path = tmp_path / "sample.prm"
    path.write_text((SAMPLE / "COLLINS.prm").read_text() + "EQ_LABEL T TT\nEQ_WORD This this\n")
    parameters = read_parameters(path)
    pairs = zip(read_gold_trees(SAMPLE / "sample.gld"), read_candidates(SAMPLE / "sample.tst"), strict=True)
    lines = report([compare(gold, candidate, parameters) for gold, candidate in pairs])
    assert list(lines) == (SAMPLE / "sample.rsl").read_text().splitlines()


def test_parameters_are_read_and_what_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "my.prm"
    path.write_text(
        "# DELETE_LABEL no\nDEBUG 0\n\nLABELED 1\nCUTOFF_LEN 10\nDELETE_LABEL X\nEQ_LABEL A B C\nEQ_LABEL C D\n"
        "QUOTE_LABEL ''\nQUOTE_LABEL POS\n"
    )
    parameters = read_parameters(path)
    assert (parameters.deleted, parameters.deleted_for_length, parameters.cutoff_length) == ({"X"}, frozenset(), 10)
    assert parameters.quote_labels == {"''", "POS"}
    assert {parameters.label(label) for label in ("A", "B-TMP", "C", "D=2")} == {"A"}
    assert compared("(A (X ,) (NN a))", "(D (NN a))", parameters).matched == 1
    for wrong in ("LABELED 0", "EQ_LABEL A", "EQ_WORD a"):
        path.write_text(f"DELETE_LABEL X\n{wrong}\n")
        with pytest.raises(CorpusError, match=f"my.prm, line 2: '{wrong}' is no parameter known here"):
            read_parameters(path)


@pytest.mark.parametrize("lines", [
    ["A B", "C B"], ["A B", "C A"], ["B A", "B C"], ["A B", "C D", "D B"], ["A A", "A B C"],
])  # fmt: skip
def test_whatever_is_equal_to_the_same_is_equal(tmp_path: Path, lines: list[str]) -> None:
    """In whichever order and direction it is said; EVALB, too, compares the two of every line both ways."""
    path = tmp_path / "my.prm"
    path.write_text("".join(f"EQ_LABEL {line}\nEQ_WORD {line.lower()}\n" for line in lines))
    parameters = read_parameters(path)
    names = {name for line in lines for name in line.split()}
    assert len({parameters.label(name) for name in names}) == 1
    assert parameters.label("E") == "E"
    for one, other in itertools.product(names, repeat=2):
        found = compared(f"(S ({one} (NN {one.lower()})))", f"(S ({other} (NN {other.lower()})))", parameters)
        assert (found.status, found.matched) == (Status.VALID, 2)


def test_brackets_equal_to_deleted_ones_are_deleted_but_not_words() -> None:
    """As EVALB compares labels of brackets with those of DELETE_LABEL by EQ_LABEL, and tags letter by letter."""
    parameters = dataclasses.replace(COLLINS, deleted=frozenset({"ADVP"}))
    found = compared("(S (PRT (PRT up)) (ADVP (ADVP off) (NN a)))", "(S (PRT up) (NN a) (ADVP off))", parameters)
    assert found == SentenceCounts(3, Status.VALID, matched=1, gold=1, candidate=1, words=2, correct_tags=2)
