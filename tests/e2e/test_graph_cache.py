"""The graph cache as a user meets it: the same rows with and without it, whatever is wrong with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cached_graphs import entries, entry, write_conv_model
from tests.commands import UNPRIVILEGED, command, rows, run, summary
from tests.flips import Flip
from tests.forms import long
from tests.launches import write_photos

WORDS = ("--model_name", "tiny", "--batch_size", 4, "--data_dir", "photos", "--device", "cpu", "--precision", "fp32",
         "--save", "topk,logits,embedding", "--batches_per_step", 2)  # fmt: skip
OFF = {"BULKINFER_GRAPH_CACHE": "off"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A network of some size, and pictures."""
    write_conv_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 18)
    return tmp_path


def launch(home: Path, output: str, workers: int, env: dict[str, str] | None = None, *, code: int = 0) -> Any:
    done = run("infer_launch", *WORDS, "--output", output, "--num_devices", workers, cwd=home, env=env)
    assert done.returncode == code, done.stderr
    return done


def proofs(home: Path) -> list[str | None]:
    """The entry that each worker of the last launch ran."""
    return [proof.get("cached_graph") for proof in summary(home / "logs")["ran"].values()]


@long
def test_rows_and_fingerprint_are_the_same_with_and_without_it(home: Path) -> None:
    assert "graph cache" not in launch(home, "without", 2, OFF).stdout
    assert (entries(home / "models" / "tiny"), set(proofs(home))) == ([], {None})
    fingerprint = summary(home / "logs")["fingerprint"]
    made = launch(home, "made", 2)
    key = entry(home / "models" / "tiny").name
    assert f"graph cache: made {home}/models/tiny/graph_cache/{key}/graph.onnx in " in made.stdout
    assert set(proofs(home)) == {key}
    assert summary(home / "logs")["fingerprint"] == fingerprint
    found = launch(home, "found", 1)
    assert f"optimised before (graph cache, entry {key})" in found.stdout
    assert rows(home / "without") == rows(home / "made") == rows(home / "found")


@long
def test_a_job_goes_on_with_and_without_it(home: Path) -> None:
    launch(home, "whole", 1, OFF)
    for name, env in (("with", None), ("without", OFF)):
        launch(home, name, 2, env)
        for part in sorted((home / name).glob("part-*"))[::2]:
            part.unlink()
        launch(home, name, 2, OFF if env is None else None)
        assert rows(home / name) == rows(home / "whole")


@long
@pytest.mark.parametrize("name", ["graph.onnx", "weights.bin", "record.json"])
def test_damage_is_said_and_never_reaches_a_row(home: Path, name: str) -> None:
    launch(home, "sound", 2)
    folder = entry(home / "models" / "tiny")
    Flip(name, (folder / name).stat().st_size // 2 * 8).apply(folder)
    done = launch(home, "damaged", 1)
    assert f"graph cache: {folder} is damaged" in done.stderr
    assert proofs(home) == [None]
    assert "; " in launch(home, "again", 2).stdout.partition("graph cache: made ")[2].partition("\n")[0]
    assert set(proofs(home)) == {folder.name}
    assert rows(home / "sound") == rows(home / "damaged") == rows(home / "again")


@pytest.fixture
def disk(home: Path) -> Iterator[Path]:
    """The folder of networks on a small disk of its own."""
    (home / "models").rename(home / "before")
    (home / "models").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", home / "models"], check=True)
    subprocess.run(["cp", "-r", home / "before" / "tiny", home / "models"], check=True)
    yield home / "models"
    subprocess.run(["umount", home / "models"], check=True)


@long
def test_a_full_or_read_only_disk_costs_one_line(home: Path, disk: Path) -> None:
    launch(home, "off", 2, OFF)
    told = launch(home, "full", 2).stderr.splitlines()
    assert [line for line in told if "cache" in line] == told
    (line,) = told
    assert "graph cache: not made (" in line
    assert "is on a disk with " in line
    subprocess.run(["mount", "-o", "remount,ro,size=64m", disk], check=True)
    (line,) = launch(home, "read-only", 2).stderr.splitlines()
    assert "graph cache: not made (" in line
    assert "Read-only file system" in line
    assert rows(home / "off") == rows(home / "full") == rows(home / "read-only")


@long
def test_a_folder_that_may_not_be_written_costs_one_line(home: Path) -> None:
    (home / "models" / "tiny").chmod(0o555)
    words = [*UNPRIVILEGED, *command("infer_launch", *WORDS, "--output", "out", "--num_devices", 2)]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "graph cache: not made (" in line
    assert "Permission denied" in line
    launch(home, "off", 2, OFF)
    assert rows(home / "off") == rows(home / "out")


@long
def test_two_launches_at_once(home: Path) -> None:
    both = [
        subprocess.Popen(command("infer_launch", *WORDS, "--output", name, "--log_path", f"{name}-logs", "--num_devices", 2),
                         cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]  # fmt: skip
    told = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert entry(home / "models" / "tiny").is_dir()
    launch(home, "off", 2, OFF)
    assert rows(home / "off") == rows(home / "one") == rows(home / "two")


@long
def test_seal_takes_the_record_and_another_word_is_refused(home: Path) -> None:
    launch(home, "out", 2)
    record = entry(home / "models" / "tiny") / "record.json"
    sealed = run("bulkinfer", "seal", record, cwd=home)
    assert (sealed.returncode, sealed.stdout) == (0, f"{record}: nothing has changed since it was written\n")
    refused = launch(home, "other", 1, {"BULKINFER_GRAPH_CACHE": "never"}, code=2)
    assert refused.stderr == (
        "infer_launch: the environment variable BULKINFER_GRAPH_CACHE is 'never': set it to on or off, or unset it\n"
    )
