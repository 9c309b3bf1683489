"""Command line -> config: the words are read by words.py, and absl checks each value."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from bulkinfer import __version__
from bulkinfer.commands.flags import flag_values
from bulkinfer.commands.help import help_text
from bulkinfer.commands.suggest import nearest_value
from bulkinfer.commands.words import COMMA, HELP, VERSION, read_words
from bulkinfer.errors import UsageError
from bulkinfer.types import Given, with_places

Config = TypeVar("Config")


class HelpRequested(Exception):  # noqa: N818 (not an error)
    """The user asked for --help or --version; the message is the text to print."""


def parse(
    command: str,
    config_class: type[Config],
    argv: Sequence[str],
    *,
    positional: str = "",
    first_word: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Parse `argv` (without the program name) into a config; see parse_values for the parameters.

    Raises UsageError for a wrong command line, HelpRequested for --help and --version.
    """
    return config_class(
        **parse_values(command, config_class, argv, positional=positional, first_word=first_word, defaults=defaults)
    )


def parse_values(
    command: str,
    config_class: type[Any],
    argv: Sequence[str],
    *,
    positional: str = "",
    first_word: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The values of a config's fields by name, before the config class checks that they fit together.

    `positional` names the field that takes one plain word, or all of them if it is a list, wherever they stand. `first_word`
    names the field that takes the first word, if that is no flag, or the one behind `--`: no other plain word is taken, so that
    a misspelt value of a list flag is not taken for it. `defaults` replace the defaults of the fields. Raises UsageError for a
    wrong command line, HelpRequested for --help and --version.
    """
    options = {field.name: field for field in dataclasses.fields(config_class)}
    kinds = typing.get_type_hints(config_class)
    values = flag_values(options, kinds, defaults or {})
    given = read_words(command, config_class, argv, positional=positional, first_word=first_word)
    if given and given[0].name == HELP:
        raise HelpRequested(help_text(command, config_class, positional or first_word))
    if given and given[0].name == VERSION:
        raise HelpRequested(f"{command} (bulkinfer {__version__})")
    _refuse_empty(given, options, kinds)
    words = [f"--{each.name}={each.value}" for each in given]
    try:
        values([command, *words])
        return {name: _value(values[name].value, kinds[name], options[name]) for name in options}
    except flags.Error as error:
        raise UsageError(str(error).removeprefix("flag ").replace("\n", " ") + _meant_value(words, options, error)) from None


def _refuse_empty(given: Sequence[Given], options: dict[str, Any], kinds: dict[str, Any]) -> None:
    """Raises UsageError for empty text, which would be taken as if the option had not been given."""
    for name, value, _ in given:
        is_text = kinds[name] not in (bool, int, float) and not options[name].metadata["choices"]
        if is_text and not value and not options[name].metadata["may_be_empty"]:
            raise UsageError(f"--{name} is empty, as a variable of the shell that is not set: give a value, or leave it out")


def _meant_value(words: list[str], options: dict[str, Any], error: Exception) -> str:
    """The end of the sentence about a value that is none of the accepted ones: the one that was probably meant."""
    name, _, value = next((word for word in words if f"{word}:" in str(error)), "").removeprefix("--").partition("=")
    choices = options[name].metadata["choices"] if name else ()
    wrong = next((item for item in value.split(",") if item not in choices), "")
    near = nearest_value(wrong, choices)
    return f"; did you mean --{name} {near}?" if near else ""


def _value(value: Any, kind: Any, field: dataclasses.Field[Any]) -> Any:
    found = value.replace(COMMA, ",") if kind is str else value if kind in (bool, int, float) else _items(value)
    return found if field.metadata["is_text"] else with_places(found, f"--{field.name}")


def _items(values: list[str]) -> tuple[str, ...]:
    return tuple(value.replace(COMMA, ",") for value in values)
