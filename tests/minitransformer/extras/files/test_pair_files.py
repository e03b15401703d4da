"""Tables, JSON lines and archives of Moses: the same pairs as two aligned files."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest

from minitransformer.config import ConfigError, DataConfig
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.normalisation import words_of_line
from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.pair_files import INCOMPLETE, languages_of, read_pair_file, survey_pair_file

PAIRS = [("a house", "ein Haus"), ('"two" \u2028 cats', "zwei\u00a0Katzen")]


def table(path: Path) -> None:
    lines = ["\ufeff" + "\t".join(PAIRS[0]), "alone", "\t".join((*PAIRS[1], "0.9")) + "\r"]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def json_lines(path: Path) -> None:
    units = [{"en": "a house", "de": "ein Haus"}, {"en": "alone"}, {"de": PAIRS[1][1], "en": PAIRS[1][0]}]
    path.write_text("".join(json.dumps({"id": 1, "translation": unit}) + "\n" for unit in units))


def zipped(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return content.getvalue()


def archive(path: Path) -> None:
    texts = {code: [PAIRS[0][i], "alone"[: 5 * (1 - i)], PAIRS[1][i]] for i, code in enumerate(("en", "de"))}
    files = {f"x/Text.en-de.{code}": "".join(f"{line}\n" for line in lines) for code, lines in texts.items()}
    path.write_bytes(zipped({"README": "about", **files}))


WRITERS = {"pairs.tsv": table, "pairs.tsv.gz": table, "pairs.jsonl": json_lines, "pairs.zip": archive}


@pytest.fixture(params=WRITERS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / request.param
    WRITERS[request.param](file)
    if file.suffix == ".gz":
        file.write_bytes(gzip.compress(file.read_bytes()))
    return file


def expected(path: Path) -> list[tuple[str, str]]:
    return [tuple(" ".join(words_of_line(text)) for text in pair) for pair in PAIRS] if "jsonl" in path.name else PAIRS  # type: ignore[misc]


def test_pairs_are_read_and_lines_without_both_texts_are_named(path: Path) -> None:
    assert list(read_pair_file(path)) == list(read_pair_file(path, ("en", "de"))) == expected(path)
    survey = survey_pair_file(path)
    assert (survey.n_lines, survey.odd[INCOMPLETE].first) == (2, [2])
    assert languages_of(path) == (("source", "target") if "tsv" in path.name else ("en", "de"))


def test_a_corpus_reads_them_in_the_direction_of_its_languages(path: Path) -> None:
    config = DataConfig(
        train_source=(path.name,), raw=path.parent, validation_source=(path.name,), languages=("de", "en")
    )
    backwards = [pair if "tsv" in path.name else pair[::-1] for pair in expected(path)]  # a table names no languages
    assert list(FileCorpus.of(config).train()) == backwards
    with pytest.raises(ConfigError, match=f"{path.name} has both sides; name it in data.train_source alone"):
        DataConfig(train_source=("a",), train_target=(path.name,))


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl", b'{"translation": {"en": "a", "de": "b"}}\n[1]\n', r'a\.jsonl, line 2: expected {"translation": {"en"'),
    ("a.jsonl", b'{"translation": {"en": 1}}\n', r"a\.jsonl, line 1: expected"),
    ("a.tsv", b"a\tb\n\xff\tb\n", r"a\.tsv, line 2: not UTF-8"),
    ("a.tsv", b"a b\n", r"a\.tsv: no unit has text in two languages"),
    ("a.zip", b"PK", r"a\.zip: cannot be read as an archive: File is not a zip file"),
    ("a.zip", zipped({"a.de-en.de": "a\n"}),
        "expected a pair of files such as text.de-en.de and text.de-en.en; got a.de-en.de"),
    ("a.zip", zipped({"a.de-en.de": "a\n", "a.de-en.en": "a\nb\n"}),
        "a.de-en.de and a.de-en.en differ in their numbers of lines"),
])  # fmt: skip
def test_what_is_no_pair_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        list(read_pair_file(tmp_path / name))
