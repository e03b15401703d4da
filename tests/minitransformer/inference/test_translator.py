"""Raw text through a model, with a tokenizer trained on a handful of lines."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from small_sentences import LINES, small_tokenizer
from threadpoolctl import threadpool_info

from autograd.array import Device
from minitransformer import Transformer, Translator, presets
from minitransformer.config import ConfigError
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.beam import beam_search
from minitransformer.inference.line_search import batches_by_length, lines_at_once
from minitransformer.inference.search import SearchConfig
from minitransformer.model.files import load_model_files
from minitransformer.model.symbols import END
from minitransformer.system.files import CheckpointError
from minitransformer.system.threads import map_in_threads
from minitransformer.text.road import STEPS
from minitransformer.training.checkpoint import checkpoint_path


def test_one_line_for_each_in_order_on_any_threads(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LINES[:7]
    together = translator.translate(lines, beam=2, n_threads=1)
    assert together == [translator.translate([line], beam=2)[0] for line in lines]
    assert translator.translate(["", "a dog", "   "], beam=1)[0::2] == ["", "   "]
    monkeypatch.setattr("minitransformer.inference.line_search.HYPOTHESES_AT_ONCE", {"cpu": 4, "cuda": 4})
    assert translator.translate(lines, beam=2, n_threads=3) == together


def test_one_str_is_no_list_of_lines(translator: Translator) -> None:
    calls = translator.translate, translator.cut, translator.count_tokens
    tokenizer = translator.tokenizer
    for call in (*calls, lambda line: translator.n_best(line, SearchConfig()), tokenizer.encode_source):
        with pytest.raises(TypeError, match=r"expected a list of lines, got one str: use \['a dog'\]"):
            call("a dog")
    with pytest.raises(TypeError, match="encode: expected a list of lines"):
        tokenizer.encode_target("a dog")
    with pytest.raises(TypeError, match=r"expected a list of lines, got one str: use \['ab'\]"):
        translator.translate(["a", "dog"], prefixes="ab")


def test_sentences_are_dealt_out_by_length_and_none_is_lost() -> None:
    sources = [[3] * n for n in (5, 0, 2, 9, 7, 1, 3, 8, 4, 6)]
    cases: list[tuple[Device, int, list[int], list[list[int]]]] = [
        ("cpu", 4, [0, *range(2, 10)], [[3, 4, 0, 6, 5], [7, 9, 8, 2]]),
        ("cpu", 128, [0, *range(2, 10)], [[3, 4, 0, 6], [7, 9, 8, 2], [5]]),
        ("cpu", 4, [0, *range(2, 8)], [[3, 7, 4, 0, 6, 2, 5]]),
        ("cpu", 4, [], []),
        ("cuda", 4, [0, *range(2, 10)], [[3, 7, 4, 9, 0, 8, 6, 2, 5]]),  # slots are filled again
        ("cuda", 4, [], []),
    ]
    for device, beam, indices, expected in cases:
        assert [batch.tolist() for batch in batches_by_length(sources, indices, beam, device)] == expected


@pytest.mark.parametrize("beam", [1, 4, 512])
def test_of_very_long_sentences_there_are_fewer_together_and_none_is_lost(beam: int) -> None:
    sources = [[3] * (1_024 - i) for i in range(100)]
    batches = batches_by_length(sources, list(range(100)), beam, "cpu")
    assert sorted(np.concatenate(batches).tolist()) == list(range(100))
    assert max(len(batch) * max(len(sources[i]) for i in batch) ** 2 for batch in batches) <= 512 * 128**2
    batches = batches_by_length([[3] * 127] * 2_048, list(range(2_048)), beam, "cpu")
    assert {len(batch) for batch in batches} == {512 // beam if beam < 512 else 2}


def test_on_a_gpu_a_very_long_sentence_does_not_limit_the_number_of_short_ones_at_work() -> None:
    sources = [[3] * n for n in (9, 800, 130, 127, 500, 200, 1)]
    batches = [batch.tolist() for batch in batches_by_length(sources, list(range(7)), 4, "cuda")]
    assert batches == [[1], [4], [5, 2], [3, 0, 6]]
    assert [lines_at_once(len(sources[batch[0]]), 4, "cuda") for batch in batches] == [13, 33, 207, 256]


@pytest.mark.parametrize(("n_items", "n_blas_threads"), [(1, 4), (2, 2), (3, 1), (9, 1)])
def test_threads_that_batches_leave_idle_are_blass(n_items: int, n_blas_threads: int) -> None:
    def blas_threads(_: int) -> int:
        return next(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    assert set(map_in_threads(blas_threads, range(n_items), 4)) == {n_blas_threads}


@pytest.mark.parametrize(("n_texts", "expected"), [(7, 4), (4, 4), (3, 3), (1, 1)])
def test_n_best_are_the_best_of_different_texts(n_texts: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts here are numbers; a search without the rule finds the same one several times."""

    def text_of(ids: Sequence[int]) -> str:
        return str(crc32(bytes(ids)) % n_texts)

    model = Transformer(dataclasses.replace(presets.tiny(70), softmax_bias=True))
    model.softmax_bias.value[END] = 1  # so that many translations end
    translator, lines = Translator(model, small_tokenizer()), LINES[:3]
    monkeypatch.setattr(translator.tokenizer, "decode_target", lambda sequences: list(map(text_of, sequences)))
    config = SearchConfig(beam=4, n_best=4, max_extra_tokens=6)
    searches = beam_search(translator.models, translator.tokenizer.encode_source(lines), config, n_finished=64)
    for found, hypotheses in zip(translator.n_best(lines, config), searches, strict=True):
        by_text = {text_of(each.ids): each.score for each in reversed(hypotheses)}
        assert {each.text: each.score for each in found} == pytest.approx(
            dict(sorted(by_text.items(), key=lambda item: -item[1])[:expected])
        )
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len({each.text for each in found}) == expected


@pytest.mark.parametrize("sampling", [None, Sampling(seed=3)])
@pytest.mark.parametrize("n_best", [1, 3])
def test_a_line_that_reaches_the_limit_of_the_first_search_is_searched_again(
    n_best: int, sampling: Sampling | None, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[int]()
    config = SearchConfig(beam=3, n_best=n_best, max_extra_tokens=9)
    whole = translator.n_best(LINES[:3], config, sampling=sampling)
    monkeypatch.setattr("minitransformer.inference.line_search.FIRST_EXTRA_TOKENS", 1)
    again = translator.n_best(LINES[:3], config, sampling=sampling, advance=done.append)
    assert [[each.text for each in found] for found in again] == [[each.text for each in found] for found in whole]
    assert sum(done) == 3


def test_a_translation_at_the_greatest_length_is_marked(translator: Translator) -> None:
    config, sources = SearchConfig(beam=2, n_best=2, max_extra_tokens=2), translator.tokenizer.encode_source(LINES[:3])
    searches = beam_search(translator.models, sources, config)
    longest = [[len(h.ids) + 1 == len(ids) + 2 for h in best] for ids, best in zip(sources, searches, strict=True)]
    assert [[each.is_cut for each in best] for best in translator.n_best(LINES[:3], config)] == longest
    assert {is_longest for best in longest for is_longest in best} == {True, False}


def test_translations_never_span_lines(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator.tokenizer, "decode_target", lambda ids: ["two\nlines\u2028or three"] * len(ids))
    assert translator.translate(["a dog"], beam=1) == ["two lines or three"]


def test_very_long_lines_are_cut(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 8)
    long = "a dog sees " * 50
    cut = translator.tokenizer.source.decode(translator.tokenizer.encode_source([long])[0][:8])
    ((whole,),) = translator.translate_texts([long], SearchConfig(beam=1), translator.road(STEPS))
    assert whole.text.strip() == translator.translate([cut], beam=1, skip=STEPS)[0]
    assert [str(note) for note in whole.notes if "over 8 tokens" in note.message]


def test_a_line_that_is_cut_although_it_has_fewer_characters_than_may_have_tokens_is_known() -> None:
    """sentencepiece makes the compatibility form of characters: of one here four, "a.m."."""
    translator = Translator(Transformer(presets.tiny(70)), small_tokenizer(normalisation="nmt_nfkc"))
    line = "\N{SQUARE AM}" * 600
    assert len(line) < translator.longest_source < len(translator.tokenizer.encode_source([line])[0])
    assert translator.cut(["a dog", line]) == [1]


@pytest.mark.parametrize("first_position", [0, 1, 4])
def test_a_line_is_cut_to_the_room_of_learned_positions(translator: Translator, first_position: int) -> None:
    config = presets.tiny(translator.tokenizer.n_target_words)
    config = dataclasses.replace(config, positions="learned", max_positions=20, first_position=first_position)
    learned = Translator(Transformer(config), translator.tokenizer)
    assert learned.longest_source == 19 - first_position  # and the end symbol
    assert learned.cut(["a dog", "a dog sees " * 9]) == [1]
    assert len(learned.n_best(["a dog sees " * 9], SearchConfig(beam=1))) == 1


def test_only_wanted_lines_of_a_batch_are_translated(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.inference.line_search.HYPOTHESES_AT_ONCE", {"cpu": 4, "cuda": 4})
    lines = ["a dog", "", "sees red houses", "a", "red dog sees", "houses"]
    wanted = [True, True, False, True, False, True]
    found = translator.n_best(lines, SearchConfig(), n_threads=2, wanted=lambda: wanted)
    expected = translator.translate(lines, skip=STEPS)
    assert [[best.text for best in line] for line in found] == [
        [text] if is_wanted else [] for text, is_wanted in zip(expected, wanted, strict=True)
    ]


@pytest.mark.parametrize(("weights", "error"), [("bfloat16", 0.05), ("int8", 0.2)])
def test_rounded_weights_are_nearly_the_same(translator: Translator, tmp_path: Any, weights: Any, error: float) -> None:
    translator.model.save(tmp_path)
    translator.tokenizer.save(tmp_path)
    loaded, rounded = Translator.load(tmp_path), Translator.load(tmp_path, weights=weights)
    lines, search = LINES[:3], SearchConfig(beam=1)
    assert loaded.translate(lines) == translator.translate(lines)
    for (exact,), (found,) in zip(translator.n_best(lines, search), rounded.n_best(lines, search), strict=True):
        n_tokens = 1 + len(exact.text.split())
        assert found.log_probability == pytest.approx(exact.log_probability, abs=error * n_tokens)
        assert found.log_probability != exact.log_probability
    exactly = Translator.load(tmp_path, weights="float32")
    assert rounded.fingerprint() != translator.fingerprint() == loaded.fingerprint() == exactly.fingerprint()


def test_other_weights_and_a_directory_without_model_are_refused(translator: Translator, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"weights: expected one of \('automatic', 'float32', .*\); got 'int4'"):
        Translator(translator.model, translator.tokenizer, weights="int4")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r'weights must be one of .*\) on "cpu"; got \'float16\''):
        Translator(translator.model, translator.tokenizer, weights="float16")
    with pytest.raises(CheckpointError, match="no model here .*train one, or give the directory of a trained model"):
        Translator.load(tmp_path)


def test_before_the_first_validation_the_newest_checkpoint_translates(
    translator: Translator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    translator.tokenizer.save(tmp_path)
    Transformer(translator.model.config, seed=9).save(checkpoint_path(tmp_path, 90))
    with pytest.raises(CheckpointError, match="no model here .*start its training again, which goes on, or give"):
        load_model_files(tmp_path)
    translator.model.save(checkpoint_path(tmp_path, 100))
    assert Translator.load(tmp_path).translate(LINES[:3]) == translator.translate(LINES[:3])
    assert "has had no validation yet, so this is the model of its newest checkpoint, step-00000100" in caplog.text
    caplog.clear()
    translator.model.save(tmp_path)
    Translator.load(tmp_path)
    assert caplog.text == ""


@pytest.mark.parametrize("n_pieces", [60, 71])
def test_the_tokenizer_of_another_model_is_refused(translator: Translator, n_pieces: int, tmp_path: Any) -> None:
    translator.model.save(tmp_path)
    small_tokenizer(n_pieces).save(tmp_path)
    message = rf"has 70 source and 70 target words, but its tokenizer {n_pieces} and {n_pieces}: .* restore"
    with pytest.raises(CheckpointError, match=message):
        Translator.load(tmp_path)
