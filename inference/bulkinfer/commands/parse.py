"""Command line -> config. Every accepted spelling is rewritten to `--name=value` here, and absl parses the result.

`--x-y` is `--x_y`; `--nox`, `--no-x` and `--no_x` are equal; `--x False` works; list flags take words or commas; a value
may start with `-`; words that belong to no flag set one option, where a command says which. No other module knows these
spellings.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from bulkinfer import __version__
from bulkinfer.commands.flags import flag_values
from bulkinfer.commands.help import help_text
from bulkinfer.commands.suggest import continues_by_itself, nearest_option, nearest_value
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import public
from bulkinfer.files.flag_file import refuse_unfit

Config = TypeVar("Config")

_COMMA = "\0"  # replaces a comma inside a plain word, which is one value; a command line cannot contain this character
_HELP = ("help", "h", "helpfull", "helpshort")
_ALWAYS = ("flagfile", "version", *_HELP)  # flags of every command
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:(?:=|\s+)(.*))?\Z", re.DOTALL)  # with a blank: a line `--name value` of a flag file
_BOOLEANS = {
    "true": "true",
    "t": "true",
    "1": "true",
    "yes": "true",
    "false": "false",
    "f": "false",
    "0": "false",
    "no": "false",
}


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
    refuse_unfit(argv)
    try:
        words = values.read_flags_from_files(list(argv), force_gnu=True)
    except flags.Error as error:
        raise UsageError(f"--flagfile: {str(error).removeprefix('ERROR:: ')}") from None
    except (OSError, UnicodeDecodeError):
        raise UsageError("--flagfile: the file is not a readable text file") from None
    words, operand = _take_operand(words) if first_word else (words, None)
    words = _normalise(command, words, options, kinds, positional, first_word)
    if words == ["--help"]:
        raise HelpRequested(help_text(command, config_class, positional or first_word))
    if words == ["--version"]:
        raise HelpRequested(f"{command} (bulkinfer {__version__})")
    if operand is not None:
        words = _with_operand(words, first_word, [operand])
    try:
        values([command, *words])
        return {name: _value(values[name].value, kinds[name]) for name in options}
    except flags.Error as error:
        raise UsageError(str(error).removeprefix("flag ").replace("\n", " ") + _meant_value(words, options, error)) from None


def _take_operand(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without the one that stands first, or behind `--`, and that one; None if there is none.

    Raises UsageError for more than one word behind `--`.
    """
    words, found = list(argv), list[str]()
    if words and not words[0].startswith("-"):
        found.append(words.pop(0))
    if "--" in words:
        place = words.index("--")
        found += words[place + 1 :]
        words = words[:place]
    if len(found) > 1:
        raise UsageError(f"one word without a flag is taken, and there are {len(found)}: leave out {public(found[1])!r}")
    return words, found[0].replace(",", _COMMA) if found else None


def _with_operand(words: list[str], field: str, plain: list[str]) -> list[str]:
    """The words with the flag that the plain ones stand for. Raises UsageError if that is given as well."""
    if any(word.startswith(f"--{field}=") for word in words):
        shown = public(plain[0].replace(_COMMA, ","))
        raise UsageError(f"{shown!r} stands for --{field}, which is given as well: leave one of them out")
    return [*words, f"--{field}={','.join(plain)}"]


def _meant_value(words: list[str], options: dict[str, Any], error: Exception) -> str:
    """The end of the sentence about a value that is none of the accepted ones: the one that was probably meant."""
    name, _, value = next((word for word in words if f"{word}:" in str(error)), "").removeprefix("--").partition("=")
    choices = options[name].metadata["choices"] if name else ()
    wrong = next((item for item in value.split(",") if item not in choices), "")
    near = nearest_value(wrong, choices)
    return f"; did you mean --{name} {near}?" if near else ""


def _value(value: Any, kind: Any) -> Any:
    return value.replace(_COMMA, ",") if kind is str else value if kind in (bool, int, float) else _items(value)


def _items(values: list[str]) -> tuple[str, ...]:
    return tuple(value.replace(_COMMA, ",") for value in values)


def _spellings(options: dict[str, Any], kinds: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Every accepted spelling, with underscores -> (option, value that the spelling implies)."""
    table: dict[str, tuple[str, str | None]] = {}
    for name, field in options.items():
        for spelling in (name, *field.metadata["aliases"]):
            table[spelling] = (name, None)
            if kinds[name] is bool:
                table[f"no{spelling}"] = table[f"no_{spelling}"] = (name, "false")
    return table


def _normalise(
    command: str, argv: Sequence[str], options: dict[str, Any], kinds: dict[str, Any], positional: str, first_word: str
) -> list[str]:
    """Rewrite `argv` as `--name=value` words, one per option, so that absl parses exactly what was meant."""
    table, field = _spellings(options, kinds), positional
    words, plain, rest = [], list[str](), list(argv)
    while rest:
        word = rest.pop(0)
        name, given = _split_flag(word)
        if name in _HELP:
            return ["--help"]
        if name == "version":
            return ["--version"]
        if name is None and positional and not word.startswith("-"):
            plain.append(word.replace(",", _COMMA))
            positional = positional if kinds[positional] not in (bool, int, str) else ""
            continue
        if name not in table:
            raise UsageError(_unknown(command, word, table, options, first_word))
        option, implied = table[name]
        if kinds[option] is bool:
            if given is None and implied is None and rest and rest[0].lower() in _BOOLEANS:
                given = rest.pop(0)
            value = _boolean(word, given, implied)
        elif kinds[option] in (int, float, str):
            value = given if given is not None else _next_value(word, rest, table)
        else:
            value = (
                given
                if given is not None
                else _next_values(word, rest, table, options[option].metadata["choices"] if positional else ())
            )
        words.append(f"--{option}={value}")
    return _with_operand(words, field, plain) if plain else words


def _split_flag(word: str) -> tuple[str | None, str | None]:
    """`--x-y=v` -> x_y, v; `--x` -> x, None; a line `--x v` of a flag file -> x, v; anything else -> None, None."""
    match = _FLAG.match(word)
    return (match[1].replace("-", "_"), match[2]) if match else (None, None)


def _is_flag(word: str, table: dict[str, Any]) -> bool:
    name, _ = _split_flag(word)
    return name in table or name in _ALWAYS


def _next_value(word: str, rest: list[str], table: dict[str, Any]) -> str:
    """The next word, whatever it looks like, unless it is a flag of this command."""
    if not rest or _is_flag(rest[0], table):
        raise UsageError(f"{word} needs a value")
    return rest.pop(0)


def _next_values(word: str, rest: list[str], table: dict[str, Any], choices: tuple[str, ...]) -> str:
    """The words up to the next flag, joined by commas. A word that starts with `--` is always a flag, perhaps a misspelt one.

    Where a plain word may follow, the values end before the first word that is not one of `choices`.
    """
    items: list[str] = []
    while rest and not _is_flag(rest[0], table) and not (rest[0].startswith("--") and _split_flag(rest[0])[0]):
        if items and choices and not set(rest[0].split(",")) <= {*choices}:
            break
        items.append(rest.pop(0))
    if not items:
        raise UsageError(f"{word} needs at least one value")
    return ",".join(items)


def _boolean(word: str, given: str | None, implied: str | None) -> str:
    if implied is not None and given is None:
        return implied
    value = _BOOLEANS.get((given or "true").lower())
    if value is None or implied is not None:
        raise UsageError(f"{word} is a switch: give it alone, or with true or false")
    return value


def _unknown(
    command: str, word: str, table: dict[str, tuple[str, str | None]], options: dict[str, Any], first_word: str
) -> str:
    """The sentence about a word that is no flag of the command, or belongs to none."""
    known = {spelling: options[option].metadata["choices"] for spelling, (option, _) in table.items()}
    if not word.startswith("-"):
        near = nearest_option(word, known) if len(word) > 2 else ""
        advice = f"the word for --{first_word} stands first, or behind a --" if first_word else f"see {command} --help"
        return f"word that belongs to no flag: {public(word)!r}; " + (f"did you mean --{near}?" if near else advice)
    shown = word.partition("=")[0]  # a value may be an address with a password
    if continues_by_itself(shown.lstrip("-"), known):
        return f"unknown flag: {public(shown)!r}; leave it out: the same {command} continues a job in its output folder"
    near = nearest_option(shown.lstrip("-"), {**known, **dict.fromkeys(_ALWAYS[:3], ())})
    return f"unknown flag: {public(shown)!r}; " + (f"did you mean --{near}?" if near else f"see {command} --help")
