"""One model of several languages: tags in the prepared data and before texts, and what is refused."""

import dataclasses
import io
import json
from copy import copy
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from browser import Browser
from serving import client_of, served
from small_run import output_of, written
from waiting import wait_until

from cli.score import score
from cli.translate import translate
from minitransformer import train
from minitransformer.config import ConfigError, DataConfig, ModelConfig, RunConfig, TrainingConfig
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.given_tokenizer import GivenTokenizer
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.data.profile import TextProfile
from minitransformer.data.store import TokenStore, write_store
from minitransformer.data.survey import CorpusError
from minitransformer.data.token_dropout import BpeDropout
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.report.attended import token_pair
from minitransformer.extras.serve.directions import Direction, Directions
from minitransformer.extras.serve.languages import Language, pairs_of
from minitransformer.inference.translator import Translator
from minitransformer.text.road import STEPS, Road
from tests.support.training import StoppingMonitor, job_of, weights

WORDS = {
    "de": {"one": "eins", "two": "zwei", "three": "drei", "four": "vier"},
    "fr": {"one": "un", "two": "deux", "three": "trois", "four": "quatre"},
}
LINES = [f"{a} {b} {c}" for a in WORDS["de"] for b in WORDS["de"] for c in WORDS["de"]]
# Enough updates that the lines of the tests are translated, however a processor rounds.
TRAINING = TrainingConfig(
    max_updates=600, batch_tokens=600, n_micro_batches=2, warmup_steps=60, learning_rate_factor=0.5, schedule="linear",
    validate_every=300, checkpoint_every=100, precision="float32",
)  # fmt: skip


def in_language(line: str, language: str) -> str:
    return " ".join(WORDS[language][word] for word in line.split())


def config_in(folder: Path, **data: Any) -> RunConfig:
    """Number words from English to German and to French; an odd one of the German pairs is empty."""
    for language in WORDS:
        lines = ["", *LINES] if language == "de" else LINES
        written(folder / f"{language}.en", "".join(f"{line}\n" for line in lines))
        written(folder / f"t.{language}", "".join(f"{in_language(line, language)}\n" for line in lines))
    files: dict[str, Any] = {"train_source": ("de.en", "fr.en"), "train_target": ("t.de", "t.fr"), "tags": ("de", "fr")}
    settings = DataConfig(raw=folder, **{**files, "vocabulary_size": 60, "held_out": 6, **data})
    model = ModelConfig(n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16, p_drop=0.0, alpha=0.6)
    return RunConfig(folder / "run", settings, model, TRAINING)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    config = config_in(tmp_path_factory.mktemp("languages"))
    train(config, callbacks=[])
    return config


@pytest.fixture(scope="module")
def translator(config: RunConfig) -> Translator:
    return Translator.load(config.run)


def test_each_source_begins_with_the_tag_of_its_file_as_one_piece(config: RunConfig) -> None:
    data = PreparedData.open(config.data_directory)
    tokenizer, pairs = data.tokenizer, data.stores["train"].read()
    tags = {language: tokenizer.source.piece_to_id(f"▁>>{language}<<") for language in WORDS}
    read = [pairs.pair(i) for i in range(len(pairs))]
    assert len(read) == 2 * len(LINES) - 6 == sum(data.manifest["train_pairs_of_files"])
    for source, target in read:
        language = next(language for language, tag in tags.items() if source[0] == tag)
        line = tokenizer.source.decode(source[1:].tolist())
        assert tokenizer.decode_target([target.tolist()]) == [in_language(line, language)]
    assert data.manifest["dropped"] == {"empty": 1}
    held_out = data.text("validation")
    assert [source[:6] for source, _ in held_out] == [">>de<<"] * 3 + [">>fr<<"] * 3
    assert all(target == in_language(source[7:], source[2:4]) for source, target in held_out)
    assert tokenizer.languages == tuple(WORDS)


def test_validation_files_have_tags_of_their_own(tmp_path: Path) -> None:
    files: dict[str, Any] = {"validation_source": ("fr.en",), "validation_target": ("t.fr",)}
    data = config_in(tmp_path, **files, validation_tags=("fr",)).data
    assert {source[:7] for source, _ in FileCorpus.of(data).validation()} == {">>fr<< "}


@pytest.mark.parametrize("skip", [(), STEPS], ids=["all steps", "no steps"])
def test_a_text_is_translated_to_the_language_that_is_asked_for(translator: Translator, skip: Any) -> None:
    lines = ["one two three", "", "four four two"]
    for language in WORDS:
        expected = [in_language(line, language) for line in lines]
        assert translator.translate(lines, to_language=language, skip=skip) == expected


@pytest.mark.parametrize("line", [">>fr<< one", "one >>fr<< two", " >>fr<< one two", ">>fr<<"])
def test_the_characters_of_a_tag_in_a_text_are_no_tag(translator: Translator, line: str) -> None:
    """Not a single one is in the ids of the line that the model reads, but for the tag that was asked for."""
    tokenizer, read = translator.tokenizer, list[str]()

    def note(lines: list[str], *others: Any, **options: Any) -> Any:
        read.extend(lines)
        return Translator.n_best(translator, lines, *others, **options)

    with mock.patch.object(translator, "n_best", note):
        for skip in ((), STEPS):
            translator.translate([line], to_language="de", skip=skip)
    (german, french), encoded = map(tokenizer.source.piece_to_id, ("▁>>de<<", "▁>>fr<<")), tokenizer.encode_source(read)
    assert encoded
    assert {ids[0] for ids in encoded} == {german}
    assert all(french not in ids and german not in ids[1:] for ids in encoded)
    assert [len(tokenizer.source_pieces(each)) for each in read] == list(map(len, encoded))


def test_other_languages_and_none_are_refused_by_name_at_every_door(
    config: RunConfig, translator: Translator, tmp_path: Path
) -> None:
    unknown = "to_language: the model does not translate to es; it translates to de, fr"
    missing = "the model translates to de, fr: set to_language to one of them"
    with pytest.raises(ConfigError, match=unknown):
        translator.translate(["one"], to_language="es")
    with pytest.raises(ConfigError, match=missing):
        translator.translate(["one"])
    with pytest.raises(ConfigError, match=missing):
        translator.translate([">>de<< one"])
    for options, message in (([], missing), (["--to-language", "es"], unknown)):
        with pytest.raises(ConfigError, match=message):
            translate(["--run", str(config.run), *options], io.BytesIO(b"one\n"), io.BytesIO())
    without = "the model translates to de, fr, and the line 'one' does not say to which: begin it with >>de<< or with"
    with pytest.raises(ConfigError, match=without):
        translator.n_best(["", ">>de<< one", "one"], mock.Mock())
    with pytest.raises(ConfigError, match=without):
        token_pair(translator, "one")
    one, eins = (written(tmp_path / name, f"{name}\n") for name in ("one", "eins"))
    with pytest.raises(ConfigError, match=without):
        output_of(lambda: score(["pairs", one, eins, "--run", str(config.run)]))


def test_a_model_of_one_language_translates_to_this_language_alone() -> None:
    tokenizer = Tokenizer.train([("one two", "eins zwei")] * 9, vocabulary_size=16)
    (sentence,) = Road(tokenizer, TextProfile("en", "de"), to_language="de").sentences(["one"])
    assert sentence.line == "one"
    with pytest.raises(ConfigError, match="does not translate to fr; it translates to de"):
        Road(tokenizer, TextProfile("en", "de"), to_language="fr")
    with pytest.raises(ConfigError, match="to_language: .* it translates to one language, which its files do not name"):
        Road(tokenizer, to_language="fr")


@pytest.mark.parametrize("language", WORDS)
def test_the_command_translates_lines_and_documents(config: RunConfig, language: str, tmp_path: Path) -> None:
    out, options = io.BytesIO(), ["--run", str(config.run), "--to-language", language]
    translate([*options, "--alignments", str(tmp_path / "links")], io.BytesIO(b"one two four\n"), out)
    assert out.getvalue().decode() == f"{in_language('one two four', language)}\n"
    links = [link.split("-") for link in (tmp_path / "links").read_text().split()]
    assert {int(i) for i, _ in links} <= {0, 1, 2}, "words of the line, which has no tag"
    assert {int(j) for _, j in links} == {0, 1, 2}
    document = written(tmp_path / "messages.json", json.dumps({"key": "four one two"}))
    translate([*options, "--input", document, "--output", f"{tmp_path}/out.json"], io.BytesIO(), io.BytesIO())
    assert json.loads((tmp_path / "out.json").read_text()) == {"key": in_language("four one two", language)}
    table = written(tmp_path / "memory.tsv", "one\tx\n")
    wrong = [*options, "--input", table, "--languages", "en", "es"]
    with pytest.raises(ConfigError, match=rf"--to-language {language}: the files are in en and es; give --languages"):
        translate(wrong, io.BytesIO(), io.BytesIO())


def test_a_model_that_names_its_languages_only_by_its_tags_is_served_with_them(translator: Translator) -> None:
    """So are models of OPUS-MT, and of this program after they were converted for another one and back."""
    converted = copy(translator)
    converted.profile = TextProfile("en")
    for language in WORDS:
        direction = Direction(Language("en"), Language(language), converted)
        assert (direction.tag, direction.road((), None).to_language) == (language, language)
    assert Direction(Language("en"), Language("es"), converted).tag is None


def test_the_server_lists_the_languages_and_translates_to_each(config: RunConfig, translator: Translator) -> None:
    english, german, french = map(Language, ("en", "de", "fr"))
    pairs = pairs_of(config.run, None, None)
    assert pairs == [(english, german), (english, french)]
    assert pairs_of(config.run, None, "fr") == [(english, french)]
    with pytest.raises(ConfigError, match="run does not translate to es; it translates to de, fr"):
        pairs_of(config.run, None, "es")
    with client_of(Directions([Direction(*pair, translator) for pair in pairs])) as client:
        listed = client.get("/languages").json()
        assert [(each["code"], each["targets"]) for each in listed] == [("en", ["de", "fr"]), ("de", []), ("fr", [])]
        for language in WORDS:
            fields = {"source": "auto", "target": language}
            answer = client.post("/translate", json={"q": ["one two three"], **fields}).json()
            assert answer["translatedText"] == [in_language("one two three", language)]
            file = {"file": ("messages.json", b'{"key": "four two one"}')}
            address = client.post("/translate_file", files=file, data={**fields, "source": "en"}).json()
            found = client.get(address["translatedFileUrl"]).json()
            assert found == {"key": in_language("four two one", language)}
            words = {"q": "one two", "translation": in_language("one two", language), "target": language}
            attention = client.post("/attention", json=words).json()
            assert attention["source"] == ["one", "two"]
            np.testing.assert_allclose(np.sum(attention["weights"], axis=1), 1, atol=2e-3)
        refused = client.post("/translate", json={"q": "one", "source": "en", "target": "es"})
        assert (refused.status_code, refused.json()) == (
            400,
            {"error": "es is not supported; this server translates en to de, en to fr"},
        )
        refused = client.post("/attention", json={"q": "one", "translation": "eins"})
        assert refused.json() == {"error": "Invalid request: missing target parameter"}
        page = client.get("/").text
        assert '<option value="de">German</option><option value="fr">French</option>' in page


def test_the_page_of_the_server_has_a_list_of_languages(config: RunConfig, browser: Browser) -> None:
    with served(config.run, languages=()) as server:
        browser.open(server.address)
        browser.evaluate("document.getElementById('text').focus()")
        browser.ask("Input.insertText", text="one two four")
        result = "document.getElementById('result').innerText.trim().split('\\n')[0].replace(/\\s+/g, ' ')"
        wait_until(lambda: browser.evaluate(result).startswith("eins zwei vier"))
        browser.evaluate(
            "const list = document.getElementById('target'); list.value = 'fr';"
            " list.dispatchEvent(new Event('change', {bubbles: true}))"
        )
        wait_until(lambda: browser.evaluate(result).startswith("un deux quatre"))
        assert browser.evaluate("document.querySelector('h1').textContent").endswith("French")
        assert browser.complaints() == []


def test_an_interrupted_training_ends_with_the_same_bits(config: RunConfig, tmp_path: Path) -> None:
    again = config_in(tmp_path)
    assert not job_of(again).trainer.train(StoppingMonitor(130))
    train(again, callbacks=[])
    np.testing.assert_array_equal(weights(again), weights(config))
    assert TextProfile.load(again.run) == TextProfile("en", None, 1, 4, ("de", "fr"))
    (again.run / "text.json").unlink()
    assert TextProfile.load(again.run).targets == ("de", "fr")


def test_dropout_of_merges_leaves_tags_and_bytes_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the text has all characters with which sentencepiece writes the names of these pieces."""
    monkeypatch.setattr("minitransformer.data.tokenizer.LARGE_VOCABULARY", 300)
    text = [(f">>de<< {line} > < d e 0 x A C E D B F 1 2", line) for line in LINES]
    tokenizer = Tokenizer.train(text, vocabulary_size=310, languages=["de"])
    line = ">>de<< one two ÿ three"
    assert {"▁>>de<<", "<0xC3>", "<0xBF>"} <= set(tokenizer.source_pieces(line))
    ids = tokenizer.encode_source([line])[0]
    write_store(tmp_path, "train", [(ids * 4, [3])] + [(ids, [3])] * 20, tokenizer.n_source_words)
    drawn = BpeDropout(TokenStore(tmp_path, "train"), tokenizer, 0.7, seed=1)
    for epoch in range(3):
        pairs = drawn.read([0], epoch)
        sources = [pairs.pair(i)[0].tolist() for i in range(1, len(pairs))]
        assert any(source != ids for source in sources)
        assert {source[0] for source in sources} == {ids[0]}
        assert {tokenizer.source.decode(source) for source in sources} == {line}


FILES: dict[str, Any] = {"train_source": ("a.en", "b.en"), "train_target": ("a.de", "b.fr")}


@pytest.mark.parametrize(("settings", "message"), [
    ({**FILES, "tags": ("de",)}, r"data.tags: expected one for each file of data.train_source, 2; got 1"),
    ({**FILES, "tags": ("de", "fr"), "validation_source": ("v.en",), "validation_target": ("v.de",)},
     r"data.validation_tags: expected one for each file of data.validation_source, 1; got 0"),
    ({**FILES, "validation_tags": ("de",)}, r"data.validation_tags: expected none without data.tags; got 1"),
    ({**FILES, "tags": ("de", "a b")}, r"data.tags must be a code such as .*; got 'a b'"),
    ({**FILES, "tags": ("de", "fr"), "languages": ("en", "de")}, "data.tags name the target .*: leave data.languages"),
    ({"tags": ("de",), "train_trees": ("t",), "validation_trees": ("v",), "joint_vocabulary": False,
      "tokenizer": "word"}, "data.tags: expected one for each file of data.train_source, 0; got 1"),
])  # fmt: skip
def test_tags_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataConfig(**settings)


def test_a_tokenizer_without_the_tags_is_refused(tmp_path: Path) -> None:
    data = config_in(tmp_path).data
    plain = Tokenizer.train([(line, in_language(line, "fr")) for line in LINES], vocabulary_size=50)
    message = r"data.tags: the tokenizer has no piece >>de<<; it has no tag. Train a new tokenizer: leave init_from and"
    with pytest.raises(ConfigError, match=message):
        prepare(data, tmp_path / "data", given=GivenTokenizer(plain))
    files: dict[str, Any] = {
        "validation_source": ("de.en",),
        "validation_target": ("t.de",),
        "validation_tags": ("es",),
    }
    with pytest.raises(ConfigError, match="the tokenizer has no piece >>es<<; it has >>de<<, >>fr<<"):
        prepare(dataclasses.replace(data, **files), tmp_path / "data")


def test_a_text_without_tags_for_a_tokenizer_with_them_is_named(tmp_path: Path, logged: list[str]) -> None:
    """The model that a run begins from was trained with tags, so it learns most from text with them."""
    config = config_in(tmp_path)
    given = GivenTokenizer(prepare(config.data, tmp_path / "data").tokenizer)
    one: dict[str, Any] = {"train_source": ("fr.en",), "train_target": ("t.fr",), "tags": ()}
    warning = "warning: sources of the given tokenizer begin with a tag, such as >>de<<, but this text has none: set"
    for number, text in enumerate((None, "".join(f">>fr<< {line}\n" for line in LINES))):
        if text:
            written(tmp_path / "fr.en", text)
        logged.clear()
        prepare(dataclasses.replace(config.data, **one), tmp_path / f"data-{number}", given=given)
        assert sum(line.startswith(warning) for line in logged) == (not text)


def test_files_that_name_their_languages_must_have_the_tag_of_their_target(tmp_path: Path) -> None:
    for language in WORDS:
        rows = ({"translation": {"en": line, language: in_language(line, language)}} for line in LINES)
        written(tmp_path / f"{language}.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    data = DataConfig(raw=tmp_path, train_source=("de.jsonl", "fr.jsonl"), tags=("de", "fr"))
    sources = [source for source, _ in FileCorpus.of(data).train()]
    assert (sources[0][:7], sources[-1][:7]) == (">>de<< ", ">>fr<< ")
    with pytest.raises(CorpusError, match=r"de.jsonl: is read as en → de, but its tag is fr: give the tag of its"):
        FileCorpus.of(dataclasses.replace(data, tags=("fr", "fr")))
