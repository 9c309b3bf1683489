"""COCO annotations (instances JSON): names, image ids and categories of the pictures, joined to the files by name.

With annotations, their images are the data set. A file that they do not name is left out and reported as extra. An image
whose file is missing stays in the manifest without a size, so that it becomes an error row of stage read: every image is
accounted for.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.guarded import open_regular
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.sources.folder import Picture, Scan
from bulkinfer.types import printable

_COCO_NAME_GROUP = r"COCO_[A-Za-z]+[0-9]{4}_(?P<id>[0-9]{12})\.[A-Za-z]+"
_COCO_NAME = re.compile(_COCO_NAME_GROUP.encode())
# Polygons are nine tenths of an instances file; they are dropped during parsing.
_WANTED = frozenset({"images", "annotations", "id", "file_name", "image_id", "category_id"})


class Image(NamedTuple):
    """An image of the annotations: its name as written there, its id, its distinct category ids, sorted.

    `category_ids` is None where the file has no annotations at all (image lists of test sets).
    """

    name: bytes
    image_id: int
    category_ids: tuple[int, ...] | None


@dataclass(frozen=True)
class Annotations:
    """The images of one annotation file; `num_strays` of its annotations belong to none of its images."""

    sha256: str
    images: list[Image]
    num_strays: int


@dataclass(frozen=True)
class Matched:
    """The images of the annotations as manifest entries sorted by key; `missing` names and `extra` files."""

    entries: list[Entry]
    missing: list[bytes]
    extra: list[bytes]


def image_id_from_name(key: bytes) -> int | None:
    """The image id in a name like COCO_val2014_000000000042.jpg; None for other names."""
    match = _COCO_NAME.fullmatch(_base(key))
    return int(match[1]) if match else None


def image_ids_from_names(keys: pa.BinaryArray) -> pa.Int64Array:
    """`image_id_from_name` of many keys, null for other names; computed by Arrow, without a Python object per key."""
    found = pc.extract_regex(keys, rf"(?:\A|/){_COCO_NAME_GROUP}\z")
    return pc.struct_field(found, "id").cast(pa.string()).cast(pa.int64())


class EntriesByName(Sequence[Entry]):
    """Pictures as manifest entries with the image id from their names; each entry is created when it is used.

    Ten million entries at once would take another gigabyte.
    """

    def __init__(self, pictures: Sequence[Picture]) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> EntriesByName: ...
    def __getitem__(self, index: int | slice) -> Entry | EntriesByName:
        if isinstance(index, slice):
            return EntriesByName(self._pictures[index])
        key, size_bytes = self._pictures[index]
        return Entry(key, size_bytes, image_id=image_id_from_name(key))


def read_annotations(path: Path) -> Annotations:
    """The content of a COCO JSON file. Raises UsageError if it is missing or not of that shape."""
    try:
        sha256 = file_sha256(path)
        with open_regular(path) as file:
            content = json.loads(file.read().decode("utf-8-sig"), object_hook=_keep_wanted)
    except OSError as error:
        raise UsageError(f"--annotations: {path} cannot be read: {error.strerror}") from None
    except DamagedError as error:
        raise UsageError(f"--annotations: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--annotations: {path} is not JSON ({error}): give an instances_*.json of COCO") from None
    try:
        images, num_strays = _images(content)
    except _ShapeError as error:
        raise UsageError(f"--annotations: {path} is not a COCO file: {error}") from None
    return Annotations(sha256, images, num_strays)


class _ShapeError(Exception):
    """The JSON does not have the structure of a COCO file; the message says where."""


def _keep_wanted(value: dict[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in value if name in _WANTED}


def _images(content: Any) -> tuple[list[Image], int]:
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise _ShapeError('it has no list "images"')
    annotations = content.get("annotations")
    if annotations is not None and not isinstance(annotations, list):
        raise _ShapeError('"annotations" is not a list')
    categories: defaultdict[int, list[int]] = defaultdict(list)
    for number, annotation in enumerate(annotations or []):
        where = f"annotations[{number}]"
        categories[_integer(annotation, "image_id", where, 63)].append(_integer(annotation, "category_id", where, 31))
    images: dict[int, Image] = {}
    for number, image in enumerate(content["images"]):
        image_id = _integer(image, "id", f"images[{number}]", 63)
        if image_id in images:
            raise _ShapeError(f"images[{number}] repeats the id {image_id}")
        found = None if annotations is None else tuple(sorted(set(categories.pop(image_id, ()))))
        images[image_id] = Image(_name(image, f"images[{number}]"), image_id, found)
    repeated = [name for name, count in Counter(image.name for image in images.values()).items() if count > 1]
    if repeated:
        raise _ShapeError(f"two of its images are named {printable(min(repeated))}")
    return list(images.values()), sum(map(len, categories.values()))


def _integer(value: Any, name: str, where: str, bits: int) -> int:
    number = value.get(name) if isinstance(value, dict) else None
    if type(number) is not int or not -(1 << bits) <= number < 1 << bits:
        raise _ShapeError(f"{where} has no integer {name}")
    return number


def _name(value: dict[str, Any], where: str) -> bytes:
    """The normalised file name, which must stay below the data folder."""
    name = value.get("file_name")
    if not isinstance(name, str) or not name:
        raise _ShapeError(f"{where} has no file_name")
    normal = posixpath.normpath(name.encode("utf-8", "surrogatepass"))
    if b"\0" in normal or normal.startswith(b"/") or normal in (b".", b"..") or normal.startswith(b"../"):
        raise _ShapeError(f"{where} has a file_name outside the data folder: {printable(normal)}")
    return normal


def match_images(images: Iterable[Image], scan: Scan) -> Matched:
    """Join the images to the files: by path, else by the end of the path, else by a base name that occurs once in both.

    Raises UsageError where a name matches several files: nothing is guessed.
    """
    images = list(images)
    files = {picture.key: picture for picture in scan.pictures}
    claimed = _claims(images, files, scan.root)
    entries = []
    for image in images:
        picture = claimed.get(image.name) or Picture(image.name, None)
        entries.append(Entry(picture.key, picture.size_bytes, None, image.category_ids, image.image_id))
    taken = {picture.key for picture in claimed.values()}
    missing = sorted(image.name for image in images if image.name not in claimed)
    return Matched(sorted(entries), missing, sorted(files.keys() - taken))


def _claims(images: list[Image], files: dict[bytes, Picture], root: bytes) -> dict[bytes, Picture]:
    """The file of each image name: name -> picture; missing ones are left out."""
    claimed = {}
    for name in (image.name for image in images):
        if name in files:
            claimed[name] = files[name]
        elif os.path.isfile(path := os.path.join(root, name)):  # a file that the scan does not count as a picture
            claimed[name] = Picture(name, os.stat(path).st_size)
    free: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for key in files.keys() - claimed.keys():
        free[_base(key)].append(key)
    sought = [image.name for image in images if image.name not in claimed]
    bases = Counter(_base(image.name) for image in images)
    owners: dict[bytes, bytes] = {}
    for name in sought:
        candidates = free[_base(name)]
        found = _by_end_of_path(name, candidates)
        if found is None and len(candidates) == bases[_base(name)] == 1:
            found = candidates[0]
        if found is None:
            continue
        if found in owners:
            raise _ambiguous(found, sorted([owners[found], name]))
        owners[found] = name
        claimed[name] = files[found]
    return claimed


def _base(name: bytes) -> bytes:
    return name.rpartition(b"/")[2]


def _by_end_of_path(name: bytes, keys: list[bytes]) -> bytes | None:
    found = [key for key in keys if key.endswith(b"/" + name) or name.endswith(b"/" + key)]
    if len(found) > 1:
        raise _ambiguous(name, sorted(found))
    return found[0] if found else None


def _ambiguous(name: bytes, others: list[bytes]) -> UsageError:
    return UsageError(
        f"--annotations: {printable(name)} could be {printable(others[0])} or {printable(others[1])}: "
        "give as --data_dir the folder that the names are relative to"
    )
