"""Codes, placeholders and markup within segments: taken out, and put back where the alignment says."""

import re
import time
from collections.abc import Callable, Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from roads import road_of, translate_segments

from minitransformer.extras.files.html import HtmlText
from minitransformer.extras.files.inline import parts_of, write_parts
from minitransformer.text.codes import Code, Parts, cut_parts, plain_text, with_textual_codes
from minitransformer.text.translation import Links, Translation

Dictionary = dict[str, tuple[str, Links]]


def translator_of(dictionary: Dictionary) -> Callable[[Sequence[str]], list[Translation]]:
    """A translator that knows some texts with their links; it copies others word by word."""

    def translate(texts: Sequence[str]) -> list[Translation]:
        words = [" ".join(text.split()) for text in texts]
        copied = [(text, tuple((i, i) for i in range(len(text.split())))) for text in words]
        found = [dictionary.get(text, copy) for text, copy in zip(words, copied, strict=True)]
        return [Translation(text, 0.0, 0.0, links) for text, links in found]

    return translate


def translated(text: str, dictionary: Dictionary) -> tuple[str, bool]:
    (found,) = translate_segments([text], translator_of(dictionary))
    return found.text, any(note.kind == "codes" for note in found.notes)


@pytest.mark.parametrize(("source", "words", "target", "links", "expected"), [
    ("Press <b>Enter</b>.", "Press Enter.", "Drücken Sie Enter.", "0-0 0-1 1-2", "Drücken Sie <b>Enter</b>."),
    ("Now <b>press</b> it", "Now press it", "Jetzt drück es", "0-0 1-1 2-2", "Jetzt <b>drück</b> es"),
    ("<p>One <i>red</i> <b>house</b></p>", "One red house", "Una casa roja", "0-0 2-1 1-2",
        "<p>Una <b>casa</b> <i>roja</i></p>"),
    ("Hello {0}, see %d files.", "Hello , see files.", "Hallo, siehe Dateien.", "0-0 2-1 3-2",
        "Hallo {0}, siehe %d Dateien."),
    ("First line<br/>second", "First line second", "Erste Zeile zweite", "0-0 1-1 2-2", "Erste Zeile<br/>zweite"),
    ("<img src='a b'/> A {x}", "A", "Ein", "0-0", "<img src='a b'/> Ein {x}"),
    ("Is <i>he</i> old?", "Is he old?", "Ist alt er?", "0-0 2-1 1-2", "Ist alt <i>er</i>?"),
    ("<b>(Yes!)</b> a", "(Yes!) a", "Das (ja!)", "1-0 0-1", "Das <b>(ja!)</b>"),
    ("Take 10\u00a0mg <b>now</b>", "Take 10 mg now", "Nimm jetzt 10\u00a0mg", "0-0 1-2 2-1",
        "Nimm <b>jetzt</b> 10\u00a0mg"),
    ("“<i>Yes</i>”", "“Yes”", "„Ja“", "0-0", "„<i>Ja</i>“"),
    # marks and parts of words
    ("the coat<sup>1</sup>.", "the coat.", "der Mantel.", "0-0 1-1", "der Mantel<sup>1</sup>."),
    ("A house.<sup>2</sup> It", "A house. It", "Ein Haus. Es", "0-0 1-1 2-2", "Ein Haus.<sup>2</sup> Es"),
    ("see<a href='#1'>[1]</a> it", "see it", "es sehen", "0-1 1-0", "es sehen<a href='#1'>[1]</a>"),
    ("H<sub>2</sub>O is", "H2O is", "Da ist H2O", "0-2 1-1", "Da ist H<sub>2</sub>O"),
    ("2x<i>n</i>m<br/>a", "2xnm a", "A 2xnm", "0-1 1-0", "A 2x<i>n</i>m<br/>"),
    ("a\tb", "a b", "A B", "0-0 1-1", "A\tB"),
    # in scripts without blanks each character is a word
    ("buy <b>a red</b> car", "buy a red car", "買赤い車です。", "0-0 1-1 1-2 2-3 2-4 2-5", "買<b>赤い車です</b>。"),
    ("买<b>红的</b>车。", "买红的车。", "buy red car.", "0-0 1-1 2-1 3-2", "buy <b>red</b> car."),
])  # fmt: skip
def test_codes_stand_at_words_they_belong_to(source: str, words: str, target: str, links: str, expected: str) -> None:
    pairs = tuple((int(a), int(b)) for a, b in (link.split("-") for link in links.split()))
    without_placeholders = {text: ("?", ()) for text in ("Hello {0}, see %d files.", "A {x}")}
    assert translated(source, {**without_placeholders, words: (target, pairs)}) == (expected, False)


@pytest.mark.parametrize("text", [
    "Open {0} of {n}: %s, %@, %(name)s 5%% &amp; https://a.example/b?c=1.", "100% of us", "  a  ",
    "---", "(%s)", "%s: %s", " 1 / 2 ", "<b>42</b>", "✓", "{n, plural, other {dogs}}",
])  # fmt: skip
def test_placeholders_that_a_model_copies_keep_its_order_and_text_without_other_letters_stays(text: str) -> None:
    assert translated(text, {"%s: %s": ("1 Uhr %s", ()), ":": ("Uhr", ()), "42": ("422", ())}) == (text, False)


@pytest.mark.parametrize("text", ["<b>a <i>b</b> c</i>", "</b>a", "a <br> b <hr/>", "<p>", "{0}", "", "<b> </b>"])
def test_codes_without_partners_and_texts_without_words_keep_all_codes(text: str) -> None:
    assert translated(text, {})[0] == text


def test_a_code_without_a_word_is_marked() -> None:
    assert translated("a <b>b</b> c", {"a b c": ("x y", ((0, 0), (2, 1)))}) == ("x<b></b> y", True)
    assert translated("a<hr/>b", {"ab": ("xy", ((0, 0),))}) == ("xy<hr/>", True)


@pytest.mark.parametrize(("text", "placeholders"), [
    ("%dx%d, %dms, %s's", "%d %d %d %s"),
    ("%r %a %p %jd %5.2f%% %.*s %zu %Lf %1$s%2$s %'d", "%r %a %p %jd %5.2f %% %.*s %zu %Lf %1$s %2$s %'d"),
    ("%Y-%m-%d %(name)r %name%", "%Y %m %d %(name)r %name%"),
    ("%1%2 of %L1, %n file(s)", "%1 %2 %L1 %n"),
    ("{name!r} {0,number,#.##} {{x}} ${y} $z", "{name!r} {0,number,#.##} {{x}} ${y} $z"),
    ("{n, plural, =1 {one {x}} other {dogs}}!", "{n, plural, =1 {one {x}} other {dogs}}"),
    ("Write to a.b@c.example.", "a.b@c.example"), ("20%discount, 100% of $5, 50 % { } to a@b", "{ }"),
])  # fmt: skip
def test_placeholders_of_all_kinds_are_codes(text: str, placeholders: str) -> None:
    found = [part.content for part in with_textual_codes([text]) if isinstance(part, Code)]
    assert " ".join(found) == placeholders


@pytest.mark.parametrize(("text", "pieces", "expected"), [
    ("One. Two.", ["One. ", "Two."], ["One. ", "Two."]),
    ("<b>One.</b> %s. Three.", ["One. ", "%s. ", "Three."], ["<b>One.</b> ", "%s. ", "Three."]),
    ("<b>One. Two.</b> 3 <i>4.</i> 5", ["One. ", "Two. ", "3 4. ", "5"], ["<b>One. Two.</b> ", "3 <i>4.</i> ", "5"]),
    ("a <br/>b", ["a ", "b"], ["a ", "<br/>b"]), ("", [], []),
])  # fmt: skip
def test_parts_are_cut_where_pieces_begin_but_not_in_pairs(text: str, pieces: list[str], expected: list[str]) -> None:
    assert list(map(plain_text, cut_parts(with_textual_codes([text]), pieces))) == expected


@st.composite
def segments(draw: st.DrawFn, depth: int = 2) -> Parts:
    parts: Parts = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "alone", "break", "pair"] if depth else ["text"]))
        if kind == "text":
            parts.append(draw(st.text("ab .", min_size=1, max_size=6)))
        elif kind == "pair":
            name = str(draw(st.integers()))
            parts += [Code("<", "begin", name), *draw(segments(depth - 1)), Code(">", "end", name)]
        else:
            parts.append(Code("x", is_break=kind == "break"))
    return parts


@given(segments(), st.text("cd .", max_size=20), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=9))
def test_each_code_is_there_once_and_pairs_are_nested(parts: Parts, target: str, links: list[tuple[int, int]]) -> None:
    target, asked = " ".join(target.split()), list[str]()

    def translate(texts: Sequence[str]) -> list[Translation]:
        (text,) = texts
        n_words = len(text.split()), len(target.split())
        fitting = tuple((i, j) for i, j in links if i < n_words[0] and j < n_words[1])
        asked.append(text)
        return [Translation(target, 0.0, 0.0, fitting)]

    (found,) = translate_segments([parts], translate, road_of(skip=["sentences", "loops"]))
    codes = [part for part in found.parts if isinstance(part, Code)]
    assert sorted(map(id, codes)) == sorted(id(part) for part in parts if isinstance(part, Code))
    open_names = list[str]()
    for code in codes:
        if code.kind == "begin":
            open_names.append(code.name)
        elif code.kind == "end":
            assert open_names.pop() == code.name
    text = target if asked else "".join(part for part in parts if isinstance(part, str))
    written = "".join(part for part in found.parts if isinstance(part, str))
    assert "".join(written.split()) == "".join(text.split())


@pytest.mark.parametrize("xml", [
    '<seg>a <bpt i="1">&lt;b&gt;</bpt>b<ept i="1">&lt;/b&gt;</ept> c<ph x="1">{<sub>d</sub>}</ph></seg>',
    '<s xmlns="urn:x"><g id="1">a <x id="2" /><g id="3">b</g></g> c <mrk mtype="seg">d</mrk></s>',
    "<seg>a <hi>b <hi>c</hi></hi> {0} &lt;b&gt;d&lt;/b&gt;</seg>",
])  # fmt: skip
def test_elements_of_segments_are_written_as_they_were_read(xml: str) -> None:
    element, target = ElementTree.fromstring(xml), ElementTree.fromstring("<old>text<x /></old>")
    (found,) = translate_segments([parts_of(element)], translator_of({}))
    write_parts(found.parts, target)
    target.tag = element.tag
    written, read = (ElementTree.canonicalize(ElementTree.tostring(each)) for each in (target, element))
    assert written == read


@pytest.mark.parametrize("text", ["%" + "0" * 40_000, "%(a)" + "0" * 40_000, " " * 200_000])
def test_the_time_to_find_codes_grows_as_the_text(text: str) -> None:
    element, begin = ElementTree.Element("seg"), time.process_time()
    element.text = text
    assert parts_of(element) == [text]
    assert time.process_time() - begin < 2  # milliseconds; at least 20 seconds if it grew as the square


def in_capitals(texts: Sequence[str]) -> list[Translation]:
    words = [text.upper().split() for text in texts]
    return [Translation(" ".join(some), 0.0, 0.0, tuple((i, i) for i in range(len(some)))) for some in words]


def translated_page(text: str) -> str:
    page = HtmlText(text)
    return page.filled(translate_segments(page.segments, in_capitals))


@pytest.mark.parametrize(("source", "expected"), [
    ("<p>Hello</p>", "<p>HELLO</p>"),
    ('<P Class="a>b">the <B>small dog</B>.<br>A cat<hr/></P>',
     '<P Class="a>b">THE <B>SMALL DOG</B>.<br>A CAT<hr/></P>'),
    ("a &lt; b &amp; caf&eacute; &quot;x&quot;", 'A &lt; B &amp; CAFÉ "X"'),
    ("one\n  two <i>three</i>\n<p>", "ONE TWO <i>THREE</i> <p>"),
    ("1 &lt; <b>2</b> &copy; 😀\n\n", "1 &lt; <b>2</b> &copy; 😀\n\n"),
    ("run <code>ls <code>-l</code></code> now", "RUN <code>ls <code>-l</code></code> NOW"),
    ("<script>if (a < b) x</script><style>p {}</style><pre>a b</pre>",) * 2,
    ("<!DOCTYPE html><!-- a comment --><title>x</title>", "<!DOCTYPE html><!-- a comment --><title>X</title>"),
    ("<p translate=no>a <p>b</p> c</p> d", "<p translate=no>a <p>b</p> c</p> D"),
    ("see <span class='x notranslate'>Kubernetes</span> here",
     "SEE <span class='x notranslate'>Kubernetes</span> HERE"),
    ("<code>never closed <p>text", "<code>never closed <p>text"),
    ("not a tag: a <b and 1 < 2", "NOT A TAG: A &lt;B AND 1 &lt; 2"),
    ("&lt;b&gt;bold&lt;/b&gt; {0}", "&lt;b&gt;BOLD&lt;/b&gt; {0}"),
    ("<p><!-- a -->she has <!-- b -->bought<!-- c --></p>", "<p><!-- a -->SHE HAS <!-- b -->BOUGHT<!-- c --></p>"),
    ("", ""),
])  # fmt: skip
def test_text_is_translated_and_markup_stays(source: str, expected: str) -> None:
    assert translated_page(source) == expected


PIECES = ["<p>", "</p>", "<b>", "</b>", '<a href="x&y">', "</a>", "<br/>", "<img>", "<code>", "</code>", "<!--x-->",
          "3", "<script>", "</script>", "one", " two ", "\n", "&amp;", "&lt;", "<", ">", "&",
          "<b", '"', "</"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_tag_is_lost_or_made_and_no_text_without_letters_changes(text: str) -> None:
    found = translated_page(text)
    tags = re.compile("</?(?:p|b|a|br|img|code|script)(?: [^>]*)?/?>|<!--x-->")
    assert sorted(tags.findall(found)) == sorted(tags.findall(text))
    if not HtmlText(text).segments:
        assert found == text
