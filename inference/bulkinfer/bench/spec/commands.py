"""The words of a command: names in braces and variables of the environment replaced, without a shell."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.entry import BUILT_IN, Entry
from bulkinfer.files.user_path import real_path

_BRACES = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_OF_A_SHELL = re.compile(r"[|&;<>]+|\d?>>?&?\d?|&>>?")


def check_commands(entry: Entry, place: Place) -> None:
    """Raises UsageError if a command of the entry cannot be split into words, or holds a name that no variant has."""
    for key, commands in (("cmd", (entry.cmd,)), ("pre_run_commands", entry.before)):
        for command in commands:
            for variant in entry.variants if command else ():
                words_of(command, variant.values, dict.fromkeys(BUILT_IN, "1"), place.below(key))


def words_of(command: str, values: Mapping[str, str], built_in: Mapping[str, str], place: Place) -> list[str]:
    """The words of a command. A value of a parameter may be several words, or none; a folder of ours is always one."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name in BUILT_IN:
            return match[0]
        if name not in values:
            raise place.wrong(f"there is no parameter {name!r}; there are {', '.join((*values, *BUILT_IN))}")
        return values[name]

    try:
        words = shlex.split(_BRACES.sub(value_of, command.replace("\\\n", " ")))
    except ValueError as error:
        raise place.wrong(f"it cannot be split into words ({error})") from None
    if not words:
        raise place.wrong("it is empty")
    if wrong := [word for word in words if _OF_A_SHELL.fullmatch(word)]:
        raise place.wrong(f"it holds {wrong[0]!r}, and no shell runs it: write a script, and name that here")
    if re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        raise place.wrong(f"it begins with {words[0]!r}: write this under env")
    return [_BRACES.sub(lambda match: built_in.get(match[1], match[0]), word) for word in words]


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """The text with the values of $NAME and ${NAME}. All of them must be set, see unset_variables."""
    return _VARIABLE.sub(lambda match: environment[match[1] or match[2]], text)


def unset_variables(entry: Entry) -> list[str]:
    """The variables that the entry names in its commands or values, and that neither it nor the environment sets."""
    outside = [entry.cmd, *entry.before, entry.location, *entry.env.values()]
    outside += [value for variant in entry.variants for value in variant.values.values()]
    named = [found[1] or found[2] for each in outside for found in _VARIABLE.finditer(each)]
    return [name for name in dict.fromkeys(named) if name not in os.environ and name not in entry.env]


def environment_of(entry: Entry) -> dict[str, str]:
    """The environment of the commands: programs of this installation come first. Its variables may use those outside."""
    found = dict(os.environ)
    found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), found.get("PATH", os.defpath)])
    for name, value in entry.env.items():
        found[name] = _VARIABLE.sub(lambda match: found.get(match[1] or match[2], ""), value)
    return found


def folder_of(entry: Entry, spec: Path) -> tuple[Path, str]:
    """The working folder of the commands, and a note if `location` is not there: then it is that of the file."""
    beside = spec.parent
    if not entry.location:
        return beside, ""
    place = beside / expanded(entry.location, environment_of(entry))
    if place.is_dir():
        return real_path(place), ""
    return beside, f"location is left out, since {place} is no folder: commands run in {beside}"
