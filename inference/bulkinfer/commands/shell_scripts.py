"""Completion scripts for bash, zsh and fish, from the options of all commands."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import shlex
from collections.abc import Callable
from typing import Any

from bulkinfer import commands
from bulkinfer.commands.help import value_name
from bulkinfer.train.network.network_names import TRAINABLE
from bulkinfer.zoo import NETWORKS

SCRIPTS = ("get_model", "partition_dataset", "infer_launch")  # commands that are installed under their own names as well
_ALWAYS = ("--help", "--version", "--flagfile")
_NETWORK = "NETWORK"  # what an option takes that names a network


@dataclasses.dataclass(frozen=True, slots=True)
class _Option:
    """A spelling of an option, what it takes (FOLDER, FILE, another name, or '' for a switch), its choices, its description.

    For _NETWORK the choices are the networks of the zoo; the folders in models/ come to them.
    """

    flag: str
    takes: str
    choices: tuple[str, ...]
    doc: str


def script(shell: str) -> str:
    """The script for `shell`, a name in options.SHELLS."""
    makers: dict[str, Callable[[dict[str, list[_Option]]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return makers[shell]({command: _options(config_class(command)) for command in command_names()})


def command_names() -> list[str]:
    """The commands, sorted: the modules beside this one that have a function `main`."""
    names = (module.name for module in pkgutil.iter_modules(commands.__path__))
    return sorted(name for name in names if hasattr(importlib.import_module(f"bulkinfer.commands.{name}"), "main"))


def config_class(command: str) -> type[Any]:
    """The config class of a command: the one that its module imports at the top."""
    module = importlib.import_module(f"bulkinfer.commands.{command}")
    found = [
        value
        for name, value in vars(module).items()
        if name.endswith("Config") and isinstance(value, type) and dataclasses.is_dataclass(value)
    ]
    assert len(found) == 1, f"{module.__name__} imports {found}: import other config classes where they are used"
    return found[0]


def _job_commands() -> list[str]:
    """The commands whose plain words name jobs."""
    return [
        name for name in command_names() if {"job", "jobs"} & {field.name for field in dataclasses.fields(config_class(name))}
    ]


def _options(config: type[Any]) -> list[_Option]:
    """Every spelling that --help shows, sorted; of a switch also the one that turns it off."""
    found = []
    for field in dataclasses.fields(config):
        takes, choices, facts = value_name(field), field.metadata["choices"], field.metadata
        if field.name == "model_name":
            takes, choices = _NETWORK, tuple(sorted(NETWORKS))
        elif field.name == "model":  # of train and validate
            choices = tuple(sorted(TRAINABLE))
        for name in (field.name, *facts["aliases"]):
            found.append(_Option(f"--{name}", takes, choices, facts["doc"]))
            if not takes:
                found.append(_Option(f"--no{name}", "", (), facts["doc"]))
    return sorted(found, key=lambda option: option.flag)


def _cases(options: dict[str, list[_Option]], accept: Callable[[_Option], bool]) -> str:
    """The pattern of a `case "$command $before"` for all options that `accept` accepts; empty if there is none."""
    return "|".join(f'"{command} {option.flag}"' for command, known in options.items() for option in known if accept(option))


def _value_cases(options: dict[str, list[_Option]], words: str, models: str, folders: str, files: str) -> list[str]:
    """The branches of a `case "$command $before"` that complete the value of an option; `models` lists models/."""
    lines = []
    for kind in sorted({(option.choices, option.takes) for known in options.values() for option in known if option.choices}):
        pattern = _cases(options, lambda option, kind=kind: (option.choices, option.takes) == kind)  # type: ignore[misc]
        listed = " ".join([*kind[0], *([models] if kind[1] == _NETWORK else [])])
        lines.append(f"    {pattern}) {words.format(listed)}; return;;")
    lines.append(f"    {_cases(options, lambda option: option.takes in ('FOLDER', 'RUN', 'PATH'))}) {folders}; return;;")
    return [*lines, f"    *' --flagfile'|{_cases(options, lambda option: option.takes == 'FILE')}) {files}; return;;"]


def _flags(known: list[_Option]) -> str:
    return " ".join([*(option.flag for option in known), *_ALWAYS])


def _bash(options: dict[str, list[_Option]]) -> str:
    words = 'COMPREPLY=($(compgen -W "{}" -- "$current"))'
    paths = 'compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen {} -- "$current")'
    lines = [
        "# Completion of bulkinfer for bash: source this file, as in ~/.bashrc",
        '_bulkinfer_folders() { local each; for each in "$1"/*/; do [[ -d $each ]] && basename "$each"; done; }',
        "_bulkinfer() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[0]##*/}"',
        "  COMPREPLY=()",
        "  if [[ $command == bulkinfer ]]; then",
        f"    if [[ $COMP_CWORD -eq 1 || $before == help ]]; then {words.format(' '.join([*options, 'help']))}; return; fi",
        '    command="${COMP_WORDS[1]//-/_}"',
        "  fi",
        '  case "$command $before" in',
        *_value_cases(options, words, "$(_bulkinfer_folders models)", paths.format("-d"), paths.format("-f")),
        "  esac",
        f"  if [[ $current != -* && ' {' '.join(_job_commands())} ' == *\" $command \"* ]]; then",
        "    compopt -o filenames 2>/dev/null",
        '    mapfile -t COMPREPLY < <(compgen -f -- "$current"; compgen -W "$(_bulkinfer_folders logs)" -- "$current"); return',
        "  fi",
        f"  if [[ $current != -* ]]; then {paths.format('-f')}; return; fi",
        "  case $command in",
        *(f"    {command}) {words.format(_flags(known))};;" for command, known in options.items()),
        "  esac",
        "}",
        f"complete -F _bulkinfer bulkinfer {' '.join(SCRIPTS)}",
    ]
    return "\n".join(lines)


def _zsh(options: dict[str, list[_Option]]) -> str:
    lines = [
        f"#compdef bulkinfer {' '.join(SCRIPTS)}",
        "# Completion of bulkinfer for zsh: source this file after compinit, or put it into a folder of $fpath as _bulkinfer",
        "_bulkinfer() {",
        "  local command=${words[1]:t} before=${words[CURRENT-1]}",
        "  if [[ $command == bulkinfer ]]; then",
        f"    if (( CURRENT == 2 )) || [[ $before == help ]]; then compadd -- {' '.join([*options, 'help'])}; return; fi",
        "    command=${words[2]//-/_}",
        "  fi",
        '  case "$command $before" in',
        *_value_cases(options, "compadd -- {}", "models/*(N/:t)", "_files -/", "_files"),
        "  esac",
        f"  if [[ $PREFIX != -* && ' {' '.join(_job_commands())} ' == *\" $command \"* ]]; then compadd -- logs/*(N/:t); fi",
        "  if [[ $PREFIX != -* ]]; then _files; return; fi",
        "  case $command in",
        *(f"    {command}) compadd -- {_flags(known)};;" for command, known in options.items()),
        "  esac",
        "}",
        # at the first Tab zsh runs a file of $fpath as the body of _bulkinfer; the first line has made it known
        "if [[ $funcstack[1] == _bulkinfer ]]; then",
        '  _bulkinfer "$@"',
        "else",
        f"  compdef _bulkinfer bulkinfer {' '.join(SCRIPTS)}",
        "fi",
    ]
    return "\n".join(lines)


_FISH_FOLDERS = "(for each in {}/*/; basename $each; end)"


def _fish(options: dict[str, list[_Option]]) -> str:
    lines = ["# Completion of bulkinfer for fish: save this file as ~/.config/fish/completions/bulkinfer.fish"]
    for command, known in options.items():
        doc = " ".join(str(config_class(command).__doc__).split())
        lines.append(f"complete -c bulkinfer -n __fish_use_subcommand -f -a {command} -d {shlex.quote(doc)}")
        places = [f"-c bulkinfer -n '__fish_seen_subcommand_from {command}'"]
        places += [f"-c {command}"] if command in SCRIPTS else []
        for place in places:
            if command in _job_commands():
                lines.append(f"complete {place} -a {shlex.quote(_FISH_FOLDERS.format('logs'))}")
            lines += [f"complete {place} -l {option.flag[2:]} {_fish_value(option)}" for option in known]
    return "\n".join(lines)


def _fish_value(option: _Option) -> str:
    doc = f"-d {shlex.quote(option.doc)}"
    if option.choices:
        models = [_FISH_FOLDERS.format("models")] if option.takes == _NETWORK else []
        return f"-x -a {shlex.quote(' '.join([*option.choices, *models]))} {doc}"
    if option.takes in ("FOLDER", "RUN", "PATH"):
        return f"-x -a '(__fish_complete_directories)' {doc}"
    return f"{'-r' if option.takes else ''} {doc}".strip()
