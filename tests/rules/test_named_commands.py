"""Every command that a text of the package names exists, with its options; what stands in capitals is explained.

tests/e2e/test_advice.py and its neighbours type such commands; this runs over all texts, also those that no test makes come.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from bulkinfer.__main__ import COMMANDS
from bulkinfer.commands.shell_scripts import SCRIPTS
from bulkinfer.train.compat.reference_flags import rows_by_flag
from bulkinfer.train.compat.validation_words import validation_rows
from bulkinfer.types import PLACEHOLDERS

from tests.configs import CONFIGS
from tests.rules.source import PACKAGE, python_files, shown, tree

_ALWAYS = {"help", "version", "flagfile"}
# `bulkinfer` and one of these words is no command but the project, and what it does
PROSE = {"did", "for", "partitions", "process", "reads"}
OTHERS = {  # options of no command -> of what they are
    **dict.fromkeys(("upgrade", "force-reinstall"), "pip"),
    **dict.fromkeys(("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port"), "torchrun"),
    **dict.fromkeys(("nproc_per_node", "no_python"), "torchrun"),
    "head": "ray start",
    "zeros_first": "worker/process.py",
    "no-training": "a spelling of --training False",
    "no_training": "a spelling of --training False",
    "notraining": "a spelling of --training False",
}
AS_THEY_ARE = {  # words in capitals behind a command -> how a reader knows what to type
    "COMMAND": "the list above it has all commands",
    "FIRST": "the words behind it say what it is",
    "SECOND": "the words behind it say what it is",
}

_COMMAND = re.compile(rf"(?<![\w./-])(?:bulkinfer (?P<name>[a-z_]+)|(?P<script>{'|'.join(SCRIPTS)}))(?![\w./])")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z_0-9-]*)(?!\0)(?![\w-])")
_CAPITALS = re.compile(r"(?<![\w$\0-])[A-Z][A-Z_]*(?![\w=-])")
_CLAUSE = re.compile(r"[;:)\n]|, |\. ")


class Text(NamedTuple):
    """A string of the package: where it stands, with \\0 for each value in it, and whether it is given to `explained`."""

    place: str
    text: str
    is_explained: bool


def plain(node: ast.expr, constants: dict[str, str]) -> str | None:
    """The text of a string or f-string, with \\0 for each value but the constants of the module; None: it is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    values = (
        constants.get(ast.unparse(part.value), "\0") if isinstance(part, ast.FormattedValue) else part.value
        for part in node.values
    )
    return "".join(map(str, values))


def documented(module: ast.Module) -> Iterator[ast.AST]:
    """The docstrings."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body and isinstance(node.body[0], ast.Expr):
            yield node.body[0].value


def texts_of(module: ast.Module, place: str) -> list[Text]:
    """All strings of a module but its docstrings and the parts of f-strings."""
    constants = {
        node.targets[0].id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }
    skipped = set(map(id, documented(module)))
    explained = set[int]()
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "explained":
            explained |= {id(inner) for argument in node.args for inner in ast.walk(argument)}
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.expr) and id(node) not in skipped and (text := plain(node, constants)):
            found.append(Text(f"{place}:{node.lineno}", text, id(node) in explained))
    return found


@cache
def texts() -> list[Text]:
    """All texts of the package."""
    return [text for path in python_files(PACKAGE) for text in texts_of(tree(path), shown(path))]


@cache
def options_of(command: str) -> set[str]:
    """The options that a command takes, in all spellings."""
    names = set(_ALWAYS)
    for field in dataclasses.fields(CONFIGS[command]):
        own = {field.name, *field.metadata["aliases"]}
        names |= own | ({f"no{name}" for name in own} if isinstance(field.default, bool) else set())
    return names


def faults_of(text: str) -> Iterator[str]:
    """What is wrong with the commands that a text names."""
    for found in _COMMAND.finditer(text):
        command = found["name"] or found["script"]
        if command not in COMMANDS:
            if command not in {"help", *PROSE}:
                yield f"bulkinfer has no command {command}"
            continue
        clause = _CLAUSE.split(text[found.end() :], maxsplit=1)[0]
        further = _COMMAND.search(clause)
        for option in _OPTION.finditer(clause[: further.start()] if further else clause):
            if option[1] not in options_of(command):
                yield f"{command} has no option {option[0]}"


def test_the_commands_exist_and_have_these_options() -> None:
    assert [(place, fault) for place, text, _ in texts() for fault in faults_of(text)] == []
    named = {found["name"] or found["script"] for _, text, _ in texts() for found in _COMMAND.finditer(text)}
    assert named >= PROSE, "each entry is needed"
    assert {"run", "get_model", "infer_launch", "verify", "retry", "seal", "merge", "show"} <= named


def test_options_that_stand_alone_are_those_of_a_command() -> None:
    known = set[str]().union(*map(options_of, COMMANDS), rows_by_flag(), validation_rows())
    others = [(place, option[1]) for place, text, _ in texts() for option in _OPTION.finditer(text) if option[1] not in known]
    assert [(place, name) for place, name in others if name not in OTHERS] == []
    assert {name for _, name in others} == set(OTHERS), "each entry is needed"


def test_what_a_reader_replaces_in_a_command_is_explained() -> None:
    found = list[tuple[str, str, bool]]()
    for place, text, is_explained in texts():
        for command in _COMMAND.finditer(text):
            clause = _CLAUSE.split(text[command.end() :], maxsplit=1)[0]
            found += [(place, word, is_explained) for word in _CAPITALS.findall(clause)]
    words = {word for _, word, _ in found}
    assert [(place, word) for place, word, is_explained in found if not is_explained and word not in AS_THEY_ARE] == []
    assert words - set(PLACEHOLDERS) == set(AS_THEY_ARE), "each entry is needed"


def test_the_rules_find_what_they_are_for() -> None:
    assert [*faults_of("run: bulkinfer verfy out")] == ["bulkinfer has no command verfy"]
    assert [*faults_of("run get_model --model_nam x --batch_size 6, or leave --qqq out")] == [
        "get_model has no option --model_nam"
    ]
    assert [*faults_of("infer_launch --nosynthetic --data_dir photos --help")] == []
    assert [*faults_of("bulkinfer run photos, then get_model --list")] == []
    (text,) = texts_of(ast.parse('NAME = "a"\nx = f"bulkinfer {NAME} {y} PHOTOS"'), "m.py")[1:]
    assert text == ("m.py:2", "bulkinfer a \0 PHOTOS", False)
