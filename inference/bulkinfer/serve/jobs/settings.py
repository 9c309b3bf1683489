"""jobs.toml, the configuration of a folder of jobs: who may submit jobs, what jobs may read, which networks they run."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from bulkinfer.errors import UsageError, first_line, os_error_reason
from bulkinfer.files.addresses import address_of
from bulkinfer.files.guarded import read_text
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.user_path import real_path
from bulkinfer.types import given_place, printable_path

SETTINGS_FILE = "jobs.toml"
_MOST_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class _Needed(TypedDict):
    users: dict[str, str]
    data: list[str]


class _Content(_Needed, total=False):
    models: str
    max_queued: int
    ray_address: str


_KEYS = ("users", "data", "models", "max_queued", "ray_address")


@dataclass(frozen=True)
class JobSettings:
    """`users` maps names to the sha256 (64 hex digits) of their tokens. `data` are real paths and addresses: what lies there,
    or below, jobs may read. `models` is the folder of model folders, or its address. A user has at most `max_queued` jobs that
    have not ended. `ray_address` is the cluster of jobs with the engine ray; empty: there is none.
    """

    users: dict[str, str]
    data: tuple[str, ...]
    models: str = "models"
    max_queued: int = 100
    ray_address: str = ""


def read_settings(folder: Path) -> JobSettings:
    """The settings in jobs.toml of a folder of jobs; paths in it are relative to that folder.

    Raises UsageError for wrong ones.
    """
    path = folder / SETTINGS_FILE
    shown = printable_path(path)
    try:
        found: Any = tomllib.loads(read_text(path, _MOST_BYTES, error=UsageError))
    except FileNotFoundError:
        raise UsageError(f"--jobs: {shown} does not exist: write it, with users, data and models") from None
    except OSError as error:
        raise UsageError(f"--jobs: {shown}: {os_error_reason(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"--jobs: {shown} is no TOML ({first_line(error)}): correct it") from None
    if isinstance(found.get("data"), str):
        raise UsageError(f"--jobs: {shown}: data is one text: write a list, as in data = ['/data/photos']")
    if fault := mismatch(found, _Content):
        raise UsageError(f"--jobs: {shown}: {fault}: correct it")
    if unknown := [name for name in found if name not in _KEYS]:
        raise UsageError(f"--jobs: {shown}: unknown key {unknown[0]!r}: there are {', '.join(_KEYS)}")
    content = cast(_Content, found)
    _check(content, shown)
    data = tuple(_place(folder, place, "data") for place in content["data"])
    models = _place(folder, content.get("models", JobSettings.models), "models")
    most, ray = content.get("max_queued", JobSettings.max_queued), content.get("ray_address", JobSettings.ray_address)
    return JobSettings(content["users"], data, models, most, ray)


def _check(content: _Content, shown: str) -> None:
    users = content["users"]
    if not users:
        raise UsageError(f"--jobs: {shown}: users is empty: add one, as NAME = 'SHA256 OF ITS TOKEN'")
    for name, digest in users.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"--jobs: {shown}: users: {name!r} is no name: give letters, digits and . _ @ -, at most 64")
        if not _SHA256.fullmatch(digest):
            raise UsageError(f"--jobs: {shown}: users: {name}: give the sha256 of its token, 64 hex digits in small letters")
    if len(set(users.values())) < len(users):
        raise UsageError(f"--jobs: {shown}: users: two have the same token: give each one of its own")
    if not content["data"]:
        raise UsageError(f"--jobs: {shown}: data is empty: list the folders and stores that jobs may read")
    if content.get("max_queued", 1) < 1:
        raise UsageError(f"--jobs: {shown}: max_queued is {content.get('max_queued')}: it must be at least 1")


def _place(folder: Path, text: str, key: str) -> str:
    """An address, or the real path of a folder of this machine."""
    if not text or "\0" in text:
        raise UsageError(f"--jobs: {printable_path(folder / SETTINGS_FILE)}: {key} holds {text!r}: give a path or an address")
    given = given_place(text, f"{SETTINGS_FILE}: {key}")
    if address := address_of(given):
        return address.rstrip("/")
    return str(real_path(folder / given))
