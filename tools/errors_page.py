"""Write docs/errors.md from the source: every message with which bulkinfer refuses something, and what to do about it.

    python -m tools.errors_page     # in the checkout

A message says what happened and, mostly, what to do. tools/errors_cures.txt has what to do for those that do not say it.
tests/rules/test_errors_page.py fails when the page is not that of the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "inference" / "bulkinfer"
CURES = ROOT / "tools" / "errors_cures.txt"
PAGE = ROOT / "docs" / "errors.md"
ROOMS = {
    "__main__": "The command line",
    "commands": "Options and words of every command",
    "config": "Options that do not go together",
    "types": "Values of options, from flags and from Python",
    "bench": "bulkinfer bench",
    "datasets": "Labelled data sets, and get_dataset",
    "errors": "Advice that is added to other messages",
    "export": "get_model",
    "files": "Files, locks, downloads and archives",
    "host": "The machine",
    "images": "Pictures: error rows",
    "insight": "What came of a job: score, compare and the like",
    "launch": "infer_launch and retry",
    "model": "Model folders",
    "records": "Pictures and partitions: partition_dataset",
    "results": "Results, and verify",
    "runtime": "Devices and ONNX Runtime",
    "serve": "serve and request",
    "stores": "Buckets and web servers",
    "train": "train and validate",
    "worker": "Workers and predictors",
    "zoo": "Networks by name, and their weights",
}
INTRODUCTION = """# Messages

Every message with which bulkinfer refuses something, by the part that says it. `{names}` stand for values: search the page for
words of the message around them.

The first column says what happened and where, as the command prints it. The second is how the command ends: exit code 2 means
that the command line or what it names is wrong and nothing was started, 1 that the work could not be done or finished; "a row"
is an error row of one picture, which ends nothing; "a reply" is what `bulkinfer serve` answers a request with. The third says
what to do.

Errors of the operating system (a full disk, a missing permission) name the file and end with exit code 1: correct the reason,
and type the same command again. So do limits of memory and threads, which name `ulimit -v` or `ulimit -u`. A signal ends a
command with one sentence and exit code 130 (SIGINT), 143 (SIGTERM) or 129 (SIGHUP). Only in the first hundredths of a second,
while Python itself starts, SIGINT still gives a traceback of Python.

This page is made from the source by `python -m tools.errors_page`."""


ENDINGS = {  # of classes that do not end as those that they inherit from
    "UsageError": "2",
    "RecordError": "a row",
    "StoppedError": "128 + signal",
    "RefusedError": "a reply",
}


@dataclass(frozen=True)
class Message:
    """A message as a template: values are {names}. `error` is the name of its class, `room` the folder of its module."""

    room: str
    error: str
    text: str


@cache
def endings() -> dict[str, str]:
    """How a command ends by each error of bulkinfer, which are BulkinferError and all classes that inherit from it."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    found, names = {"BulkinferError": "1"}, ["BulkinferError"]
    for name in names:
        for one in [one for one, of in bases.items() if name in of]:
            found[one] = ENDINGS.get(one, found[name])
            names.append(one)
    return found


@cache
def messages() -> tuple[Message, ...]:
    """All messages, by room and in the order of the source; a message that occurs twice in a room once."""
    found = dict[Message, None]()
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ast.parse(path.read_text())
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and (error := _error_of(node)) and node.args:
                for text in _texts(node.args[-1], module):
                    found[Message(room, error, text)] = None
    return tuple(found)


def _error_of(call: ast.Call) -> str:
    """The error that a call makes: by its class, or by the place in a file that is wrong; '' if it makes none."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "wrong":  # bench/spec/checked_keys.py
        return "UsageError"
    return ast.unparse(call.func) if ast.unparse(call.func) in endings() else ""


def _texts(value: ast.expr, module: ast.Module) -> Iterator[str]:
    """The templates that an expression may give: its own, of a function or constant of the module, of both ways of an if."""
    if isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        yield template(value)
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body, module)
        yield from _texts(value.orelse, module)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        yield from _texts(value.left, module)
    elif isinstance(value, ast.Name):
        for node in module.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.id:
                yield from _texts(node.value, module)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name == value.func.id:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        yield from _texts(inner.value, module)


def template(value: ast.expr) -> str:
    """An f-string or constant with each value as {name}."""
    if isinstance(value, ast.Constant):
        return str(value.value)
    assert isinstance(value, ast.JoinedStr)
    parts = [
        part.value if isinstance(part, ast.Constant) else f"{{{label(part.value)}}}"
        for part in value.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    ]
    return "".join(map(str, parts))


def label(value: ast.expr) -> str:
    """A name for a value in a template, such as `path` for printable(path), or ... if none says what it is."""
    if isinstance(value, ast.Name):
        return value.id.strip("_").lower()
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.Subscript):
        return label(value.value)
    if isinstance(value, ast.GeneratorExp | ast.ListComp):
        return label(value.generators[0].iter)
    if isinstance(value, ast.Call):
        if value.args and not (isinstance(value.func, ast.Attribute) and value.func.attr not in ("join",)):
            return label(value.args[0])
        return label(value.func.value) if isinstance(value.func, ast.Attribute) else label(value.func)
    if isinstance(value, ast.BoolOp):
        return label(value.values[0])
    return "..."


# How advice begins, behind a colon, a semicolon or a comma
VERBS = (
    "give|use|run|leave|put|remove|choose|name|install|pip|make|move|fetch|export|keep|repair|lower|start|continue|convert|store|"
    "save|free|raise|open|set|wait|call|correct|restore|copy|take|replace|bring|place|adopt|bulkinfer|get_model|add|try|"
    "unpack|send|ask for|write one|"
    "legal are|infer_launch|partition_dataset|nearest|did you mean|the choices are|it must|must|known|so |it can only"
)
_PROGRAMS = ("bulkinfer", "get_model", "infer_launch", "partition_dataset", "pip")
ADVICE = re.compile(rf"(?:: |; |, (?!known|must|so |nearest))(?=(?:{VERBS})\b(?! gives| did))")


def advice(text: str) -> str:
    """What to do: what the message itself says behind its first colon or semicolon with a verb, else what errors_cures has."""
    found = ADVICE.search(text)
    return "" if found is None else text[found.end() :]


@cache
def _cures() -> tuple[tuple[str, str], ...]:
    lines = [line for line in CURES.read_text().splitlines() if line and not line.startswith("#")]
    return tuple((pattern, advice) for pattern, _, advice in (line.partition(" => ") for line in lines))


def cure(text: str) -> str:
    """What to do about a message that does not say it; '' if no pattern fits."""
    return next((advice for pattern, advice in _cures() if re.search(pattern, text)), "")


def page() -> str:
    """The text of docs/errors.md."""
    lines = [INTRODUCTION]
    for room in sorted({message.room for message in messages()}):
        lines += [f"\n## {ROOMS[room]}\n", "| message: the cause, and where | ends with | cure: what to do |", "|---|---|---|"]
        for message in messages():
            if message.room == room:
                how = advice(message.text) or cure(message.text)
                assert how, f"neither the message nor tools/errors_cures.txt says what to do: {message.text}"
                lines.append(f"| {_cell(message.text)} | {endings()[message.error]} | {_sentence(how)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def _sentence(text: str) -> str:
    text = text.rstrip(".").replace("|", "\\|")
    first = text.partition(" ")[0]
    if first in _PROGRAMS:
        return f"Type: {text}"
    return f"{text[0].upper()}{text[1:]}." if first.isalpha() else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page())
