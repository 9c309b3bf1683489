"""run_command.py: exit codes, and one sentence for each failure that a user can cause."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from bulkinfer.commands.run_command import run_command
from bulkinfer.config import option
from bulkinfer.errors import RunError
from bulkinfer.launch.launcher import launch

from tests.commands import SCRIPTS
from tests.launches import config_of

FREE = ": free some space, and type the command again"


@dataclass(frozen=True)
class Settings:
    """Do something."""

    offset: int = option(0, "first picture")


def test_run_command_answers_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def run(action: object, *words: str) -> tuple[int, str]:
        code = run_command("act", Settings, action, words)
        return code, capsys.readouterr().err

    def fails_with(error: BaseException) -> object:
        def action(_: Settings) -> int:
            raise error

        return action

    assert run(lambda config: config.offset, "--offset", "3") == (3, "")
    assert run(lambda _: 0, "--offset", "x") == (2, "act: --offset=x: not a whole number\n")
    assert run(fails_with(RunError("it broke"))) == (1, "act: it broke\n")
    assert run(fails_with(RunError("a\nb\x1b[2J é"))) == (1, "act: a\\nb\\x1b[2J é\n")
    assert run(fails_with(PermissionError(13, "Permission denied", "/x"))) == (
        1,
        "act: Permission denied: /x: change the mode or owner of /\n",
    )
    assert run(fails_with(OSError(21, "Is a directory", b"/caf\xe9\n"))) == (1, "act: Is a directory: /caf\\xe9\\n\n")
    assert run(fails_with(OSError(28, "No space left on device"))) == (1, f"act: No space left on device{FREE}\n")
    noted = OSError(28, "No space left on device", "/x")
    noted.add_note("written by another package for its own readers")
    assert run(fails_with(noted)) == (1, f"act: No space left on device: /x{FREE}\n")
    assert run(fails_with(KeyboardInterrupt())) == (130, "act: interrupted\n")
    assert run(fails_with(RuntimeError("can't start new thread")))[1].startswith("act: no further thread can be started")
    assert run(fails_with(MemoryError()))[1].startswith("act: out of memory")
    assert run(fails_with(ImportError("libx.so: failed to map segment from shared object", name="pyarrow.lib")))[1].startswith(
        "act: out of memory"
    )
    assert run(fails_with(ModuleNotFoundError("No module named 'timm'", name="timm")))[1].startswith("act: the package timm is")
    with pytest.raises(ImportError):
        run(fails_with(ImportError("of ours", name="bulkinfer.files")))
    with pytest.raises(RuntimeError):
        run(fails_with(RuntimeError("of ours")))
    with pytest.raises(OSError, match="of ours"):
        run(fails_with(OSError("a fault of ours")))


@pytest.mark.parametrize("words", [("infer_launch", "--help"), ("bulkinfer", "--help"), ("bulkinfer", "train", "--help")])
def test_help_that_cannot_be_written_is_one_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [SCRIPTS / words[0], *words[1:]], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith(f": No space left on device: stdout{FREE}\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pictures and the output of a job."""
    folder = tmp_path_factory.mktemp("place")
    assert launch(config_of(folder, engine="inline")).exit_code == 0
    return folder


@pytest.mark.parametrize("words", [["verify", "out"], ["partition_dataset", "--data_dir", "photos", "--output", "parts"]])
def test_a_command_does_not_import_pandas(place: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bulkinfer", *words], cwd=place, capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow" in imported
    assert "pandas.core" not in imported


def test_a_command_that_is_called_leaves_pyarrow_as_it_is(place: Path) -> None:
    code = """
import sys
from bulkinfer.commands import verify
assert verify.main(["out"]) == 0
import pandas, pyarrow as pa
assert pa.array(pandas.Series([1, None])).to_pylist() == [1, None]
"""
    subprocess.run([sys.executable, "-c", code], cwd=place, check=True, stdout=subprocess.DEVNULL)
