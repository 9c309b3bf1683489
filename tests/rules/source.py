"""The source of the project, for tests that read it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "inference" / "bulkinfer"


def python_files(folder: Path) -> list[Path]:
    """All Python files under `folder`, sorted."""
    return sorted(folder.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


def module_name(path: Path) -> str:
    """inference/bulkinfer/zoo/cadene.py -> zoo.cadene; an __init__.py has its package's name, the top one `__init__`."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def shown(path: Path) -> str:
    """A path as people write it here."""
    return str(path.relative_to(ROOT))
