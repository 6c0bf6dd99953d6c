"""Random command lines, with the commands that are in them."""

from typing import NamedTuple

from hypothesis import strategies as st


class Known(NamedTuple):
    """A command line, and the names of its simple commands in the order in which they stand."""

    text: str
    names: tuple[str, ...]


_NAMES = st.sampled_from(["ls", "sort", "git", "make", "./run", "curl", "a-b", "x_y"])
_WORDS = st.sampled_from(
    [
        *("x", "-rf", "a/b", "'q; rm y'", '"q && rm y"', r"\;", "$HOME", '"$x y"', "*.py", "a=b"),
        *("1", "{}", "~", "${x}", "$'a'", "--", "#no", "a#b", "'$(rm z)'", r"\`rm", "!"),
        *("$?", "if", "then", "é"),
    ]
)


@st.composite
def _simple(draw: st.DrawFn) -> Known:
    name = draw(_NAMES)
    words = [word for word in draw(st.lists(_WORDS, max_size=3)) if word != "#no"]
    before = draw(st.sampled_from(["", "", "", "A=1 ", "A= B='x y' ", "> f ", "<f "]))
    after = draw(st.sampled_from(["", "", "", " > f", " 2>&1", " >> f 2> g", " < f", " &> f"]))
    return Known(before + " ".join([name, *words]) + after, (name,))


def _one(
    child: st.SearchStrategy[Known], before: str, after: str, *names: str
) -> st.SearchStrategy[Known]:
    return child.map(lambda known: Known(before + known.text + after, (*names, *known.names)))


def _two(child: st.SearchStrategy[Known], between: str) -> st.SearchStrategy[Known]:
    return st.tuples(child, child).map(
        lambda pair: Known(pair[0].text + between + pair[1].text, (*pair[0].names, *pair[1].names))
    )


def _deeper(child: st.SearchStrategy[Known]) -> st.SearchStrategy[Known]:
    return st.one_of(
        *(
            _two(child, between)
            for between in ("; ", " && ", " || ", " | ", " & ", "\n", " |& ", ";\n\n")
        ),
        _one(child, "( ", " )"),
        _one(child, "{ ", "; }"),
        _one(_simple(), "! ", ""),
        _one(child, "echo $( ", ")", "echo"),
        _one(child, 'echo "a $( ', ') b"', "echo"),
        _one(child, "echo x$( ", ")y", "echo"),
        _one(child, "diff <(", ") y", "diff"),
        _one(child, "tee >(", ")", "tee"),
        _one(child, 'cat <<< "$( ', ')"', "cat"),
        _one(child, "x=$( ", ")", "x"),
        _one(child, "export y=$( ", ")", "export"),
        _one(child, "if true; then ", "; fi", "true"),
        _one(child, "if ", "; then :; else :; fi").map(
            lambda known: Known(known.text, (*known.names, ":", ":"))
        ),
        _one(child, "while false; do ", "; done", "false"),
        _one(child, "for i in a b; do\n", "\ndone"),
        _one(child, "for i in $( ", "); do :; done").map(
            lambda known: Known(known.text, (*known.names, ":"))
        ),
        _one(child, "case $x in\na|b) ", " ;;\nesac"),
        _one(child, "[ -f x ] && { ", "; }"),
        _one(child, "# rm x\n", ""),
    )


LINES = st.recursive(_simple(), _deeper, max_leaves=6)
"""Lines that the parser should understand."""

BITS = st.lists(
    st.sampled_from(
        [
            *(
                "c0",
                "c1",
                "c2",
                " ",
                " ",
                " ",
                ";",
                "\n",
                "&&",
                "||",
                "|",
                "&",
                "(",
                ")",
                "{ ",
                " }",
            ),
            *("$( ", "`", '"', "'", "\\", "#", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "\t", "<("),
            *(">(", "if ", "then ", "fi ", "case x in ", "x)", ";;", " esac", "for x in a; do "),
            *("done ", "! ", "((", "))", "$((", "[[ ", " ]]", "${x:-", "}", "$'", "=", "x=", "E"),
            *("eval ", "bash -c ", "env ", "command ", "exec ", "<<<", "> f", "2>&1 ", "time "),
            *("\\\n", "$x", "{c0,c1}", "*", "?", "~", "[ ", " ]", '$"', "\r", "echo ", "\\$("),
            *("\\`", "@(", "a[", "]=", "&>", "|&", "-- ", "-a ", "trap ", "while "),
        ]
    ),
    min_size=2,
    max_size=14,
).map("".join)
"""Lines that may mean anything or nothing."""
