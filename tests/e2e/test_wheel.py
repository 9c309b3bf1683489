"""The wheel: its files lie below bulkinfer/ only, so that no other distribution overwrites them, and all of them are there."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import bulkinfer
import pytest

from tests.forms import long
from tests.rules.source import PACKAGE, ROOT

pytestmark = long
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "inference")


@pytest.fixture
def wheel(tmp_path: Path) -> zipfile.ZipFile:
    """Built without network from a copy of the sources."""
    for name in SOURCES:
        if (ROOT / name).is_dir():  # other processes write and rename files in __pycache__
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    words = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-w", "made", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "made").iterdir()
    return zipfile.ZipFile(path)


def test_what_it_installs(wheel: zipfile.ZipFile) -> None:
    about = f"bulkinfer-{bulkinfer.__version__}.dist-info"
    recorded = {row[0] for row in csv.reader(io.TextIOWrapper(wheel.open(f"{about}/RECORD")))}
    assert recorded == set(wheel.namelist())
    assert {name.partition("/")[0] for name in recorded} == {"bulkinfer", about}
    kinds = (".py", ".yml", ".typed", ".html", ".css", ".js")
    sources = {str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*") if path.suffix in kinds}
    assert {name for name in recorded if name.startswith("bulkinfer/")} == sources
    scripts = wheel.read(f"{about}/entry_points.txt").decode().splitlines()
    assert [line.partition(" = ")[0] for line in scripts if " = " in line] == [
        "bulkinfer", "get_model", "infer_launch", "partition_dataset"
    ]  # fmt: skip
