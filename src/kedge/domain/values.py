"""The base of every value that goes on the wire; how it becomes JSON is in `wire`."""

from typing import Any

import msgspec

# The highest code point, a noncharacter: no program uses it as a key. `wire` makes sure that text
# from outside which does use it is never taken for it.
EXTRA_KEY = "\U0010ffff"


class Value(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A frozen value that keeps the keys it does not know; optional fields are absent when None."""

    extra: dict[str, Any] | None = msgspec.field(default=None, name=EXTRA_KEY)
    """Keys from the wire that kedge does not know; they go out again beside the known ones."""
