"""Files of programs' messages, JSON and Android's strings.xml: only texts are translated, all else stays."""

import json
from pathlib import Path

import pytest

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files import android, json_messages
from minitransformer.extras.files.documents import read_document
from minitransformer.text.codes import Code
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Note, Translation
from tests.minitransformer.extras.files.test_po import reversed_words

CHECKED = Translation("x", 0, 0, parts=["x"], notes=(Note("codes", UNCERTAIN, is_uncertain=True),))


def translated(name: str, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    document = read_document(Path(name), None, data)
    document.fill(reversed_words(document.segments))
    return document.content().decode()


JSON = r"""{
    "menu one": {"open": "open {{count}} files\nthe <b>last one</b>", "n": 3, "x": [null, true, "two ä\"", "…", ""]},
	"same": "one two", "same" : "three $t(menu.open) four"  }
"""
JSON_AFTER = r"""{
    "menu one": {"open": "files {{count}} open\n<b>one last</b> the", "n": 3, "x": [null, true, "ä\" two", "…", ""]},
	"same": "two one", "same" : "four $t(menu.open) three"  }
"""


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_values_of_json_are_translated_and_all_else_stays(mark: str, line_end: str) -> None:
    before, after = (mark + text.replace("\n", line_end) for text in (JSON, JSON_AFTER))
    assert translated("a.json", before) == after
    for text in ('"one two"', "[]", "1", '{"a": "%s"}'):
        assert json.loads(translated("a.json", text)) == ("two one" if "two" in text else json.loads(text))


def test_a_file_in_ascii_with_escapes_stays_in_it() -> None:
    assert translated("a.json", r'{"a": "one \u00e4"}') == r'{"a": "\u00e4 one"}'


def test_the_log_names_the_lines_of_doubtful_codes(logged: list[str]) -> None:
    document = read_document(Path("a.json"), None, b'{"a": "one",\n"b": "two"}')
    document.fill([CHECKED for _ in document.segments])
    assert logged == [f"warning: a.json, line 1, 2: {UNCERTAIN}"]


ANDROID = r"""<?xml version="1.0" encoding="utf-8"?>
<!-- one two -->
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2"
    xmlns:tools="http://schemas.android.com/tools">
  <string name='a' >It\'s &amp; <b>one  "two"</b> <xliff:g id="n" example="one two">%1$s</xliff:g></string>
  <string name="b" translatable="false">one two</string><string name="e"/>
  <string name="c">one
      two\nthree \u00e4</string>
  <string name="d"><![CDATA[<p>one & two</p>]]></string>
  <string name="f">@string/a</string><string name="l">&lt;i>one two&lt;/i> three &#8230;</string>
  <string-array name="g"><item>one two</item><item>@string/b</item></string-array>
  <plurals name="h"><item quantity="one">one %d</item><!-- one two --></plurals>
  <string-array name="i" translatable="false"><item>one two</item></string-array>
  <item name="j" type="id">one two</item><color name="k">one two</color>
</resources>
"""
ANDROID_AFTER = (
    ANDROID.replace(r"""It\'s &amp; <b>one  "two"</b> <xliff""", r"""<b>"two" one</b> &amp; It\'s <xliff""")
    .replace("one\n      two\\nthree \\u00e4", "ä two\\nthree one")
    .replace("<p>one & two</p>", "<p>two & one</p>")
    .replace("<item>one two</item><item>@", "<item>two one</item><item>@")
    .replace("one %d", "%d one")
    .replace("&lt;i>one two&lt;/i> three &#8230;", "… three &lt;i&gt;two one&lt;/i&gt;")
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_texts_of_android_are_translated_and_all_else_stays(line_end: str) -> None:
    assert translated("strings.xml", ANDROID.replace("\n", line_end)) == ANDROID_AFTER.replace("\n", line_end)


def test_texts_of_android_are_escaped() -> None:
    content = b'<resources><string name="a">one</string></resources>'
    document = read_document(Path("a.xml"), None, content)
    document.fill([Translation("", 0, 0, parts=["@a's \"<b> & c", Code("%s"), "?"])])
    assert rb""">\@a\'s \"&lt;b&gt; &amp; c%s?<""" in document.content()


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.json", '{"a": 1,\n}', "a.json, line 2: cannot be read as JSON: "),
    ("a.json", b'"\xff"', "a.json: is not UTF-8 text"),
    ("a.json", "[" * 100_000 + "]" * 100_000, "a.json: cannot be read as JSON: .*recursion"),
    ("a.json", "1" * 5_000, "a.json: cannot be read as JSON: Exceeds the limit"),
    ("a.json", '["a",\n"\\ud800b"]', "a.json, line 2: a text has one half of a pair of surrogates"),
    ("a.json", json.dumps(["<b>" * 200 + "one" + "</b>" * 200]), "a.json, line 1: .* more than 100 tags within"),
    ("a.json", json.dumps(["a " * 600_000]), "a.json, line 1: a segment has more than 1,000,000 characters"),
    ("a.xml", f"<resources><string>{'a ' * 600_000}</string></resources>", "line 1: .* more than 1,000,000 characters"),
    ("a.xml", "<resources>\n<string></resources>", "a.xml, line 2: cannot be read as XML: mismatched tag"),
    ("a.xml", "<html/>", r"a.xml: the root element is <html>; expected <resources>, as in strings.xml of Android"),
    ("a.xml", '<!DOCTYPE r [<!ENTITY e "x">]><resources/>', "a.xml: declares the entity e; entities are not read"),
    ("a.xml", '<?xml version="1.0" encoding="latin1"?><resources/>', "a.xml: its encoding is latin1; Android reads"),
    ("a.xml", b"<resources>\xff</resources>", "a.xml: is not UTF-8 text"),
    ("a.xml", '<resources>\n<string name="a">' + "<b>" * 200 + "one" + "</b>" * 200 + "</string></resources>",
        "a.xml, line 2: .* more than 100 tags within"),
])  # fmt: skip
def test_other_files_are_refused(name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        translated(name, content)


@pytest.mark.parametrize(("name", "content", "module", "spoiled"), [
    ("a.json", '["one two"]', json_messages, '["two one", "one"]'),
    ("a.xml", "<resources><string>one two</string></resources>", android, "<resources><string/><a/></resources>"),
])  # fmt: skip
def test_nothing_is_written_if_another_structure_would_come_out(
    name: str, content: str, module: object, spoiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "edited", lambda text, edits: spoiled)
    with pytest.raises(CorpusError, match="of the translated file would not be that of the input"):
        translated(name, content)
