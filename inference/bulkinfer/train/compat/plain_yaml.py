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


def parsed_once(text: str) -> Any:
    """The same. Raises ValueError as well for a key that a dictionary has twice, of which YAML takes the last one."""
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
        _refuse_repeated(root)
        return parsed(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{first_line(error)}{_line(getattr(error, 'problem_mark', None))}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_repeated(root: Any) -> None:
    """Raises ValueError for a key that is in a dictionary twice. Each node is visited once, however often it is referred to."""
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen or node is None:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = set[str]()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        raise ValueError(f"the key {key.value!r} stands twice{_line(key.start_mark)}")
                    keys.add(key.value)
                pending += [key, value]
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value


def _line(mark: Any) -> str:
    return "" if mark is None else f" in line {mark.line + 1}"
