"""A text gets the same care at every door: lines, files, the server, documents, memories and Python."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polib
import pytest
from lxml import etree
from serving import client_of, form
from small_run import Trained, translated

from minitransformer import Translator
from minitransformer.data.pair_files import read_pair_file
from minitransformer.extras.files.memories import CLOSING, opening, unit_of

TEXTS = [
    "one two. six! Three four? five.", "one (two) ♥ three", "six {0} four %1$s.", "<b>one</b> two & three",
    "ONE TWO. SIX!", "One Two Three Four Five", "one 😀 two", "1,234.5", "six https://a.example/b?c=1&d=2 two",
    "one Привет @two_2 #six three", "a.b@c.example", "--- !", "two",
]  # fmt: skip
KEPT = ["{0}", "%1$s", "<b>", "</b>", "♥", "😀", "https://a.example/b?c=1&d=2", "Привет", "@two_2", "#six"]


def by_lines(trained: Trained, folder: Path) -> list[str]:
    return translated(trained, "".join(f"{text}\n" for text in TEXTS).encode()).decode().splitlines()


def by_file(trained: Trained, folder: Path) -> list[str]:
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    translated(trained, b"", "--input", str(folder / "in.txt"), "--output", str(folder / "out"), "--resume")
    return (folder / "out").read_text().splitlines()


def by_table(trained: Trained, folder: Path) -> list[str]:
    (folder / "in.tsv").write_text("".join(f"{text}\tx\n" for text in TEXTS))
    return translated(trained, b"", "--input", str(folder / "in.tsv")).decode().splitlines()


def by_gettext(trained: Trained, folder: Path) -> list[str]:
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    file.extend(polib.POEntry(msgid=text, msgstr="") for text in TEXTS)
    file.save(str(folder / "in.po"))
    return [entry.msgstr for entry in polib.pofile(str(document(trained, folder, "in.po")))]


def by_xliff(trained: Trained, folder: Path) -> list[str]:
    units = "".join(
        f'<trans-unit id="{i}"><source>{html.escape(text)}</source></trans-unit>' for i, text in enumerate(TEXTS)
    )
    (folder / "in.xlf").write_text(
        f'<xliff version="1.2"><file source-language="en"><body>{units}</body></file></xliff>'
    )
    return ["".join(target.itertext()) for target in etree.parse(document(trained, folder, "in.xlf")).iter("target")]


def document(trained: Trained, folder: Path, name: str) -> Path:
    output = folder / f"out-{name}"
    translated(trained, b"", "--input", str(folder / name), "--output", str(output), "--languages", "en", "de")
    return output


def by_memory(trained: Trained, folder: Path) -> list[str]:
    units = b"".join(unit_of(("en", "de"), (text, "")) for text in TEXTS)
    (folder / "in.tmx").write_bytes(opening("en") + units + CLOSING)
    return [target for _, target in read_pair_file(document(trained, folder, "in.tmx"))]


def by_server(trained: Trained, folder: Path) -> list[str]:
    return answer(trained, form(TEXTS[:5])) + answer(trained, form(TEXTS[5:]))


def by_html(trained: Trained, folder: Path) -> list[str]:
    pages = [f"<p>{html.escape(text)}</p>" for text in TEXTS]
    found = [text for i in range(0, len(pages), 4) for text in answer(trained, form(pages[i : i + 4], format="html"))]
    return [html.unescape(page.removeprefix("<p>").removesuffix("</p>")) for page in found]


def by_upload(trained: Trained, folder: Path) -> list[str]:
    with client_of(Translator.load(trained.run), tokens_waiting=100_000, beam=2) as client:
        files = {"file": ("in.txt", "\n".join(TEXTS))}
        address = client.post("/translate_file", data={"source": "en", "target": "de"}, files=files).json()
        return client.get(address["translatedFileUrl"]).text.split("\n")


def answer(trained: Trained, fields: dict[str, Any]) -> list[str]:
    with client_of(Translator.load(trained.run), tokens_waiting=100_000, beam=2) as client:
        found = client.post("/translate", json=fields)
        assert found.status_code == 200, found.text
        return found.json()["translatedText"]


DOORS = [by_lines, by_file, by_table, by_gettext, by_xliff, by_memory, by_server, by_html, by_upload]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_text_gets_the_same_care_at_every_door(
    trained: Trained, tmp_path: Path, door: Callable[[Trained, Path], Sequence[str]]
) -> None:
    translator = Translator.load(trained.run)
    expected = translator.translate(TEXTS, beam=2)
    assert list(door(trained, tmp_path)) == expected
    for text, translation in zip(TEXTS, expected, strict=True):
        kept = [word for word in KEPT if word in text]
        assert [translation.count(word) for word in kept] == [1] * len(kept), translation
