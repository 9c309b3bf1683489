"""YAML as plain data: numbers, texts, lists and dictionaries, never other objects."""

from __future__ import annotations

from typing import Any

import yaml

from bulkinfer.errors import first_line


def parsed(text: str) -> Any:
    """The content of a YAML text. Raises ValueError with what is wrong with it."""
    try:
        if yaml.__with_libyaml__:  # several times as fast
            return yaml.load(text, Loader=yaml.CSafeLoader)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(first_line(error)) from None
