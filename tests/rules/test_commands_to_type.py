"""Commands that messages tell the user to type: what is put into them is quoted for the shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bulkinfer.__main__ import COMMANDS

from tests.rules.source import PACKAGE, python_files, shown, tree

# A command with options or operands, or options to use, up to the punctuation that ends it. \0 is a value.
_PROGRAM = rf"(?<!another )\b(?:get_model|infer_launch|partition_dataset|bulkinfer (?:{'|'.join(COMMANDS)}))|\0COMMAND\0"
COMMAND = re.compile(rf"(?:(?:{_PROGRAM})(?: [^\s:;,)(]+)+|\buse(?: --\w+ [^\s:;,)(]+)+)")
QUOTES = ("shell_word", "shlex.quote", "shlex.join", "install_command")

CHOICES = {"other", "name", "AUTO", "EXACT", "folder.name", "exact.name"}  # precisions and providers


def template(text: ast.JoinedStr) -> tuple[str, list[ast.expr]]:
    """An f-string with each value replaced by \\0 number \\0, or by its name if that is COMMAND; and the values."""
    parts, values = list[str](), list[ast.expr]()
    for part in text.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            name = ast.unparse(part.value)
            parts.append(f"\0{name if name == 'COMMAND' else len(values)}\0")
            values.append(part.value)
    return "".join(parts), values


def unquoted(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and source of each value that a command of a message holds without quotes."""
    for node in ast.walk(module):
        if not isinstance(node, ast.JoinedStr):
            continue
        text, values = template(node)
        for command in COMMAND.finditer(text):
            for number in re.findall(r"\0(\d+)\0", command[0]):
                value = values[int(number)]
                if not (isinstance(value, ast.Call) and ast.unparse(value.func) in (*QUOTES, "len")):
                    yield node.lineno, ast.unparse(value)


def offenders(path: Path) -> list[str]:
    """The unquoted values of a file, but for those that can only be words of a choice."""
    return [f"{shown(path)}:{line}: {value}" for line, value in unquoted(tree(path)) if value not in CHOICES]


def test_c50_values_in_commands_are_quoted() -> None:
    assert not [found for path in python_files(PACKAGE) for found in offenders(path)]


def test_c50_the_rule_finds_what_it_is_for() -> None:
    source = """
f"{path} is gone: run get_model --model_name {name} --batch_size {shell_word(size)}"
f"no rows: bulkinfer verify {shell_word(output)}: {reason}"
f"{COMMAND} --resume {folder} goes on"
"""
    assert [value for _, value in unquoted(ast.parse(source))] == ["name", "folder"]
