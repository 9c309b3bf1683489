"""Files that the user gives along with a foreign graph: its recipe and its labels."""

from __future__ import annotations

import json
import math
import stat
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from bulkinfer import zoo
from bulkinfer.errors import UsageError, first_line, os_error_sentence
from bulkinfer.files import guarded
from bulkinfer.files.guarded import GRAPH_BYTES, TEXT_BYTES
from bulkinfer.files.json_validation import mismatch
from bulkinfer.model.recipe import Recipe

_MOST_PIXELS = 65_535  # of a side, as in JPEG; a larger number is a typing error that would take all memory
_LARGEST_INPUT = 1e30  # beyond it, float32 arithmetic overflows


def regular_file(path: Path, flag: str) -> None:
    """Raises UsageError if `path` is not a regular file: reading a pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        what = "is a link to a file that is not there" if path.is_symlink() else "does not exist"
        raise UsageError(f"{flag}: {path} {what}") from None
    except (OSError, ValueError) as error:  # a name too long, a loop of links, a byte that no name has
        reason = os_error_sentence(error) if isinstance(error, OSError) else first_line(error)
        raise UsageError(f"{flag} names no file that can be read ({reason})") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{flag}: {path} is a folder: give the {'.onnx ' if flag == '--onnx' else ''}file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{flag}: {path} is a pipe or a device: copy its content to a file")


def read_bytes(path: Path, flag: str) -> bytes:
    """All bytes of the file that `flag` names. Raises UsageError if it cannot be read."""
    regular_file(path, flag)
    try:
        return guarded.read_bytes(path, GRAPH_BYTES if flag == "--onnx" else TEXT_BYTES, error=UsageError)
    except OSError as error:
        raise UsageError(f"{flag} names no file that can be read ({os_error_sentence(error)})") from None


def read_recipe(text: str) -> Recipe:
    """The recipe of a JSON file, or of a network of the zoo. Raises UsageError saying what is wrong in the file."""
    path = Path(text)
    if not _exists(path):
        try:
            return zoo.find(text)[1].recipe
        except UsageError:
            raise UsageError(f"--recipe: {text!r} is neither a JSON file nor a network of get_model --list") from None
    value = _json(path, "--recipe")
    if not isinstance(value, dict):
        raise UsageError(f"--recipe: {path} holds no JSON object")
    value.pop("format", None)
    known = {field.name: field.default is MISSING for field in fields(Recipe)}
    kinds = get_type_hints(Recipe)
    if unknown := sorted(set(value) - set(known)):
        raise UsageError(f"--recipe: {path} has unknown keys: {', '.join(unknown)}; known are {', '.join(known)}")
    if missing := [name for name, is_needed in known.items() if is_needed and name not in value]:
        raise UsageError(f"--recipe: {path} lacks {', '.join(missing)}")
    if reason := next(filter(None, (mismatch(item, kinds[name], name) for name, item in value.items())), ""):
        raise UsageError(f"--recipe: {path}: {reason}")
    try:
        recipe = Recipe(**value)
    except UsageError as error:
        raise UsageError(f"--recipe: {path}: {error}") from None
    low, high = recipe.value_range
    if low == high:
        raise UsageError(f"--recipe: {path}: value_range {[low, high]} makes black and white the same")
    if (recipe.resize != "none" and recipe.resize_size > _MOST_PIXELS) or max(recipe.height, recipe.width) > _MOST_PIXELS:
        raise UsageError(f"--recipe: {path}: height, width and resize_size may be {_MOST_PIXELS} pixels at most")
    ends = [(end - mean) / std for end in (low, high) for mean, std in zip(recipe.mean, recipe.std, strict=True)]
    if not all(math.isfinite(end) and abs(end) < _LARGEST_INPUT for end in ends):
        raise UsageError(f"--recipe: {path}: mean, std and value_range make inputs as large as {max(map(abs, ends)):.3g}")
    return recipe


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no file can have that name
        return False


def read_labels(path: Path) -> tuple[str, ...]:
    """Class names in the order of the classes: the lines of a text file, a JSON list, or a JSON object.

    An object maps number to name, or name to number. Raises UsageError saying where the file has another form.
    """
    if path.suffix.lower() == ".json":
        value = _json(path, "--labels")
        return _labels_of(value, path)
    lines = _text(path, "--labels", "text").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UsageError(f"--labels: {path} holds no names")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise UsageError(f"--labels: line {number} of {path} is empty")
    return tuple(line.strip() for line in lines)


def _labels_of(value: Any, path: Path) -> tuple[str, ...]:
    if isinstance(value, dict):
        count = len(value)
        if value and all(type(number) is int for number in value.values()):
            value = {str(number): name for name, number in value.items()}
        if set(value) != {str(number) for number in range(count)}:
            raise UsageError(f"--labels: {path} must number its names from 0 upwards, each number once")
        value = [value[str(number)] for number in range(len(value))]
    if isinstance(value, list) and any(isinstance(name, str) and not _is_unicode(name) for name in value):
        raise UsageError(f"--labels: {path} has a name with half a surrogate pair, which is not valid Unicode")
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise UsageError(f"--labels: {path} must hold a list of names, or an object of number and name")
    return tuple(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(path: Path, flag: str) -> Any:
    try:
        return json.loads(_text(path, flag, "JSON"), parse_constant=_no_number)
    except ValueError as error:
        raise UsageError(f"{flag}: {path} is no JSON that can be read ({first_line(error)})") from None
    except RecursionError:
        raise UsageError(f"{flag}: {path} is no JSON that can be read (too deeply nested)") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _text(path: Path, flag: str, kind: str) -> str:
    """The text of a file with \\n as its only line end: other control characters and separators may be part of a name."""
    try:
        text = read_bytes(path, flag).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag}: {path} is no {kind} that can be read ({first_line(error)})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
