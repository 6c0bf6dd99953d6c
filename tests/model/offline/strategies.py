"""Random scripts for the offline model."""

from hypothesis import strategies as st

from kedge.model.offline import commands as c
from kedge.model.offline.commands import FAULTS
from kedge.model.offline.parser import BLANKS, CALLS, MARKS, PRIORITIES, REASONS, SPEECH

# Text as prompts have it, with much of what means something in the language.
words = st.sampled_from(
    ['"', "<<END", "END", "END1", "|", "# no", "\n", "\r\n", " ", "\t", "and", "{n}", "!low", ": "]
)
characters = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
texts = st.lists(words | characters, max_size=6).map("".join)
names = texts.filter(lambda text: text and "\n" not in text)
items = texts.map(lambda text: text.replace("\n", "").strip(BLANKS)).filter(bool)
numbers = st.integers(1, 10_000)
milliseconds = st.integers(0, 20)

todo_items = st.builds(
    c.TodoItem, items, st.sampled_from(list(MARKS.values())), st.sampled_from(PRIORITIES)
)
labels = items.filter(lambda text: ": " not in text)
options = st.builds(c.Option, labels, st.just("") | labels)

calling: st.SearchStrategy[c.Calling] = st.one_of(
    st.builds(c.Write, names, texts),
    st.builds(c.EditFile, names, texts, texts, st.booleans()),
    st.builds(c.Delete, names),
    st.builds(c.Read, names),
    st.builds(c.Read, names, numbers, st.none() | numbers),
    st.builds(c.Bash, texts),
    st.builds(c.Glob, texts, st.none() | texts),
    st.builds(c.ReadSkill, texts),
    st.builds(c.Grep, texts),
    st.builds(c.Task, texts.filter(bool), texts, st.booleans(), st.booleans()),
    st.builds(c.Grep, texts, texts, st.none() | texts),
    st.builds(c.ApplyPatch, texts),
    st.builds(c.WriteTodos, st.lists(todo_items, max_size=4).map(tuple)),
    st.builds(c.Ask, items, st.lists(options, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(c.Fetch, texts, st.none() | texts),
    st.just(c.PlanExit()),
    st.builds(c.Structured, st.none() | texts),
    st.builds(c.CallTool, texts.filter(bool), texts | st.just('{"a": [1, null]}')),
)
speaking: st.SearchStrategy[c.Speaking] = st.one_of(
    st.builds(c.Say, texts),
    st.builds(c.Think, texts),
    st.just(c.Help()),
    st.builds(c.Huge, st.integers(0, 20_000)),
)
passing: st.SearchStrategy[c.Command] = st.one_of(
    st.builds(c.Wait, milliseconds), st.builds(c.FinishWith, st.sampled_from(REASONS))
)
failing = st.builds(
    c.Fail, st.sampled_from(FAULTS), st.none() | st.integers(1, 3), st.none() | milliseconds
)
paces = st.none() | st.builds(c.Pace, pieces=st.integers(1, 5), milliseconds=st.just(0))
repeats = st.none() | st.integers(1, 4)


@st.composite
def scripts(draw: st.DrawFn, *, may_fail: bool = True) -> tuple[c.Line, ...]:
    """Lines that make up a script that can be read."""
    commands = calling | speaking | passing | (failing if may_fail else st.nothing())
    lines: list[c.Line] = []
    for command in draw(st.lists(commands, min_size=1, max_size=6)):
        is_call = isinstance(command, CALLS)
        times = draw(repeats) if is_call else 1
        may_join = bool(lines) and times == 1 and lines[-1].times == 1
        lines.append(
            c.Line(
                command=command,
                joined=may_join and draw(st.booleans()),
                tolerant=is_call and draw(st.booleans()),
                times=times,
                pace=draw(paces) if is_call or isinstance(command, SPEECH) else None,
            )
        )
    return tuple(lines)
