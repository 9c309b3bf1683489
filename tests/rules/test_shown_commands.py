"""Every command that a document shows has the options that it is shown with; what a reader types is in blocks that are run."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.run_command import run_command

from tests.pages import DOCUMENTS, TYPED, blocks, command_lines
from tests.rules.source import shown

LANGUAGES = {"sh", "python", "text", "json", "yaml", "indented"}
SHOWN = [
    pytest.param(name, words, id=f"{shown(page)}: {name} {' '.join(words)}"[:120])
    for page in DOCUMENTS
    for block in blocks(page)
    if block.language in ("sh", "indented")
    for name, words in command_lines(block.text)
]


@pytest.mark.parametrize(("name", "words"), SHOWN)
def test_the_real_parser_takes_it(name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself runs, up to where it would begin to work."""
    module = importlib.import_module(f"bulkinfer.commands.{name}")

    def parse_only(command: str, config_class: Any, _: Any, argv: Sequence[str] | None, **given: Any) -> int:
        given.pop("defaults_of", None)  # it reads files, which are not there
        return run_command(command, config_class, lambda config: 0, argv, **given)

    monkeypatch.setattr(module, "run_command", parse_only)
    monkeypatch.chdir(tmp_path)
    for before, word in pairwise(words):
        if before == "--flagfile":
            Path(word).touch()
    assert module.main(words) == 0


@pytest.mark.parametrize("page", TYPED, ids=shown)
def test_every_block_says_what_it_is(page: Path) -> None:
    """`sh` and `python` are run by tests/e2e/test_pages.py, unless a comment above says why not; `text` is output.

    Of indented blocks, only the options of their commands are checked.
    """
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert [block.text for block in blocks(page) if block.language == "text" for _ in command_lines(block.text)] == []
