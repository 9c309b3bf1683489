"""Code blocks of the documents: which there are, and which of them a reader types."""

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

# Pages of which a reader types every command, from the first to the last
TYPED = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / name / "README.md" for name in ("models", "datasets", "logs")),
]
_FENCED = re.compile(r"(?:<!-- not run: (?P<reason>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)\n```", re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n)+")


@dataclass(frozen=True)
class Block:
    """A code block of a page. `reason` says why it is not run, and is empty for one that is."""

    language: str
    text: str
    reason: str = ""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order, then its indented ones, whose language is `indented`."""
    text = page.read_text()
    fenced = [Block(found["language"], found["text"], found["reason"] or "") for found in _FENCED.finditer(text)]
    rest = _FENCED.sub("", text)
    return fenced + [Block("indented", re.sub("^ {4}", "", found[0], flags=re.MULTILINE)) for found in _INDENTED.finditer(rest)]


def command_lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of bulkinfer in a block: each one's name in COMMANDS, and its words."""
    for line in text.replace("\\\n", " ").splitlines():
        if not re.match(r"(?:\$ )?(?:python -m )?(?:get_model|partition_dataset|infer_launch|bulkinfer)\b", line):
            continue
        words = shlex.split(line.removeprefix("$ ").removeprefix("python -m "), comments=True)
        words = list(takewhile(lambda word: word not in (">", ">>", "|", "&&", "||", "&"), words))
        if words[0] in SCRIPTS:
            yield words[0], words[1:]
        elif len(words) > 1 and words[1].replace("-", "_") in COMMANDS:
            yield words[1].replace("-", "_"), words[2:]
        elif words != ["bulkinfer"] and words[1:2] not in (["help"], ["--help"], ["--version"]):
            raise AssertionError(f"{line}: there is no such command")
