"""What commands print on a terminal, whatever the names are, and what they say where the system gives no more."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import command, run_here, run_installed
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.sealed import edited

HOSTILE = "tiny; touch PWN #"
ESCAPE = "\x1b]0;title\x07\x1b[2J"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a network and pictures."""
    write_tiny_model(tmp_path / "models", HOSTILE, batch_sizes=(6,))
    write_tiny_model(tmp_path / "models", "tiny", batch_sizes=(6,))
    write_photos(tmp_path / "photos", 12)
    return tmp_path


def launch(place: Path, *words: object) -> Any:
    return run_here("infer_launch", "--device", "cpu", "--engine", "inline", *words, cwd=place)


def typed(told: str, after: str) -> list[str]:
    """The words of the command that a message tells after `after`, as a shell splits them."""
    return shlex.split(told.partition(after)[2].splitlines()[0], comments=True)


def test_c50_a_command_to_copy_is_quoted(place: Path) -> None:
    missing = launch(place, "--model_name", HOSTILE, "--data_dir", "photos", "--batch_size", 4)
    assert missing.returncode == 2
    assert typed(missing.stderr, ": run ")[:3] == ["get_model", "--model_name", HOSTILE]
    parts = run_here("partition_dataset", "--data_dir", "photos", "--output", HOSTILE, "--partitions", 2, cwd=place)
    words = typed(parts.stdout, "next: ")
    assert words[words.index("--data_dir") + 1] == HOSTILE


def test_c50_fields_of_a_card_cannot_steer_the_terminal(place: Path) -> None:
    card = place / "models" / "tiny" / "card.json"

    def change(content: dict[str, Any]) -> None:
        content["licence"] = content["origin"] = content["weights"]["source"] = f"evil{ESCAPE}"

    edited(card, change)
    for done in (
        launch(place, "--model_name", "tiny", "--data_dir", "photos", "--output", "out"),
        run_here("get_model", "--model_name", "tiny", "--batch_size", 6, cwd=place),
        run_here("bulkinfer", "verify", "out", cwd=place),
    ):
        told = done.stdout + done.stderr
        assert told.replace("\n", "").isprintable(), told


def test_c50_names_of_files_cannot_steer_the_terminal(place: Path) -> None:
    (place / "photos" / f"{ESCAPE}.jpg").write_bytes(b"no picture")
    done = launch(place, "--model_name", "tiny", "--data_dir", "photos", "--output", f"out{ESCAPE}\n", "--max_failures", 5)
    assert done.returncode == 3
    told = done.stdout + done.stderr
    assert told.replace("\n", "").isprintable(), told
    assert "\\x1b" in told


def test_c54_output_that_cannot_be_written_is_named(place: Path) -> None:
    words = ("--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--engine", "inline", "--output", "out")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("infer_launch", *words), cwd=place, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300
        )
    said = "infer_launch: No space left on device: stdout: free some space, and type the command again\n"
    assert (done.returncode, done.stderr) == (1, said)


@long
@pytest.mark.parametrize("limit_kb", [200_000, 250_000, 307_200, 350_000, 400_000, 500_000, 600_000])
def test_c54_a_limit_of_memory_is_one_sentence(place: Path, limit_kb: int) -> None:
    words = command("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--output", "out")
    limited = ["bash", "-c", f'ulimit -v {limit_kb}; exec "$@"', "bash", *words]
    done = subprocess.run(limited, cwd=place, capture_output=True, text=True, check=False, timeout=300)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2)
    if done.returncode:
        assert "(ulimit -" in done.stderr.splitlines()[-1], done.stderr
    for log in place.glob("logs/*/worker-*.log"):
        assert "Traceback" not in log.read_text()


HIDE = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{package}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("torch", ["bulkinfer", "train", "--dataset", "generated"], "[train]"),
        ("torch", ["bulkinfer", "validate", "--model", "cifar_resnet20", "--generated_data"], "[train]"),
        ("torch", ["get_model", "--model_name", "efficientnet_lite0"], "[zoo]"),
        ("onnxruntime", ["infer_launch", "--model_name", "tiny", "--data_dir", "photos"], "[cpu]"),
        ("absl", ["bulkinfer", "verify", "out"], ""),
        ("numpy", ["infer_launch", "--model_name", "tiny", "--data_dir", "photos"], ""),
        ("pyarrow", ["partition_dataset", "--data_dir", "photos"], ""),
    ],
)
def test_c53_a_package_that_is_missing_is_one_sentence(place: Path, package: str, words: list[str], extra: str) -> None:
    (place / "sitecustomize.py").write_text(HIDE.format(package=package))
    done = run_installed(words[0], *words[1:], cwd=place, env={"PYTHONPATH": str(place)})
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1, done.stderr
    told = shlex.split(done.stderr.partition("pip install ")[2])
    assert f"the package {package}" in done.stderr
    assert told[0].endswith(extra)
    assert (Path(told[0].removesuffix(extra)) / "pyproject.toml").is_file(), "what pip is told to install is there"
