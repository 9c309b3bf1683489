"""What is fuzzed: for each kind of input a function that takes any bytes, and sound ones to begin with.

A function returns, or raises an AssertionError where a rule of ours is broken; whatever else it raises is a finding too. What
the product may raise is a sentence for the user: RecordError, UsageError or RunError.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from bulkinfer.bench.options import BenchConfig
from bulkinfer.commands.parse import HelpRequested, parse
from bulkinfer.config import GetModelConfig, LaunchConfig, PartitionConfig
from bulkinfer.errors import RecordError, RunError, UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.magic_bytes import READABLE
from bulkinfer.images import header_limits as claims
from bulkinfer.images.decode import decode as decode_picture
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.jpeg import check_scans, read_header
from bulkinfer.launch.options import RetryConfig, VerifyConfig
from bulkinfer.model.card import GraphSidecar, ModelCard, Weights, read_card, read_sidecar
from bulkinfer.model.graph_checks import Golden, read_golden, write_golden
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_file import open_manifest
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.types import Step

from tests import bombs, pictures
from tests.fuzz.archives import archive_seeds, read_archive, read_table, table_seeds
from tests.models import LABELS, RECIPE
from tests.pictures import encode, photo

COMMANDS = {
    "get_model": GetModelConfig,
    "partition_dataset": PartitionConfig,
    "infer_launch": LaunchConfig,
    "verify": VerifyConfig,
    "bench": BenchConfig,
    "retry": RetryConfig,
}
MAX_PIXELS = 1_000_000  # so that no time goes into pixels
OURS = (UsageError, RunError)


@dataclass(frozen=True)
class Target:
    """One kind of input: `run` takes any bytes and returns what they were refused with; `seeds` makes sound ones, and some
    that are just not."""

    run: Callable[[bytes], list[str]]
    seeds: Callable[[], list[bytes]]


@cache
def _folder() -> Path:
    """One folder for the files of this process."""
    folder = tempfile.mkdtemp(prefix="bulkinfer-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _written(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


@contextmanager
def _refusals(told: list[str], *errors: type[Exception]) -> Iterator[None]:
    """An error of ours is no finding: its sentence goes into `told`."""
    try:
        yield
    except errors as error:
        told.append(str(error))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def card(data: bytes) -> list[str]:
    """card.json and a sidecar."""
    told = list[str]()
    with _refusals(told, *OURS):
        read_card(_written("card.json", data))
    with _refusals(told, *OURS):
        read_sidecar(_written("model_6.json", data).with_suffix(".onnx"))
    return told


def card_seeds() -> list[bytes]:
    whole = ModelCard(
        name="net", recipe=RECIPE, weights=Weights("net.pth", "ab" * 32), licence="MIT", origin="a zoo", input="uint8",
        outputs={"logits": "logits"}, labels=LABELS, num_parameters=1, versions={"onnx": "1"}, external_data="weights.bin",
        external_data_sha256="cd" * 32,
    )  # fmt: skip
    sidecar = GraphSidecar("ab" * 32, 6, {"images": [6, 4, 4, 3]}, {"logits": [6, 8]}, {"logits": {"largest": 1.5}})
    return [_json({"format": 1, **asdict(whole)}), _json({"format": 1, **asdict(sidecar)})]


def manifest(data: bytes) -> list[str]:
    """manifest.parquet, as the launcher reads it whole, and as a worker reads the lines of its steps."""
    path, told = _written("manifest.parquet", data), list[str]()
    with _refusals(told, *OURS):
        list(Manifest.read(path).records())
    with _refusals(told, *OURS):
        _, metadata = open_manifest(path)
        again = Manifest.read_again(path, metadata["content_hash"], hashlib.sha256(data).hexdigest())
        list(again.records())
        again.keys_sha256([Step(0, 0, again.num_records)])
    return told


def manifest_seeds() -> list[bytes]:
    entries = [Entry(b"a/%03d.jpg" % n, n, n % 5, (n, n + 1), n) for n in range(20)] + [Entry(b"caf\xe9.png", None)]
    found = []
    for mode, lines in (("manifest", entries), ("symlink", entries[:3]), ("copy", [])):
        path = _folder() / "seed.parquet"
        Manifest.from_entries(lines, b"/photos", mode).write(path)
        found.append(path.read_bytes())
    return found


def job(data: bytes) -> list[str]:
    """_job.json."""
    _written(JOB_FILE, data)
    told = list[str]()
    with _refusals(told, *OURS):
        JobFile.read(_folder())
    return told


def job_seeds() -> list[bytes]:
    identity = {"batch_size": 6, "recipe": {"mean": [0.5, 0.5, 0.5]}, "manifest": "ab"}
    part = {"ok": 5, "errors": 1, "stages": {"decode": 1}, "sha256": "cd" * 32}
    whole = {
        "format": 1, "fingerprint": hashlib.sha256(canonical_json(identity).encode()).hexdigest(), "identity": identity,
        "resolved": {"provider": "cpu"}, "versions": {"numpy": "2"}, "num_records": 6,
        "partitions": {"0": {"num_records": 6, "keys_sha256": "ef" * 32}}, "complete": True,
        "parts": {"part-00000-0000000000-0000000006.parquet": part},
    }  # fmt: skip
    return [_json(whole)]


def words(data: bytes) -> list[str]:
    """A command line: words that end with a zero byte; the first byte chooses the command."""
    name, config = list(COMMANDS.items())[data[0] % len(COMMANDS) if data else 0]
    given = [word.decode("utf-8", "surrogateescape") for word in data[1:].split(b"\0")]
    told = list[str]()
    if any("flagfile" in word for word in given):
        return told  # which would read any file of this machine
    with suppress(HelpRequested), _refusals(told, *OURS):
        parse(name, config, given, positional="output" if name in ("verify", "retry") else "")
    return told


def words_seeds() -> list[bytes]:
    return [
        b"\2--batch-size\x0016\0--save\0topk\0logits\0--nosynthetic\0--decode=fast\0--device\0cuda:1,3",
        b"\2--data_dir\0-photos\0--synthetic\0False\0--max_pixels=99\0--limit\0-1",
        b"\0--onnx\0net.onnx\0--name\0n\0--recipe\0r.json\0--scores=none",
        b"\1--data_dir\0photos\0--balance\0bytes\0--mode=copy\0--include-hidden",
        b"\3out",
        b"\4--tune\0--seconds\x003\0--help",
        b"\5--stage\0read\0decode\0out\0--dry_run",
    ]


def flag_file(data: bytes) -> list[str]:
    """A file for --flagfile."""
    told = list[str]()
    if b"flagfile" in data:
        return told  # which would read any file of this machine
    path = _written("some.flags", data)
    for name, config in (("infer_launch", LaunchConfig), ("bench", BenchConfig)):
        with suppress(HelpRequested), _refusals(told, *OURS):
            parse(name, config, ["--flagfile", str(path)])
    return told


def flag_file_seeds() -> list[bytes]:
    return [
        b"# tuned\n--streams=2\n--num_workers 3\n--tuned_for=a b c\n\n--save topk logits\n--nooverwrite\n",
        "--data_dir=caf\u00e9\r\n--synthetic\r\n".encode(),
    ]


def decode(data: bytes) -> list[str]:
    """A picture file; its length chooses how it is decoded."""
    prepare_decoder()
    orientation, at_least = ("exif", "stored")[len(data) % 2], (0, 30)[len(data) // 2 % 2]
    try:
        picture = decode_picture(data, orientation=orientation, max_pixels=MAX_PIXELS, at_least=at_least)
    except RecordError as error:
        refused = error
    else:
        assert picture.image.mode == "RGB"
        assert 0 < picture.width * picture.height <= MAX_PIXELS
        assert 0 < picture.frames < 2**31
        assert at_least or picture.image.size == (picture.width, picture.height)
        return []
    assert refused.stage == "decode"
    assert refused.message.isprintable(), refused.message
    assert len(refused.message) < 400, refused.message
    return [refused.message]


def decode_seeds() -> list[bytes]:
    found = [encode(photo(24, 16), name) for name in READABLE]
    found += [pictures.animated(name) for name in ("GIF", "WEBP", "PNG", "MPO", "TIFF", "AVIF")]
    found += [pictures.oriented(photo(24, 16), 6, name) for name in ("JPEG", "PNG", "WEBP", "TIFF")]
    found += [encode(photo(24, 16), "TIFF", compression=name) for name in ("tiff_lzw", "tiff_deflate", "jpeg", "packbits")]
    found += [encode(photo(24, 16).convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGBA")]
    found += [encode(photo(24, 16).convert("L"), "BMP"), encode(photo(24, 16), "JPEG", progressive=True)]
    found += [
        pictures.cmyk_jpeg(),
        pictures.grey16_png(),
        b"P3 2 2 255 # small\n1 2 3 4 5 6 7 8 9 10 11 12\n",
        b"P1 2 2 1 0 1 0\n",
    ]
    small = ("gif_picture", "tiff_tile", "png_ztxt", "apng_frames_claimed", "webp_canvas", "jpeg2000_size", "bmp_rle_size")
    return found + [bombs.BOMBS[name]() for name in small]


def jpeg_header(data: bytes) -> list[str]:
    """What is read of a JPEG before its pixels."""
    try:
        header = read_header(data)
        check_scans(data, header)
    except IndexError:  # it ends before its first scan: documented
        return ["ends early"]
    except RecordError as error:
        return [error.message]
    assert 2 <= header.scan_at < len(data)
    return []


def jpeg_header_seeds() -> list[bytes]:
    exif = pictures.oriented(photo(24, 16), 6)
    return [encode(photo(24, 16), "JPEG"), encode(photo(24, 16), "JPEG", progressive=True), exif, pictures.cmyk_jpeg()]


def picture_claims(data: bytes) -> list[str]:
    """What is read of the other formats before a decoder sees them; the first byte chooses the format."""
    name = READABLE[data[0] % len(READABLE)] if data else "PNG"
    told = list[str]()
    with _refusals(told, RecordError):
        claims.check_claims(data[1:], name, MAX_PIXELS)
    with _refusals(told, ValueError):
        assert 1 <= claims.count_frames(data[1:], name, 1) <= claims.MOST_FRAMES
    return told


def picture_claims_seeds() -> list[bytes]:
    found = [bytes([number]) + encode(photo(24, 16), name) for number, name in enumerate(READABLE)]
    return found + [bytes([READABLE.index(name)]) + pictures.animated(name) for name in ("GIF", "PNG", "TIFF")]


def golden(data: bytes) -> list[str]:
    """golden.npz, as it is, and as the array of pictures in a sound one; refused is what neither reads."""
    told = list[str]()
    with _refusals(told, RunError):
        read_golden(_written("golden.npz", data))
    with zipfile.ZipFile(path := _folder() / "around.npz", "w") as archive:
        archive.writestr("images.npy", data)
    with _refusals(told, RunError):
        read_golden(path)
    return told


def golden_seeds() -> list[bytes]:
    import numpy as np

    path = _folder() / "seed.npz"
    write_golden(path, Golden(np.zeros((2, 4, 4, 3), np.uint8), {"logits": np.zeros((2, 8), np.float32)}))
    array = io.BytesIO()
    np.save(array, np.zeros((2, 4, 4, 3), np.uint8))
    return [path.read_bytes(), array.getvalue()]


TARGETS = {
    "card": Target(card, card_seeds),
    "manifest": Target(manifest, manifest_seeds),
    "job": Target(job, job_seeds),
    "words": Target(words, words_seeds),
    "flag_file": Target(flag_file, flag_file_seeds),
    "decode": Target(decode, decode_seeds),
    "jpeg_header": Target(jpeg_header, jpeg_header_seeds),
    "claims": Target(picture_claims, picture_claims_seeds),
    "golden": Target(golden, golden_seeds),
    "archive": Target(lambda data: read_archive(data, _folder() / "archive"), lambda: archive_seeds(_folder())),
    "list": Target(lambda data: read_table(data, _folder() / "list"), lambda: table_seeds(_folder())),
}
