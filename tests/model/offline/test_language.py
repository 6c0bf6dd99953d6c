"""Reading and writing the language of the offline model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.model.offline import commands as c
from kedge.model.offline.parser import MOST_LINES, Script, parse
from kedge.model.offline.writer import written
from tests.model.offline import strategies


def commands_of(prompt: str) -> list[c.Command]:
    """The commands of a script that can be read."""
    return [line.command for line in lines_of(prompt)]


def lines_of(prompt: str) -> tuple[c.Line, ...]:
    """The lines of a script that can be read."""
    script = parse(prompt)
    assert script is not None
    assert script.problems == ()
    return script.lines


def problems_of(prompt: str) -> list[tuple[int, str]]:
    """What is wrong with a script."""
    script = parse(prompt)
    assert script is not None
    assert script.lines == ()
    return [(problem.line, problem.text) for problem in script.problems]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("write a.txt hello  there ", c.Write("a.txt", "hello  there\n")),
        ('write a.txt "hello"', c.Write("a.txt", "hello")),
        ('write a.txt "hello" he said', c.Write("a.txt", '"hello" he said\n')),
        ('write a.txt ""', c.Write("a.txt", "")),
        ('write "Make file" all:', c.Write("Make file", "all:\n")),
        ("write ./Makefile all:", c.Write("./Makefile", "all:\n")),
        ("edit a.txt old new", c.EditFile("a.txt", "old", "new")),
        ('edit a.txt "old one" "new\\none" all', c.EditFile("a.txt", "old one", "new\none", True)),
        ("delete src/a", c.Delete("src/a")),
        ("read .", c.Read(".")),
        ("read a.txt 10", c.Read("a.txt", 10)),
        ("read a.txt 10 20", c.Read("a.txt", 10, 20)),
        ("bash cat <<EOF | wc", c.Bash("cat <<EOF | wc")),
        ("glob **/*.py", c.Glob("**/*.py")),
        ("glob *.py src", c.Glob("*.py", "src")),
        ('skill "git/pr"', c.ReadSkill("git/pr")),
        ('grep "two words" src *.py', c.Grep("two words", "src", "*.py")),
        ("task general write a.txt hi", c.Task("general", "write a.txt hi")),
        ("task explore again ls", c.Task("explore", "ls", again=True)),
        ("task x again background say hi", c.Task("x", "say hi", again=True, background=True)),
        (
            "task x <<END\nwrite a.txt hi\nand bash ls\nEND",
            c.Task("x", "write a.txt hi\nand bash ls"),
        ),
        ('task x "again"', c.Task("x", "again")),
        ("task x again", c.Task("x", "again")),
        ("todo", c.WriteTodos()),
        (
            "todo a | [x] b | [~] c !high | [-] d !low | [?] e",
            c.WriteTodos(
                (
                    c.TodoItem("a"),
                    c.TodoItem("b", "completed"),
                    c.TodoItem("c", "in_progress", "high"),
                    c.TodoItem("d", "cancelled", "low"),
                    c.TodoItem("[?] e"),
                )
            ),
        ),
        (
            "ask Which? | red: a fire | blue",
            c.Ask("Which?", (c.Option("red", "a fire"), c.Option("blue"))),
        ),
        ("choose Which? | red", c.Ask("Which?", (c.Option("red"),), multiple=True)),
        ("call frobnicate", c.CallTool("frobnicate")),
        ('call write {"filePath": ', c.CallTool("write", '{"filePath":')),
        ("say Hello", c.Say("Hello")),
        ('say "a\\nb"', c.Say("a\nb")),
        ("think\tHm.", c.Think("Hm.")),
        ("huge 5MB", c.Huge(5_000_000)),
        ("huge 64KB", c.Huge(64_000)),
        ("wait 1.5s", c.Wait(1500)),
        ("wait 20ms", c.Wait(20)),
        ("finish length", c.FinishWith("length")),
        ("fail auth", c.Fail("auth")),
        ("fail overloaded 2", c.Fail("overloaded", 2)),
        ("fail rate-limit 2 after 1s", c.Fail("rate-limit", 2, 1000)),
        ("fail rate-limit after 100ms", c.Fail("rate-limit", None, 100)),
        ("help", c.Help()),
    ],
)
def test_every_command(line: str, command: c.Command) -> None:
    """A line is read as the command that it says."""
    assert commands_of(line) == [command]


def test_a_result_can_be_shown_after_a_call() -> None:
    """The command without arguments that needs something before it."""
    assert commands_of("bash ls\nshow") == [c.Bash("ls"), c.Show()]


def test_a_prompt_in_quotes_is_read_without_them() -> None:
    """`opencode run` puts quotes around a message with blanks, and a backslash before others."""
    assert commands_of('"write a.txt hi"') == [c.Write("a.txt", "hi\n")]
    assert commands_of(r'"write a.txt \"hi\""') == [c.Write("a.txt", "hi")]
    assert commands_of('"write a.txt one\nsay two"\n')[1] == c.Say("two")


def test_quotes_inside_are_not_around_it() -> None:
    """What only begins and ends with a quote is chat, as before."""
    assert parse('"say this" or "that"') is None
    assert parse('"') is None


def test_blocks() -> None:
    """A block is literal, ends at its own marker, and is the text without the last newline."""
    prompt = """
write a.py <<END
# not a comment

  print("<<OTHER")
END
# a comment
edit a.py <<OLD <<NEW all
x
y
OLD
NEW
say <<_
one

_
todo <<END
[x] a | b

c
END
patch <<END
*** Begin Patch
END"""
    assert commands_of(prompt) == [
        c.Write("a.py", '# not a comment\n\n  print("<<OTHER")\n'),
        c.EditFile("a.py", "x\ny", "", all=True),
        c.Say("one\n"),
        c.WriteTodos((c.TodoItem("a | b", "completed"), c.TodoItem("c"))),
        c.ApplyPatch("*** Begin Patch"),
    ]


def test_a_block_keeps_its_line_ends() -> None:
    """In a prompt with CRLF commands are read as ever, and content stays as it is."""
    assert commands_of("write a.txt <<END\r\none\r\nEND\r\nsay hi\r\n") == [
        c.Write("a.txt", "one\r\n"),
        c.Say("hi"),
    ]


def test_prefixes() -> None:
    """What stands before a command says how it is done."""
    assert lines_of(
        "try repeat 3 bash a\nrepeat forever slow 2 10ms bash b\nbash c\nand try bash d"
    ) == (
        c.Line(command=c.Bash("a"), tolerant=True, times=3),
        c.Line(command=c.Bash("b"), times=None, pace=c.Pace(pieces=2, milliseconds=10)),
        c.Line(command=c.Bash("c")),
        c.Line(command=c.Bash("d"), joined=True, tolerant=True),
    )


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "  \n\t",
        "# nothing but a comment",
        "hello",
        "Write a poem",
        "writes",
        "help me",
        "show me the files",
        "try again",
        "repeat the test",
        "slow down a bit",
        "and then?",
        "hello\nwrite a.txt x",
        "/undo",
    ],
)
def test_chat_is_no_script(prompt: str) -> None:
    """A prompt whose first line does not begin like a command is left alone."""
    assert parse(prompt) is None


@pytest.mark.parametrize(
    ("prompt", "line", "said"),
    [
        ("write a poem for me", 1, "`a` does not look like a file"),
        ("write a.txt", 1, "`write FILE TEXT`"),
        ('write "" x', 1, "not empty"),
        ('write "a\\nb" x', 1, "one line"),
        ('write "a x', 1, "begins with a quote"),
        ("edit a.txt x", 1, "`edit FILE OLD NEW [all]`"),
        ("edit a.txt x y z", 1, "`edit FILE OLD NEW [all]`"),
        ("read a.txt ten", 1, "`ten` is not the first line"),
        ("read a.txt 1 2 3", 1, "write it as"),
        ("delete a.txt b.txt", 1, "write it as"),
        ("say", 1, "`say TEXT`"),
        ("say hi\n\n# x\nwirte a.txt x", 4, "perhaps `write` is meant"),
        ("say hi\nhello", 2, "say `help`"),
        ("say hi\nhelp me", 2, "write it as `help`"),
        ("say <<END\nx\nsay hi", 1, "has no end"),
        ("say <<END", 1, "has no end"),
        ("ask Which?", 1, "write it as"),
        ("ask", 1, "write it as"),
        ('call ""', 1, "write it as"),
        ("huge much", 1, "is not a size"),
        ("huge 65MB", 1, "too large"),
        ("wait 5", 1, "`250ms`"),
        ("wait 1.5ms", 1, "`250ms`"),
        ("wait 9999s", 1, "too long"),
        ("wait", 1, "`250ms`"),
        ("finish soon", 1, "`content-filter`"),
        ("fail", 1, "write it as"),
        ("fail badly", 1, "`rate-limit`"),
        ("fail auth often", 1, "how often it fails"),
        ("fail auth 1 now", 1, "write it as"),
        ("fail auth after", 1, "`250ms`"),
        ("show", 1, "no call before"),
        ("say a\ntry say b", 2, "`try` and `repeat`"),
        ("say a\nrepeat 2 say b", 2, "`try` and `repeat`"),
        ("say a\nslow 2 1ms wait 1s", 2, "`slow`"),
        ("slow x 1ms say a", 1, "the number of pieces"),
        ("slow 0 1ms say a", 1, "the number of pieces"),
        ("say a\nrepeat often bash a", 2, "how often, or `forever`"),
        ("say a\ntry try bash a", 2, "twice"),
        ("say a\ntry", 2, "a command is missing"),
        ("repeat 2 bash a\nand bash b", 2, "cannot join"),
        ("bash a\nand repeat 2 bash b", 2, "cannot join"),
        ("\n" * 10 + "say a\n" * (MOST_LINES + 1), MOST_LINES + 11, "at most"),
        ("todo " + "a|" * 1000, 1, "at most"),
    ],
)
def test_what_cannot_be_read(prompt: str, line: int, said: str) -> None:
    """A problem names its line and says what to write instead."""
    [(where, text)] = problems_of(prompt)
    assert where == line
    assert said in text


def test_several_problems() -> None:
    """All problems are told at once, but not more than a person wants to read."""
    assert [line for line, _ in problems_of("say a\n" + "x\n" * 100)] == [2, 3, 4, 5, 6]


def test_a_problem_is_told_once() -> None:
    """A line that joins one with a problem has none of its own."""
    assert [line for line, _ in problems_of("say\nand bash x")] == [1]


@given(strategies.scripts())
def test_what_is_written_is_read_again(lines: tuple[c.Line, ...]) -> None:
    """A script comes back from its text as it was, whatever its texts are."""
    assert parse(written(*lines)) == Script(lines=lines)


beginnings = [
    "write a.txt ",
    "edit a.txt ",
    "say ",
    "todo ",
    "ask ",
    "call ",
    "bash ",
    "fail ",
    "glob ",
    "wait 5ms",
    "cut",
    "and ",
    "try ",
    "repeat 2 ",
    "slow 2 5ms ",
    "repeat forever ",
]
prompts = st.lists(
    st.sampled_from(beginnings) | strategies.words | strategies.characters, max_size=12
).map("".join)


@given(prompts)
def test_any_prompt_can_be_read(prompt: str) -> None:
    """Whatever is typed is chat, a list of problems, or a script that can be written down."""
    script = parse(f"say a\n{prompt}")
    assert script is not None
    assert bool(script.problems) != bool(script.lines)
    if not script.problems:
        assert parse(written(*script.lines)) == script


def test_commands_can_be_written_without_lines() -> None:
    """A program that makes prompts need not care for quotes and markers."""
    assert written(c.Write("a.txt", "END\n\nx\n"), c.Say("hi")) == (
        'write "a.txt" <<END1\nEND\n\nx\nEND1\nsay hi\n'
    )
