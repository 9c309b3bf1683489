"""A folder of pictures inside of an archive: what counts as a picture, links, and the labels of samples.

A member counts as a picture by the rules of a folder (folder.py). In WebDataset, members whose names are equal up to the first
dot of the base name are one sample: `a/7.cls` has the label of `a/7.jpg`, as a number or the name of a class, and `a/7.json`
may have it as `label`. Links are followed within the archive. A member that a later one at the same place replaces is
left out: one of the same name, but for a / or .. that leads out of the archive.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator

from bulkinfer.files.magic_bytes import HEAD_BYTES
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.folder import extension_of, is_ignored, is_picture
from bulkinfer.types import key_text

_MOST_LABEL_BYTES = 1 << 16  # of a .cls or .json; a longer one has no label
_MOST_DIGITS = 20
_LINKS = 8  # that lead to each other


class PackedFolder:
    """Collects the members of an archive in order; `left_out` counts what is no picture, by kind.

    Names are paths below the archive, as `path_inside` gives them.
    """

    def __init__(self, left_out: Counter[str]) -> None:
        self._left_out = left_out
        self._found: dict[bytes, ListedPicture] = {}
        self._links: dict[bytes, bytes] = {}
        self._labels: dict[bytes, int | str] = {}

    def skips(self, name: bytes, *, is_folder: bool) -> bool:
        """True for a member that is hidden, or made by an operating system for itself; files of that kind are counted."""
        if not any(is_ignored(part, False) for part in name.split(b"/")):
            return False
        self._left_out["hidden or system files"] += not is_folder
        return True

    def add_link(self, name: bytes, target: bytes) -> None:
        """Add a link to the member `target`."""
        self._links[name] = target

    def add_file(self, picture: ListedPicture, read: Callable[[int], bytes]) -> None:
        """Note a picture or a label, and count everything else. `read(count)` gives the first bytes of the member."""
        name, size_bytes = picture.name, picture.size_bytes or 0
        extension = extension_of(name)
        if extension in (b"cls", b"json") and size_bytes <= _MOST_LABEL_BYTES:
            label = _label(read(_MOST_LABEL_BYTES), extension)
            if label is not None:
                self._labels[_sample(name)] = label
                return
        if is_picture(posixpath.basename(name), size_bytes, lambda: read(HEAD_BYTES)):
            if self._found.pop(name, None):
                self._left_out["replaced by a later member at the same place"] += 1
            self._found[name] = picture
        else:
            self._left_out[f".{key_text(extension)}" if extension else "without extension"] += 1

    def pictures(self) -> Iterator[ListedPicture]:
        """The pictures in order with their labels, and behind them the links to pictures."""
        for name, picture in self._with_links().items():
            label = self._labels.get(_sample(name))
            if isinstance(label, int):
                yield picture._replace(label=label)
            else:
                yield picture._replace(class_name=label or "")

    def _with_links(self) -> dict[bytes, ListedPicture]:
        """The pictures, and behind them the links to pictures. One whose target is not there is a picture by its name."""
        found, links = dict(self._found), self._links
        for name in links:
            target = name
            for _ in range(_LINKS):
                if target not in links:
                    break
                target = links[target]
            if target in found:
                found[name] = found[target]._replace(name=name)
            elif is_picture(posixpath.basename(name), 0, bytes):
                found[name] = ListedPicture(name, None, -1, 0)
        return found


def path_inside(name: bytes) -> bytes:
    """The path of a member relative to the archive, which no `..` leads out of."""
    return posixpath.normpath(b"/" + name).lstrip(b"/")


def link_target(name: bytes, target: bytes) -> bytes:
    """What the symbolic link `name` to `target` leads to, as a path below the archive."""
    return path_inside(posixpath.join(posixpath.dirname(name), target))


def _sample(name: bytes) -> bytes:
    """What names of members of one sample have in common."""
    folder, slash, base = name.rpartition(b"/")
    return folder + slash + base.partition(b".")[0]


def _label(data: bytes, extension: bytes) -> int | str | None:
    """The label in a .cls or .json member: a number from 0, or the name of a class; None if it holds none."""
    text = data.decode("utf-8", "replace").strip()
    if extension == b"json":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        text = str(value.get("label", "")) if isinstance(value, dict) else ""
    if text.isdecimal() and len(text) < _MOST_DIGITS:
        return int(text)
    return text if text and text != "-1" and "\n" not in text else None
