"""Command line -> config: absl flags made from the fields of a config class, with the forgiving spellings in front.

`--x-y` is `--x_y`; `--nox`, `--no-x` and `--no_x` are equal; `--x False` works; list flags take words or commas; a value
may start with `-`. Nothing behind this file knows other spellings.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

from absl import flags

from bulkinfer import __version__
from bulkinfer.commands.flag_values import flag_values
from bulkinfer.commands.help_text import help_text
from bulkinfer.errors import BulkinferError, UsageError, os_error_sentence
from bulkinfer.files.flag_file import refuse_cut
from bulkinfer.host.console import make_printing_safe, print_log_lines

Config = TypeVar("Config")

_COMMA = "\0"  # stands for the comma of a plain word, which is one value; no word of a command line can hold it
_HELP = ("help", "h", "helpfull", "helpshort")
_ALWAYS = ("flagfile", "version", *_HELP)  # every command has these
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:(?:=|\s+)(.*))?\Z", re.DOTALL)  # the blank: a line `--name value` of a flag file
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


class HelpRequested(Exception):  # noqa: N818 (it is no error)
    """The user asked for --help or --version; the message is the text to print."""


def parse(
    command: str,
    config_class: type[Config],
    argv: Sequence[str],
    *,
    positional: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Parse `argv` (without the program name) into a config; see parse_values.

    Raises UsageError for anything wrong, HelpRequested for --help.
    """
    return config_class(**parse_values(command, config_class, argv, positional=positional, defaults=defaults))


def parse_values(
    command: str,
    config_class: type[Any],
    argv: Sequence[str],
    *,
    positional: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The values of a config's fields, before they are checked against each other.

    `positional` names the field that takes one plain word, or all of them if it is a list; `defaults` stand in for those of
    the options. Raises UsageError for anything wrong, HelpRequested for --help.
    """
    options = {field.name: field for field in dataclasses.fields(config_class)}
    kinds = typing.get_type_hints(config_class)
    values = flag_values(options, kinds, defaults or {})
    refuse_cut(argv)
    try:
        words = values.read_flags_from_files(list(argv), force_gnu=True)
    except flags.Error as error:
        raise UsageError(f"--flagfile: {str(error).removeprefix('ERROR:: ')}") from None
    except (OSError, UnicodeDecodeError):
        raise UsageError("--flagfile: it is no text file that can be read") from None
    words = _normalise(command, words, options, kinds, positional)
    if words == ["--help"]:
        raise HelpRequested(help_text(command, config_class))
    if words == ["--version"]:
        raise HelpRequested(f"{command} (bulkinfer {__version__})")
    try:
        values([command, *words])
        return {name: _value(values[name].value, kinds[name]) for name in options}
    except flags.Error as error:
        raise UsageError(str(error).removeprefix("flag ").replace("\n", " ")) from None


def _value(value: Any, kind: Any) -> Any:
    return value.replace(_COMMA, ",") if kind is str else value if kind in (bool, int, float) else _items(value)


def _items(values: list[str]) -> tuple[str, ...]:
    return tuple(value.replace(_COMMA, ",") for value in values)


def _spellings(options: dict[str, Any], kinds: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Every legal spelling (underscored) -> (option, forced value)."""
    table: dict[str, tuple[str, str | None]] = {}
    for name, field in options.items():
        for spelling in (name, *field.metadata["aliases"]):
            table[spelling] = (name, None)
            if kinds[name] is bool:
                table[f"no{spelling}"] = table[f"no_{spelling}"] = (name, "false")
    return table


def _normalise(command: str, argv: Sequence[str], options: dict[str, Any], kinds: dict[str, Any], positional: str) -> list[str]:
    """Rewrite `argv` as `--name=value` words, one per option, so that absl has nothing left to guess."""
    table, field = _spellings(options, kinds), positional
    words, plain, rest = [], list[str](), list(argv)
    while rest:
        word = rest.pop(0)
        name, given = _split(word)
        if name in _HELP:
            return ["--help"]
        if name == "version":
            return ["--version"]
        if name is None and positional and not word.startswith("-"):
            plain.append(word.replace(",", _COMMA))
            positional = positional if kinds[positional] not in (bool, int, str) else ""
            continue
        if name not in table:
            raise UsageError(_unknown(command, word, [*table, *_ALWAYS[:3]]))
        option, forced = table[name]
        if kinds[option] is bool:
            if given is None and forced is None and rest and rest[0].lower() in _BOOLEANS:
                given = rest.pop(0)
            value = _boolean(word, given, forced)
        elif kinds[option] in (int, float, str):
            value = given if given is not None else _next_value(word, rest, table)
        else:
            value = (
                given
                if given is not None
                else _next_values(word, rest, table, options[option].metadata["choices"] if positional else ())
            )
        words.append(f"--{option}={value}")
    return [*words, f"--{field}={','.join(plain)}"] if plain else words


def _split(word: str) -> tuple[str | None, str | None]:
    """`--x-y=v` -> x_y, v; `--x` -> x, None; a line `--x v` of a flag file -> x, v; anything else -> None, None."""
    match = _FLAG.match(word)
    return (match[1].replace("-", "_"), match[2]) if match else (None, None)


def _is_flag(word: str, table: dict[str, Any]) -> bool:
    name, _ = _split(word)
    return name in table or name in _ALWAYS


def _next_value(word: str, rest: list[str], table: dict[str, Any]) -> str:
    """The next word whatever it looks like, unless it is a flag of this command."""
    if not rest or _is_flag(rest[0], table):
        raise UsageError(f"{word} needs a value")
    return rest.pop(0)


def _next_values(word: str, rest: list[str], table: dict[str, Any], choices: tuple[str, ...]) -> str:
    """The words up to the next flag, joined by commas; `--` and a name is always a flag, if only a misspelt one.

    Where a plain word may follow, the values end before the first that is none of `choices`.
    """
    items: list[str] = []
    while rest and not _is_flag(rest[0], table) and not (rest[0].startswith("--") and _split(rest[0])[0]):
        if items and choices and not set(rest[0].split(",")) <= {*choices}:
            break
        items.append(rest.pop(0))
    if not items:
        raise UsageError(f"{word} needs at least one value")
    return ",".join(items)


def _boolean(word: str, given: str | None, forced: str | None) -> str:
    if forced is not None and given is None:
        return forced
    value = _BOOLEANS.get((given or "true").lower())
    if value is None or forced is not None:
        raise UsageError(f"{word} is a switch: give it alone, or with true or false")
    return value


def _unknown(command: str, word: str, known: list[str]) -> str:
    name = word.lstrip("-").split("=")[0].replace("-", "_")
    near = difflib.get_close_matches(name, known, 1, 0.5)
    kind = "unknown flag" if word.startswith("-") else "word that belongs to no flag"
    return f"{kind}: {word!r}" + (f"; did you mean --{near[0]}?" if near else f"; see {command} --help")


def run_command(
    command: str,
    config_class: type[Config],
    action: Any,
    argv: Sequence[str] | None,
    *,
    positional: str = "",
    defaults_of: Callable[[Any], Mapping[str, Any]] | None = None,
    translate: Callable[[Sequence[str]], tuple[list[str], list[str]]] | None = None,
) -> int:
    """Parse, run `action(config) -> exit code`, and turn every user-caused failure into one sentence on stderr.

    `defaults_of(values)` may give other defaults, as a file that an option names holds them: flags given win over those.
    `translate(argv)` may give other words for those of other programs, and notes to print.
    Without `argv` this is the command's own process, and it ends here (see leave).
    """
    make_printing_safe()
    print_log_lines()
    words, notes = list(sys.argv[1:] if argv is None else argv), list[str]()
    if translate is not None:
        words, notes = translate(words)
    try:
        for note in notes:
            print(note)
        code = _guarded(command, config_class, action, words, positional, defaults_of)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"{command}: stopped, since nobody reads its output any more", file=sys.stderr)
        code = 1
    return code if argv is not None else leave(code)


def leave(code: int) -> NoReturn:
    """End this process with `code`, without tearing the interpreter down.

    A thread of Arrow's may still hold a Python object then, and taking the interpreter's lock during its end aborts the
    process: seen as exit code 134 of commands that had done all their work.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _one_line(text: str) -> str:
    """The text with line breaks and other control characters, as names of files may hold, escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _guarded(
    command: str,
    config_class: type[Config],
    action: Any,
    argv: Sequence[str],
    positional: str,
    defaults_of: Callable[[Any], Mapping[str, Any]] | None,
) -> int:
    try:
        defaults: Mapping[str, Any] = {}
        if defaults_of is not None:  # what is given may fit only beside those
            defaults = defaults_of(SimpleNamespace(**parse_values(command, config_class, argv, positional=positional)))
        config = parse(command, config_class, argv, positional=positional, defaults=defaults)
        code: int = action(config)
        return code
    except HelpRequested as text:
        print(text)
        return 0
    except BulkinferError as error:
        print(f"{command}: {_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None:
            raise
        print(f"{command}: {os_error_sentence(error)}", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{command}: out of memory: free some, or raise the limit of this shell (ulimit -v)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr)
        return 130
