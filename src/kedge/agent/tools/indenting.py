"""New lines indented as those are that they go between, where a model had all of it otherwise."""

from collections.abc import Mapping, Sequence


def indented(new: Sequence[str], wanted: Sequence[str], present: Sequence[str]) -> list[str]:
    """The new lines, given the lines that the model takes for present, and those that are."""
    known: dict[str, str] = {}
    for old, line in zip(wanted, present, strict=True):
        if old.strip() and known.setdefault(_indent(old), _indent(line)) != _indent(line):
            return list(new)
    return [_moved(line, known) for line in new]


def _moved(line: str, known: Mapping[str, str]) -> str:
    if not line.strip() or not known:
        return line
    own = _indent(line)
    fitting = [indent for indent in known if own.startswith(indent)]
    if not fitting:
        given = max(known, key=len)
        return _converted(own, given, known[given]) + line[len(own) :]
    given = max(fitting, key=len)
    # What says how deep a step is may be said of another depth.
    step = given or max(known, key=len)
    deeper = _converted(own[len(given) :], step, known[step])
    return known[given] + deeper + line[len(own) :]


def _converted(indent: str, given: str, present: str) -> str:
    """An indent with tabs for blanks or blanks for tabs, if the file has those."""
    if set(given) == {" "} and set(present) == {"\t"} and len(given) % len(present) == 0:
        return indent.replace(" " * (len(given) // len(present)), "\t")
    if set(given) == {"\t"} and set(present) == {" "} and len(present) % len(given) == 0:
        return indent.replace("\t", " " * (len(present) // len(given)))
    return indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
