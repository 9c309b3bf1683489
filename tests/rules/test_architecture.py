"""docs/architecture.md names files that exist, and draws the rooms of pyproject.toml with imports that exist."""

from __future__ import annotations

import ast
import re
import tomllib

from tests.rules.source import PACKAGE, ROOT, python_files, tree

TEXT = (ROOT / "docs" / "architecture.md").read_text()
PATH = re.compile(r"[\w./-]+(?:\.(?:py|md|toml)|/)")


def drawn_arrows() -> set[tuple[str, str]]:
    """The arrows of the drawing, as (importing room, imported room)."""
    drawing = TEXT.partition("```mermaid\n")[2].partition("```")[0]
    lines = (line.split("-->") for line in drawing.splitlines() if "-->" in line)
    return {(source.strip(), target.strip()) for source, targets in lines for target in targets.split("&")}


def imports_between_rooms() -> set[tuple[str, str]]:
    """The imports between rooms in the source, as (importing room, imported room)."""
    found = set()
    for path in python_files(PACKAGE):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(tree(path)):
            names = [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            names += [f"{name}.{alias.name}" for name in names if name == "bulkinfer" for alias in node.names]
            found |= {(room, name.split(".")[1]) for name in names if name.startswith("bulkinfer.")}
    return found | {("__main__", "commands")}  # by name, in its table


def test_every_path_exists() -> None:
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    named = {span for span in re.findall(r"`([^`\n]+)`", prose) if PATH.fullmatch(span)}
    assert len(named) > 80
    assert {name for name in named if not any((root / name).exists() for root in (ROOT, PACKAGE))} == set()


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 200


def test_the_drawing_shows_the_floors_and_real_imports() -> None:
    (floors,) = [
        contract["layers"]
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if contract["id"] == "floors"
    ]
    arrows = drawn_arrows()
    assert {room for arrow in arrows for room in arrow} == set(floors)
    assert {(source, target) for source, target in arrows if floors.index(source) >= floors.index(target)} == set()
    assert arrows - imports_between_rooms() == set()


def test_it_has_a_paragraph_for_every_room() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {room for room in rooms if f"- **`{room}/`**" not in TEXT} == set()
