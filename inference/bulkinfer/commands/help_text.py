"""The --help text of a command, from the fields of its config."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any


def help_text(command: str, config_class: type[Any]) -> str:
    """The --help text: what the command does, then each flag with its doc, legal values and default."""
    lines = [f"{command}: {config_class.__doc__}", "", f"usage: {command} [flags]", ""]
    kinds = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        is_switch = kinds[field.name] is bool
        names = [f"--{'[no]' if is_switch else ''}{field.name}", *(f"--{alias}" for alias in field.metadata["aliases"])]
        choices, default = field.metadata["choices"], default_text(field)
        facts = [f"one of {', '.join(choices)}"] if choices and kinds[field.name] is str else []
        facts += [f"any of {', '.join(choices)}"] if choices and kinds[field.name] is not str else []
        facts += [f"default {default}"] if default else []
        lines += [f"  {', '.join(names)}", f"      {field.metadata['doc']}" + (f" ({'; '.join(facts)})" if facts else "")]
    lines += ["  --flagfile", "      read flags from this file, one per line", "  --help", "      print this and stop"]
    lines += ["  --version", "      print the version and stop"]
    return "\n".join(lines)


def default_text(field: dataclasses.Field[Any]) -> str:
    """The default of an option as one would type it; empty if there is none."""
    if isinstance(field.default, tuple):
        return ",".join(field.default)
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
