"""A file of benchmarks: YAML in our form, or in that of the benchmark runner of examples-utils, which is the same but for keys.

Entries stand at the top of the file or under `benchmarks`. What ends with `_options` is no entry: others refer to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bulkinfer.bench.spec.checked_keys import Place, command, dictionary, known_keys, number, text, texts, whole
from bulkinfer.bench.spec.commands import check_commands
from bulkinfer.bench.spec.entry import Entry, Needs, Variant
from bulkinfer.bench.spec.metrics import metrics_of
from bulkinfer.bench.spec.variants import checked, variants_of
from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import safe_name
from bulkinfer.files.guarded import TEXT_BYTES, read_text
from bulkinfer.files.user_path import real_path
from bulkinfer.types import printable_path

_OURS = {
    *("description", "cmd", "parameters", "variants", "constants", "quick", "rounds", "ratios", "data", "derived", "output"),
    *("env", "timeout", "location", "pre_run_commands", "needs", "required_environment_variables", "table"),
}
_LEFT_OUT = {  # of the reference -> what a user does in its place
    "requirements_file": "install these packages beforehand",
    "requirements_path": "install these packages beforehand",
    "allow_wandb": "words with --wandb in cmd are given to the command as they stand",
    "profile": "profile the command by its own options",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEEDS = {"packages", "programs", "devices", "processor", "files", "environment", "other", "cores", "memory_gib"}
_ROUNDS_OF_PAIRS = 5


@dataclass(frozen=True)
class Spec:
    """A file of benchmarks: its absolute path, and its entries in order."""

    path: Path
    entries: tuple[Entry, ...]


def read_spec(given: str, *, is_quick: bool) -> Spec:
    """Read and check a file of benchmarks. Raises UsageError with one sentence about the first fault in it."""
    from bulkinfer.train.compat.plain_yaml import parsed_once

    path, place = Path(given), Place(printable_path(given))
    try:
        content = parsed_once(read_text(path, TEXT_BYTES, error=UsageError))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"--spec {printable_path(path)} does not exist: give a file of benchmarks") from None
    except UnicodeDecodeError:
        raise place.wrong("it is not UTF-8 text") from None
    except ValueError as error:
        raise place.wrong(f"it is not YAML that can be used: {error}") from None
    except UsageError as error:
        raise UsageError(f"--spec: {error}: give a file of benchmarks") from None
    top = dictionary(content, place)
    if "benchmarks" in top and "cmd" not in dictionary(top["benchmarks"], place.below("benchmarks")):
        known_keys({name: 0 for name in top if not name.endswith("_options")}, {"benchmarks"}, place)
        top = top["benchmarks"]
    names = [name for name in top if not name.endswith("_options")]
    if not names:
        raise place.wrong("it holds no entry: a name with a cmd below it")
    return Spec(real_path(path), tuple(_entry(name, top[name], place.below(name), is_quick=is_quick) for name in names))


def _entry(name: str, value: Any, place: Place, *, is_quick: bool) -> Entry:
    if not re.match(r"[A-Za-z0-9]", name) or safe_name(name) != name or len(name) > 200:
        raise place.wrong("this is no name of an entry: use letters, digits, and . _ -")
    keys = known_keys(value, _OURS | _LEFT_OUT.keys() | {"notebook"}, place)
    if keys.get("notebook") is None and keys.get("cmd") in (None, ""):
        raise place.wrong("it has no cmd: give the command that is measured")
    ratios = keys.get("ratios")
    default_rounds = _ROUNDS_OF_PAIRS if ratios else 1
    rounds = whole(keys.get("rounds", default_rounds), place.below("rounds"), least=1)
    env = dictionary(keys.get("env"), place.below("env"))
    for variable in env:
        if not _VARIABLE.fullmatch(variable):
            raise place.below("env").wrong(f"{variable!r} is no name of a variable: use letters, digits and _")
    variants = _variants(name, keys, place, is_quick=is_quick)
    entry = Entry(
        name,
        command("" if keys.get("cmd") is None else keys["cmd"], place.below("cmd")),
        variants,
        metrics_of(keys, place),
        text(keys.get("description") or "", place.below("description")).strip(),
        text(keys.get("table", ""), place.below("table")),
        {variable: text(each, place.below("env").below(variable)) for variable, each in env.items()},
        texts(keys.get("pre_run_commands"), place.below("pre_run_commands"), kind=command),
        text(keys.get("location") or "", place.below("location")),
        number(keys.get("timeout") or 0, place.below("timeout")),
        1 if is_quick else rounds,
        _ratios(ratios, variants, place.below("ratios")),
        _needs(keys, place),
        tuple(f"{key} is left out: {what}" for key, what in _LEFT_OUT.items() if key in keys),
    )
    check_commands(entry, place)
    return entry


def _variants(name: str, keys: dict[str, Any], place: Place, *, is_quick: bool) -> tuple[Variant, ...]:
    """The variants; with --quick they have the values under `quick`."""
    found = variants_of(name, keys, _values(keys, "constants", place), place)
    quick = _values(keys, "quick", place)
    if unknown := [each for each in quick if each not in found[0].values]:
        names = ", ".join(found[0].values) or "none"
        raise place.below("quick").wrong(f"{unknown[0]!r} is no constant or parameter; there are {names}")
    return tuple(replace(variant, values={**variant.values, **quick}) for variant in found) if is_quick else found


def _values(keys: dict[str, Any], key: str, place: Place) -> dict[str, str]:
    """The values under a key, by the name that stands in braces for each."""
    at = place.below(key)
    return {checked(name, at): text(value, at.below(name)) for name, value in dictionary(keys.get(key), at).items()}


def _ratios(given: Any, variants: tuple[Variant, ...], place: Place) -> tuple[tuple[str, str], ...]:
    """Pairs of variants: the figures of the first one are divided by those of the second one."""
    names, found = [variant.name for variant in variants], []
    if given is not None and not isinstance(given, list):
        raise place.wrong("give a list of pairs: [variant, variant]")
    for index, pair in enumerate(given or ()):
        words = texts(pair, place.below(index))
        if len(words) != 2 or words[0] == words[1]:
            raise place.below(index).wrong("give a pair of two variants: [variant, variant]")
        if unknown := [word for word in words if word not in names]:
            raise place.below(index).wrong(f"there is no variant {unknown[0]!r}; there are {', '.join(names)}")
        found.append((words[0], words[1]))
    return tuple(found)


def _needs(keys: dict[str, Any], place: Place) -> Needs:
    at = place.below("needs")
    given = {**known_keys(keys.get("needs"), _NEEDS, at)}
    found: dict[str, Any] = {name: whole(given.pop(name), at.below(name)) for name in ("cores", "memory_gib") if name in given}
    found |= {name: texts(value, at.below(name)) for name, value in given.items()}
    required = texts(keys.get("required_environment_variables"), place.below("required_environment_variables"))
    found["environment"] = (*found.get("environment", ()), *required)
    if keys.get("notebook") is not None:
        found["other"] = (*found.get("other", ()), "a program that runs notebooks, which bulkinfer bench does not")
    return Needs(**found)
