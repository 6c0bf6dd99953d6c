"""The pictures and documents that a model can be shown, recognized by their bytes, not by their
names."""

import base64
import binascii
from urllib.parse import unquote_to_bytes

MOST_BYTES = {"image/": 3_750_000, "application/pdf": 10_000_000}
"""The limits of providers: 5 MB for a picture, counted after it is encoded."""


def mime_of(data: bytes) -> str | None:
    """The type of a picture or PDF that begins with these bytes; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    return None


def most_bytes(mime: str) -> int:
    """The size limit for a file of this type."""
    return next(most for prefix, most in MOST_BYTES.items() if mime.startswith(prefix))


def data_url(mime: str, data: bytes) -> str:
    """A data URL of the file."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def data_of(url: str) -> bytes | None:
    """The content of a data URL; None for any other URL and for a broken one."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:"):
        return None
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None
