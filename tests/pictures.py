"""Pictures for tests, good and bad, as the bytes of a file; small unless the name says otherwise."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageCms

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
EOI = b"\xff\xd9"  # the marker that ends a JPEG
ORIENTATION_TAG = 0x0112

HEIC_STUB = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200)
VIDEO_STUB = b"\0\0\0\x14ftypisom\0\0\2\0isom" + bytes(200)
HTML_PAGE = b"\n<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>gone</body></html>\n"
APPLE_DOUBLE = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(4072)
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 12345\n"
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>\n'
NOT_PICTURES = {  # name of a file -> its bytes
    "empty.jpg": b"",
    "page.jpg": HTML_PAGE,
    "._001.jpg": APPLE_DOUBLE,
    "pointer.png": LFS_POINTER,
    "phone.jpg": HEIC_STUB,
    "clip.jpg": VIDEO_STUB,
    "drawing.png": SVG,
    "noise.png": bytes(range(200, 256)) * 40,
}

# Payloads of a JPEG's APP1 segment that claim to be EXIF and are not in order.
BROKEN_EXIF = {
    "header_alone": b"Exif\0\0",
    "header_twice": b"Exif\0\0Exif\0\0",
    "random_bytes": b"Exif\0\0" + bytes(range(7, 107)),
    "entries_missing": b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHII", 5, 0x010E, 2, 64, 26),
}


def encode(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file."""
    with io.BytesIO() as file:
        image.save(file, format, **options)
        return file.getvalue()


def solid(colour: tuple[int, int, int] = RED, size: tuple[int, int] = (48, 32)) -> Image.Image:
    """One colour; size is (width, height)."""
    return Image.new("RGB", size, colour)


def photo(width: int = 64, height: int = 48, seed: int = 0) -> Image.Image:
    """Smooth colours with some noise and no symmetry, the way photographs compress."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noisy = smooth + random.integers(-12, 13, smooth.shape, dtype=np.int16)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    """Independent pixels: the hardest case for resizing."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def two_colours() -> Image.Image:
    """Left half (220, 40, 30), right half (20, 90, 200), 64 x 32."""
    image = solid((220, 40, 30), (64, 32))
    image.paste((20, 90, 200), (32, 0, 64, 32))
    return image


def jpeg(width: int = 64, height: int = 48, seed: int = 0, **options: Any) -> bytes:
    """A sound JPEG."""
    return encode(photo(width, height, seed), "JPEG", **{"quality": 90, **options})


def cut(data: bytes, fraction: float = 0.6) -> bytes:
    """The first part of a file, as an interrupted copy leaves it."""
    return data[: int(len(data) * fraction)]


def zero_tail(data: bytes, fraction: float = 0.6) -> bytes:
    """The first part of a file in its full length, the rest zeros: space that was reserved and never written."""
    return cut(data, fraction).ljust(len(data), b"\0")


def cmyk_jpeg(*, adobe_marker: bool = True) -> bytes:
    """two_colours() as a CMYK JPEG, as Pillow writes it; without the Adobe segment it says less about its inks."""
    data = encode(two_colours().convert("CMYK"), "JPEG", quality=95)
    start = data.index(b"\xff\xee")
    (length,) = struct.unpack(">H", data[start + 2 : start + 4])
    return data if adobe_marker else data[:start] + data[start + 2 + length :]


def with_app1(jpeg_data: bytes, payload: bytes) -> bytes:
    """A JPEG with one more APP1 segment, right behind its first marker."""
    return jpeg_data[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + jpeg_data[2:]


def oriented(image: Image.Image, orientation: int, format: str = "JPEG", **options: Any) -> bytes:
    """`image` with that EXIF orientation (1 to 8), in a format that can carry it: JPEG, PNG, WEBP, TIFF."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    return encode(image, format, exif=exif, **options)


def animated(format: str, **options: Any) -> bytes:
    """Red, green, blue: three frames in GIF, WEBP, PNG (APNG), TIFF; MPO too."""
    if format == "WEBP":
        options = {"lossless": True, **options}
    return encode(solid(RED), format, save_all=True, append_images=[solid(GREEN), solid(BLUE)], **options)


def apng_with_hidden_default() -> bytes:
    """An APNG whose plain PNG picture (red) is not part of the animation (green, blue)."""
    return animated("PNG", default_image=True)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def raw_png(width: int, height: int, bit_depth: int, colour_type: int, rows: bytes) -> bytes:
    """A PNG by hand: colour_type 0 is grey, 2 is RGB; rows begin with their filter byte (0)."""
    header = struct.pack(">IIBBBBB", width, height, bit_depth, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def bit_png(width: int, height: int) -> bytes:
    """Black, one bit per pixel: 10000 x 10000 take 12 KB."""
    return raw_png(width, height, 1, 0, bytes((1 + (width + 7) // 8) * height))


def grey16_png() -> bytes:
    """A ramp of 256 grey levels in 16 bits (k * 257), 256 x 2."""
    row = b"\0" + (np.arange(256, dtype=">u2") * 257).astype(">u2").tobytes()
    return raw_png(256, 2, 16, 0, row * 2)


def rgb16_png() -> bytes:
    """The same ramp in 16-bit RGB."""
    ramp = (np.arange(256, dtype=np.uint32) * 257).astype(">u2")
    return raw_png(256, 2, 16, 2, (b"\0" + np.repeat(ramp, 3).tobytes()) * 2)


def other_profile() -> bytes:
    """A colour profile that is far from sRGB: red and green have changed places."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile.replace(b"rXYZ", b"zXYZ", 1).replace(b"gXYZ", b"rXYZ", 1).replace(b"zXYZ", b"gXYZ", 1)


def srgb_profile() -> bytes:
    """The profile of sRGB."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def profile(space: bytes, connection: bytes, tags: dict[bytes, bytes]) -> bytes:
    """A colour profile by hand."""
    at, table, body = 128 + 4 + 12 * len(tags), struct.pack(">L", len(tags)), b""
    for name, content in tags.items():
        table += name + struct.pack(">LL", at + len(body), len(content))
        body += content.ljust(-(-len(content) // 4) * 4, b"\0")
    white = struct.pack(">lll", 63190, 65536, 54061)
    head = (
        struct.pack(">L4sL4s4s4s", at + len(body), b"lcms", 0x02100000, b"prtr", space, connection).ljust(36, b"\0") + b"acsp"
    )
    return head.ljust(68, b"\0") + white + bytes(48) + table + body


def grey_profile(gamma: int = 256) -> bytes:
    """Grey levels that are proportional to light: 64 of 255 is shown as 137. `gamma` is in parts of 256."""
    white = b"XYZ \0\0\0\0" + struct.pack(">lll", 63190, 65536, 54061)
    return profile(b"GRAY", b"XYZ ", {b"wtpt": white, b"kTRC": b"curv\0\0\0\0" + struct.pack(">LH", 1, gamma)})


def cmyk_profile() -> bytes:
    """Inks without colour: each of cyan, magenta and yellow takes a third of the light, black all of it."""
    identity = bytes(range(256))
    corners = [(c, m, y, k) for c in (0, 1) for m in (0, 1) for y in (0, 1) for k in (0, 1)]
    lab = b"".join(bytes((round(255 * (1 - k) * (1 - (c + m + y) / 3)), 128, 128)) for c, m, y, k in corners)
    matrix = struct.pack(">9l", 65536, 0, 0, 0, 65536, 0, 0, 0, 65536)
    table = b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + matrix + identity * 4 + lab + identity * 3
    return profile(b"CMYK", b"Lab ", {b"A2B0": table, b"A2B1": table})


def camera_raw(order: str = "<") -> bytes:
    """A TIFF as cameras write it: its first directory is a thumbnail of 160x120, marked as reduced, and a sub-directory holds
    2000x1500 values of a sensor. `order` is that of its bytes.
    """
    shown = solid(RED, (160, 120)).tobytes()
    thumbnail = [(254, 4, 1, 1), (256, 4, 1, 160), (257, 4, 1, 120), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 2),
                 (273, 4, 1, 0), (277, 3, 1, 3), (278, 4, 1, 120), (279, 4, 1, len(shown)), (330, 4, 1, 0)]  # fmt: skip
    sensor = [(254, 4, 1, 0), (256, 4, 1, 2000), (257, 4, 1, 1500), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 32803)]
    at = 8 + len(shown)
    places = {273: 8, 330: at + 2 + 12 * len(thumbnail) + 4}

    def directory(tags: list[tuple[int, int, int, int]]) -> bytes:
        body = struct.pack(f"{order}H", len(tags))
        for tag, kind, count, value in tags:
            value = places.get(tag, value)
            body += struct.pack(f"{order}HHL", tag, kind, count)
            body += struct.pack(f"{order}HH" if kind == 3 else f"{order}L", *((value, 0) if kind == 3 else (value,)))
        return body + bytes(4)

    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}L", at)
    return start + shown + directory(thumbnail) + directory(sensor)


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Each name under `folder`, parents made as needed."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
