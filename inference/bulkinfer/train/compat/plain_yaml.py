"""YAML as plain data: numbers, texts, lists and dictionaries, never other objects."""

from __future__ import annotations

from typing import Any

import yaml

from bulkinfer.errors import first_line

_FASTEST: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader  # the first is several times as fast
_MERGE = "tag:yaml.org,2002:merge"


class _MergingSafeLoader(_FASTEST):  # type: ignore[misc]
    """Merges dictionaries under `<<` as YAML says: of a list the first one that has a key counts.

    PyYAML 6.0.4 compares keys by identity, so that for most of them the last dictionary counts.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put the pairs of merged dictionaries before those of `node`. Raises ConstructorError where one is none."""
        own = [pair for pair in node.value if pair[0].tag != _MERGE]
        seen, merged = {_key(pair) for pair in own}, []
        for _, value in (pair for pair in node.value if pair[0].tag == _MERGE):
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    what, found = "a mapping or a list of mappings is needed for merging", f"this is a {source.id}"
                    raise yaml.constructor.ConstructorError(what, node.start_mark, found, source.start_mark)
                self.flatten_mapping(source)
                merged += [pair for pair in source.value if _key(pair) not in seen]
                seen |= {_key(pair) for pair in source.value}
        node.value = merged + own
        super().flatten_mapping(node)


def _key(pair: tuple[Any, Any]) -> Any:
    return (pair[0].tag, pair[0].value) if isinstance(pair[0], yaml.ScalarNode) else id(pair[0])


def parsed(text: str) -> Any:
    """The content of a YAML text. Raises ValueError with what is wrong with it."""
    try:
        return yaml.load(text, Loader=_MergingSafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(first_line(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parsed_once(text: str) -> Any:
    """The same. Raises ValueError as well for a key that a dictionary has twice, of which YAML takes the last one."""
    try:
        root = yaml.compose(text, Loader=_MergingSafeLoader)
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
