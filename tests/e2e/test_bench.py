"""bulkinfer bench and bench --tune as a user runs them: figures, bench.json, the flag file, and signals at any moment."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import children, command, living, run
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model

# one plan but for the threads of its only stream, so that a round of tuning is short
BENCH = ("bench", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32", "--seconds", 1,
         "--streams", 1, "--num_workers", 1)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks and some pictures."""
    folder = tmp_path_factory.mktemp("bench")
    for name in ("tiny", "other"):
        write_tiny_model(folder / "models", name)
    write_photos(folder / "photos", 12)
    return folder


@pytest.fixture(scope="module")
def tuned(place: Path) -> Path:
    """The flag file of the network called tiny."""
    words = ("--tune", "--tune_s", 600, "--rounds", 3, "--write_flags", "tuned.flags")
    found = run("bulkinfer", *BENCH, *words, cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    assert "flags: infer_launch --flagfile tuned.flags" in found.stdout.splitlines()
    return place / "tuned.flags"


@long
def test_figures_are_told_and_kept(place: Path) -> None:
    found = run("bulkinfer", *BENCH, "--rounds", 1, "--seconds", 5, cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    for start in ("decode ceiling ", "inference ceiling ", "end to end ", "ideal: ", "CPU time: ", "bottleneck: "):
        assert sum(line.startswith(start) for line in lines) == 1, (start, lines)
    for words in ("  1 loader thread(s): read ", "  1 stream(s): wait for data ", "  publishing: write "):
        assert any(" ".join(line.split()).startswith(words.strip()) for line in lines), words
    path = Path(lines[-1].removeprefix("bench: "))
    kept = json.loads((place / path).read_text())
    check_sums(kept)
    assert kept["model"]["name"] == "tiny"
    assert kept["pictures"] == {"source": kept["pictures"]["source"], "different": 12, "page_cache": "warm"}
    assert kept["hardware"]["usable_cores"] >= 1
    assert len(kept["load_averages"]) == 2
    assert not list((place / path.parent).rglob("part-*"))  # rows are written, and go again


def check_sums(kept: dict[str, Any]) -> None:
    """The figures agree with each other and with the runs behind them, counted again."""
    (only,) = kept["rounds"]
    cores = kept["hardware"]["usable_cores"]
    cpu_s = {kind: one["cpu_s"] / one["pictures"] for kind, one in only.items()}
    assert kept["ideal_images_per_s"] == pytest.approx(cores / (cpu_s["decode"] + cpu_s["inference"]))
    assert kept["share_of_ideal"] == pytest.approx(only["end_to_end"]["images_per_s"] / kept["ideal_images_per_s"])
    assert kept["cpu_s_over_parts"] == pytest.approx(cpu_s["end_to_end"] / (cpu_s["decode"] + cpu_s["inference"]))
    for kind, one in only.items():
        assert one["bad"] == 0
        assert one["images_per_s"] == pytest.approx(one["pictures"] / one["seconds"], rel=0.05), kind
    whole = only["end_to_end"]
    for stage, words in (("decode", "decode"), ("wait_for_slot", "wait for model")):
        assert kept["split"]["loaders"][words] == pytest.approx(whole["stages"][stage] / whole["seconds"])
    for kind, least in (("loaders", 0.7), ("streams", 0.7), ("publisher", 0.0)):  # the rest is between the stages
        assert least <= sum(kept["split"][kind].values()) <= 1.05, kept["split"]


@long
def test_infer_launch_takes_the_flag_file(place: Path, tuned: Path) -> None:
    flags = dict(line[2:].split("=", 1) for line in tuned.read_text().splitlines() if line.startswith("--"))
    found = run("infer_launch", "--flagfile", tuned, "--data_dir", "photos", "--output", "out", cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    plan = f"each {flags['streams']} stream(s) x {flags['threads_per_stream']} thread(s) and {flags['num_workers']} loader"
    assert plan in found.stdout
    assert "records: 12 = 12 ok + 0 errors" in found.stdout


@pytest.mark.usefixtures("openvino")
@long
@pytest.mark.parametrize(
    ("words", "change", "wanted", "here"),
    [
        (("--model_name", "other"), lambda text: text, "for tiny at batch size 6", "this is other at batch size 6"),
        ((), lambda text: text.replace(" cores of ", "7 cores of Other "), "7 cores of Other ", "this is tiny"),
        (("--device", "openvino"), lambda text: text, "in fp32 on cpu", "in fp32 on openvino"),
    ],
    ids=["model", "host", "provider"],
)
def test_a_flag_file_made_for_something_else_is_told_in_one_sentence(
    place: Path, tuned: Path, tmp_path: Path, words: tuple[Any, ...], change: Callable[[str], str], wanted: str, here: str
) -> None:
    (tmp_path / "t.flags").write_text(change(tuned.read_text()))
    launch = ("--flagfile", tmp_path / "t.flags", "--data_dir", "photos", "--dry_run", *words)
    found = run("infer_launch", *launch, cwd=place)
    assert found.returncode == 0
    (line,) = found.stderr.splitlines()
    assert line.startswith("infer_launch: warning: the flag file was tuned for ")
    before, _, after = line.partition(", this is ")
    assert wanted in before
    assert here in f"this is {after}"
    assert line.endswith("; bulkinfer bench --tune makes one for this")


@pytest.mark.parametrize("text", [b"--streams=2\n--num_wor", b"\xff\xfe\x00--streams=2\n", b"--streams=two\n"])
def test_a_damaged_flag_file_is_refused_in_one_sentence(place: Path, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t.flags").write_bytes(text)
    found = run("infer_launch", "--flagfile", tmp_path / "t.flags", "--data_dir", "photos", "--dry_run", cwd=place)
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1


def test_where_the_flag_file_cannot_be_written_is_told_at_once(place: Path) -> None:
    found = run("bulkinfer", *BENCH, "--tune", "--write_flags", "nowhere/tuned.flags", cwd=place)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("bulkinfer bench: --write_flags nowhere/tuned.flags: there is no folder nowhere")


@long
@pytest.mark.parametrize(
    ("words", "until", "number"),
    [
        ((), "pictures: ", signal.SIGTERM),  # before any worker
        ((), "worker 0: ", signal.SIGINT),  # between two measurements, or in one
        (("--tune", "--tune_s", 3600, "--write_flags", "t.flags"), "  1 x 1 + 1: ", signal.SIGTERM),
    ],
)
def test_a_signal_leaves_nothing(place: Path, words: tuple[object, ...], until: str, number: signal.Signals) -> None:
    before = sorted((place / "logs").glob("*"))
    process = subprocess.Popen(
        command("bulkinfer", *BENCH, "--rounds", 1000, *words),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(until):
            break
    time.sleep(0.3)  # into the next measurement
    workers = children(process.pid)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert stderr.splitlines() == ["bulkinfer bench: stopped before the end: nothing is kept"]
    assert living(workers) == []
    assert sorted((place / "logs").glob("*")) == before
    assert not (place / "t.flags").exists()
