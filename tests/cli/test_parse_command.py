"""Parsing from end to end: a treebank, a model, trees of sentences, and their score."""

import dataclasses
import io
from pathlib import Path

import pytest
from small_run import Command, Trained, changed, log_of, output_of, results_of, written
from toy_treebank import write_toy_treebank

from cli.parse import parse
from cli.score import score
from cli.serve import serve
from cli.train import train
from cli.translate import translate
from minitransformer import Transformer, Translator
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.extras.convert.parts import Parts
from minitransformer.extras.parsing.parser import PARSING, Parser
from minitransformer.extras.parsing.penn import read_tree, read_trees, write_tree
from minitransformer.extras.parsing.plain import plain
from minitransformer.system.files import CheckpointError

SMALL_PARSER = """--preset parsing-small --data.train-trees t.mrg --data.validation-trees v.mrg
    --data.vocabulary-size 60 --data.leaf-symbols tags
    --model.n-layers 1 --model.d-model 32 --model.d-ff 64 --model.n-heads 2 --model.d-k 16 --model.d-v 16
    --model.p-drop 0 --training.max-updates 350 --training.batch-tokens 400 --training.n-micro-batches 2
    --training.warmup-steps 60 --training.log-every 50 --training.validate-every 175 --training.checkpoint-every 350
    --training.keep-checkpoints 1 --training.average-checkpoints 1"""


@pytest.fixture(scope="module")
def trained_parser(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("parsing")
    write_toy_treebank(folder / "t.mrg", 400, seed=1)
    write_toy_treebank(folder / "v.mrg", 30, seed=2)
    arguments = ["--run", str(folder / "run"), "--data.raw", str(folder), *SMALL_PARSER.split()]
    return Trained(folder / "run", arguments, output_of(lambda: train(arguments)))


def parsed(trained_parser: Trained, source: str | bytes, *options: str) -> list[str]:
    source, target = source.encode() if isinstance(source, str) else source, io.BytesIO()
    assert parse(changed(["--run", str(trained_parser.run), "--beam", "3"], *options), io.BytesIO(source), target) == 0
    return target.getvalue().decode().splitlines()


def summary_of(command: Command, *words: str) -> dict[str, float]:
    ended = command("score", "trees", *words)
    assert ended.status == 0
    lines = ended.output.split("-- All --")[1].splitlines()[1:13]
    return {name.strip(): float(value) for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.slow
def test_training_validates_by_f1(trained_parser: Trained) -> None:
    training, validations = (log_of(trained_parser.run, kind) for kind in ("training", "validation"))
    assert training[-1]["loss"] < training[0]["loss"] / 2
    assert {"f1", "signature"} < validations[0].keys()
    assert all(read_tree(text) for sample in validations[-1]["samples"] for text in list(sample.values())[1:])
    assert validations[-1]["f1"] > 60
    assert f"greedy F1 {validations[-1]['f1']:.2f} [evalb:COLLINS|tags:gold]" in trained_parser.log
    results = results_of(trained_parser.run)["validation"]
    assert results["detail"] in trained_parser.log
    assert results["f1"] > 60


def test_each_sentence_becomes_a_tree_over_its_words(trained_parser: Trained) -> None:
    trees = parsed(trained_parser, "the dog sees a cat.\n\nUnheard-of (words): dogs' 10%!\n")
    assert [read_tree(tree).words for tree in trees] == [
        ["the", "dog", "sees", "a", "cat", "."],
        [],
        ["Unheard-of", "-LRB-", "words", "-RRB-", ":", "dogs", "'", "10", "%", "!"],
    ]
    assert trees[0].startswith("(TOP (S (NP (")
    assert trees[1] == ""
    assert parsed(trained_parser, "a re-do.", "--words", "blanks") != parsed(trained_parser, "a re-do.")
    assert parsed(trained_parser, "\ufeffthe dog sees a cat.\n") == trees[:1]  # a byte order mark is no word


def test_several_runs_parse_together(trained_parser: Trained, tmp_path: Path) -> None:
    """An ensemble of a model with itself is the model; another one, which is sure of other trees, has a say."""
    text, parts = "the dog sees a cat\nthe man near the house likes a dog .\n", Parts.load(trained_parser.run)
    weights = {name: -4 * array for name, array in parts.weights.items()}
    dataclasses.replace(parts, weights=weights).save(tmp_path / "other")
    run, other, alone = str(trained_parser.run), str(tmp_path / "other"), parsed(trained_parser, text)
    assert parsed(trained_parser, text, "--run", run, "--run", run) == alone
    both = parsed(trained_parser, text, "--run", run, "--run", other)
    parser = Parser(Translator([Transformer.load(run), Transformer.load(other)], parts.tokenizer))
    trees = parser.parse([line.split() for line in text.splitlines()], dataclasses.replace(PARSING, beam=3))
    assert both == [write_tree(tree) for tree in trees]
    assert both != alone


def test_a_majority_of_the_beam_decides_if_wanted(trained_parser: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the man near the house likes a dog\n\n"
    best = parsed(trained_parser, text)
    monkeypatch.setattr("minitransformer.extras.parsing.parser.majority_tree", lambda trees, logarithms: trees[2])
    third = parsed(trained_parser, text, "--majority")
    assert third[0] != best[0] == parsed(trained_parser, text)[0]
    assert third[1] == ""
    assert parsed(trained_parser, text, "--majority", "--beam", "1")[0].startswith("(TOP (S")  # the greedy tree alone


def test_references_parse_as_kernels_do(trained_parser: Trained, kernels_run: list[object]) -> None:
    by_references = parsed(trained_parser, "the dog sleeps\n", "--kernels", "reference")
    assert not kernels_run
    assert parsed(trained_parser, "the dog sleeps\n") == by_references
    assert kernels_run


def test_weights_are_rounded_or_refused_as_in_a_translation(trained_parser: Trained) -> None:
    assert parsed(trained_parser, "the dog sleeps\n", "--weights", "int8")[0].startswith("(TOP ")
    with pytest.raises(ConfigError, match=r'weights must be one of .*int8.* on "cpu"; got \'float16\''):
        parsed(trained_parser, "the dog sleeps\n", "--weights", "float16")


def test_cut_texts_are_named(trained_parser: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 12)
    monkeypatch.setattr("cli.parse.SENTENCES_AT_ONCE", 2)
    sentences = ["a cat", "", "the dog sees a cat " * 4]
    parsed(trained_parser, "\n".join(sentences))
    assert logged == ["warning: line 3 has over 12 tokens; the rest is cut off"]
    trees = [f"(S {' '.join(f'(NN {word})' for word in sentence.split())})\n" for sentence in sentences if sentence]
    parsed(trained_parser, "", "--treebank", written(trained_parser.run.parent / "long.mrg", "".join(trees)))
    assert logged[1:] == ["warning: tree 2 has over 12 tokens; the rest is cut off"]


def test_standard_input_of_another_kind_and_a_treebank_without_trees_are_refused(trained_parser: Trained) -> None:
    with pytest.raises(CorpusError, match="standard input: is UTF-16, not plain UTF-8 text"):
        parsed(trained_parser, "The dog sleeps.\n".encode("utf-16"))
    empty = written(trained_parser.run.parent / "empty.mrg", "\n\n")
    with pytest.raises(CorpusError, match=r"empty\.mrg: contains no tree; expected Penn brackets"):
        parsed(trained_parser, "", "--treebank", empty)


def test_invalid_utf8_is_parsed_with_a_warning_that_names_the_line(
    trained_parser: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.parse.SENTENCES_AT_ONCE", 1)
    trees = parsed(trained_parser, b"a cat.\nthe d\xf6g.\n\xed\xa0\x80\n")
    assert [read_tree(tree).words for tree in trees] == [["a", "cat", "."], ["the", "d\ufffdg", "."], ["\ufffd" * 3]]
    assert logged == [
        f"warning: line {number} is not UTF-8 ({reason}); read with replacements"
        for number, reason in ((2, "invalid start byte"), (3, "invalid continuation byte"))
    ]


def test_parsed_words_score_as_in_validation(trained_parser: Trained, command: Command) -> None:
    gold = trained_parser.run.parent / "v.mrg"
    trees = parsed(trained_parser, "", "--treebank", str(gold), "--beam", "4")
    assert [read_tree(tree).words for tree in trees] == [plain(tree).words for tree in read_trees(gold)]
    candidate = written(trained_parser.run.parent / "parsed", "".join(f"{tree}\n" for tree in trees))
    figures = summary_of(command, str(gold), candidate, "--gold-tags")
    assert figures["Number of sentence"] == figures["Number of Valid sentence"] == 30
    assert figures["Tagging accuracy"] == 100
    results = results_of(trained_parser.run)["validation"]
    assert figures["Bracketing FMeasure"] == pytest.approx(results["f1"], abs=0.005)


def test_gold_trees_score_100_and_wrong_tags_are_shown(command: Command, tmp_path: Path) -> None:
    gold = written(tmp_path / "gold", "( (S (NP-SBJ (NN a)) (VP (VB b))) )\n(TOP (NP (NN x) (. .)))\n")
    published = written(tmp_path / "mrg", "\n( (S\n (NP-SBJ (NN a))\n (VP (VB b)))\n)\n(TOP (NP (NN x) (. .)))\n")
    for trees in (published, gold):
        figures = summary_of(command, trees, gold)
        assert figures["Number of sentence"] == 2
        assert figures["Bracketing FMeasure"] == figures["Tagging accuracy"] == figures["Complete match"] == 100
    candidate = written(tmp_path / "candidate", "(S (NP (XX a)) (VP (XX b)))\n(NP (XX x) (XX .))\n")
    assert summary_of(command, gold, candidate)["Tagging accuracy"] == 0
    warning = "candidate: has tags XX; --gold-tags takes the tags from the gold trees"
    assert warning in command("score", "trees", gold, candidate).error


def test_empty_gold_lines_count_beside_empty_candidates(command: Command, tmp_path: Path) -> None:
    gold, two = written(tmp_path / "gold", "(S (NN a))\n\n(S (NN b))\n\n"), "(S (NN a))\n{}(S (NN b))\n{}"
    for line, n in (("", 2), ("\n", 4)):
        figures = summary_of(command, gold, written(tmp_path / "candidate", two.format(line, line)))
        assert (figures["Number of sentence"], figures["Bracketing FMeasure"]) == (n, 100)


def test_a_line_without_a_parse_concerns_its_own_sentence(command: Command, tmp_path: Path) -> None:
    gold = written(tmp_path / "gold", "(S (NN a))\n" * 3)
    candidate = written(tmp_path / "candidate", "(())\n(S (NN a)\n(S (NN a))\n")
    _, output, error = command("score", "trees", gold, candidate)
    assert [row.split()[:3] for row in output.splitlines()[3:6]] == [["1", "1", "2"], ["2", "1", "1"], ["3", "1", "0"]]
    assert "candidate, line 2: brackets that are not closed: 1" in error


def test_parameters_of_evalb_can_be_given(command: Command, tmp_path: Path) -> None:
    gold, candidate = written(tmp_path / "gold", "(S (NP (NN a)))\n"), written(tmp_path / "c", "(S (NX (NN a)))\n")
    parameters = written(tmp_path / "my.prm", "EQ_LABEL NP NX\n")
    assert summary_of(command, gold, candidate)["Bracketing FMeasure"] == 50
    assert summary_of(command, gold, candidate, "--parameters", parameters)["Bracketing FMeasure"] == 100


def test_a_translator_is_no_parser_and_a_parser_no_translator(trained: Trained, trained_parser: Trained) -> None:
    with pytest.raises(CheckpointError, match="run: the model makes no trees"):
        parsed(trained, "a\n")
    run = ["--run", str(trained_parser.run)]
    text = [written(trained_parser.run.parent / name, "a\n") for name in ("text", "target")]
    for command in (
        lambda: translate(run, io.BytesIO(b"a\n"), io.BytesIO()),
        lambda: score(["tune-length", *text, *run]),
        lambda: serve([*run, "--port", "0"]),
    ):
        with pytest.raises(ConfigError, match="run: is a parser, which writes trees: use minitransformer-parse"):
            command()
