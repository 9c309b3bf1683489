"""What README.md, docs/tutorial.md and docs/how-to/ show is typed here, block by block, in a folder with pictures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pictures
from tests.commands import SCRIPTS, run
from tests.forms import long
from tests.pages import TYPED, Block, blocks
from tests.rules.source import shown

pytestmark = long

# What a page leaves to the reader -> what there is here
PLACES = {"JOB": "logs/latest", "OUTPUT": "logs/latest/results", "PHOTOS": "photos"}
NAMES = ["one.jpg", "two.jpg", "three.jpg", "red/1.jpg", "red/2.jpg", "blue/3.jpg", "blue/4.png"]


def typed(page: Path) -> list[Block]:
    """The blocks of a page that are run."""
    return [block for block in blocks(page) if block.language in ("sh", "python") and not block.reason]


@pytest.fixture
def folder(lite0: Path, tmp_path: Path) -> Path:
    """models/efficientnet_lite0 with its own weights, and photos/ with pictures in two class folders and beside them."""
    folder = shutil.copytree(lite0, tmp_path / "folder")
    pictures.write_files(folder / "photos", {name: pictures.jpeg(320, 240, seed=i) for i, name in enumerate(NAMES)})
    return folder


def run_block(block: Block, folder: Path) -> None:
    text = re.sub(rf"\b({'|'.join(PLACES)})\b", lambda word: PLACES[word[0]], block.text)
    words = [sys.executable, "-c", text] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", text]
    environment = {name: value for name, value in os.environ.items() if name != "DATA_DIR"}
    environment["PATH"] = f"{SCRIPTS}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in TYPED if typed(page)], ids=shown)
def test_every_block_works(page: Path, folder: Path) -> None:
    """In order, as they stand there. A page that begins with a finished job finds one."""
    if "logs/latest" in (text := typed(page)[0].text) or re.search(r"\b(JOB|OUTPUT)\b", text):
        done = run("infer_launch", "--model_name", "efficientnet_lite0", "--data_dir", "photos", cwd=folder)
        assert done.returncode == 0, done.stderr
    for block in typed(page):
        run_block(block, folder)
