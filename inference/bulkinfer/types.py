"""The types of the main path: records in, batches through the network, rows out. And what an option of a command is.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bulkinfer.errors import UsageError, escaped

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"  # for annotations; a string, because importing this module loads no numpy


def key_text(key: bytes) -> str:
    r"""A key as text: UTF-8 where it is valid, every other byte as \xNN (the raw bytes are kept in another column)."""
    return key.decode("utf-8", "backslashreplace")


def printable(name: bytes) -> str:
    """A key or path for messages: as `key_text`, with line breaks and other control characters escaped."""
    return escaped(key_text(name))


def printable_path(path: str | os.PathLike[str]) -> str:
    """A path for messages, see printable()."""
    return printable(os.fsencode(path))


def shell_word(path: str | os.PathLike[str]) -> str:
    """A path as a word for bash, for commands in messages; one with control characters as in $'a\\x0ab'."""
    text = os.fspath(path)
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_shell_character, os.fsencode(text))) + "'"


# Words in capitals in a command of a message, for what only the reader knows -> what to type for each
PLACEHOLDERS = {
    "PHOTOS": "a folder of pictures",
    "RUN": "the folder of a training run",
    "FILE": "an ONNX file",
    "RECIPE": "a JSON file of how the pictures are prepared, or a network of get_model --list that prepares them so",
}


# What an address may begin with, or is often written with -> the right scheme. A file: address is a path.
_SCHEMES = {**{name: name for name in ("s3", "gs", "az", "http", "https")},
            "s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az"}  # fmt: skip
_BEGINNING = re.compile(r"\s*(?P<name>[A-Za-z][A-Za-z0-9+.-]*)(?P<mark>:/*|//+)")


def given_place(text: str, option: str) -> str:
    """The text of an option as it is meant: with the home folder for `~`, as shells do, but not in --output=~/out; and an
    address with its scheme in small letters, without a blank before it. A file called `~` is `./~`.

    Raises UsageError that names the option for what looks like an address and is none, such as s3//bucket: it would be the
    path of a folder of this machine. The message shows only the scheme, since the rest may hold a password.
    """
    found = _BEGINNING.match(text)
    if found is None:
        return os.path.expanduser(text) if text.startswith("~") else text
    name, mark, rest = found["name"].lower(), found["mark"], text[found.end() :]
    right, start = _SCHEMES.get(name), f"{found['name']}{mark}"
    if right == name and mark in ("://", ":/") and rest:
        return f"{right}{mark}{rest}"
    if right and (right == name or mark.startswith(":/")):
        kind = "host" if right.startswith("http") else "container" if right == "az" else "bucket"
        raise UsageError(
            f"{option} begins with '{start}': write {right}://{kind}/folder, or ./{start}... for a path of this machine"
        )
    if name == "file" and mark.startswith(":/"):
        raise UsageError(f"{option} begins with '{start}': give the path alone, without 'file:'")
    if mark == "://" and name != "ray":
        raise UsageError(
            f"{option} begins with '{start}', which is not read: give a path, or an address with s3://, gs://, az:// or https://"
        )
    return text


def explained(command: str) -> str:
    """A command for a message, with what its placeholders stand for: `bulkinfer run PHOTOS (PHOTOS: a folder of pictures)`."""
    found = [f"{word}: {what}" for word, what in PLACEHOLDERS.items() if re.search(rf"(?<!\S){word}(?!\S)", command)]
    return f"{command} ({'; '.join(found)})" if found else command


def _shell_character(byte: int) -> str:
    character = chr(byte)
    return character if byte < 127 and character.isprintable() and character not in "'\\" else f"\\x{byte:02x}"


@dataclass(frozen=True, slots=True)
class Fault:
    """The error row of a record that is not read again, because it ends every process: stage (of errors.STAGES) and message."""

    stage: str
    message: str


@dataclass(frozen=True, slots=True)
class Archive:
    """A file that holds many pictures: its path, its kind (of records/sources/archives.py), its size in bytes, and the time of
    its last change in nanoseconds. A file of another size or time is another archive: its pictures may lie elsewhere.

    `columns` are those of the pictures and of the labels in a table, if the user named them; empty text for one not named.
    """

    path: bytes
    kind: str
    size_bytes: int
    mtime_ns: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """The place of a picture inside of an archive: `span` bytes from byte `offset` on. With an `offset` of -1 the archive names
    the picture and does not hold it, as a link in an archive to a file that is not there.

    Other kinds say in their modules what the two numbers are: in a Parquet file, a page and the number of a value in it.
    """

    archive: Archive
    offset: int
    span: int


Place: TypeAlias = bytes | Member  # where a picture lies: the path of its file, its address, or a part of an archive


@dataclass(frozen=True, slots=True)
class Record:
    """One undecoded picture: its number within the partition, its key, and the place where its bytes lie.

    `key` is the path relative to the root of the data set, as bytes of the file system. `label` and `category_ids` are None if
    the data set has none. A picture that ends every process has a `fault`: it must not be read again. One that is being read
    already has `ahead`, which gives its bytes once, and raises what reading them raised.
    """

    number: int
    key: bytes
    place: Place
    label: int | None = None
    category_ids: tuple[int, ...] | None = None
    fault: Fault | None = None
    ahead: Callable[[], bytes] | None = None

    @property
    def name(self) -> str:
        """The key for messages: printable, without line breaks."""
        return printable(self.key)


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """The records start..end (exclusive) of one partition: the unit of work for a worker, log line, publishing and resume."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decoder found: the real format, number of frames, size in pixels after orientation, flags; size of the file."""

    format: str
    frames: int
    width: int
    height: int
    flags: tuple[str, ...] = ()
    size_bytes: int | None = None


@dataclass(slots=True)
class Batch:
    """A preallocated batch of prepared pictures, reused during the whole job.

    `images_NHWC` is uint8 RGB. The first `count` slots belong to the records from `offset` on of the step whose `rows` they
    fill. The slots of failed records and of padding hold zeros. `errors` maps a slot to the stage and message of its failure;
    it holds no exceptions, because their tracebacks would keep the picture in memory.
    """

    images_NHWC: Array
    records: list[Record | None]
    facts: list[Facts | None]
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)
    rows: Any = None
    offset: int = 0
    count: int = 0
    waiting: int = 0  # records still being prepared


_LARGEST = sys.float_info.max  # a whole number above it is no float
_KINDS = {bool: "True or False", int: "a whole number", float: "a number", str: "text", tuple: "a list of texts"}


def option(
    default: Any,
    doc: str,
    *,
    group: str = "",
    value: str = "",
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    minimum: float | None = None,
    words: bool = False,
    is_text: bool = False,
    may_be_empty: bool = False,
) -> Any:
    """A dataclass field that is also a flag: default, one-line description with unit, accepted values, other spellings.

    `group` is the heading in --help of this option and of those declared after it, up to the next one with a `group`. `value`
    is what --help calls the value, such as FOLDER; empty: what follows from the name. `words` means that the values of a list
    contain no blanks, so that blanks separate them in a flag file. `is_text` means that the value is no path and may begin with
    `~`, which is otherwise expanded (see given_place). `may_be_empty`: empty text is a value too.
    """
    facts = {"doc": doc, "group": group, "value": value, "choices": choices, "aliases": aliases, "minimum": minimum}
    facts |= {"words": words or bool(choices), "is_text": is_text, "may_be_empty": may_be_empty}
    return field(default=default, metadata=facts)


class Given(NamedTuple):
    """A flag of a command line: the option that it sets, or the flag of another program; its value as text; the word itself.

    Names have underscores. A switch is "true" or "false", a list has commas.
    """

    name: str
    value: str
    word: str


class ForeignFlag(NamedTuple):
    """A flag of another program that a command takes as well.

    `values` says how many it takes: none (a switch), one, many (one or more), any (none or more), or optional, which is none or
    one: of the `known` words, if there are any.
    """

    values: str
    known: tuple[str, ...] = ()


def _is_of(value: Any, kind: type[Any]) -> bool:
    """True if an option whose default is of `kind` may have `value`; numbers may be those of numpy."""
    if kind is tuple:
        return isinstance(value, tuple) and all(_is_of(item, str) for item in value)
    if kind in (int, float):
        is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return is_number and (kind is int or -_LARGEST <= value <= _LARGEST or value in (math.inf, -math.inf))
    return isinstance(value, kind) and (kind is not str or "\0" not in value)  # NUL is in no path


def with_places(value: Any, option: str) -> Any:
    """The value of an option, with the texts in it as they are meant: see given_place."""
    if isinstance(value, tuple):
        return tuple(given_place(item, option) if isinstance(item, str) else item for item in value)
    return given_place(value, option) if isinstance(value, str) else value


def check_values(config: Any) -> None:
    """Turn paths into text, places into what they mean (see given_place) and lists into tuples, in place.

    Raises UsageError for a value that the option's flag would refuse.

    For configs that a Python caller makes: what comes from flags has passed their parser.
    """
    for known in fields(config):
        value, choices, minimum = getattr(config, known.name), known.metadata["choices"], known.metadata["minimum"]
        if isinstance(known.default, tuple):
            if isinstance(value, (str, bytes, os.PathLike)):
                raise UsageError(f"{known.name} is {value!r}: give a list, as in [{os.fspath(value)!r}]")
            if isinstance(value, Iterable):
                value = tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in value)
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not _is_of(value, type(known.default)):
            raise UsageError(f"{known.name} is {value!r}: it must be {_KINDS[type(known.default)]}")
        if not known.metadata["is_text"]:
            value = with_places(value, known.name)
        object.__setattr__(config, known.name, value)
        if wrong := [item for item in (value if isinstance(value, tuple) else (value,)) if choices and item not in choices]:
            raise UsageError(f"{known.name} is {wrong[0]!r}: legal are {', '.join(choices)}")
        if minimum is not None and value < minimum:
            raise UsageError(f"{known.name} is {value}: it must be at least {minimum}")
