"""Numbers in a JSON file by a path, such as `networks.0.runs[contestant=ours].images_per_s`.

Parts are names or numbers of items, with dots between; `*` is every item. `[key=text]` behind a list leaves those items whose
key has that text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.errors import DamagedError, first_line
from bulkinfer.files.guarded import JSON_BYTES, read_bytes

_PART = re.compile(r"(?:\.|\A)(?P<name>[^.\[\]]+)|\[(?P<key>[^=\]]+)=(?P<text>[^\]]*)\]")
_MOST_NAMES = 20  # of a message
_MOST_FILES = 10_000  # that a pattern may find


def steps_of(path: str, place: Place) -> list[tuple[str, str | None]]:
    """The parts of a path: a name and None, or a key and its text. Raises UsageError for what is no path."""
    found, end = list[tuple[str, str | None]](), 0
    while end < len(path):
        match = _PART.match(path, end)
        if match is None:
            raise place.wrong(f"{path!r} is no path, as in images_per_s.median, runs.*.ratio or runs[name=a].ratio")
        found.append((match["name"], None) if match["name"] is not None else (match["key"], match["text"]))
        end = match.end()
    return found


def numbers_at(content: Any, path: str, place: Place) -> list[float]:
    """The numbers at a path, in order. Raises UsageError with the names that there are."""
    values, shown = [content], ""
    for name, wanted in steps_of(path, place):
        if wanted is not None:
            values = [item for value in values if isinstance(value, list) for item in value if _has(item, name, wanted)]
            if not values:
                raise place.wrong(f"no item of {shown or 'the file'} has {name}={wanted}")
            continue
        values = [item for value in values for item in _step(value, name, shown, place)]
        shown = f"{shown}.{name}" if shown else name
    numbers = [item for value in values for item in (value if isinstance(value, list) else [value])]
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | float):
            what = f"a dictionary with {_listed(value)}" if isinstance(value, dict) else f"{json.dumps(value)[:60]}"
            raise place.wrong(f"{shown} is no number but {what}")
    return [float(value) for value in numbers]


def _has(item: Any, key: str, wanted: str) -> bool:
    return isinstance(item, dict) and key in item and str(item[key]) == wanted


def _step(value: Any, name: str, shown: str, place: Place) -> list[Any]:
    """What `name` of a value is; `*` may be several."""
    if name == "*" and isinstance(value, list | dict):
        return list(value) if isinstance(value, list) else list(value.values())
    if isinstance(value, dict) and name in value:
        return [value[name]]
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return [value[int(name)]]
    where = shown or "the file"
    if isinstance(value, dict):
        raise place.wrong(f"{where} has no {name!r}; it has {_listed(value)}")
    if isinstance(value, list):
        raise place.wrong(f"{where} has {len(value)} items, and no {name!r}: give a number from 0 on, or *")
    raise place.wrong(f"{where} is {json.dumps(value)[:60]}, which holds no {name!r}")


def _listed(value: dict[str, Any]) -> str:
    names = list(value)
    return ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def read_below(folder: Path, pattern: str, place: Place) -> Any:
    """The content of the one JSON file below `folder` that `pattern` finds, in any folder there. Links are not followed."""
    found = set[Path]()
    for number, path in enumerate(folder.rglob(pattern)):
        if number > _MOST_FILES:
            raise place.wrong(f"{pattern!r} finds more than {_MOST_FILES} files in {folder}: name one")
        if path.is_file() and not any(each.is_symlink() for each in (path, *path.parents) if each.is_relative_to(folder)):
            found.add(path)
    if not found:
        there = ", ".join(sorted({path.name for path in folder.rglob("*.json")})[:_MOST_NAMES]) or "none"
        raise place.wrong(
            f"the command wrote no file {pattern!r} into {folder}, which has {there}: let it write there, as in "
            "--log_path {run_dir}"
        )
    if len(found) > 1:
        raise place.wrong(
            f"the command wrote {len(found)} files {pattern!r}: {', '.join(map(str, sorted(found)[:3]))}: name one"
        )
    path = found.pop()
    try:
        return json.loads(read_bytes(path, JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise place.wrong(f"{path} is not JSON ({first_line(error)})") from None
    except DamagedError as error:
        raise place.wrong(f"{error}: name another file, or let the command write less") from None
