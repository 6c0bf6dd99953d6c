"""Titles and slugs of new sessions."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEFAULT_TITLE = re.compile(
    r"(?:New|Child) session - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII
)
_FORK_TITLE = re.compile(r"(.*) \(fork #(\d{1,9})\)", re.ASCII | re.DOTALL)

# 64 words each, so that a random byte picks all of them equally often.
_ADJECTIVES = """\
amber ample bold brave breezy bright brisk calm candid clear clever cosy crisp curious deft eager
early earnest easy fair fleet fond frank fresh gentle glad golden grand hardy hearty honest humble
jaunty keen kind lively loyal lucid mellow merry mild modest neat nimble noble patient plain polite
proud quick quiet rapid ready robust silver sleek steady stout sturdy sunny swift tidy trusty warm
"""
_NOUNS = """\
anchor atoll barge bay beacon binnacle bollard bowsprit breaker brig buoy cabin canal capstan cape
cleat clipper compass coral cove creek current cutter deck delta dinghy dock estuary ferry fjord
galley gull halyard harbour hatch haven headland hull inlet island jetty jib keel ketch lagoon
lantern mast mooring pier pilot quay rudder sail schooner sextant shoal skiff sloop spar strait tide
tiller wharf windlass
"""


def slug(random: Callable[[int], bytes]) -> str:
    """A short name that is easy to say, like `brisk-harbour`; it need not be unique."""
    words = zip((_ADJECTIVES.split(), _NOUNS.split()), random(2), strict=True)
    return "-".join(choices[byte % len(choices)] for choices, byte in words)


def default_title(now_ms: int, child: bool) -> str:
    """The default title of a new session; clients recognize it by its form."""
    moment = (_EPOCH + timedelta(milliseconds=now_ms)).replace(tzinfo=None)
    return f"{'Child' if child else 'New'} session - {moment.isoformat(timespec='milliseconds')}Z"


def is_default_title(title: str) -> bool:
    """Whether the session still has its default title."""
    return _DEFAULT_TITLE.fullmatch(title) is not None


def fork_title(title: str) -> str:
    """The title of a fork: numbered, counting up when a fork is forked."""
    if match := _FORK_TITLE.fullmatch(title):
        return f"{match[1]} (fork #{int(match[2]) + 1})"
    return f"{title} (fork #1)"
