"""Recorded values, with names in the place of what is different each time, and their comparison.

`{S1}` is a session, `{M1}` a message, `{P1}` a part, `{R1}` a permission, `{Q1}` a question, `{J1}`
a project, `{K1}` a cursor, `{T1}` a time: whatever stands there first has this name from then on.
`{time}`, `{hash}`, `{n}` and the like stand for any value of their kind, `{rest}` for any items.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLACE = re.compile(r"\{([A-Z]\d+|[a-z]+(?: [a-z]+)?)\}")
_NAMED = {
    "S": r"ses_\w+",
    "M": r"msg_\w+",
    "P": r"prt_\w+",
    "R": r"per_\w+",
    "Q": r"que_\w+",
    "J": r"(?:dir_)?[0-9a-f]{40}",
    "K": r"[\w=-]+",
}
_KINDS = {
    "session": r"ses_\w+",
    "message": r"msg_\w+",
    "part": r"prt_\w+",
    "event": r"evt_\w+",
    "hash": r"[0-9a-f]{40}",
    "iso": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    "slug": r"[a-z]+-[a-z]+",
    "version": r"\d+\.\d+\.\d+\S*",
    "ref": r"err_[0-9a-f]{8}",
    "call": r"\S+",
    "cursor": r"[\w=-]+",
    "words": r"(?s:.+)",
}


class Names:
    """What the names of a recording stand for in one run."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._known: dict[str, Any] = dict(places)
        """Folders and addresses are known from the beginning."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - an id or a time
        return self._known[name]

    def bind(self, name: str, value: Any) -> bool:  # noqa: ANN401 - an id or a time
        """Give a name to a value; false if either is taken. Times may be the same by chance."""
        if name in self._known:
            return bool(self._known[name] == value)
        if not name.startswith("T") and value in self._known.values():
            return False
        self._known[name] = value
        return True

    def name_of(self, id: str) -> str:
        """The name of an id in braces; the id itself if it has none."""
        found = (name for name, each in self._known.items() if each == id)
        name = next(found, None)
        return id if name is None else f"{{{name}}}"

    def filled(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """The value with what its names stand for."""
        if isinstance(value, dict):
            return {self.filled(key): self.filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.filled(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if (whole := _PLACE.fullmatch(value)) and whole[1] in self._known:
            return self._known[whole[1]]
        return _PLACE.sub(lambda place: str(self._known.get(place[1], place[0])), value)

    def complaints(self, wanted: Any, seen: Any, where: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
        """Where a value is not as it was recorded; on the way, names are given."""
        if isinstance(wanted, dict) and isinstance(seen, dict):
            yield from self._of_object(wanted, seen, where)
        elif isinstance(wanted, list) and isinstance(seen, list):
            if wanted[-1:] == ["{rest}"]:
                wanted, seen = wanted[:-1], seen[: len(wanted) - 1]
            if len(wanted) != len(seen):
                yield f"{where or 'it'} has {len(seen)} items, not {len(wanted)}"
            for at, (inner, found) in enumerate(zip(wanted, seen, strict=False)):
                yield from self.complaints(inner, found, f"{where}[{at}]")
        elif not self._fits(wanted, seen):
            yield f"{where or 'it'} is {_short(seen)}, not {_short(wanted)}"

    def _of_object(
        self, wanted: Mapping[str, Any], seen: Mapping[str, Any], where: str
    ) -> Iterator[str]:
        recorded = {self.filled(key): value for key, value in wanted.items()}
        for key in sorted(recorded.keys() | seen.keys()):
            place = f"{where}.{key}" if where else key
            if key not in seen:
                yield f"{place} is missing"
            elif key not in recorded:
                yield f"{place} is more: {_short(seen[key])}"
            else:
                yield from self.complaints(recorded[key], seen[key], place)

    def _fits(self, wanted: Any, seen: Any) -> bool:  # noqa: ANN401 - JSON
        if wanted == "{any}":
            return True
        if wanted == "{time}":
            return type(seen) is int and seen > 0
        if wanted == "{n}":
            return type(seen) in (int, float) and seen > 0
        if isinstance(wanted, str) and re.fullmatch(r"\{T\d+\}", wanted):
            return type(seen) is int and self.bind(wanted[1:-1], seen)
        if isinstance(wanted, str) and isinstance(seen, str):
            return self._reads(wanted, seen)
        return isinstance(wanted, bool) == isinstance(seen, bool) and bool(wanted == seen)

    def _reads(self, wanted: str, seen: str) -> bool:
        pattern, names = self._pattern(wanted)
        found = re.fullmatch(pattern, seen)
        return found is not None and all(
            self.bind(name, each) for name, each in zip(names, found.groups(), strict=True)
        )

    def _pattern(self, wanted: str) -> tuple[str, list[str]]:
        pattern, at = "", 0
        names: list[str] = []
        for place in _PLACE.finditer(wanted):
            pattern += re.escape(wanted[at : place.start()])
            at = place.end()
            name = place[1]
            if name in self._known:
                pattern += re.escape(str(self._known[name]))
            elif name[0] in _NAMED:
                if name in names:
                    pattern += rf"\{names.index(name) + 1}"
                else:
                    names.append(name)
                    pattern += f"({_NAMED[name[0]]})"
            else:
                pattern += _KINDS[name] if name in _KINDS else re.escape(place[0])
        return pattern + re.escape(wanted[at:]), names


def _short(value: Any) -> str:  # noqa: ANN401 - JSON
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."
