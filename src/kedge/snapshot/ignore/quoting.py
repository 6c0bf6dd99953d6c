"""Git's quoted names, as they may stand at the start of an attributes line."""

import re

_ESCAPED = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\(?:[abfnrtv\\"]|[0-3][0-7]{2}))*+)"')
_ESCAPE = re.compile(rb'\\([abfnrtv\\"]|[0-3][0-7]{2})')


def unquoted(text: bytes) -> tuple[bytes, bytes] | None:
    """The name that the quoted start of a text means, and the rest; nothing if it is no such."""
    match = _QUOTED.match(text)
    if match is None:
        return None
    return _ESCAPE.sub(_meant, match[1]), text[match.end() :]


def _meant(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return _ESCAPED[code] if code in _ESCAPED else bytes((int(code, 8),))
