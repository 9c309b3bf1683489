"""Commands of documents: tests/e2e/test_pages.py runs them, or tests/instead.py lists them and their options are right."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.run_command import run_command

from tests.instead import INSTEAD, instead_of, matches
from tests.pages import PAGES, PLACEHOLDERS, block_commands, blocks, is_command, our_commands, span_commands
from tests.rules.source import ROOT, shown
from tools.reference_pages import command as command_called

IN_BLOCKS = [
    (page, command) for page in PAGES for block in blocks(page) if block.language == "sh" for command in block_commands(block)
]
IN_SPANS = [(page, command) for page in PAGES for command in span_commands(page)]
SCRIPTS = [
    pytest.param(script, words, id=f"{shown(page)}: {command}"[:120])
    for page, command in IN_BLOCKS + IN_SPANS
    for script, words in re.findall(r"(?:^python |^\.?/?)(tools/[\w/.]+)((?: |$).*)", command.replace("\\\n", " "))
]


def cases(commands: list[tuple[Path, str]]) -> list[Any]:
    """A test for each command of bulkinfer in shown commands: its name and its words."""
    return [
        pytest.param(name, words, id=f"{shown(page)}: {name} {' '.join(words)}"[:120])
        for page, command in commands
        for name, words in our_commands(command)
    ]


@pytest.mark.parametrize(("name", "words"), cases(IN_BLOCKS))
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


@pytest.mark.parametrize(("name", "words"), cases(IN_SPANS))
def test_the_options_between_backticks_exist(name: str, words: list[str]) -> None:
    fields = dataclasses.fields(command_called(name).config_class)
    known = {"--help", "--version", "--list"} | {
        f"--{name}" for field in fields for name in (field.name, *field.metadata["aliases"])
    }
    assert {word for word in words if word.startswith("--")} - known == set()


class Parsed(BaseException):
    """The words of a script were parsed."""


@pytest.mark.parametrize(("script", "words"), SCRIPTS)
def test_a_script_takes_its_options(script: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / script
    assert path.exists()
    implementation = path if path.suffix else path.with_suffix(".py")
    if not implementation.exists() or "parse_args(" not in implementation.read_text():
        return  # it takes no options of its own

    def parse(parser: argparse.ArgumentParser, *words: Any) -> None:
        real(parser, *words)
        raise Parsed

    real = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr(sys, "argv", [script, *shlex.split(words.replace("NAME", "decode"), comments=True)])
    monkeypatch.setattr(sys, "path", [str(implementation.parent), *sys.path])
    with pytest.raises(Parsed):
        runpy.run_path(str(implementation), run_name="__main__")


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_stand_in_blocks_that_are_run(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {"sh", "python", "text", "json", "yaml", "mermaid"}
    others = [block.text for block in blocks(page) if block.language not in ("sh", "python")]
    assert [line for text in others for line in text.splitlines() if is_command(line) and "[options]" not in line] == []


def test_what_does_not_run_is_shown_and_has_its_reason() -> None:
    python = [(page, block.text) for page in PAGES for block in blocks(page) if block.language == "python"]
    there = [command for _, command in IN_BLOCKS + IN_SPANS + python]
    assert [entry for entry in INSTEAD if not any(matches(entry, command) for command in there)] == []
    named = {path for instead in INSTEAD.values() for path in re.findall(r"\b(?:tests|tools)/[\w./]+\w", instead.why)}
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_what_a_reader_replaces_is_one_of_a_few_words() -> None:
    """docs/reference/commands.md explains them."""
    for page, command in IN_BLOCKS + IN_SPANS:
        words = set(re.findall(r"(?<![\w$-])[A-Z]{1,9}(?![\w=-])", command.partition("  #")[0]))
        assert words <= PLACEHOLDERS, (shown(page), command)
    explained = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert [word for word in PLACEHOLDERS if f"| `{word}` |" not in explained] == []


def test_every_entry_is_found() -> None:
    assert instead_of("infer_launch --data_dir photos --device cuda:1") is not None
    assert instead_of("infer_launch --data_dir photos --device cpu") is None
