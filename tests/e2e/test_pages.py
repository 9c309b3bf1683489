"""Every command that the documents show is typed here, page by page; tests/instead.py lists what does not run as it stands."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import SCRIPTS
from tests.forms import long
from tests.instead import instead_of
from tests.pages import PAGES, block_commands, blocks, span_commands
from tests.reader import furnish
from tests.rules.source import ROOT, shown
from tests.serving import usual_ports

pytestmark = long

# A page that begins with what another page has made -> what makes it
FIRST = {
    "docs/how-to/report.md": "bulkinfer train --config digits_resnet8 --data_dir digits --epochs 2",
    "docs/reference/files.md": "infer_launch --model_name efficientnet_lite0 --data_dir photos",
}


def commands_of(page: Path) -> list[list[str]]:
    """What is typed on a page: the words of one process for each block, then for each command between backticks."""
    typed = []
    for block in blocks(page):
        if block.language == "python" and instead_of(block.text) is None:
            typed.append([sys.executable, "-c", block.text])
        elif block.language == "sh" and (
            lines := [line for command in block_commands(block) if (line := as_run(command, page))]
        ):
            typed.append(["bash", "-euo", "pipefail", "-c", "\n".join(lines)])
    return typed + [["bash", "-euc", line] for command in span_commands(page) if (line := as_run(command, page))]


def as_run(command: str, page: Path) -> str:
    """A command of a page as it runs here; empty if it does not."""
    if (instead := instead_of(command)) is None:
        return command
    if instead.only_on not in ("", shown(page)):
        return ""
    return instead.run.replace("{}", command)


def placed(text: str) -> str:
    """A command with what is here for the words that a reader replaces: the newest job, and the newest training run."""
    for word, file in (("RUN", "arguments.json"), (r"efficientnet_lite0-[0-9a-f]{8}-\w{16}", "summary.json")):
        text = re.sub(rf"\b{word}\b", f"$(basename $(dirname $(ls -t logs/*/{file} | head -1)))", text)
    return re.sub(r"\bJOB\b(\.\.\.)?", "logs/latest", text)


@pytest.fixture(scope="module")
def furnished(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("reader"), lite0)


@pytest.fixture
def folder(furnished: Path, tmp_path: Path) -> Path:
    """A place for one page: networks and what was measured of them are shared by all pages, jobs are its own."""
    for path in furnished.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    return tmp_path


def type_in(words: list[str], folder: Path) -> None:
    words = [placed(word) for word in words]
    environment = {name: value for name, value in os.environ.items() if name != "DATA_DIR"}
    environment["PATH"] = f"{SCRIPTS}{os.pathsep}{environment['PATH']}"
    leader, terminal = os.openpty()
    os.write(leader, b"y\n")  # for what asks
    try:
        with usual_ports() if "bulkinfer request" in words[-1] else contextlib.nullcontext():
            done = subprocess.run(
                words, cwd=folder, env=environment, stdin=terminal, capture_output=True, text=True, timeout=1800, check=False
            )
    finally:
        os.close(terminal)
        os.close(leader)
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=shown)
def test_every_command_works(page: Path, folder: Path) -> None:
    """In order, block by block, then those between backticks."""
    if first := FIRST.get(shown(page)):
        type_in(["bash", "-euc", first], folder)
    for words in commands_of(page):
        type_in(words, folder)
