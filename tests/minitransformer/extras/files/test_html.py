"""HTML: text is translated, and markup stays."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.extras.files.codes import translate_segments
from minitransformer.extras.files.html import HtmlText
from minitransformer.inference.translator import Translation


def in_capitals(texts: Sequence[str]) -> list[Translation]:
    words = [text.upper().split() for text in texts]
    return [Translation(" ".join(some), 0.0, 0.0, tuple((i, i) for i in range(len(some)))) for some in words]


def translated(text: str) -> str:
    page = HtmlText(text)
    return page.filled(translate_segments(page.segments, in_capitals))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
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
        ("", ""),
    ],
)  # fmt: skip
def test_text_is_translated_and_markup_stays(source: str, expected: str) -> None:
    assert translated(source) == expected


PIECES = ["<p>", "</p>", "<b>", "</b>", '<a href="x&y">', "</a>", "<br/>", "<img>", "<code>", "</code>", "<!--x-->",
          "3", "<script>", "</script>", "one", " two ", "\n", "&amp;", "&lt;", "<", ">", "&",
          "<b", '"', "</"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_tag_is_lost_or_made_and_no_text_without_letters_changes(text: str) -> None:
    found = translated(text)
    tags = re.compile("</?(?:p|b|a|br|img|code|script)(?: [^>]*)?/?>|<!--x-->")
    assert sorted(tags.findall(found)) == sorted(tags.findall(text))
    if not HtmlText(text).segments:
        assert found == text
