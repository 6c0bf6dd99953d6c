"""Patch texts of changed files: in the form of OpenCode's file diffs, and as plain `git diff` text.

Content that is binary, or too large for `lines`, is named but not shown. Bytes that are not UTF-8
become U+FFFD. With a `room` (bytes of UTF-8), a file whose text does not fit into the rest of it is
named but not shown either; smaller ones after it may still fit.
"""

import re
from collections.abc import Iterable, Iterator
from stat import S_IFMT

from kedge.domain.sessions import FileDiff
from kedge.snapshot.diffs.lines import (
    FULL_CONTEXT,
    are_comparable,
    compare_lines,
    count,
    count_lines,
)
from kedge.snapshot.diffs.trees import Node, Read, TreeChange

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
    """The path, quoted and escaped if it contains bytes that would break a line.

    Bytes that are not ASCII stay unchanged, valid UTF-8 or not.
    """
    if not _ODD.search(path):
        return path
    return b'"%b"' % _ODD.sub(_escape, path)


def _escape(match: re.Match[bytes]) -> bytes:
    odd = match[0]
    return _SHORT.get(odd) or b"\\%03o" % ord(odd)


_RULE = "=" * 67
_GIT_CONTEXT = 3
_ABBREVIATED = 7

# libgit2 cuts a hunk's heading at 80 bytes after it stripped trailing blanks, git before.
_BLANKS_AFTER_HEADING = re.compile(rb"^(@@ .*[^ \t\r\n])[ \t\r]+$", re.MULTILINE)


def file_diffs(
    changes: Iterable[TreeChange], read: Read, *, room: int | None = None
) -> list[FileDiff]:
    """Each change in OpenCode's form."""
    diffs = []
    for change in changes:
        old, new = _contents(change, read)
        diff = file_diff(change.path, old, new, room=room)
        if room is not None:
            room -= _size(diff.patch or "")
        diffs.append(diff)
    return diffs


def file_diff(
    path: bytes, old: bytes | None, new: bytes | None, *, room: int | None = None
) -> FileDiff:
    """One change in OpenCode's form: with the whole file as context; None is no file.

    The patch is "" for content that is not shown, and None if it does not fit into the room.
    """
    name = path.decode(errors="replace")
    before, after = old or b"", new or b""
    patch: str | None = ""
    if not are_comparable(before, after):
        additions, deletions = count(before, after)
    elif room is not None and before != after and max(len(before), len(after)) > room:
        # The text would contain every line of both.
        patch, (additions, deletions) = None, count(before, after)
    else:
        patch, additions, deletions = _whole_file_patch(name, before, after)
        if room is not None and _size(patch) > room:
            patch = None
    return FileDiff(
        file=name,
        patch=patch,
        additions=additions,
        deletions=deletions,
        status="added" if old is None else "deleted" if new is None else "modified",
    )


def git_diff(changes: Iterable[TreeChange], read: Read, *, room: int | None = None) -> str:
    """The changes as `git diff --no-renames` prints them with `core.quotepath` off.

    Ids are cut to 7 digits; git makes ambiguous ones longer. A file that is too large to compare is
    reported as binary; a file that does not fit has only its header.
    """
    texts = []
    for change in changes:
        for part in _without_type_change(change):
            head = _git_head(part).decode(errors="replace")
            body = _git_body(part, read).decode(errors="replace")
            text = head + body
            if room is not None:
                text = text if _size(text) <= room else head
                room -= _size(text)
            texts.append(text)
    return "".join(texts)


def _size(text: str) -> int:
    return len(text.encode())


def _contents(change: TreeChange, read: Read) -> tuple[bytes | None, bytes | None]:
    return change.old and read(change.old[1]), change.new and read(change.new[1])


def _whole_file_patch(name: str, old: bytes, new: bytes) -> tuple[str, int, int]:
    """The patch that jsdiff makes with unlimited context, and its additions and deletions."""
    head = f"Index: {name}\n{_RULE}\n--- {name}\t\n+++ {name}\t\n"
    changed = compare_lines(old, new, FULL_CONTEXT)
    if not changed.text:
        return head, 0, 0
    place = f"@@ -{_whole_range(old)} +{_whole_range(new)} @@\n"
    lines = changed.text[changed.text.index(b"\n") + 1 :].decode(errors="replace")
    return head + place + lines, changed.additions, changed.deletions


def _whole_range(content: bytes) -> str:
    return f"1,{count_lines(content)}" if content else "0,0"


def _without_type_change(change: TreeChange) -> Iterator[TreeChange]:
    """The change; if a file became a link or the reverse, a deletion and an addition."""
    old, new = change.old, change.new
    if old is None or new is None or S_IFMT(old[0]) == S_IFMT(new[0]):
        yield change
    else:
        yield TreeChange(change.path, old, None)
        yield TreeChange(change.path, None, new)


def _git_head(change: TreeChange) -> bytes:
    old, new = change.old, change.new
    lines = [b"diff --git %b %b" % (quoted(b"a/" + change.path), quoted(b"b/" + change.path))]
    mode = b""
    match old, new:
        case None, (now, _):
            lines.append(b"new file mode %06o" % now)
        case (was, _), None:
            lines.append(b"deleted file mode %06o" % was)
        case (was, _), (now, _) if was != now:
            lines += [b"old mode %06o" % was, b"new mode %06o" % now]
        case (was, _), _:
            mode = b" %06o" % was
    if _differ_in_content(change):
        lines.append(b"index %b..%b%b" % (_abbreviated(old), _abbreviated(new), mode))
    return b"\n".join(lines) + b"\n"


def _git_body(change: TreeChange, read: Read) -> bytes:
    if not _differ_in_content(change):
        return b""
    old, new = _contents(change, read)
    was, now = _label(b"a/", change.path, old), _label(b"b/", change.path, new)
    before, after = old or b"", new or b""
    if not are_comparable(before, after):
        return b"Binary files %b and %b differ\n" % (was, now)
    changed = compare_lines(before, after, _GIT_CONTEXT).text
    if not changed:
        return b""
    changed = _BLANKS_AFTER_HEADING.sub(rb"\1", changed)
    return b"--- %b\n+++ %b\n%b" % (_tabbed(was), _tabbed(now), changed)


def _differ_in_content(change: TreeChange) -> bool:
    return change.old is None or change.new is None or change.old[1] != change.new[1]


def _abbreviated(node: Node | None) -> bytes:
    return (node[1].hex() if node else "0" * 40)[:_ABBREVIATED].encode()


def _label(side: bytes, path: bytes, content: bytes | None) -> bytes:
    return b"/dev/null" if content is None else quoted(side + path)


def _tabbed(label: bytes) -> bytes:
    # So that programs that read patches see where a name with spaces ends.
    return label + b"\t" if b" " in label else label
