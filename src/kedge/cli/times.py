"""Times, durations, sizes and counts as people read them."""

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def moment(time: float) -> datetime:
    """A time in milliseconds, as a local one."""
    return datetime.fromtimestamp(time / 1000).astimezone()


def ago(time: float, now: float) -> str:
    """How long ago a time in milliseconds was, or its date."""
    seconds = max(0, int((now - time) / 1000))
    if seconds < _MINUTE:
        return "now" if seconds < 10 else f"{seconds} s ago"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min ago"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h ago"
    then, today = moment(time), moment(now)
    days = (today.date() - then.date()).days
    if days < 7:
        return f"{days} day{'s' if days > 1 else ''} ago"
    return f"{then:%b} {then.day}" if then.year == today.year else f"{then:%Y-%m-%d}"


def iso(time: float) -> str:
    """A time in milliseconds, for programs."""
    return moment(time).isoformat(timespec="seconds")


def lasting(seconds: float) -> str:
    """A duration."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    if minutes < _MINUTE:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, _MINUTE)
    return f"{hours} h {minutes} min"


def size(count: float) -> str:
    """A number of bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return (
                f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
            )
        count /= 1000
    return f"{count:.1f} TB"


def many(count: int, noun: str) -> str:
    """A count and its noun: `1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
