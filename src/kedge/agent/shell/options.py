"""The options and operands among the words of a command."""

from collections.abc import Collection, Iterator, Sequence

from kedge.agent.shell.words import ShellWord

_SHORTEST = len("--xx")
"""Characters of the shortest abbreviation of a long option."""


def operands(
    words: Sequence[ShellWord], letters: str = "", names: Collection[str] = ()
) -> list[ShellWord]:
    """The words that are neither options nor values of those that take one: short options by their
    letters, long ones by their names."""
    found: list[ShellWord] = []
    rest = iter(words)
    for word in rest:
        text = word.value
        if text == "--":
            return [*found, *rest]
        if not text.startswith("-") or text == "-":
            found.append(word)
        elif text in names or (_is_short(text) and _takes_next(text, letters)):
            next(rest, None)
    return found


def leading(
    words: Sequence[ShellWord], letters: str = "", names: Collection[str] = ()
) -> list[ShellWord]:
    """The options before the first operand, with their values: what follows belongs to another
    command."""
    at = 0
    while at < len(words) and words[at].value.startswith("-") and words[at].value != "--":
        text = words[at].value
        at += 1 + (text in names or (_is_short(text) and _takes_next(text, letters)))
    return list(words[:at])


def values(
    words: Sequence[ShellWord], *options: str, valued: str | None = ""
) -> Iterator[ShellWord]:
    """The values of options in any form: `-o x`, `-ox`, `-vo x`, `--out x`, `--out=x`, or
    abbreviated as GNU's programs allow: `--ou=x`.

    `valued` are the letters that take a value: what follows one of them is not another option. It
    is None if letters are never combined.
    """
    for at, word in enumerate(words):
        name, equals, value = word.value.partition("=")
        for option in options:
            if word.value == option or (not equals and _is_short_for(name, option)):
                yield from words[at + 1 : at + 2]
            elif equals and (name == option or _is_short_for(name, option)):
                yield word._replace(value=value, source=word.source.partition("=")[2])
            elif len(option) == 2 and option[1] in _cluster(word.value, valued):
                rest = word.value.partition(option[1])[2]
                after = word._replace(value=rest, source=word.source.partition(option[1])[2])
                yield from [after] if rest else words[at + 1 : at + 2]


def _is_short_for(name: str, option: str) -> bool:
    return len(name) >= _SHORTEST and name.startswith("--") and option.startswith(name)


def _cluster(text: str, valued: str | None) -> str:
    """The letters of combined options, up to the first that takes a value."""
    if valued is None or not _is_short(text):
        return ""
    end = next((at for at, letter in enumerate(text) if at and letter in valued), len(text))
    return text[1 : end + 1]


def has(
    words: Sequence[ShellWord], letters: str = "", *names: str, valued: str | None = ""
) -> bool:
    """Whether one of these options is present; letters may be combined, as in `values`."""
    return any(
        word.value.partition("=")[0] in names
        or bool(set(letters) & set(_cluster(word.value, valued)))
        for word in words
    )


def _is_short(text: str) -> bool:
    return text.startswith("-") and not text.startswith("--")


def _takes_next(text: str, letters: str) -> bool:
    """Whether the last letter in a word takes a value, and none before it does."""
    return text[-1] in letters and not set(letters) & set(text[1:-1])


TAR_VALUED = "CFHIKLNTVXbfg"
"""The letters of tar's options that take a value."""


def tar_words(words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    """The words of tar with a dash before each option: its first word needs none, and the values of
    all of its letters follow it."""
    if not words or not words[0].is_told or words[0].value.startswith("-"):
        return words
    found: list[ShellWord] = []
    rest = list(words[1:])
    for letter in words[0].value:
        found.append(ShellWord(f"-{letter}", f"-{letter}", True))
        if letter in TAR_VALUED and rest:
            found.append(rest.pop(0))
    return [*found, *rest]
