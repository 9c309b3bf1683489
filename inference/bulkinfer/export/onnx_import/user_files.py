"""Files that the user gives along with a foreign graph: its recipe and its labels."""

from __future__ import annotations

import json
import math
import stat
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from bulkinfer import zoo
from bulkinfer.errors import UsageError, first_line, os_error_reason, os_error_sentence
from bulkinfer.files import guarded
from bulkinfer.files.guarded import GRAPH_BYTES, TEXT_BYTES
from bulkinfer.files.json_validation import mismatch
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import printable_path

# In JSON files of other programs, the keys of what holds the names: Hugging Face, timm, torchvision, and what people write.
_KEYS_OF_NAMES = (
    "id2label",
    "label2id",
    "label_names",
    "class_to_idx",
    "idx_to_class",
    "class_names",
    "classes",
    "labels",
    "names",
)
_BACKGROUND = "background"
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
        raise UsageError(f"{flag}: {printable_path(path)} cannot be read: {os_error_reason(error)}") from None


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

    An object maps number to name, or name to number; config.json of Hugging Face holds such an object. A name may be a list
    that ends with it, as Keras writes ["n01440764", "tench"]. Raises UsageError saying where the file has another form.
    """
    text = _text(path, "--labels", "JSON" if path.suffix.lower() == ".json" else "text")
    if path.suffix.lower() == ".json" or _is_json(text):
        return _labels_of(_parsed(text, path, "--labels"), path)
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UsageError(f"--labels: {path} holds no names")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise UsageError(f"--labels: line {number} of {path} is empty")
    return tuple(line.strip() for line in lines)


def refuse_other_count(labels: tuple[str, ...], num_classes: int, output: str) -> None:
    """Raises UsageError if there is not one name for each of the `num_classes` values of `output`."""
    count = len(labels)
    if count == num_classes:
        return
    advice = ""
    if count + 1 == num_classes:
        advice = (
            f": networks of TensorFlow have one more class, {_BACKGROUND}, before all others; if this is one, "
            f"put {_BACKGROUND} in front of the names in the file"
        )
    elif count == num_classes + 1 and labels[0].lower() in (_BACKGROUND, "dummy"):
        advice = f": the first name is {labels[0]}, which this network has no class for: remove it from the file"
    raise UsageError(f"--labels: the file has {count:,} names, {output} has {num_classes:,} values{advice}")


def _labels_of(value: Any, path: Path) -> tuple[str, ...]:
    if isinstance(value, dict):
        inner = next((value[key] for key in _KEYS_OF_NAMES if isinstance(value.get(key), dict | list)), value)
        value = _in_order(inner, path) if isinstance(inner, dict) else inner
    if isinstance(value, list):
        value = [name[-1] if isinstance(name, list) and name else name for name in value]
    if isinstance(value, list) and any(isinstance(name, str) and not _is_unicode(name) for name in value):
        raise UsageError(f"--labels: {path} has a name with half a surrogate pair, which is not valid Unicode")
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise UsageError(f"--labels: {path} must hold a list of names, or an object of number and name")
    return tuple(value)


def _in_order(named: dict[str, Any], path: Path) -> list[Any]:
    """The names of an object that maps number to name, or name to number."""
    count = len(named)
    if named and all(type(number) is int for number in named.values()):
        named = {str(number): name for name, number in named.items()}
    if set(named) == {str(number) for number in range(1, count + 1)}:
        raise UsageError(
            f"--labels: {path} numbers its names from 1: number them from 0, or add {_BACKGROUND} as number 0 if the network "
            "has such a class before all others"
        )
    if set(named) != {str(number) for number in range(count)}:
        raise UsageError(f"--labels: {path} must number its names from 0 upwards, each number once")
    return [named[str(number)] for number in range(count)]


def _is_json(text: str) -> bool:
    """Whether a file without the suffix .json holds a JSON list or object all the same."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(path: Path, flag: str) -> Any:
    return _parsed(_text(path, flag, "JSON"), path, flag)


def _parsed(text: str, path: Path, flag: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
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
