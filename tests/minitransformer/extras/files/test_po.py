"""Gettext's PO files: only translations are written, msgfmt accepts them, and broken files are refused."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import polib
import pytest
from roads import translate_segments

from minitransformer.data.survey import LONGEST_LINE, CorpusError
from minitransformer.extras.files import po
from minitransformer.extras.files.documents import read_document
from minitransformer.extras.files.printf import with_arguments
from minitransformer.text.codes import Code, Part, Parts
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Translation

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: de\\n"\n'


def reversed_words(segments: Sequence[Parts]) -> list[Translation]:
    """Translate segments by a translator that reverses the order of words."""

    def translate(texts: Sequence[str]) -> list[Translation]:
        words = [text.split()[::-1] for text in texts]
        return [Translation(" ".join(w), 0, 0, tuple((i, len(w) - 1 - i) for i in range(len(w)))) for w in words]

    return translate_segments(segments, translate)


def translated(text: str | bytes, languages: tuple[str, str] | None = ("en", "de")) -> str:
    content = text.encode() if isinstance(text, str) else text
    document = read_document(Path("a.po"), languages, content)
    document.fill(reversed_words(document.segments))
    return document.content().decode()


def message(flags: str, source: str) -> str:
    return f'{HEADER}\n#, {flags}\nmsgid "{source}"\nmsgstr ""\n'


def require_msgfmt(folder: Path, text: str) -> None:
    if shutil.which("msgfmt") is None:
        pytest.skip("msgfmt of gettext is not installed")
    (folder / "a.po").write_text(text)
    command = ["msgfmt", "--check-format", "--use-fuzzy", "-o", str(folder / "a.mo"), str(folder / "a.po")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


ARGUMENTS = {  # flags and source: translation, whether it is uncertain
    ("c-format", "%s deleted %d files"): ("files %2$d deleted %1$s", False),
    ("c-format", "%s deleted %s and %5.1f"): ("%3$5.1f and %1$s deleted %2$s", False),
    ("c-format", "50%% of %s: %lu"): ("%2$lu %1$s: of 50%%", False),
    ("c-format", "%2$s deleted %1$d"): ("%1$d deleted %2$s", False),
    ("c-format", "%*d of %s"): ("%*d of %s", True),
    ("c-format", "one %s two"): ("two %s one", False),
    ("c-format", "100% of %s"): None,
    ("no-c-format", "%s deleted %d files"): ("files %d deleted %s", False),
    ("objc-format", "%@ deleted %d"): ("%2$d deleted %1$@", False),
    ("python-format", "%s deleted %d files"): ("files %s deleted %d", True),
    ("python-format", "%(name)s deleted %(n)d files"): ("files %(n)d deleted %(name)s", False),
    ("python-brace-format", "{name} deleted {n} files"): ("files {n} deleted {name}", False),
    ("php-format", "%s deleted %d files"): ("files %2$d deleted %1$s", False),
    ("perl-format", "%s deleted %d files"): ("files %2$d deleted %1$s", False),
    ("lua-format", "%s deleted %d files"): ("files %s deleted %d", True),
    ("c-format", "%s\\n%d files\\n"): ("%s\nfiles %d\n", False),
}


@pytest.mark.parametrize(("flags", "source"), ARGUMENTS)
def test_arguments_of_printf_are_numbered_or_in_the_order_of_the_source(
    tmp_path: Path, flags: str, source: str, logged: list[str]
) -> None:
    text = translated(message(flags, source))
    expected = ARGUMENTS[flags, source]
    if expected is None:
        assert text == message(flags, source)
        assert logged == [
            "warning: a.po: 1 messages stay without translation: it would lack arguments or lines, or have others"
        ]
    else:
        assert polib.pofile(text)[0].msgstr == expected[0]
        assert (UNCERTAIN in text) == expected[1]
        assert f"\n#, {flags}, fuzzy\n" in text
    require_msgfmt(tmp_path, text)


@pytest.mark.parametrize("can_be_numbered", [True, False])
def test_equal_arguments_are_told_apart_by_their_codes(can_be_numbered: bool) -> None:
    one, other, both = Code("%s"), Code("%s"), Code("<a b='%d'>")
    found = with_arguments([[one, " a ", other, both]], [[other, both, " a ", one]], can_be_numbered=can_be_numbered)
    assert found == (("%2$s<a b='%3$d'> a %1$s", False) if can_be_numbered else ("%s<a b='%s'> a %d", True))


@pytest.mark.parametrize(("flags", "found"), [
    ("c-format", ["%s 100% (one)"]), ("c-format", ["%s one %"]), ("c-format", ["one"]), ("c-format", ["%s %d"]),
    ("python-brace-format", ["%s {x}"]), ("java-format", ["%s {0}"]), ("c-format", []), ("fuzzy", []),
])  # fmt: skip
def test_a_message_stays_open_if_its_translation_has_other_arguments(flags: str, found: list[Part]) -> None:
    document = read_document(Path("a.po"), None, message(flags, "one %s").encode())
    document.fill([Translation("x", 0, 0, parts=found)] * len(document.segments))
    assert document.content().decode() == message(flags, "one %s")


RUSSIAN = (
    '"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>20) ? 1 : 2);\\n"\n'
)
GERMAN = '"Plural-Forms: nplurals=2; plural=n != 1;\\n"\n'


@pytest.mark.parametrize(("rule", "singular", "expected"), [
    (GERMAN, "one file", "file one"), (GERMAN, "%d file", "file %d"), (GERMAN, "%s file", "files %d"),
    (RUSSIAN, "one file", "files %d"), (RUSSIAN, "%d file", "file %d"),
])  # fmt: skip
def test_the_form_for_1_lacks_arguments_only_if_it_is_for_1_alone(
    tmp_path: Path, rule: str, singular: str, expected: str
) -> None:
    source = f'\n#, c-format\nmsgid "{singular}"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    text = translated(HEADER + rule + source)
    assert f'msgstr[0] "{expected}"\nmsgstr[1] "files %d"\n' in text
    require_msgfmt(tmp_path, text)


FULL = r"""# Copyright of a long comment that is wider than any line that a program would write itself.
#
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: one 1\n"
"Language: de\n"
"X-Wrapped: a, b, "
"c\n"
"Content-Type: text/plain; charset=UTF-8\n"

#~ msgid "Old one"
#~ msgstr "Altes"

#. Of a programmer.
#: a.c:1 a-file-with-a-very-long-name-of-more-than-eighty-characters-in-one-line/and-one/b.c:2
#| msgid "two  one"
msgid ""
"two "
"one"
msgstr ""

#~ # A note.
#~ msgid "Older one"
#~ msgstr "Älteres"
# Of a translator.
#. Of a programmer.
#, python-format
msgctxt "c"
msgid	"%s \"one\\ %d\n"
msgstr ""
msgid "done" msgstr "fertig"
# the end"""
AFTER = (
    FULL.replace("#| msgid", "#, fuzzy\n#| msgid", 1)
    .replace('"one"\nmsgstr ""', '"one"\nmsgstr "one two"', 1)
    .replace("translator.\n#.", f"translator.\n# {UNCERTAIN}\n#.", 1)
    .replace("python-format", "python-format, fuzzy")
    .replace('\\n"\nmsgstr ""', '\\n"\nmsgstr "%s \\"one\\\\ %d\\n"', 1)
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_all_else_in_a_file_stays_as_it_is(line_end: str, mark: str) -> None:
    before, after = (mark + text.replace("\n", line_end) for text in (FULL, AFTER))
    assert translated(before) == after


def test_a_file_in_which_nothing_is_open_is_a_copy() -> None:
    for text in (b'msgid "a"\nmsgstr "b"\n', HEADER.replace("UTF-8", "CHARSET").encode(), b"", b"# c\n"):
        assert translated(text) == text.decode()


def test_a_header_gets_what_it_lacks_and_a_charset_that_has_all_characters() -> None:
    text = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\nX: ä"\n\nmsgid "ä one"\nmsgstr ""\n'
    header = 'msgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"X: ä\\n"\n"Language: de\\n"\n'
    assert translated(text.encode("latin-1")) == text.replace(text.split("\n")[1] + "\n", header).replace(
        'msgid "ä one"\nmsgstr ""', '#, fuzzy\nmsgid "ä one"\nmsgstr "one ä"'
    )
    lacking = "# c\nmsgid 'one'\nmsgstr ''\n".replace("'", '"')
    expected = HEADER + "\n" + lacking.replace("msgid", "#, fuzzy\nmsgid").replace('""', '"one"')
    assert translated(lacking) == expected


DEEP = "<b>" * 1_200 + "one" + "</b>" * 1_200


@pytest.mark.parametrize(("text", "message"), [
    ('msgid "a dog\nmsgstr ""\n', "line 1: .*ends within a text: '\"a dog'; add the quotation mark at its end"),
    ("msgid a\nmsgstr b\n", "line 1: .*expected a keyword such as msgid, .*; got 'a'"),
    ('msgid "a"\n', "line 2: .*has msgid; expected msgid and msgstr"),
    ('msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "line 3: .*a second msgid"),
    ('msgid "a"\n# c\nmsgstr ""\n', "line 2: .*has msgid; expected"),
    ('msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', "line 4: .*has msgid, msgid_plural, msgstr; expected"),
    ('msgid "a"\nmsgid_plural "b"\nmsgstr[1] ""\n', r"line 4: .*are msgstr\[1\]; expected 0, 1, 2"),
    ('msgid\nmsgstr ""\n', "line 3: .*no text in quotation marks follows msgid"),
    ('"a"\n', "line 1: .*a text follows no keyword"),
    ('msgid "a\\q"\nmsgstr ""\n', r"line 1: .*a text has \\q; expected"),
    ('msgid "a"\nmsgstr "b"\nx\n', "line 3: .*got 'x'"),
    (b'\n\nmsgid "\xff"\nmsgstr ""\n', "line 3: is not UTF-8"),
    (b'msgid ""\nmsgstr "Content-Type: text/plain; charset=zip\\n"\n', "its charset is zip, which is not known"),
    ('msgid "a"\n' + '"bbbbbbbbb"\n' * 100_000 + 'msgstr ""\n',
        f"line 90,910: .*a text has more than {LONGEST_LINE:,} characters"),
    (f'msgid "one"\nmsgstr ""\n\nmsgid "{DEEP}"\nmsgstr ""\n',
        "a.po, line 4: a segment has more than 100 tags within each other"),
])  # fmt: skip
def test_a_broken_file_is_refused_with_its_line(text: str | bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        translated(text)


def test_many_tags_beside_each_other_are_not_deep() -> None:
    source = "<br>" * 200 + "one" + "<b></b>" * 200
    assert translated(message("c-format", source)).count("<b></b>") == 400


def test_nothing_is_written_if_another_message_would_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(po, "_ESCAPES", {ord("o"): '"\nmsgid "'})
    with pytest.raises(CorpusError, match="line 10: |unit 2 of the translated file would not be that of the input"):
        translated(message("c-format", "one"))
