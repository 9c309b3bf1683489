"""What comes with a foreign graph in files of the user's: its recipe and its labels."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from inference import zoo
from inference.card import Recipe
from inference.errors import UsageError, first_line
from inference.structure import misfit


def read_recipe(text: str) -> Recipe:
    """The recipe of a JSON file, or of a network of the zoo. Raises UsageError naming what is wrong in the file."""
    path = Path(text)
    if not path.is_file():
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
    if told := next(filter(None, (misfit(item, kinds[name], name) for name, item in value.items())), ""):
        raise UsageError(f"--recipe: {path}: {told}")
    try:
        return Recipe(**value)
    except UsageError as error:
        raise UsageError(f"--recipe: {path}: {error}") from None


def read_labels(path: Path) -> tuple[str, ...]:
    """Class names in the order of the classes: lines of a text, a JSON list, or a JSON object.

    An object maps number to name, or name to number. Raises UsageError saying where the file is at odds with that.
    """
    if path.suffix.lower() == ".json":
        value = _json(path, "--labels")
        return _labels_of(value, path)
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--labels: {path} is no text that can be read ({first_line(error)})") from None
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
            raise UsageError(f"--labels: {path} must number its names from 0 on, each number once")
        value = [value[str(number)] for number in range(len(value))]
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise UsageError(f"--labels: {path} must hold a list of names, or an object of number and name")
    return tuple(value)


def _json(path: Path, flag: str) -> Any:
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag}: {path} is no JSON that can be read ({first_line(error)})") from None
