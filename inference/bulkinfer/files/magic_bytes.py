"""What kind of file it is, by its first bytes. Only these decide how a file is read; its name does not count."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_BYTES = 512  # identify() looks at no more than this

# Formats that Pillow reads here, by its names; "JPEG" includes MPO, a JPEG followed by further pictures. Left out on
# purpose: formats without magic bytes (TGA: any bytes could be one), containers whose header does not bound what is
# inside (ICO, ICNS: they bypass the pixel limit), layered documents (PSD), and EPS, for which Pillow starts a program.
READABLE = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM", "QOI")

CAMERA_RAW = "camera raw"
_CANON_RAW = b"CR\x02"  # in a TIFF, behind the offset of its first directory

_PICTURE_STARTS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"8BPS", "PSD"),
    (b"qoif", "QOI"),
    (b"\0\0\1\0", "ICO"),
    (b"icns", "ICNS"),
    (b"%!PS", "EPS"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"v/1\x01", "OpenEXR"),
    (b"DDS ", "DDS"),
    (b"IIRO", CAMERA_RAW),  # Olympus
    (b"IIRS", CAMERA_RAW),
    (b"MMOR", CAMERA_RAW),
    (b"IIU\0", CAMERA_RAW),  # Panasonic
    (b"FUJIFILMCCD-RAW", CAMERA_RAW),
    (b"FOVb", CAMERA_RAW),  # Sigma
    (b"\0MRM", CAMERA_RAW),  # Minolta
    (b"HEAPCCDR", CAMERA_RAW),  # Canon's oldest
)
_OTHER_STARTS = (
    (b"\0\5\x16\7", "AppleDouble file"),
    (b"\0\5\x16\0", "AppleSingle file"),
    (b"version https://git-lfs", "Git LFS pointer"),
    (b"/annex/objects/", "git-annex pointer"),
    (b"%PDF-", "PDF document"),
    (b"PK\3\4", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x7fELF", "ELF program"),
    (b"\x1aE\xdf\xa3", "Matroska or WebM video"),
)
_BRANDS = (  # of the ftyp box in files of the MPEG-4 family; the first one that occurs counts
    ((b"avif", b"avis"), "AVIF", True),
    ((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC", True),
    ((b"crx ",), CAMERA_RAW, True),  # Canon
    ((b"isom", b"iso2", b"mp41", b"mp42", b"avc1", b"M4V ", b"qt  "), "MPEG-4 or QuickTime video", False),
)


@dataclass(frozen=True, slots=True)
class Content:
    """What the first bytes say: a picture (`is_picture`; `name` is its format), or something else that `name` describes.

    Most camera raw is a TIFF by its first bytes; images/tiff.py tells it from others.
    """

    name: str
    is_picture: bool

    @property
    def readable(self) -> bool:
        """True for a format that decode() passes to Pillow."""
        return self.is_picture and self.name in READABLE


def identify(head: bytes) -> Content:
    """The kind of a file, from its first HEAD_BYTES bytes (fewer if it is shorter). Never raises; unknown bytes are quoted."""
    head = head[:HEAD_BYTES]
    if not head.strip(b"\0"):
        return Content("zero bytes", False)
    if head[:4] == b"RIFF":
        return Content("WEBP", True) if head[8:12] == b"WEBP" else Content("RIFF file (sound or video)", False)
    if head[4:8] == b"ftyp":
        return _from_brands(head)
    if head[:1] == b"P" and head[1:2] in b"123456fF" and head[2:3].isspace():
        return Content("PPM", True)
    if head[8:11] == _CANON_RAW and head[:2] in (b"II", b"MM"):
        return Content(CAMERA_RAW, True)
    for start, name in _PICTURE_STARTS:
        if head.startswith(start):
            return Content(name, True)
    for start, name in _OTHER_STARTS:
        if head.startswith(start):
            return Content(name, False)
    if _is_tga(head):
        return Content("TGA", True)
    if _is_pcx(head):
        return Content("PCX", True)
    return _from_text(head)


def _is_tga(head: bytes) -> bool:
    """TGA has no magic bytes: all fields of its header must make sense together."""
    if len(head) < 18 or head[1] not in (0, 1) or head[17] & 0xC0 or b"\0\0" in (head[12:14], head[14:16]):
        return False
    kind, depth = head[2], head[16]
    if head[1]:  # with a palette
        return kind in (1, 9) and head[5:7] != b"\0\0" and head[7] in (15, 16, 24, 32) and depth in (8, 16)
    return kind in (2, 3, 10, 11) and head[3:8] == bytes(5) and depth in (8, 15, 16, 24, 32)


def _is_pcx(head: bytes) -> bool:
    """PCX has one magic byte, which also begins a text with an empty line."""
    if (
        len(head) < 128
        or head[0] != 10
        or head[1] not in (0, 2, 3, 4, 5)
        or head[2] not in (0, 1)
        or head[3] not in (1, 2, 4, 8)
    ):
        return False
    left, top, right, bottom = (int.from_bytes(head[at : at + 2], "little") for at in range(4, 12, 2))
    return left <= right and top <= bottom and head[64] == 0 and 1 <= head[65] <= 4


def _from_brands(head: bytes) -> Content:
    box = head[8 : int.from_bytes(head[:4], "big")]
    brands = [box[:4], *(box[i : i + 4] for i in range(8, len(box), 4))]  # major, then (after a version) the compatible
    for known, name, is_picture in _BRANDS:
        if any(brand in known for brand in brands):
            return Content(name, is_picture)
    return Content("MPEG-4 file", False)


def _from_text(head: bytes) -> Content:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return Content("HTML page", False)
    if b"<svg" in text and text.startswith(b"<"):
        return Content("SVG", True)
    if text.startswith(b"<?xml"):
        return Content("HTML page" if b"<html" in text else "XML document", False)
    start = head[:8]
    quoted = f" ({start.decode('ascii')!r})" if start.isascii() and start.decode("ascii").isprintable() else ""
    return Content(f"starts with {start.hex(' ')}{quoted}", False)
