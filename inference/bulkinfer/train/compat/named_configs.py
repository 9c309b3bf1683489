"""Named sets of options in a YAML file, read as flags: they are checked like those of the command line."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError, first_line, os_error_reason
from bulkinfer.files.guarded import TEXT_BYTES, read_text
from bulkinfer.train.compat.dictionaries import DICTIONARIES
from bulkinfer.train.compat.plain_yaml import parsed
from bulkinfer.train.compat.reference_flags import TRAINERS, blocks
from bulkinfer.train.options import TrainConfig

OWN = Path(__file__).with_name("configs.yml")


def words_of(name: str, path: str) -> list[str]:
    """The options called `name` as words of a command line. Raises UsageError naming the file and what is wrong with it."""
    file = Path(path) if path else OWN
    try:
        found: Any = parsed(read_text(file, TEXT_BYTES, error=UsageError))
    except OSError as error:
        raise UsageError(f"--config_path {file}: {os_error_reason(error)}") from None
    except ValueError as error:  # also of bytes that are no text
        raise UsageError(f"{file} is not YAML: {first_line(error)}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} must hold names with options below them")
    if name not in found or not isinstance(found[name], dict):
        near = difflib.get_close_matches(name, map(str, found), 3, 0)
        raise UsageError(f"--config: {file} has no options called {name!r}; nearest are {', '.join(near)}")
    return [word for option, value in found[name].items() for word in _words(f"{file}, {name}", option, value)]


def origin(config: TrainConfig, option: str) -> str:
    """Where a number comes from, for a message: " of --config NAME", " of --like TRAINER", or empty if it is given."""
    value = getattr(config, option)
    if config.config:
        values = dict(word.removeprefix("--").split("=", 1) for word in words_of(config.config, config.config_path))
        if option in values and float(values[option]) == value:
            return f" of --config {config.config}"
    if config.like in TRAINERS and any(block.take.get(option) == value for block in blocks(config.like)):
        return f" of --like {config.like}"
    return ""


def _words(where: str, option: Any, value: Any) -> list[str]:
    if isinstance(value, dict) and str(option).replace("-", "_") in DICTIONARIES:
        return [f"--{option}={json.dumps(value)}"]
    if isinstance(value, list):
        return [f"--{option}={','.join(map(str, value))}"]
    if isinstance(value, bool):
        return [f"--{option}={str(value).lower()}"]
    if isinstance(value, str | int | float):
        return [f"--{option}={value}"]
    raise UsageError(f"{where}: {option} must be a number, a word, true or false, or a list of these")
