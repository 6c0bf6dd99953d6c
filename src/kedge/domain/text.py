"""Makes text from outside safe to store and send."""

import os
import re
from pathlib import Path

_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_HELD = b"\xff\xff"
"""A placeholder for an escaped backslash; UTF-8 text never contains it."""
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")


def mend_text(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced; never of a subclass."""
    if type(text) is str and text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def printable(name: str | bytes | Path) -> str:
    """A path as one line of text that can be sent; what would break the line is escaped."""
    text = os.fsencode(name).decode(errors="replace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def utf8(text: str) -> bytes:
    """The text in UTF-8, mended if necessary."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return mend_text(text).encode()


def mend_escapes(json: bytes) -> bytes:
    """The JSON text with every escaped lone surrogate replaced."""
    if b"\xff" in json:
        # Not UTF-8; the decoder reports that.
        return json
    # With these replaced, every backslash begins an escape; no Python code runs per backslash.
    held = json.replace(b"\\\\", _HELD)
    return _LONE.sub(rb"\\ufffd", held).replace(_HELD, b"\\\\")


def nested_deeper_than(limit: int, json: bytes) -> bool:
    """Whether arrays and objects of well-formed JSON text are nested more than `limit` deep.

    Counted in the text, not left to the interpreter, whose limit depends on the depth of the
    caller's stack: what one caller may store, every other must be able to read.
    """
    if json.count(b"[") + json.count(b"{") <= limit:
        return False
    unescaped = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = unescaped.translate(_BRACES_TO_BRACKETS, _NOT_STRUCTURE)
    brackets = b"".join(structure.split(b'"')[::2])
    for _ in range(limit):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
