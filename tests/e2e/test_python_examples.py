"""The Python in docs/how-to/python.md runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pictures
from tests.forms import long
from tests.launches import LABELS, write_photos
from tests.models import COLOURS, write_tiny_model
from tests.rules.source import ROOT

PHOTOS = {"one.jpg": "red", "two.jpg": "cyan", "three.jpg": "lime"}


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "python.md").read_text(), re.DOTALL)


def run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """models/efficientnet_lite0, a tiny network under that name, and photos/."""
    write_tiny_model(tmp_path / "models", "efficientnet_lite0")
    photos = {name: pictures.encode(pictures.solid(COLOURS[colour]), "JPEG") for name, colour in PHOTOS.items()}
    pictures.write_files(tmp_path / "photos", photos)
    return tmp_path


def test_three_photographs_are_predicted(folder: Path) -> None:
    lines = run(examples()[0], folder).splitlines()
    assert [line.rsplit(" ", 1)[0] for line in lines] == [f"photos/{name} {colour}" for name, colour in PHOTOS.items()]
    (folder / "photos" / "two.jpg").unlink()
    assert run(examples()[0], folder).splitlines()[1].startswith("photos/two.jpg read file not found")


@long
def test_a_folder_is_launched_and_its_results_are_read(folder: Path) -> None:
    write_photos(folder / "photos", 5)
    (folder / "photos" / "broken.jpg").write_bytes(pictures.cut(pictures.jpeg()))
    lines = run(examples()[1], folder).splitlines()
    assert lines[0] == "8 ok, 1 errors, exit code 3"
    assert f"'key': '000-{LABELS[0]}.png', 'class_names': ['{LABELS[0]}'" in lines[1]
    assert "'stage': 'decode', 'error': 'truncated JPEG" in lines[2]
