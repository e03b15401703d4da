"""Documents of translators: units without a translation get one, with their codes; all else stays."""

import errno
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import polib
import pytest
from lxml import etree
from roads import translate_segments

from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.documents import read_document
from minitransformer.extras.files.memories import MemoryDocument, MemoryTranslator, groups_of_input
from minitransformer.extras.files.output_file import ResumeError
from minitransformer.extras.files.resumable_document import segments_file, translate_document
from minitransformer.extras.files.stream import LinesDone
from minitransformer.text.codes import Parts
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Translation

XLIFF_1 = """<?xml version="1.0" encoding="utf-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:t="urn:tool" version="1.2">
 <file original="a" source-language="en" datatype="html"><body>
  <trans-unit id="1" t:x="1"><source>Press <g id="1">Enter</g> <x id="2"/>{0}.</source><note>n</note></trans-unit>
  <trans-unit id="2" translate="no"><source>no</source></trans-unit>
  <trans-unit id="3"><source>done</source><target>fertig</target></trans-unit>
  <trans-unit id="4"><source>One. Two.</source><seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" \
mid="2">Two <x id="1"/>.</mrk></seg-source><target/></trans-unit>
  <trans-unit id="5"><source> </source></trans-unit>
 </body></file>
</xliff>
"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
 <file id="f"><unit id="1"><segment><source>un<ph id="1"/>sure <pc id="2">b</pc></source></segment></unit></file>
</xliff>
"""
STATE = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
STATE_2 = 'state="translated" subState="minitransformer:mt-suggestion"'
PO = r"""# A comment.
msgid ""
msgstr ""
"Plural-Forms: nplurals=3; plural=(n%10==1);\n"

#. Of a translator.
#: a.c:1
#, c-format
msgid "one %s\n"
"two\n"
msgstr ""

msgctxt "c"
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "done"
msgstr "fertig"

#~ msgid "old"
#~ msgstr ""
"""


class Shouting:
    """A translator that writes capitals, and links word n to word n."""

    alignments: Path | None = None

    def __init__(self, fails_after: int | None = None, **facts: str) -> None:
        self.left, self.given = fails_after, facts

    def facts(self) -> dict[str, str]:
        return self.given

    def segments(self, segments: Sequence[Parts], n_before: int, advance: LinesDone) -> list[Translation]:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

        def translate(texts: Sequence[str]) -> list[Translation]:
            words = [text.upper().replace("%S", "%s").replace("%D", "%d").split() for text in texts]
            return [Translation(" ".join(some), 0, 0, tuple((i, i) for i in range(len(some)))) for some in words]

        return translate_segments(segments, translate)


def translated(folder: Path, name: str, text: str, languages: tuple[str, str] | None = ("en", "de")) -> str:
    output = folder / f"out-{name}"
    (folder / name).write_text(text)
    translate_document(Shouting(), read_document(folder / name, languages), output)
    return output.read_text()


def test_units_of_xliff_1_get_targets_with_their_codes(tmp_path: Path) -> None:
    segments = '<mrk mtype="seg" mid="1">ONE.</mrk> <mrk mtype="seg" mid="2">TWO <x id="1"/>.</mrk>'
    expected = (
        XLIFF_1.replace('"html"', '"html" target-language="de"')
        .replace(
            "</source><note>", f'</source><target {STATE}>PRESS <g id="1">ENTER</g> <x id="2"/>{{0}}.</target><note>'
        )
        .replace("<target/>", f"<target {STATE}>{segments}</target>")
    )
    assert etree.canonicalize(translated(tmp_path, "a.xlf", XLIFF_1)) == etree.canonicalize(expected)


def test_units_of_xliff_2_get_targets_and_a_note_where_a_code_is_within_a_word(tmp_path: Path) -> None:
    expected = XLIFF_2.replace("</source>", '</source><target>UNSURE<ph id="1"/> <pc id="2">B</pc></target>').replace(
        "<segment>", f"<notes><note>minitransformer: {UNCERTAIN}</note></notes><segment {STATE_2}>"
    )
    assert etree.canonicalize(translated(tmp_path, "a.xliff", XLIFF_2)) == etree.canonicalize(expected)


def test_lines_that_are_kept_are_translated_one_by_one(tmp_path: Path) -> None:
    source = '<source xml:space="preserve">One <g id="1">two\nthree</g>\n\n  four\n</source>'
    text = translated(tmp_path, "a.xlf", XLIFF_1.replace("<source> </source>", source))
    assert 'ONE <g id="1">TWO\nTHREE</g>\n\n  FOUR\n</target>' in text


FILES = "".join(f'<file source-language="en" target-language="{code}">{{}}</file>' for code in ("fr", "de-AT"))
UNIT = "<body><trans-unit><source>a</source></trans-unit></body>"


def test_parts_for_other_languages_stay_and_a_document_of_others_is_refused(tmp_path: Path, logged: list[str]) -> None:
    text = f'<xliff version="1.2">{FILES.format(UNIT, UNIT)}</xliff>'
    assert translated(tmp_path, "a.xlf", text).count("<target") == 1
    assert logged[0].endswith("languages are en → fr, not en → de, in 1 of 2 parts, which stay as they are")
    with pytest.raises(CorpusError, match="languages are en → fr, not en → de; set languages to those of the file"):
        translated(tmp_path, "a.xlf", text.replace("de-AT", "fr"))
    with pytest.raises(CorpusError, match="its language is pl, not de; set languages to those of the file"):
        translated(tmp_path, "a.po", 'msgid ""\nmsgstr "Language: pl\\n"\n\nmsgid "a"\nmsgstr ""\n')


UNIT_1 = '<xliff version="1.2"><file translate="no"><trans-unit translate="yes">{}</trans-unit></file></xliff>'
UNIT_2 = '<xliff version="2.0" trgLang="de"><file translate="no"><unit translate="yes">{}</unit></file></xliff>'


@pytest.mark.parametrize(("unit", "before", "after"), [
    (UNIT_1, "<source>a</source>", f"<source>a</source><target {STATE}>A</target>"),
    (UNIT_1, '<source xml:lang="en">a</source><target xml:lang="de" state="needs-translation">a</target>',
        f'<source xml:lang="en">a</source><target xml:lang="de" {STATE}>A</target>'),
    *((UNIT_1, f"<source>a {part} b</source>", f"<source>a {part} b</source><target {STATE}>A {part} B</target>")
        for part in ("<!-- c -->", "<?p i?>", '<mrk mtype="protected">the <g id="1">Word</g></mrk>',
            '<mrk translate="no">the <g id="1">Word</g></mrk>')),
    (UNIT_2, '<segment state="initial" subState="x:y"><source>a</source><target>a</target></segment>',
        f'<segment {STATE_2}><source>a</source><target>A</target></segment>'),
    (UNIT_2, "<segment><source>u<ph/>n</source></segment>" * 2,
        f"<notes><note>minitransformer: {UNCERTAIN}</note></notes>"
        + f'<segment {STATE_2}><source>u<ph/>n</source><target>UN<ph/></target></segment>' * 2),
])  # fmt: skip
def test_units_that_say_so_are_translated_with_all_they_have(
    tmp_path: Path, unit: str, before: str, after: str
) -> None:
    texts = translated(tmp_path, "a.xlf", unit.format(before), languages=None), unit.format(after)
    found, expected = (etree.canonicalize(text, with_comments=True) for text in texts)
    assert found == expected


def test_a_file_in_utf_16_stays_in_it() -> None:
    content = XLIFF_1.replace("utf-8", "utf-16").encode("utf-16")
    assert read_document(Path("a.xlf"), content=content).content().decode("utf-16").startswith("<?xml")


def test_lines_of_a_gettext_file_end_as_before() -> None:
    for text in (PO, PO.replace("\n", "\r\n")):
        written = read_document(Path("a.po"), content=text.encode()).content().decode()
        assert written.count("\r\n") == (written.count("\n") if "\r\n" in text else 0)


def test_the_log_names_a_document_in_which_nothing_is_to_be_translated(tmp_path: Path, logged: list[str]) -> None:
    translated(tmp_path, "a.po", 'msgid "a"\nmsgstr "b"\n')
    assert logged == [
        f"{tmp_path}/out-a.po: is a copy; each segment has a translation, or is marked as not to be translated"
    ]


MARK = f'<prop type="x-minitransformer">{UNCERTAIN}</prop>'


def variant(language: str, text: str, mark: str = "") -> str:
    return f'<tuv xml:lang="{language}">{mark}<seg>{text}</seg></tuv>'


@pytest.mark.parametrize(("languages", "start", "before", "after"), [
    ("en-US en-GB", "<tu>", variant("en-US", "a"), variant("en-US", "a") + variant("en-GB", "A")),
    ("en de", "<tu>", variant("en-GB", "a") + variant("en-US", "b"),
        variant("en-GB", "a") + variant("en-US", "b") + variant("de", "A")),
    ("en de", "<tu>", variant("en", "a") + variant("de-DE", "b") + variant("de-AT", "c"),
        variant("en", "a") + variant("de-DE", "A") + variant("de-AT", "c")),
    ("en de", '<tu xmlns:o="urn:o" o:x="1" p:y="2">', variant("en", "a"), variant("en", "a") + variant("de", "A")),
    ("en de", "<tu><note>a&#13;b</note>", variant("en", "a&#13;"), variant("en", "a&#13;") + variant("de", "A&#13;")),
    ("en de", "<tu>", variant("en", "a") + variant("de", "b", MARK), variant("en", "a") + variant("de", "A")),
    ("en de", "<tu>", variant("en", "a<ph />b") + variant("de", "b", MARK),
        variant("en", "a<ph />b") + variant("de", "AB<ph />", MARK)),
])  # fmt: skip
def test_a_unit_of_a_memory_gets_one_translation_and_keeps_all_else(
    tmp_path: Path, languages: str, start: str, before: str, after: str
) -> None:
    source, target = languages.split()
    declared = ' xmlns:o="urn:o"'
    units = start.replace(declared, "") + before + "</tu>\n"
    path = tmp_path / "a.tmx"
    path.write_text(f'<tmx{declared}><header srclang="en"/><body>{units}</body></tmx>')
    translator = MemoryTranslator(Shouting(), (source, target), whole_units=True)
    with groups_of_input(path, 9, (source, target), whole_units=True) as groups:
        (found,) = translator(next(groups), 0)
    assert found.decode() == f"{start.replace('<tu>', f'<tu{declared}>')}{after}</tu>\n"
    document = MemoryDocument.read(path, path.read_bytes(), (source, target))
    translate_document(Shouting(), document, tmp_path / "out.tmx")
    assert found in (tmp_path / "out.tmx").read_bytes()


def test_messages_of_gettext_get_fuzzy_translations(tmp_path: Path) -> None:
    before, after = polib.pofile(PO), polib.pofile(translated(tmp_path, "a.po", PO))
    assert after.metadata["Language"] == "de"
    kept, given = ([(each.msgid, each.msgctxt, each.comment, each.obsolete) for each in po] for po in (after, before))
    assert kept == given
    lines, plural, done, old = after
    assert (lines.msgstr, lines.flags) == ("ONE %s\nTWO\n", ["c-format", "fuzzy"])
    assert plural.msgstr_plural == {0: "%d FILES", 1: "%d FILE", 2: "%d FILES"}  # 1 has form 1
    assert (done.msgstr, done.flags, old.msgstr) == ("fertig", [], "")
    again = translated(tmp_path, "b.po", f'msgid ""\nmsgstr ""\n\n# {UNCERTAIN}\nmsgid "un<b/>sure"\nmsgstr ""\n')
    assert again.count(UNCERTAIN) == 1


@pytest.mark.parametrize(("language", "rule", "forms"), [
    ("de", "nplurals=2; plural=(n != 1);", ["FILE", "FILES"]), ("zh_CN", "nplurals=1; plural=0;", ["FILES"]),
    ("xx", "nplurals=2; plural=(n != 1);", ["FILE", "FILES"]), ("de", "nplurals=2; plural=n%0;", ["FILE", "FILES"]),
    ("de", "nplurals=2; plural=n+7;", ["FILE", "FILES"]),
])  # fmt: skip
def test_a_template_gets_the_plural_forms_of_its_language(
    tmp_path: Path, language: str, rule: str, forms: list[str]
) -> None:
    known = rule if "%" in rule or "+" in rule else "nplurals=INTEGER; plural=EXPRESSION;"
    template = f'msgid ""\nmsgstr "Plural-Forms: {known}\\n"\n\nmsgid "file"\nmsgid_plural "files"\nmsgstr[0] ""\n'
    after = polib.pofile(translated(tmp_path, "a.pot", template, ("en", language)))
    assert after.metadata["Plural-Forms"] == rule
    assert after[0].msgstr_plural == dict(enumerate(forms))


@pytest.mark.parametrize(("name", "text", "error", "message"), [
    ("a.xlf", "<xliff><", CorpusError, r"a\.xlf, line 1: cannot be read as XML"),
    ("a.xlf", "<tmx/>", CorpusError, r"a\.xlf: the root element is <tmx>; expected <xliff>"),
    ("a.po", "nonsense\n", CorpusError, r"a\.po, line 1: cannot be read as a PO file"),
    ("a.xlf", '<!DOCTYPE xliff [<!ENTITY e SYSTEM "/etc/passwd">]>' + XLIFF_2.replace(">un<", ">&e;<"), CorpusError,
        "declares entities, which are not read"),
    ("a.xlf", XLIFF_2.replace('trgLang="de"', ""), ConfigError, "names no target language; set languages"),
])  # fmt: skip
def test_other_files_are_refused(name: str, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_document(Path(name), content=text.encode())


def test_a_gettext_file_that_holds_the_name_of_another_is_not_that_one(tmp_path: Path) -> None:
    (tmp_path / "other.po").write_text('msgid "one"\nmsgstr ""\n', encoding="utf-8")
    with pytest.raises(CorpusError, match="line 1: cannot be read as a PO file"):
        read_document(tmp_path / "name.po", content=str(tmp_path / "other.po").encode())


MANY = f"""<xliff version="1.2"><file source-language="en">{
    "".join(f'<trans-unit id="{i}"><source>no <g id="1">a {i}</g> {{{i}}}</source></trans-unit>' for i in range(7))
}</file></xliff>"""


def test_an_interrupted_document_goes_on_after_its_last_group(tmp_path: Path, logged: list[str]) -> None:
    (tmp_path / "in.xlf").write_text(MANY)
    output = tmp_path / "out.xlf"

    def translate(shouting: Shouting, *, resume: bool) -> None:
        document = read_document(tmp_path / "in.xlf", ("en", "de"))
        translate_document(shouting, document, output, resume=resume, segments_at_once=2)

    translate(Shouting(), resume=False)
    whole = output.read_bytes()
    output.unlink()
    with pytest.raises(KeyboardInterrupt):
        translate(Shouting(2), resume=True)
    assert logged[-1] == "interrupted after segment 4; to continue from there, set resume and start it again"
    with segments_file(output).open("ab") as torn:
        torn.write(b'{"parts": ["x')
    with pytest.raises(ResumeError, match="an interrupted translation; set resume to continue it, or remove"):
        translate(Shouting(), resume=False)
    with pytest.raises(ResumeError, match="was begun with other settings: beam; remove it, or choose another"):
        translate(Shouting(beam="2"), resume=True)
    with pytest.raises(
        ResumeError, match=r'model or weights \("float32" continues what .*; remove it, or choose another'
    ):
        translate(Shouting(model="2"), resume=True)
    with pytest.raises(KeyboardInterrupt):
        translate(Shouting(1), resume=True)
    translate(Shouting(1), resume=True)
    assert output.read_bytes() == whole
    assert not segments_file(output).exists()


def test_a_full_disk_names_the_file_and_the_same_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.xlf").write_text(MANY)
    output = tmp_path / "out.xlf"

    def translate() -> None:
        document = read_document(tmp_path / "in.xlf", ("en", "de"))
        translate_document(Shouting(), document, output, resume=True, segments_at_once=2)

    translate()
    whole = output.read_bytes()
    output.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(ResumeError, match=r"segments\.jsonl: cannot be written \(.*No space.*; correct that"):
            translate()
    segments_file(output).write_bytes(segments_file(output).read_bytes()[:9])  # as much as there was room for
    translate()
    assert output.read_bytes() == whole
    assert not segments_file(output).exists()
