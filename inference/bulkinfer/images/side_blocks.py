"""Takes blocks out of a PNG or JPEG that its pixels do not need, where a decoder fails on them: text, profiles, broken EXIF.

Decoders give up on a whole file if a block beside its pixels is damaged or unpacks to megabytes. Only a file that was refused
comes here, so a sound one costs nothing.
"""

from __future__ import annotations

import zlib

from bulkinfer.images.png import chunks

_KEPT_CHUNKS = (b"tRNS", b"acTL", b"fcTL", b"fdAT", b"eXIf", b"iCCP")  # beside those that every decoder must know
_LOWER = 0x20  # the bit of a chunk's first letter that says: not needed for the pixels
_MOST_PROFILE_BYTES = 1 << 20  # unpacked, as Pillow allows
_LEAST = {  # JPEG segments that are kept: how they begin, and the shortest that is in order
    0xE0: (b"JFIF\0", 14),
    0xE1: (b"Exif\0\0", 14),
    0xE2: (b"ICC_PROFILE\0", 15),
    0xEE: (b"Adobe", 12),
}
_APPLICATION, _COMMENT, _SCAN = range(0xE0, 0xF0), 0xFE, 0xDA
_MOST_STEPS = 1_000_000  # segments and bytes of padding of a JPEG, which take a second; one of more stays refused
_MOST_EXIF_SEGMENTS = 16  # Pillow joins them one by one


class TooManyBlocksError(Exception):
    """A file has so many blocks beside its pixels that a decoder must not see it; without them it may."""


def without_side_blocks(data: bytes, name: str) -> bytes | None:
    """The same picture without blocks that its pixels do not need; None if there are none, or for other formats.

    EXIF, colour profile and transparency stay if they are in order. Takes time linear in the file.
    """
    if name == "PNG":
        kept = _kept_chunks(data)
    elif name == "JPEG":
        kept = _kept_segments(data)
    else:
        return None
    return kept if len(kept) < len(data) else None


def _kept_chunks(data: bytes) -> bytes:
    parts, start = [], 0  # `start`: of what is kept up to `at`
    for kind, at, end in chunks(data):
        if kind[0] & _LOWER and not (kind in _KEPT_CHUNKS and _is_in_order(kind, data, at, end)):
            parts.append(data[start:at])
            start = end
    return b"".join([*parts, data[start:]])


def _is_in_order(kind: bytes, data: bytes, at: int, end: int) -> bool:
    if zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
        return False
    if kind != b"iCCP":
        return True
    _, _, packed = data[at + 8 : end - 4].partition(b"\0")
    try:
        return (
            packed[:1] == b"\0"
            and len(zlib.decompressobj().decompress(packed[1:], _MOST_PROFILE_BYTES + 1)) <= _MOST_PROFILE_BYTES
        )
    except zlib.error:
        return False


def _kept_segments(data: bytes) -> bytes:
    parts, at, start, exif, steps = [], 2, 0, 0, 0
    while at + 4 <= len(data) and data[at] == 0xFF and (marker := data[at + 1]) != _SCAN:
        steps += 1
        if steps > _MOST_STEPS:
            return data
        if marker == 0xFF:  # padding
            at += 1
            continue
        end = at + 2 + 256 * data[at + 2] + data[at + 3]
        begins, least = _LEAST.get(marker, (b"", 1 << 17))
        is_kept = end - at - 4 >= least and data.startswith(begins, at + 4)
        exif += marker == 0xE1 and is_kept
        if marker == _COMMENT or (marker in _APPLICATION and (not is_kept or exif > _MOST_EXIF_SEGMENTS)):
            parts.append(data[start:at])
            start = end
        at = end
    return b"".join([*parts, data[start:]])
