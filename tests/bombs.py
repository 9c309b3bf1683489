"""Picture files that ask a decoder for memory or time out of all proportion to their size."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from PIL import Image

from tests import pictures
from tests.pictures import encode, jpeg, photo

SIDE = 65_535


def chunk(kind: bytes, content: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))


def png(*others: bytes, header: bytes = struct.pack(">LLBBBBB", 8, 8, 8, 0, 0, 0, 0), behind: bytes = b"") -> bytes:
    """A grey PNG of 8x8 pixels with further chunks before its pixels, and `behind` them."""
    pixels = zlib.compress(bytes(9 * 8))
    parts = [chunk(b"IHDR", header), *others, chunk(b"IDAT", pixels), behind, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def deflated(size_bytes: int) -> bytes:
    """That many zeros, compressed: a thousandth."""
    return zlib.compress(bytes(size_bytes), 9)


def many_texts(count: int) -> list[bytes]:
    """Chunks of compressed text, each of a megabyte, which is what Pillow takes of one."""
    content = deflated(1 << 20)
    return [chunk(b"zTXt", b"%d\0\0" % number + content) for number in range(count)]


def apng(num_frames: int, pictures_there: int = 3) -> bytes:
    """An APNG that claims `num_frames`."""
    frames, number = [], 1
    control = struct.pack(">LLLLHHBB", 8, 8, 0, 0, 1, 10, 0, 0)
    for _ in range(pictures_there):
        frames.append(chunk(b"fcTL", struct.pack(">L", number) + control))
        frames.append(chunk(b"fdAT", struct.pack(">L", number + 1) + zlib.compress(bytes(9 * 8))))
        number += 2
    return png(chunk(b"acTL", struct.pack(">LL", num_frames, 0)), behind=b"".join(frames))


def gif(*blocks: bytes, screen: tuple[int, int] = (8, 8)) -> bytes:
    """A GIF of these blocks, without a global table of colours."""
    return b"GIF89a" + struct.pack("<HHBBB", *screen, 0, 0, 0) + b"".join(blocks) + b";"


def gif_picture(width: int = 8, height: int = 8) -> bytes:
    """A picture of a GIF: its description, a table of two colours and a few codes."""
    return b"," + struct.pack("<4HB", 0, 0, width, height, 0x80) + bytes(6) + b"\x02\x02\x44\x01\0"


GIF_DISPOSED = b"!\xf9\x04\x08\0\0\0\0"  # what follows is replaced by the background


def tiff(*tags: tuple[int, int, int, int], tail: bytes = b"", next_at: int = 0) -> bytes:
    """A TIFF of one directory: (tag, type, count, value or offset), and `tail` behind it."""
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHLL", *tag) for tag in sorted(tags))
    return b"II*\0\x08\0\0\0" + directory + struct.pack("<L", next_at) + tail


def tiff_of(width: int, height: int, *more: tuple[int, int, int, int], compression: int = 1, tail: bytes = bytes(64)) -> bytes:
    """A grey TIFF with the tags that every TIFF has, and more."""
    given = {tag for tag, *_ in more}
    usual = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, compression), (262, 3, 1, 1), (277, 3, 1, 1)]
    if not given & {322, 324}:
        usual += [(273, 4, 1, 200), (278, 4, 1, height), (279, 4, 1, 64)]
    return tiff(*(tag for tag in usual if tag[0] not in given), *more, tail=tail)


def tiff_chain(directories: int) -> bytes:
    """A TIFF of that many directories, each with the tags of a picture of one pixel."""
    tags = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (279, 4, 1, 1)]
    body = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHLL", *tag) for tag in tags)
    size = len(body) + 4
    return b"II*\0\x08\0\0\0" + b"".join(
        body + struct.pack("<L", 8 + (n + 1) * size if n + 1 < directories else 0) for n in range(directories)
    )


def many_scans(count: int, width: int = 512, height: int = 512) -> bytes:
    """A progressive JPEG whose last scan comes `count` times."""
    data = jpeg(width, height, progressive=True, quality=10)
    start = data.rindex(b"\xff\xda")
    return data[:start] + data[start:-2] * count + b"\xff\xd9"


def jpeg_with(segments: bytes) -> bytes:
    """A JPEG with more in front of its header."""
    data = jpeg(16, 16)
    return data[:2] + segments + data[2:]


def webp_claiming(width: int, height: int) -> bytes:
    """A WebP whose canvas is that large, with a small picture in it."""
    inner = encode(photo(16, 16), "WEBP")[12:]
    canvas = struct.pack("<L", 0)[:4] + struct.pack("<L", width - 1)[:3] + struct.pack("<L", height - 1)[:3]
    body = b"WEBP" + b"VP8X" + struct.pack("<L", 10) + canvas + inner
    return b"RIFF" + struct.pack("<L", len(body)) + body


def jpeg2000_claiming(*, channels: int = 3, size: tuple[int, int] = (64, 48), tile: tuple[int, int] = (64, 48)) -> bytes:
    """A JP2 whose boxes tell of a small picture and whose code stream tells something else."""
    data = bytearray(encode(photo(), "JPEG2000"))
    at = data.index(b"\xff\x4f\xff\x51") + 4
    siz = struct.pack(">HH8LH", 38 + 3 * channels, 0, *size, 0, 0, *tile, 0, 0, channels) + b"\x07\x01\x01" * channels
    old = int.from_bytes(data[at : at + 2], "big")
    stream = data[at + old :]
    stream_box = bytes(data[: at - 4 - 8])
    body = b"\xff\x4f\xff\x51" + siz + bytes(stream)
    return stream_box + struct.pack(">L", len(body) + 8) + b"jp2c" + body


def qoi_claiming(width: int, height: int) -> bytes:
    """A QOI of that size, without pixels."""
    return b"qoif" + struct.pack(">LLBB", width, height, 3, 0) + bytes(8)


def bmp_claiming(width: int, height: int, compression: int = 0) -> bytes:
    """A BMP of that size, with a few pixels."""
    head = struct.pack("<LLLHHLLllLL", 40, width, height, 1, 8, compression, 0, 0, 0, 256, 0)
    return b"BM" + struct.pack("<LLL", 0, 0, 14 + 40 + 1024) + head + bytes(1024) + bytes(64)


def avif_claiming(width: int, height: int) -> bytes:
    """An AVIF of 1024x1024 pixels whose box says another size."""
    data = bytearray(encode(Image.new("RGB", (1024, 1024)), "AVIF"))
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">LL", width, height)
    return bytes(data)


BOMBS: dict[str, Callable[[], bytes]] = {
    "png_size": lambda: png(header=struct.pack(">LLBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0)),
    "png_pixels": lambda: pictures.bit_png(14_000, 14_000),
    "png_ztxt": lambda: png(chunk(b"zTXt", b"a\0\0" + deflated(1 << 25))),
    "png_many_ztxt": lambda: png(*many_texts(300)),
    "png_itxt": lambda: png(chunk(b"iTXt", b"a\0\1\0\0\0" + deflated(1 << 25))),
    "png_icc": lambda: png(chunk(b"iCCP", b"a\0\0" + deflated(1 << 25))),
    "png_exif": lambda: png(chunk(b"eXIf", tiff(*[(n, 7, 500_000, 8) for n in range(2000)], tail=bytes(500_000)))),
    "png_private_chunks": lambda: png(chunk(b"prVt", b"") * 500_000),
    "png_private_chunks_behind": lambda: png(behind=chunk(b"prVt", b"") * 500_000),
    "png_empty_pixel_chunks": lambda: png(behind=chunk(b"IDAT", b"") * 1_100_000),
    "apng_frames_claimed": lambda: apng(2**31),
    "apng_frames": lambda: apng(20_000, 20_000),
    "gif_screen": lambda: gif(gif_picture(), screen=(SIDE, SIDE)),
    "gif_picture": lambda: gif(GIF_DISPOSED, gif_picture(SIDE, SIDE)),
    "gif_frames": lambda: gif(gif_picture() * 200_000),
    "gif_comment": lambda: gif(b"!\xfe" + b"\x01x" * 1_500_000 + b"\0", gif_picture()),
    "gif_comments": lambda: gif(b"!\xfe\1x\0" * 600_000, gif_picture()),
    "tiff_size": lambda: tiff_of(2**31, 2**31),
    "tiff_tile": lambda: tiff_of(8, 8, (322, 4, 1, SIDE), (323, 4, 1, SIDE), (324, 4, 1, 200), (325, 4, 1, 64), compression=8),
    "tiff_strips": lambda: tiff_of(8, 8, (273, 3, 1_000_000, 200), (278, 3, 1, 1), tail=bytes(2_000_200)),
    "tiff_entries": lambda: tiff(*[(n, 7, 500_000, 8) for n in range(30_000, 33_000)], tail=bytes(500_000)),
    "tiff_frames": lambda: tiff_chain(120_000),
    "tiff_frames_loop": lambda: tiff_chain(3)[:-4] + struct.pack("<L", 8),
    "jpeg_size": lambda: jpeg(16, 16).replace(struct.pack(">HH", 16, 16), struct.pack(">HH", SIDE, SIDE), 1),
    "jpeg_scans": lambda: many_scans(5_000),
    "jpeg_empty_scans": lambda: jpeg(2048, 2048, progressive=True)[:-2] + b"\xff\xda\0\x08\1\1\0\1\5\0" * 20_000 + b"\xff\xd9",
    "jpeg_segments": lambda: jpeg_with(b"\xff\xe5\0\2" * 500_000),
    "jpeg_exif_segments": lambda: jpeg_with((b"\xff\xe1\xff\xff" + b"Exif\0\0" + bytes(65_527)) * 1_001),
    "jpeg_padding": lambda: jpeg_with(b"\xff" * 2_000_000),
    "jpeg_zeros": lambda: b"\xff\xd8\xff" + bytes(2_000_000),
    "jpeg_zeros_behind_a_segment": lambda: jpeg_with(b"\xff\xe5\0\2" + bytes(2_000_000)),
    "jpeg_escaped_bytes": lambda: jpeg_with(b"\xff\0" * 1_000_000),
    "jpeg_bare_markers": lambda: jpeg_with(b"\xff\xd0" * 1_000_000),
    "jpeg_segments_between_scans": lambda: jpeg(16, 16, progressive=True)[:-2] + b"\xff\xc4\0\2" * 500_000,
    "jpeg_restarts": lambda: jpeg(16, 16)[:-2] + bytes(10) + b"\xff\xd0" * 1_000_000 + b"\xff\xd9",
    "jpeg_too_many_segments": lambda: jpeg_with(b"\xff\xe5\0\2" * 1_100_000),
    "webp_canvas": lambda: webp_claiming(65_536, 65_535),
    "jpeg2000_channels": lambda: jpeg2000_claiming(channels=16_384, size=(8_000, 8_000), tile=(251, 251)),
    "jpeg2000_tiles": lambda: jpeg2000_claiming(size=(255, 255), tile=(1, 1)),
    "jpeg2000_size": lambda: jpeg2000_claiming(size=(60_000, 60_000), tile=(60_000, 60_000)),
    "qoi_size": lambda: qoi_claiming(2**31, 2**31),
    "bmp_size": lambda: bmp_claiming(2**31 - 1, 2**31 - 1),
    "bmp_rle_size": lambda: bmp_claiming(100_000, 100_000, 1),
    "ppm_size": lambda: b"P6 4000000000 4000000000 255\n" + bytes(64),
    "ppm_comments": lambda: b"P2 10 10 255\n" + b"#\n" * 500_000,
    "ppm_blanks": lambda: b"P6 " + b" " * 2_000_000,
    "ppm_comment": lambda: b"P5 10 #" + b"x" * 2_000_000,
    "avif_size": lambda: avif_claiming(60_000, 60_000),
}
