"""The documents say what the code does: pages of options, file tree, commands, version, links."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from bulkinfer import __version__
from bulkinfer.__main__ import COMMANDS
from bulkinfer.host.number_text import size_text
from bulkinfer.zoo import NETWORKS

from tests.pages import DOCUMENTS, PAGES
from tests.rules.source import PACKAGE, ROOT, shown
from tools.reference_pages import FOLDER, command, pages

README_LINES = 200


def test_pages_of_options_are_those_of_the_source() -> None:
    made = (FOLDER / "commands.md", FOLDER / "other-trainers.md", *FOLDER.glob("options-*.md"))
    there = {path.name: path.read_text() for path in made}
    assert there == pages(), "an option has changed: run python -m tools.reference_pages"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_the_table_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"bulkinfer.commands.{name}").main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # it is wrapped
    for field in dataclasses.fields(command(name).config_class):
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


def listed_files() -> dict[str, str]:
    """The file tree of docs/reference/tree.md: path -> its line of explanation. Folders end with a slash, indented by two."""
    block = (ROOT / "docs" / "reference" / "tree.md").read_text().split("```")[1].splitlines()[1:]
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
    assert {path for path in listed_files() if path.startswith("inference/")} == rooms


def test_file_tree_names_every_tool() -> None:
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tools").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert {path for path in listed_files() if path.startswith("tools/") and not path.endswith("/")} == files


def test_file_tree_explains_every_line() -> None:
    for path, meaning in listed_files().items():
        assert meaning, path
        assert (ROOT / path).exists(), path


def test_the_table_of_networks_has_all_of_them() -> None:
    """With the number of parameters, the input and the size that get_model --list prints."""
    text = (ROOT / "docs" / "zoo.md").read_text()
    rows = re.findall(r"^\| (\w+) \| [\d.]+ \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(NETWORKS)
    for name, spec in NETWORKS.items():
        size = f"{spec.recipe.width} | {spec.num_parameters / 1e6:.1f} M | {size_text(spec.size_bytes)}"
        assert re.search(rf"^\| {name} \|.* \| {re.escape(size)} \|", (ROOT / "docs" / "zoo.md").read_text(), re.MULTILINE), (
            name
        )


def test_changelog_knows_the_version() -> None:
    assert re.search(rf"^## \[?{re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def headings(text: str) -> set[str]:
    """The anchors of a document: its headings, outside of code blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.lstrip("# ") for line in prose.splitlines() if re.match("#+ ", line)]
    return {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in lines}


def dead_links(path: Path) -> list[str]:
    """Links of a document that lead nowhere: to no file, or to no heading."""
    dead = []
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)\s]+))?\)", path.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        there = path.parent / target if target else path
        if not there.exists() or (anchor and anchor not in headings(there.read_text())):
            dead.append(f"{target}#{anchor}")
    return dead


def test_links_lead_somewhere() -> None:
    assert {shown(path): dead for path in DOCUMENTS if (dead := dead_links(path))} == {}


def absent_tests(path: Path) -> list[str]:
    """The tests that a page names, such as `test_train.py::test_plan` with or without folders, and that are not there."""
    absent = []
    for file, name in re.findall(r"((?:\w+/)*test_\w+\.py)(?:::(\w+))?", path.read_text()):
        there = [each for each in (ROOT / "tests").rglob(Path(file).name) if each.as_posix().endswith(f"/{file}")]
        if not any(f"def {name}" in each.read_text() for each in there):
            absent.append(f"{file}::{name}")
    return absent


def test_tests_are_where_the_pages_say() -> None:
    assert {shown(path): absent for path in PAGES if (absent := absent_tests(path))} == {}


def test_pages_begin_with_what_they_are_for() -> None:
    """A title and a paragraph: what the list of pages in llms.txt shows."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "adr"]
    beginnings = {shown(path): path.read_text().split("\n\n")[:2] for path in pages}
    assert len(beginnings) > 30
    assert {
        name for name, parts in beginnings.items() if not parts[0].startswith("# ") or not re.match(r"[\w`]", parts[1])
    } == set()


def test_decision_records_have_one_shape() -> None:
    for path in sorted((ROOT / "docs" / "adr").glob("*.md")):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
        lines = path.read_text().splitlines()
        assert lines[0].startswith(f"# {int(path.name[:4])}. "), path.name
        assert {"## Decision", "## Why", "## Consequences"} <= set(lines), path.name
