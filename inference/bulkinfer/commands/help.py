"""The --help text of a command: its options in groups, wrapped to the terminal, and examples to type."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from typing import Any

from bulkinfer.commands.examples import EXAMPLES
from bulkinfer.commands.flags import default_text

_WIDEST, _NARROWEST, _WITHOUT_TERMINAL = 100, 50, 80  # columns of the text
_INDENT = 26  # columns left of a description
_ALWAYS = (
    ("--flagfile FILE", "read options from this file, one per line"),
    ("--help", "print this and stop"),
    ("--version", "print the version and stop"),
)


def help_text(command: str, config_class: type[Any], operand: str = "") -> str:
    """What the command does, how to call it, examples, and each option with description, accepted values and default.

    `operand` is the field that plain words set; empty: the command takes none.
    """
    width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((_WITHOUT_TERMINAL, 24)).columns))
    known = {field.name: field for field in dataclasses.fields(config_class)}
    words = f" [{operand_name(known[operand])}]" if operand else ""
    text = [*_wrapped(f"{command}: {' '.join(str(config_class.__doc__).split())}", width), ""]
    text += [f"usage: {command}{words} [options]", ""]
    if command in EXAMPLES:
        text += ["examples:", *(f"  {example}" for example in EXAMPLES[command]), ""]
    for group, fields in option_groups(config_class).items():
        text += [f"{group}:"]
        for field in fields:
            text += _entry(", ".join(spellings(field)), _meaning(field), width)
        text += [""]
    text += ["always:"]
    for names, meaning in _ALWAYS:
        text += _entry(names, meaning, width)
    return "\n".join(text)


def option_groups(config_class: type[Any]) -> dict[str, list[dataclasses.Field[Any]]]:
    """The fields of a config by the heading under which --help lists them, in the order of declaration."""
    groups: dict[str, list[dataclasses.Field[Any]]] = {}
    group = "options"
    for field in dataclasses.fields(config_class):
        group = field.metadata["group"] or group
        groups.setdefault(group, []).append(field)
    return groups


def value_name(field: dataclasses.Field[Any]) -> str:
    """What --help calls the value of an option, such as FOLDER; empty for a switch."""
    if isinstance(field.default, bool):
        return ""
    if field.metadata["value"]:
        return str(field.metadata["value"])
    if isinstance(field.default, int | float):
        return "N"
    last = field.name.rpartition("_")[2]
    return {"dir": "FOLDER", "path": "FOLDER" if "_" in field.name else "PATH"}.get(last, last.upper())


def operand_name(field: dataclasses.Field[Any]) -> str:
    """The same for plain words that set a field, as the usage line shows them, such as `FOLDER ...` where several may stand."""
    return value_name(field) + (" ..." if isinstance(field.default, tuple) else "")


def spellings(field: dataclasses.Field[Any]) -> list[str]:
    """The spellings of an option, each with its value, such as `--batch_size N` and `--micro_batch_size N`."""
    value, switch = operand_name(field), "[no]" if isinstance(field.default, bool) else ""
    return [f"--{switch}{name} {value}".rstrip() for name in (field.name, *field.metadata["aliases"])]


def _meaning(field: dataclasses.Field[Any]) -> str:
    """The description of an option with its accepted values and its default."""
    choices, default = field.metadata["choices"], default_text(field)
    kind = "any of" if isinstance(field.default, tuple) else "one of"
    facts = [f"{kind} {', '.join(choices)}"] if choices else []
    facts += [f"default {default}"] if default else []
    return str(field.metadata["doc"]) + (f" ({'; '.join(facts)})" if facts else "")


def _entry(names: str, meaning: str, width: int) -> list[str]:
    """An option with its description to the right, or below it where the names are long."""
    lines = [" " * _INDENT + line for line in _wrapped(meaning, width - _INDENT)]
    if len(names) + 4 > _INDENT:
        return [*(f"  {line}" for line in _wrapped(names, width - 2)), *lines]
    return [f"  {names:<{_INDENT - 2}}{lines[0].strip()}", *lines[1:]]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
