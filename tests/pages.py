"""What the documents show: code blocks, and commands in them and between backticks. tests/e2e/test_pages.py runs them.

`INSTEAD` in tests/instead.py lists what does not run as it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from bulkinfer.__main__ import COMMANDS
from bulkinfer.commands.shell_scripts import SCRIPTS

from tests.rules.source import ROOT

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / name / "README.md" for name in ("models", "datasets", "logs")),
]
# What is typed today: decision records and the list of changes tell of earlier commands, docs/errors.md is made of messages
PAGES = [path for path in DOCUMENTS if path.parent.name != "adr" and path.name not in ("CHANGELOG.md", "errors.md")]
# Words in capitals that a reader replaces, as docs/reference/commands.md explains them
PLACEHOLDERS = {"COMMAND", "FILE", "FOLDER", "JOB", "NAME", "N", "PHOTOS", "RUN"}

_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)\n```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n)+")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_OURS = rf"(?:{'|'.join(SCRIPTS)}|(?:python -m )?bulkinfer)"
_OTHERS = r"(?:apt-get|git|mkdocs|pip|py-spy|pytest|python3?|source|srun|\./tools/\w+|tools/\w+|torchrun)"
_COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )?(?:{_OURS}|{_OTHERS})(?= |$)")
_NAME = re.compile(r"(?:bulkinfer )?[\w./]+|python -m bulkinfer")  # of a command or a script, alone


@dataclass(frozen=True)
class Block:
    """A code block of a page; the language of one that is not fenced is `indented`."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order, then its indented ones."""
    text = page.read_text()
    fenced = [Block(found["language"], found["text"]) for found in _FENCED.finditer(text)]
    return fenced + [Block("indented", found[0]) for found in _INDENTED.finditer(_FENCED.sub("", text))]


def block_commands(block: Block) -> list[str]:
    """The commands of a block of sh, each with the lines that belong to it: those behind a backslash or within quotes."""
    found, begun = [], ""
    for line in block.text.splitlines():
        begun = f"{begun}\n{line}" if begun else line
        if not begun.endswith("\\") and begun.count('"') % 2 == 0:
            found.append(begun)
            begun = ""
    assert not begun, f"{begun} has no end"
    return [command for command in found if command.strip() and not command.startswith("#")]


def span_commands(page: Path) -> list[str]:
    """Commands with options or arguments between backticks that no block has, each once, such as `bulkinfer verify JOB`."""
    spans = (found[1].replace("\n", " ") for found in _SPAN.finditer(_FENCED.sub("", page.read_text())))
    commands = (span for span in spans if _COMMAND.match(span))
    in_blocks = {command for block in blocks(page) if block.language == "sh" for command in block_commands(block)}
    return list(dict.fromkeys(span for span in commands if not _NAME.fullmatch(span) and span not in in_blocks))


def is_command(line: str) -> bool:
    """True if the line begins with a program that a reader of the documents types."""
    return _COMMAND.match(line) is not None


def our_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The command of bulkinfer in a shown command: its name in COMMANDS, and its words. torchrun and the like are left out."""
    text = re.sub(r"^[A-Z_]+=\S+ ", "", text.replace("\\\n", " "))
    if re.match("torchrun|py-spy|srun", text) and (found := re.search(rf" ({_OURS} .*)", text)):
        text = found[1]
    if not re.match(rf"{_OURS} ", text):
        return
    words = shlex.split(text.removeprefix("python -m "), comments=True)
    words = list(takewhile(lambda word: word not in (">", ">>", "|", "&&", "||", "&"), words))
    if words[0] == "bulkinfer":
        words = words[1:]
    if words[0] in ("help", "--help", "--version", "COMMAND"):
        return
    words[0] = words[0].replace("-", "_")
    assert words[0] in COMMANDS, f"{text}: there is no such command"
    yield words[0], words[1:]
