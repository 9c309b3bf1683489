"""bulkinfer bench as a user calls it, on a tiny network; figures depend on the host, so what holds on every host is checked."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import children, command, living, run
from tests.launches import write_photos
from tests.models import write_tiny_model

BENCH = ("bench", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--seconds", 1)
TUNE = (*BENCH, "--tune", "--streams", 1, "--num_workers", 1)  # so that there are few plans
KINDS = ("decode", "inference", "end_to_end")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models/tiny in two batch sizes, as uint8 and as float32, and eight photographs."""
    folder = tmp_path_factory.mktemp("place")
    write_tiny_model(folder / "models", batch_sizes=(4, 6))
    write_tiny_model(folder / "models", "tiny32", batch_sizes=(6,), input="float32")
    write_photos(folder / "photos", 8)
    return folder


def told_share(line: str) -> float:
    """The sum of the percentages in a line of the split."""
    return sum(float(value) for value in re.findall(r"([\d.]+) %", line))


def test_figures_are_printed_and_kept_and_add_up(place: Path, tmp_path: Path) -> None:
    before = sorted(place.rglob("*"))
    words = (*BENCH, "--model_name", "tiny32", "--rounds", 1, "--log_path", tmp_path)
    found = run("bulkinfer", *words, cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    (folder,) = tmp_path.iterdir()
    assert lines[-1] == f"bench: {folder / 'bench.json'}"
    assert f"pictures: 8 of 8 (pictures in {place / 'photos'}), again and again" in found.stdout
    kept = json.loads((folder / "bench.json").read_text())
    assert (kept["num_runs"], len(kept["rounds"])) == (3, 1)
    assert kept["command"].startswith("bulkinfer bench --model_name tiny --data_dir photos")
    (measured,) = kept["rounds"]
    for kind, name in zip(KINDS, ("decode ceiling", "inference ceiling", "end to end"), strict=True):
        one, rate = measured[kind], kept["images_per_s"][kind]["median"]
        assert (one["images_per_s"], one["bad"]) == (rate, 0)
        assert any(re.match(rf"{name} +{rate:.1f} ", line) for line in lines)
        if kept["plan"]["num_devices"] == 1:
            assert rate == pytest.approx(one["pictures"] / one["seconds"])
    cpu_s = {kind: kept["cpu_s_per_picture"][kind]["median"] for kind in KINDS}
    assert cpu_s["decode"] == pytest.approx(measured["decode"]["cpu_s"] / measured["decode"]["pictures"])
    ideal = kept["hardware"]["usable_cores"] / (cpu_s["decode"] + cpu_s["inference"])
    assert kept["ideal_images_per_s"] == pytest.approx(ideal)
    assert kept["share_of_ideal"] == pytest.approx(kept["images_per_s"]["end_to_end"]["median"] / ideal)
    assert any(line.startswith(f"ideal: {ideal:.1f} images/sec") for line in lines)
    assert f"bottleneck: {kept['bottleneck']}" in lines
    split = lines[lines.index("end to end, share of the wall time of") + 1 : -1]
    assert [line.split(": ")[0].strip(" 0123456789") for line in split] == ["loader thread(s)", "stream(s)", "publishing"]
    assert "normalise" in split[1]
    assert all(0 < told_share(line) <= 115 for line in split)  # more than 100: threads that worked across the last report
    assert sorted(path.name for path in folder.iterdir()) == ["bench.json", *sorted((*KINDS, "pictures"))]
    assert not [*folder.rglob("part-*"), *folder.rglob("_tmp-*"), *folder.rglob("results")]
    assert sorted(place.rglob("*")) == before


@pytest.fixture(scope="module")
def tuned(place: Path) -> Path:
    """The flag file of a tuning, below `place`; one round has to do."""
    words = ("--tune_s", 8, "--write_flags", "t.flags", "--log_path", "tuning")
    found = run("bulkinfer", *TUNE, *words, cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    assert "flags: infer_launch --flagfile t.flags" in found.stdout.splitlines()
    (folder,) = (place / "tuning").iterdir()
    kept = json.loads((folder / "bench.json").read_text())["tune"]
    assert kept["num_runs"] == len(kept["runs"]) >= len(kept["plans"])
    assert kept["winner"] in kept["plans"]
    assert f"winner: {kept['winner']}" in found.stdout
    assert not [*place.glob("_tmp-*"), *folder.rglob("part-*")]
    return place / "t.flags"


def dry_run(place: Path, tuned: Path, *words: object) -> Any:
    base = ("--flagfile", tuned.name, "--data_dir", "photos", "--dry_run", "--log_path", "logs")
    return run("infer_launch", *base, *words, cwd=place)


def test_infer_launch_takes_the_flag_file(place: Path, tuned: Path, tmp_path: Path) -> None:
    flags = dict(line.lstrip("-").split("=", 1) for line in tuned.read_text().splitlines() if line.startswith("--"))
    words = ("--flagfile", tuned.name, "--data_dir", "photos", "--output", tmp_path / "out", "--log_path", tmp_path / "logs")
    found = run("infer_launch", *words, cwd=place)
    assert (found.returncode, found.stderr) == (0, "")
    assert "precision: fp32 (as asked)" in found.stdout.splitlines()
    assert (
        f"each {flags['streams']} stream(s) x {flags['threads_per_stream']} thread(s) "
        f"and {flags['num_workers']} loader thread(s)"
    ) in found.stdout
    assert "records: 8 = 8 ok + 0 errors" in found.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--batch_size", 4), "tiny at batch size 4 in fp32 on cpu, "),
        (("--model_name", "tiny32"), "tiny32 at batch size 6 in fp32 on cpu, "),
        (("--device", "openvino"), "tiny at batch size 6 in fp32 on openvino, "),
    ],
)
def test_another_use_of_it_is_told_in_one_sentence(place: Path, tuned: Path, words: tuple[object, ...], what: str) -> None:
    found = dry_run(place, tuned, *words)
    assert found.returncode == 0
    (line,) = found.stderr.splitlines()
    made_for = "infer_launch: warning: the flag file was tuned for tiny at batch size 6 in fp32 on cpu, "
    assert line.startswith(made_for)
    assert f", this is {what}" in line


def test_a_flag_file_of_another_host_is_told(place: Path, tuned: Path) -> None:
    there = place / "there.flags"
    there.write_text(re.sub(r"\d+ cores? of .*", "96 cores of Another Processor", tuned.read_text()))
    found = dry_run(place, there)
    assert found.returncode == 0
    (line,) = found.stderr.splitlines()
    assert " on cpu, 96 cores of Another Processor, this is tiny at batch size 6 in fp32 on cpu, " in line


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\0\0\0\0", b"--streams\n", b"--stream=2\n", b"some text\n"])
def test_a_damaged_flag_file_is_refused_in_one_sentence(place: Path, data: bytes) -> None:
    (place / "bad.flags").write_bytes(data)
    found = dry_run(place, place / "bad.flags")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("infer_launch: ")
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--precision", "int8"), "models/tiny/int8/card.json does not exist: run get_model"),
        (("--batch_size", 7), "models/tiny/model_7.onnx does not exist: run get_model"),
        (("--tune", "--write_flags", "nowhere/t.flags"), "--write_flags nowhere/t.flags: there is no folder nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(place: Path, words: tuple[object, ...], told: str) -> None:
    found = run("bulkinfer", *BENCH, *words, "--log_path", "none", cwd=place)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"bulkinfer bench: {told}")
    assert len(found.stderr.splitlines()) == 1
    assert not (place / "none").exists()


def test_without_a_good_picture_there_are_no_figures(place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_bytes(b"\xff\xd8\xff no picture")
    found = run("bulkinfer", *TUNE, "--data_dir", tmp_path / "bad", "--log_path", tmp_path / "logs", cwd=place)
    assert found.returncode == 1
    assert found.stderr.startswith("bulkinfer bench: none of the ")
    assert "winner" not in found.stdout
    assert not [*tmp_path.rglob("*.flags"), *tmp_path.rglob("bench.json")]


def wait_for_worker(folder: Path, process: subprocess.Popen[str]) -> list[int]:
    """Until a worker of the launch in `folder` below the logs has said that it is ready; returns the children."""
    end = time.monotonic() + 60
    while not any("warm-up" in path.read_text() for path in folder.glob("bench-*/*/worker-0.log")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    return children(process.pid)


@pytest.mark.parametrize(
    ("words", "number", "code"), [((), signal.SIGINT, 130), (("--tune", "--write_flags", "stopped.flags"), signal.SIGTERM, 143)]
)
def test_a_signal_ends_it_and_leaves_nothing(
    place: Path, tmp_path: Path, words: tuple[object, ...], number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        command("bulkinfer", *BENCH, *words, "--seconds", 30, "--log_path", tmp_path),
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    workers = wait_for_worker(tmp_path, process)
    assert workers
    sent = time.monotonic()
    process.send_signal(number)
    _, told = process.communicate(timeout=20)
    assert time.monotonic() - sent < 10
    assert (process.returncode, told) == (code, "bulkinfer bench: stopped before the end: nothing is kept\n")
    assert not living(workers)
    assert os.listdir(tmp_path) == []
    assert not (place / "stopped.flags").exists()
