"""Pages in HTML as Markdown and as text, and pages that are made to take for ever."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kedge.agent.web import html
from kedge.agent.web.html import Start, as_text, decoded
from kedge.agent.web.markdown import as_markdown

BASE = "https://a.example/docs/page"


def md(page: str) -> str:
    """A page as Markdown."""
    return as_markdown(page, BASE)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<h1>One</h1><h3>Three <em>x</em></h3>", "# One\n\n### Three *x*"),
        ("<p>a\n  b</p><p>c<br>d</p>", "a b\n\nc\nd"),
        ("a<b> bold </b>c<i></i>", "a **bold** c"),
        ("<a href='../x?a=1&amp;b=2'>to x</a>", "[to x](https://a.example/x?a=1&b=2)"),
        ("<a href='#part'>part</a> <a href='javascript:x()'>run</a>", "part run"),
        ("<a href='x (1).html'>a</a>", "[a](https://a.example/docs/x%20%281%29.html)"),
        (
            "<a href=x><h3>Title</h3><p>text</p></a><p>b",
            "[Title text](https://a.example/docs/x)\n\nb",
        ),
        ("<a name=top><p>a</p><p>b</p>", "a\n\nb"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>", "- a\n- b\n  - c"),
        ("<ol start=3><li>a</li><li><p>b</p><p>c</p></li></ol>", "3. a\n4. b\n\n   c"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc"),
        (
            "<pre><code class='language-py'>if a &lt; b:\n    pass\n</code></pre>",
            "```py\nif a < b:\n    pass\n```",
        ),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<code>x</code> <code>a`b</code>", "`x` ``  a`b  ``".replace("  ", " ")),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<img src=i.png alt='a pic'>", "![a pic](https://a.example/docs/i.png)"),
        ("<img src='data:image/png;base64,xx' alt=dot>", "dot"),
        (
            "<table><thead><tr><th>A</th><th>B|</th></tr></thead><tr><td>1<td>2<br>3</table>",
            "| A | B\\| |\n| --- | --- |\n| 1 | 2 3 |",
        ),
        ("<table><caption>Cap</caption><tr><td>one</td></tr></table>", "Cap\n\none"),
        (
            "<table><tr><td>menu<td><h2>Title</h2><p>text<table><tr><td>a<td>b<tr><td>c<td>d</table>",
            "menu\n\n## Title\n\ntext\n\n| a | b |\n| --- | --- |\n| c | d |",
        ),
        (
            "<script>if (a<b) '</p>'</script><style>p{}</style><svg><path/><text>x</text></svg>y",
            "y",
        ),
        ("<title>A &amp; B</title><body>c", "A & B\n\nc"),
        ("<p># a</p><p>1. b</p><p>- c</p><p>&gt; d", "\\# a\n\n1\\. b\n\n\\- c\n\n\\> d"),
        ("a<!-- <p>b</p> -->c<!doctype x><?php ?>d<!-->e", "acde"),
        ("1 < 2 && 3 <4 &notit; &#65;&#x42;", "1 < 2 && 3 <4 ¬it; AB"),
        ("<p title='a>b' x=\"<p>\">c", "c"),
        ("a\x1b[31mb\x00\x9bc", "a[31mbc"),
        ("", ""),
    ],
)
def test_markdown(page: str, expected: str) -> None:
    """Headings, lists, links, code, quotes and tables as people write them."""
    assert md(page) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<h1>One</h1><p>a  b<br>c <a href=x>d</a>", "One\na b\nc d"),
        ("<pre>a\n  b\n</pre>c", "a\n  b\nc"),
        ("<noscript>on!</noscript><iframe>x</iframe><object>y</object>z", "z"),
        ("<ul><li>a<li>b</ul>", "a\nb"),
        ("<table><tr><td>a<td>b</table>", "a\nb"),
        ("a &amp; b &lt;c&gt;", "a & b <c>"),
    ],
)
def test_text(page: str, expected: str) -> None:
    """The words, a line for each block."""
    assert as_text(page) == expected


def test_attributes() -> None:
    """Quoted, bare and without a value; the first of two counts."""
    tag = Start("a", " HREF='x y' b=\"1&amp;2\" c=d e f = g href=z /")
    assert tag.attributes() == {
        "href": "x y", "b": "1&2", "c": "d", "e": "", "f": "g"
    } | {k: v for k, v in tag.attributes().items() if k == "/"}  # fmt: skip


def test_numbers_of_characters_have_an_end() -> None:
    """Python refuses to read numbers of thousands of digits."""
    assert decoded("&#" + "9" * 10_000 + ";") == "\ufffd"
    assert decoded("&#x" + "f" * 10_000) == "\ufffd"
    assert decoded("&#128169;") == "\U0001f4a9"


_UNITS = (
    *("<div>", "<a ", "<a>", "<a href=x>y", "<", "<!--", "<!", "</", "</b>", '<a b="', "<a b='\""),
    *("<ul><li>x", "<blockquote>x<br>", "&#9", "&amp", "<table><tr><td>x", "<i>x", "<b>x</b>"),
    *("\n ", "= ", "<pre>`", "<script>", "<title>", "<h1>x", "<svg>", "`", "<span> </span>", "<p"),
    "<a " + "x= " * 100 + ">",
)


@pytest.mark.parametrize("unit", _UNITS)
def test_the_work_grows_with_the_length(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long page of the same, nested or unclosed, is read to the end or to the limit of tokens;
    the nested one of five megabytes too."""
    monkeypatch.setattr(html, "MOST_TOKENS", 5_000)
    size = (5 * 1024 if unit == "<div>" else 512) * 1024
    page = unit * (size // len(unit))
    for written in (md(page), as_text(page)):
        assert len(written) <= 2 * len(page)


def test_it_can_be_stopped() -> None:
    """A page that is wanted no more is not read to its end."""
    looked: list[bool] = []

    def stopped() -> bool:
        looked.append(True)
        return len(looked) > 2

    as_text("<p>x" * 100_000, stopped)
    assert len(looked) == 3


_PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "<p>",
                "</p>",
                "<b>",
                "</b>",
                "<a href='/x'>",
                "</a>",
                "<ul>",
                "<li>",
                "</ul>",
                "<ol>",
            ),
            *("<table>", "<tr>", "<td>", "</table>", "<pre>", "</pre>", "<h2>", "</h2>", "<br>"),
            *("<blockquote>", "</blockquote>", "<code>", "</code>", "<img alt=i src=y>", "<hr>"),
            *("<!-- c -->", "<script>s</script>", "text", " ", "\n", "# x", "&lt;", "|", "`", "</"),
        ]
    ),
    max_size=40,
)


@given(_PIECES)
def test_any_nesting_can_be_written(pieces: list[str]) -> None:
    """Wrongly nested pages lose no word, and every link is one in Markdown."""
    page = "".join(pieces)
    written = md(page)
    words = pieces.count("text") - page.count("<script>text")
    assert written.count("text") == as_text(page).count("text") <= words
    links = re.findall(r"\]\((.*?)\)", written)
    assert set(links) <= {"https://a.example/x", "https://a.example/docs/y"}
    MarkdownIt().parse(written)
