"""Which pictures and documents a model can be shown; told by their bytes, not by their names."""

import base64
import binascii
from urllib.parse import unquote_to_bytes

MOST_BYTES = {"image/": 3_750_000, "application/pdf": 10_000_000}
"""What providers take: 5 MB for a picture, counted after it is encoded for the way."""


def mime_of(data: bytes) -> str | None:
    """The type of a picture or PDF that begins like this; None for anything else."""
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
    """How large a file of this type may be."""
    return next(most for prefix, most in MOST_BYTES.items() if mime.startswith(prefix))


def data_url(mime: str, data: bytes) -> str:
    """The file as a URL that holds it."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def data_of(url: str) -> bytes | None:
    """What a URL holds that holds something; None for any other and for a broken one."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:"):
        return None
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None
