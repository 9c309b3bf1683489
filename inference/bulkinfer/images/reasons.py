"""Why a picture file was not decoded, in words."""

from __future__ import annotations

from PIL import UnidentifiedImageError, features

from bulkinfer.images.jpeg import END_MARKER

_PIXEL_FAULTS = ("image file is truncated", "broken data stream")  # how Pillow begins what it says of pixels
_BUILD_FEATURES = {"AVIF": "avif", "JPEG2000": "jpg_2000", "WEBP": "webp"}  # formats that a build of Pillow can lack


def reason(error: Exception, data: bytes, name: str) -> str:
    """Why a file of a readable format was not decoded, in one line that quotes the decoder."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, UnidentifiedImageError):  # its message holds an address
        if name in _BUILD_FEATURES and not features.check(_BUILD_FEATURES[name]):
            return f"unsupported format {name}: this Pillow was built without it"
        detail = "its header cannot be read"
    else:
        detail = " ".join(str(error).split())[:200] or type(error).__name__
    is_cut = isinstance(error, EOFError) or "truncated" in detail.lower() or _ends_early(data, name)
    return f"{'truncated' if is_cut else 'corrupt'} {name}: {detail}"


def _ends_early(data: bytes, name: str) -> bool:
    """Whether a file that could not be decoded lacks its end."""
    if name in ("JPEG", "JPEG2000"):
        return END_MARKER not in data[-2:]
    if name == "PNG":
        return b"IEND" not in data[-12:]
    if name == "WEBP":
        return len(data) < 8 + int.from_bytes(data[4:8], "little")
    if name == "TIFF":  # its directory of tags usually stands at the end
        return len(data) < int.from_bytes(data[4:8], "little" if data.startswith(b"II") else "big")
    return False


def is_of_pixels(error: Exception, name: str) -> bool:
    """Whether a decoder failed for lack of memory, or on pixels: without the blocks beside them it would fail again.

    Those of a PNG may be cut apart by such a block.
    """
    if isinstance(error, MemoryError):
        return True
    return name == "JPEG" and isinstance(error, OSError) and str(error).startswith(_PIXEL_FAULTS)
