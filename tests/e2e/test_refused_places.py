"""Files and folders whose permissions refuse something: one sentence with a way out, and that way works."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import UNPRIVILEGED, command, run_here
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model

LAUNCH = ("infer_launch", "--data_dir", "photos", "--model_name", "tiny", "--device", "cpu", "--engine", "inline")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a network, pictures, a finished job, a folder `shut` that nobody may write to, and a file `secret`."""
    place = tmp_path_factory.mktemp("place")
    write_tiny_model(place / "models", batch_sizes=(6,))
    write_photos(place / "photos", 6)
    (place / "shut").mkdir()
    (place / "secret").write_text("000-black.png\n")
    assert run_here(*LAUNCH, "--output", "out", cwd=place).returncode == 0
    (place / "shut").chmod(0o555)
    (place / "secret").chmod(0)
    yield place
    (place / "shut").chmod(0o755)


def typed(place: Path, *words: str) -> Any:
    """Run a command as somebody whom permissions bind."""
    line = [*UNPRIVILEGED, *command(words[0], *words[1:])]
    return subprocess.run(line, cwd=place, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        (LAUNCH, "output", "shut/out"),
        pytest.param(LAUNCH, "log_path", "shut", marks=long),
        pytest.param(("partition_dataset", "photos"), "output", "shut/parts", marks=long),
        pytest.param(("bulkinfer", "rows", "out"), "to", "shut/rows.csv", marks=long),
        pytest.param(("bulkinfer", "report", "out"), "to", "shut/page.html", marks=long),
    ],
)
def test_another_place_is_named_by_its_option(place: Path, words: tuple[str, ...], option: str, value: str) -> None:
    refused = typed(place, *words, f"--{option}", value)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    ways = r": Permission denied: shut\S*: give another --(\w+), or change the mode or owner of shut$"
    found = re.search(ways, refused.stderr)
    assert found, refused.stderr
    assert found[1] == option
    done = typed(place, *words, f"--{option}", value.replace("shut", "open"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (place / value.replace("shut", "open")).exists()


@pytest.mark.parametrize(
    "words",
    [
        (*LAUNCH, "--flagfile", "secret"),
        pytest.param((*LAUNCH, "--labels", "secret"), marks=long),
        pytest.param(("partition_dataset", "photos", "--list_file", "secret"), marks=long),
        pytest.param(("bulkinfer", "score", "out", "--labels", "secret"), marks=long),
        pytest.param(("get_model", "--onnx", "secret", "--name", "net", "--recipe", "resnet50"), marks=long),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_change(place: Path, words: tuple[str, ...]) -> None:
    refused = typed(place, *words)
    assert refused.returncode == 2
    assert refused.stderr.endswith(f"{words[-2] if words[0] != 'get_model' else '--onnx'}: secret cannot be read: "
                                   "Permission denied: change its mode or owner\n")  # fmt: skip
