"""Command line -> the flags as they were given. Every accepted spelling is recognised here, and by no other module.

`--x-y` is `--x_y`; `--nox`, `--no-x` and `--no_x` are equal; `--x False` works; list flags take words or commas; a value
may start with `-`; words that belong to no flag set one option, where a command says which.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import flags

from bulkinfer.commands.suggest import continues_by_itself, nearest_option
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import public
from bulkinfer.files.flag_file import refuse_unfit
from bulkinfer.types import ForeignFlag, Given, shell_word

COMMA = "\0"  # replaces a comma inside a plain word, which is one value; a command line cannot contain this character
HELP, VERSION = "help", "version"
_HELP = (HELP, "h", "helpfull", "helpshort")
_ALWAYS = ("flagfile", VERSION, *_HELP)  # flags of every command
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:(?:=|\s+)(.*))?\Z", re.DOTALL)  # with a blank: a line `--name value` of a flag file
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "1", "yes"), "true"),
    **dict.fromkeys(("false", "f", "0", "no"), "false"),
}


@dataclass(frozen=True, slots=True)
class Spelling:
    """A spelling that a command accepts: its option or foreign flag, how many values follow, and a value that it implies.

    `values` is that of ForeignFlag; `known` are the words that may follow where values are optional, or that alone belong to a
    list where a plain word may follow it. `may_be_dashed`: a value may start with `--`.
    """

    name: str
    values: str
    implied: str | None = None
    known: tuple[str, ...] = ()
    may_be_dashed: bool = True


def read_words(
    command: str,
    config_class: type[Any],
    argv: Sequence[str],
    *,
    positional: str = "",
    first_word: str = "",
    foreign: Mapping[str, ForeignFlag] | None = None,
) -> list[Given]:
    """The flags of `argv` in their order, with those of flag files; one named help or version alone if such a word is there.

    `positional` and `first_word` are those of parse_values(). `foreign` are flags of other programs, by name with underscores;
    they win over options of the same name. Raises UsageError for a word that is no flag, and a flag that lacks its value.
    """
    options = {field.name: field for field in dataclasses.fields(config_class)}
    words, operand = with_flag_files(argv), None
    if first_word:
        words, operand = _take_operand(words)
    table = _spellings(options, typing.get_type_hints(config_class), foreign or {}, has_plain_words=bool(positional))
    given, plain = _read(command, words, table, options, positional, first_word)
    if operand is not None and not asks_for_help(given):
        plain, positional = [operand], first_word
    return _with_plain(given, positional, plain) if plain else given


def with_flag_files(argv: Sequence[str]) -> list[str]:
    """The words with those of the flag files that they name. Raises UsageError for a file that cannot be read."""
    refuse_unfit(argv)
    try:
        return list(flags.FlagValues().read_flags_from_files(list(argv), force_gnu=True))  # type: ignore[no-untyped-call]
    except flags.Error as error:
        raise UsageError(f"--flagfile: {str(error).removeprefix('ERROR:: ')}") from None
    except (OSError, UnicodeDecodeError):
        raise UsageError("--flagfile: the file is not a readable text file") from None


def split_flag(word: str) -> tuple[str | None, str | None]:
    """`--x-y=v` -> x_y, v; `--x` -> x, None; a line `--x v` of a flag file -> x, v; anything else -> None, None."""
    match = _FLAG.match(word)
    return (match[1].replace("-", "_"), match[2]) if match else (None, None)


def boolean(text: str) -> bool | None:
    """The truth value that a word stands for; None if it is no such word."""
    value = _BOOLEANS.get(text.lower())
    return None if value is None else value == "true"


def asks_for_help(given: Sequence[Given]) -> bool:
    """Whether the words ask for help or the version: all others are left out then."""
    return bool(given) and given[0].name in (HELP, VERSION)


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
    return words, found[0].replace(",", COMMA) if found else None


def _with_plain(given: list[Given], field: str, plain: list[str]) -> list[Given]:
    """The flags with the one that the plain words stand for. Raises UsageError if that is given as well."""
    if any(each.name == field for each in given):
        shown = public(plain[0].replace(COMMA, ","))
        raise UsageError(f"{shown!r} stands for --{field}, which is given as well: leave one of them out")
    return [*given, Given(field, ",".join(plain), plain[0])]


def _spellings(
    options: dict[str, Any], kinds: dict[str, Any], foreign: Mapping[str, ForeignFlag], *, has_plain_words: bool
) -> dict[str, Spelling]:
    """Every accepted spelling, with underscores."""
    table: dict[str, Spelling] = {}
    for name, field in options.items():
        kind = kinds[name]
        values = "none" if kind is bool else "one" if kind in (int, float, str) else "many"
        known = field.metadata["choices"] if has_plain_words else ()
        for spelling in (name, *field.metadata["aliases"]):
            table[spelling] = Spelling(name, values, known=known)
            if kind is bool:
                table[f"no{spelling}"] = table[f"no_{spelling}"] = Spelling(name, values, "false")
    for name, flag in foreign.items():
        table[name] = Spelling(name, flag.values, known=flag.known, may_be_dashed=False)
        if flag.values in ("none", "optional", "any"):
            table[f"no{name}"] = table[f"no_{name}"] = Spelling(name, flag.values, "false")
    return table


def _read(
    command: str, argv: list[str], table: dict[str, Spelling], options: dict[str, Any], positional: str, first_word: str
) -> tuple[list[Given], list[str]]:
    """The flags of the words, and the plain words, which belong to none."""
    found, plain, rest = [], list[str](), list(argv)
    takes_plain = bool(positional)
    while rest:
        word = rest.pop(0)
        name, value = split_flag(word)
        if name in _HELP or name == VERSION:
            return [Given(VERSION if name == VERSION else HELP, "", word)], []
        if name is None and takes_plain and not word.startswith("-"):
            plain.append(word.replace(",", COMMA))
            takes_plain = isinstance(options[positional].default, tuple)
            continue
        if name not in table:
            raise UsageError(_unknown(command, word, table, options, first_word))
        spelling = table[name]
        found.append(Given(spelling.name, _value_of(word, value, spelling, rest, table), word))
    return found, plain


def _value_of(word: str, given: str | None, spelling: Spelling, rest: list[str], table: dict[str, Spelling]) -> str:
    """The value of a flag, taken off the words behind it where it does not stand in the word itself."""
    if spelling.implied is not None or spelling.values == "none":
        if given is None and spelling.implied is None and rest and rest[0].lower() in _BOOLEANS:
            given = rest.pop(0)
        return _switch(word, given, spelling.implied)
    if spelling.values == "optional":
        if given is None:
            given = rest.pop(0) if rest and _may_follow(rest[0], spelling) else "true"
        return _BOOLEANS.get(given.lower(), given)
    if given is None and spelling.values == "one":
        return _next_value(word, spelling, rest, table)
    if given is None:
        given = ",".join(_next_values(spelling, rest, table))
        if not given and spelling.values == "many":
            raise UsageError(f"{word} needs at least one value")
    if spelling.values == "any":
        return given.lower() if given.lower() in ("true", "false") else given or "true"
    return given


def _may_follow(word: str, spelling: Spelling) -> bool:
    """Whether a word can be the value of a flag that may also stand alone."""
    if word.lower() in _BOOLEANS or word in spelling.known:
        return True
    return not spelling.known and not word.startswith("-")


def _is_flag(word: str, table: dict[str, Spelling]) -> bool:
    name, _ = split_flag(word)
    return name in table or name in _ALWAYS


def _next_value(word: str, spelling: Spelling, rest: list[str], table: dict[str, Spelling]) -> str:
    """The next word, whatever it looks like, unless it is a flag of this command."""
    is_dashed = bool(rest) and rest[0].startswith("--") and split_flag(rest[0])[0] is not None
    if not rest or _is_flag(rest[0], table) or (is_dashed and not spelling.may_be_dashed):
        raise UsageError(f"{word} needs a value")
    return rest.pop(0)


def _next_values(spelling: Spelling, rest: list[str], table: dict[str, Spelling]) -> list[str]:
    """The words up to the next flag. A word that starts with `--` is always a flag, perhaps a misspelt one.

    Where a plain word may follow, the values end before the first word that is not one of the known ones.
    """
    items: list[str] = []
    while rest and not _is_flag(rest[0], table) and not (rest[0].startswith("--") and split_flag(rest[0])[0]):
        if items and spelling.known and not set(rest[0].split(",")) <= {*spelling.known}:
            break
        items.append(rest.pop(0))
    return items


def _switch(word: str, given: str | None, implied: str | None) -> str:
    if implied is not None and given is None:
        return implied
    value = _BOOLEANS.get((given or "true").lower())
    if value is None or implied is not None:
        raise UsageError(f"{word} is a switch: give it alone, or with true or false")
    return value


def _unknown(command: str, word: str, table: dict[str, Spelling], options: dict[str, Any], first_word: str) -> str:
    """The sentence about a word that is no flag of the command, or belongs to none."""
    known = {
        text: options[spelling.name].metadata["choices"] if spelling.name in options else spelling.known
        for text, spelling in table.items()
    }
    if not word.startswith("-"):
        near = nearest_option(word, known) if len(word) > 2 else ""
        if not near and "to" in table:
            near = f"to {shell_word(public(word))}"
        one = f"one word is taken for --{first_word}: the first, or the one behind a --"
        advice = one if first_word else f"see {command} --help"
        return f"word that belongs to no flag: {public(word)!r}; " + (f"did you mean --{near}?" if near else advice)
    shown = word.partition("=")[0]  # a value may be an address with a password
    if continues_by_itself(shown.lstrip("-"), known):
        return f"unknown flag: {public(shown)!r}; leave it out: the same {command} continues a job in its results folder"
    near = nearest_option(shown.lstrip("-"), {**known, **dict.fromkeys(_ALWAYS[:3], ())})
    return f"unknown flag: {public(shown)!r}; " + (f"did you mean --{near}?" if near else f"see {command} --help")
