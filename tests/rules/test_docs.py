"""The documents say what the code does: option tables, file tree, commands, version, links."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from bulkinfer import __version__
from bulkinfer.__main__ import COMMANDS
from bulkinfer.bench.options import BenchConfig
from bulkinfer.commands.flags import default_text
from bulkinfer.config import (
    CompletionConfig,
    GetModelConfig,
    LaunchConfig,
    PartitionConfig,
    RetryConfig,
    RunConfig,
    SealConfig,
    VerifyConfig,
)
from bulkinfer.insight.options import DoctorConfig
from bulkinfer.train.options import GetDatasetConfig, TrainConfig
from bulkinfer.train.validation.options import ValidateConfig

from tests.rules.source import PACKAGE, ROOT

CONFIGS = {
    "run": RunConfig,
    "get_model": GetModelConfig,
    "partition_dataset": PartitionConfig,
    "infer_launch": LaunchConfig,
    "train": TrainConfig,
    "validate": ValidateConfig,
    "verify": VerifyConfig,
    "seal": SealConfig,
    "retry": RetryConfig,
    "bench": BenchConfig,
    "get_dataset": GetDatasetConfig,
    "doctor": DoctorConfig,
    "completion": CompletionConfig,
}
README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *(ROOT / name / "README.md" for name in ("models", "datasets", "logs")),
]


def option_table(config_class: type[Any]) -> list[str]:
    """The rows of a command's option table, from the fields of its config."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(config_class):
        names = [f"--{'[no]' if isinstance(field.default, bool) else ''}{field.name}"]
        names += [f"--{alias}" for alias in field.metadata["aliases"]]
        kind = "any of" if isinstance(field.default, tuple) else "one of"
        legal = f" ({kind} {', '.join(field.metadata['choices'])})" if field.metadata["choices"] else ""
        default = f"`{default_text(field)}`" if default_text(field) else ""
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {default} | {field.metadata['doc']}{legal} |")
    return rows


def table_under(heading: str) -> list[str]:
    """The rows of the first table below a heading of the README."""
    lines = README.partition(f"\n{heading}\n")[2].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next((i for i, line in enumerate(lines) if i > start and not line.startswith("|")), len(lines))
    return lines[start:end]


def test_every_command_has_a_config_here() -> None:
    assert list(CONFIGS) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_option_tables_equal_the_flags(name: str) -> None:
    title = name if name in ("get_model", "partition_dataset", "infer_launch") else f"bulkinfer {name}"
    expected = option_table(CONFIGS[name])
    assert table_under(f"### Options of {title}") == expected, "README.md should have:\n" + "\n".join(expected)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_the_table_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"bulkinfer.commands.{name}").main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # it is wrapped
    for field in dataclasses.fields(CONFIGS[name]):
        for spelling in (field.name, *field.metadata["aliases"]):
            assert re.search(rf"--(\[no\])?{spelling}\b", shown)
        assert " ".join(field.metadata["doc"].split()) in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_whole(name: str) -> None:
    module = importlib.import_module(f"bulkinfer.commands.{name}")
    assert module.__doc__
    assert name in str(module.__doc__)
    assert COMMANDS[name][0].islower()
    assert not COMMANDS[name].endswith(".")


def tree_of_readme() -> dict[str, str]:
    """The file tree of the README: path -> its line of explanation. Folders end with a slash and are indented by two."""
    block = README.partition("\n## Files\n")[2].split("```")[1].splitlines()[1:]
    folders: list[str] = []
    found = {}
    for line in filter(str.strip, block):
        name, _, meaning = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        folders = folders[:depth]
        found["".join(folders) + name] = meaning.strip()
        if name.endswith("/"):
            folders.append(name)
    return found


def test_file_tree_names_every_room() -> None:
    rooms = {f"{path.parent.relative_to(ROOT)}/" for path in PACKAGE.rglob("__init__.py")}
    assert {path for path in tree_of_readme() if path.startswith("inference/")} == rooms


def test_file_tree_names_every_tool() -> None:
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tools").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert {path for path in tree_of_readme() if path.startswith("tools/") and not path.endswith("/")} == files


def test_file_tree_explains_every_line() -> None:
    for path, meaning in tree_of_readme().items():
        assert meaning, path
        assert (ROOT / path).exists(), path


def test_changelog_knows_the_version() -> None:
    assert re.search(rf"^## \[?{re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def dead_links(path: Path) -> list[str]:
    """Links of a document that lead nowhere: to no file, or to no heading of its own."""
    text = path.read_text()
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if not re.match(r"[a-z]+:", target)]
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-") for line in text.splitlines() if line[:1] == "#"
    }
    anchors = re.findall(r"\]\(#([^)]+)\)", text)
    return [target for target in targets if not (path.parent / target).exists()] + [
        f"#{a}" for a in anchors if a not in headings
    ]


def test_links_lead_somewhere() -> None:
    assert {str(path.relative_to(ROOT)): dead for path in DOCUMENTS if (dead := dead_links(path))} == {}


def test_decision_records_have_one_shape() -> None:
    for path in sorted((ROOT / "docs" / "adr").glob("*.md")):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
        lines = path.read_text().splitlines()
        assert lines[0].startswith(f"# {int(path.name[:4])}. "), path.name
        assert {"## Decision", "## Why", "## Consequences"} <= set(lines), path.name
