"""COCO annotations (instances JSON): names, image ids and categories of the pictures, joined to the files by name.

With annotations, their images are the data set. A file that they do not name is left out and reported as extra. An image
whose file is missing stays in the manifest without a size, so that it becomes an error row of stage read: every image is
accounted for.

Files that other programs write differ from COCO's own: ids are texts, one file is listed under several ids, names are only
in a URL, annotations have no category. What they say is taken; what cannot be used is counted.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import urllib.parse
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.sources.folder import Picture, Scan
from bulkinfer.records.sources.list_paths import key_below, spellings
from bulkinfer.records.sources.match_names import leads_out, match_names
from bulkinfer.records.sources.named_file import read_named_file, shown_file
from bulkinfer.types import printable

_COCO_NAME_GROUP = r"COCO_[A-Za-z]+[0-9]{4}_(?P<id>[0-9]{12})\.[A-Za-z]+"
_COCO_NAME = re.compile(_COCO_NAME_GROUP.encode())
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
# Polygons are nine tenths of an instances file; they are dropped during parsing.
_WANTED = frozenset({"images", "annotations", "categories", "id", "file_name", "coco_url", "image_id", "category_id", "name"})


class Image(NamedTuple):
    """An image of the annotations: its name as written there, its id, its distinct category ids, sorted.

    `image_id` is None if it is no integer of 64 bits. `category_ids` is None where the file has no categories at all (image
    lists of test sets, captions).
    """

    name: bytes
    image_id: int | None
    category_ids: tuple[int, ...] | None


@dataclass(frozen=True)
class Annotations:
    """The images of one annotation file, and what of it was not used or was changed.

    `num_strays` annotations belong to none of the images, `num_without_category` have none, `num_repeated` images have the
    file of another one and are part of its record. `categories` maps ids to names, sorted by id. `category_texts` are the ids
    as the file has them, by number, if they are no integers.
    """

    sha256: str
    images: list[Image]
    num_strays: int
    num_without_category: int = 0
    num_repeated: int = 0
    categories: dict[int, str] = field(default_factory=dict)
    category_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Matched:
    """The images of the annotations as manifest entries sorted by key; `missing` names and `extra` files."""

    entries: list[Entry]
    missing: list[bytes]
    extra: list[bytes]


def image_id_from_name(key: bytes) -> int | None:
    """The image id in a name like COCO_val2014_000000000042.jpg; None for other names."""
    match = _COCO_NAME.fullmatch(key.rpartition(b"/")[2])
    return int(match[1]) if match else None


def image_ids_from_names(keys: pa.BinaryArray) -> pa.Int64Array:
    """`image_id_from_name` of many keys, null for other names; computed by Arrow, without a Python object per key."""
    found = pc.extract_regex(keys, rf"(?:\A|/){_COCO_NAME_GROUP}\z")
    return pc.struct_field(found, "id").cast(pa.string()).cast(pa.int64())


class EntriesByName(Sequence[Entry]):
    """Pictures as manifest entries with the image id from their names; each entry is created when it is used.

    Ten million entries at once would take another gigabyte.
    """

    def __init__(self, pictures: Sequence[Picture], label_of: Callable[[bytes], int | None] | None = None) -> None:
        self._pictures, self._label_of = pictures, label_of

    def __len__(self) -> int:
        return len(self._pictures)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> EntriesByName: ...
    def __getitem__(self, index: int | slice) -> Entry | EntriesByName:
        if isinstance(index, slice):
            return EntriesByName(self._pictures[index], self._label_of)
        key, size_bytes, _ = self._pictures[index]
        label = self._label_of(key) if self._label_of else None
        return Entry(key, size_bytes, label, image_id=image_id_from_name(key))


def read_annotations(path: Path, data_dir: bytes, flag: str = "--annotations") -> Annotations:
    """The content of a COCO JSON file about pictures in `data_dir`, which absolute names must lie in.

    Raises UsageError, which begins with `flag`, if it is missing or not of that shape.
    """
    data = read_named_file(path, flag)
    sha256, shown = hashlib.sha256(data).hexdigest(), shown_file(path)
    try:
        text = data.decode("utf-8-sig")
        del data  # up to half a gigabyte
        content = json.loads(text, object_hook=_keep_wanted)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{flag}: {shown} is not JSON ({error}): give an instances_*.json of COCO") from None
    try:
        return _annotations(content, sha256, _Names(spellings(data_dir)))
    except _ShapeError as error:
        raise UsageError(f"{flag}: {shown} is not a COCO file: {error}") from None


class _ShapeError(Exception):
    """The JSON does not have the structure of a COCO file; the message says where."""


def _keep_wanted(value: dict[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in value if name in _WANTED}


def _annotations(content: Any, sha256: str, names_of: _Names) -> Annotations:
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise _ShapeError('it has no list "images"')
    lists = {name: content.get(name) for name in ("annotations", "categories")}
    for name, value in lists.items():
        if value is not None and not isinstance(value, list):
            raise _ShapeError(f'"{name}" is not a list')
    found: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    num_of, num_without = Counter[Hashable](), 0
    for number, annotation in enumerate(lists["annotations"] or []):
        image_id = _id(annotation, "image_id", f"annotations[{number}]", is_needed=False)
        category = _id(annotation, "category_id", f"annotations[{number}]", is_needed=False)
        num_of[image_id] += 1
        num_without += category is None
        found[image_id] |= {category} - {None}
    named = _category_names(lists["categories"] or [])
    numbers, texts = _numbered([*named, *(each for ids in found.values() for each in sorted(ids, key=str))])
    has_categories = lists["annotations"] is not None and (any(found.values()) or not num_without)
    ids_of = {key: {numbers[each] for each in ids} for key, ids in found.items()} if has_categories else None
    images, names = _images(content["images"], ids_of, names_of)
    return Annotations(
        sha256,
        images,
        num_strays=sum(count for key, count in num_of.items() if key not in names),
        num_without_category=num_without,
        num_repeated=len(names) - len(images),
        categories={numbers[key]: name for key, name in sorted(named.items(), key=lambda item: numbers[item[0]])},
        category_texts=texts,
    )


def _images(
    values: list[Any], ids_of: dict[Hashable, set[int]] | None, names_of: _Names
) -> tuple[list[Image], dict[Hashable, bytes]]:
    """One image for each file name, with the first id and the categories of all its ids; and the name of each id."""
    names: dict[Hashable, bytes] = {}
    united: dict[bytes, tuple[int | None, set[int]]] = {}
    for number, value in enumerate(values):
        where = f"images[{number}]"
        key, name = _id(value, "id", where), names_of.name(value, where)
        if names.setdefault(key, name) != name:
            raise _ShapeError(f"{where} repeats the id {printable(str(key).encode())} for another file")
        image_id = key if isinstance(key, int) and -(1 << 63) <= key < 1 << 63 else None
        _, categories = united.setdefault(name, (image_id, set()))
        categories |= (ids_of or {}).get(key, set())
    is_known = ids_of is not None
    return [Image(name, key, tuple(sorted(found)) if is_known else None) for name, (key, found) in united.items()], names


def _as_bytes(name: str) -> bytes:
    """A name as Python writes one that is not UTF-8 into JSON; other halves of characters stay as they are."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")


def _id(value: Any, name: str, where: str, *, is_needed: bool = True) -> Hashable:
    """An id as an integer where it is one, also as text, else the text; None if it is null or absent and not needed."""
    if not isinstance(value, dict):
        raise _ShapeError(f"{where} is not an object")
    found = value.get(name)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, str) and _INTEGER.fullmatch(found):
        return int(found)
    if isinstance(found, str | int) and not isinstance(found, bool) and found != "":
        return found
    if found is None and not is_needed:
        return None
    raise _ShapeError(f"{where} has no {name} that is a number or a text")


def _category_names(values: list[Any]) -> dict[Hashable, str]:
    return {
        _id(value, "id", f"categories[{number}]"): str(value.get("name") or value["id"]) for number, value in enumerate(values)
    }


def _numbered(ids: Iterable[Hashable]) -> tuple[dict[Hashable, int], tuple[str, ...]]:
    """The number of each category: its id, or its place in the list if an id is no integer of 32 bits; then their texts."""
    distinct = list(dict.fromkeys(ids))
    numbers: dict[Hashable, int] = {each: each for each in distinct if isinstance(each, int) and abs(each) < 1 << 31}
    if len(numbers) == len(distinct):
        return numbers, ()
    return {each: place for place, each in enumerate(distinct)}, tuple(str(each) for each in distinct)


@dataclass(frozen=True)
class _Names:
    """The names of images as paths relative to the data folder, which `prefixes` spell; see list_paths.py."""

    prefixes: tuple[bytes, ...]
    real_folders: dict[bytes, bytes] = field(default_factory=dict)

    def name(self, value: dict[str, Any], where: str) -> bytes:
        """The normalised file name, else the last part of coco_url; it must be that of a file below the data folder."""
        name, url = value.get("file_name"), value.get("coco_url")
        if not name and isinstance(url, str):
            name = urllib.parse.unquote(url.partition("?")[0].partition("#")[0].rpartition("/")[2])
        if not isinstance(name, str) or not name:
            raise _ShapeError(f"{where} has no file_name")
        written = _as_bytes(name)
        if b"\0" in written:
            raise _ShapeError(f"{where} has a file_name with a NUL character: {printable(written)}")
        normal = posixpath.normpath(written)
        if normal.startswith(b"/"):
            inside = key_below(b"/" + normal.lstrip(b"/"), self.prefixes, self.real_folders)
            normal = normal if inside is None else inside
        if normal == b".":
            raise _ShapeError(f"{where} has a file_name that is the data folder itself: {printable(written)}")
        if leads_out(normal):
            raise _ShapeError(f"{where} has a file_name outside the data folder: {printable(normal)}")
        return normal


def labels_of_categories(annotations: Annotations, entries: Iterable[Entry]) -> tuple[list[Entry], dict[str, Any]]:
    """The entries with their labels, and facts for dataset.json.

    The label of a picture with exactly one category is the place of that category in the order of ids, from 0.
    """
    found = {each for image in annotations.images for each in image.category_ids or ()}
    places = {each: place for place, each in enumerate(sorted(found | annotations.categories.keys()))}
    labelled = []
    for entry in entries:
        ids = entry.category_ids or ()
        labelled.append(entry._replace(label=places[ids[0]]) if len(ids) == 1 else entry)
    classes = [[place, annotations.categories.get(each, str(each))] for each, place in places.items()]
    return labelled, {"from": "annotations", "classes": classes}


def match_images(images: Iterable[Image], scan: Scan) -> Matched:
    """Join the images to the files; see match_names.py. Raises UsageError where a name matches several files."""
    images = list(images)
    claimed = match_names((image.name for image in images), scan, "--annotations", any_folder=True).pictures
    entries = []
    for image in images:
        picture = claimed.get(image.name) or Picture(image.name, None)
        entries.append(Entry(picture.key, picture.size_bytes, None, image.category_ids, image.image_id))
    taken = {picture.key for picture in claimed.values()}
    missing = sorted(image.name for image in images if image.name not in claimed)
    return Matched(sorted(entries), missing, sorted({picture.key for picture in scan.pictures} - taken))
