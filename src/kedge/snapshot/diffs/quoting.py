"""Path names as git writes them in its output while `core.quotepath` is off."""

import re

_ODD = re.compile(rb'[\x00-\x1f\x7f"\\]')
_SHORT = {
    b"\a": rb"\a",
    b"\b": rb"\b",
    b"\t": rb"\t",
    b"\n": rb"\n",
    b"\v": rb"\v",
    b"\f": rb"\f",
    b"\r": rb"\r",
    b'"': rb"\"",
    b"\\": rb"\\",
}


def quoted(path: bytes) -> bytes:
    """The path, in quotes and escaped if it holds what would break a line apart.

    Bytes that are not ASCII stay as they are, valid UTF-8 or not.
    """
    if not _ODD.search(path):
        return path
    return b'"%b"' % _ODD.sub(_escape, path)


def _escape(match: re.Match[bytes]) -> bytes:
    odd = match[0]
    return _SHORT.get(odd) or b"\\%03o" % ord(odd)
