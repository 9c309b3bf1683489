"""infer_launch --loader_processes: rows are those of threads, bit for bit, and nothing is left of the processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import pictures
from tests.commands import rows, run, summary
from tests.forms import long
from tests.models import COLOURS, write_tiny_model

THREADS = -1
LAUNCH = ("--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--save", "topk,logits,embedding",
          "--num_devices", 1, "--num_workers", 3)  # fmt: skip


def odd_files() -> dict[str, bytes]:
    """Good pictures, and those that have each kind of error, flag and warning."""
    files = {f"good-{n:02d}.jpg": pictures.jpeg(300 + 7 * n, 260, n) for n in range(30)}
    files |= {f"solid-{name}.png": pictures.encode(pictures.solid(colour)) for name, colour in COLOURS.items()}
    return files | {
        "animated.gif": pictures.animated("GIF"),
        "cmyk.jpg": pictures.cmyk_jpeg(),
        "cut.jpg": pictures.cut(pictures.jpeg(640, 480)),
        "cut.png": pictures.cut(pictures.encode(pictures.noise(64, 48))),
        "deep.png": pictures.grey16_png(),
        "empty.jpg": b"",
        "exif.jpg": pictures.with_app1(pictures.jpeg(), b"Exif\0\0II*\0" + b"\xff" * 40),
        "huge.png": pictures.bit_png(20_000, 20_000),
        "large.bmp": pictures.encode(Image.new("RGB", (1200, 1000)), "BMP"),
        "page.jpg": pictures.HTML_PAGE,
        "palette.png": pictures.encode(pictures.noise(64, 48).quantize(16)),
        "profile.jpg": pictures.jpeg(64, 48, icc_profile=pictures.other_profile()),
        "raw.tif": pictures.camera_raw(),
        "turned.jpg": pictures.oriented(pictures.noise(64, 48), 6),
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models", batch_sizes=(1, 4, 6, 20))
    pictures.write_files(tmp_path / "photos", odd_files())
    os.mkfifo(tmp_path / "photos" / "pipe.jpg")
    (tmp_path / "photos" / os.fsdecode(b"caf\xe9.png")).write_bytes(pictures.encode(pictures.solid()))
    return tmp_path


def launch(place: Path, processes: int, *words: object) -> Any:
    found = run("infer_launch", *LAUNCH, "--max_file_bytes", 3_000_000, "--output", f"out{processes}", "--log_path",
                f"logs{processes}", "--loader_processes", processes, *words, cwd=place)  # fmt: skip
    assert found.returncode == 3, found.stdout + found.stderr
    return found


def fingerprint(stdout: str) -> str:
    """The fingerprint of the job; its name has the time as well."""
    (line,) = told(stdout, "job: ")
    return line.partition(", fingerprint ")[2]


def told(stdout: str, start: str) -> list[str]:
    """The lines that begin so."""
    return [line for line in stdout.splitlines() if line.startswith(start)]


def told_by_worker(logs: Path) -> list[str]:
    """What the worker's decoder has warned of."""
    lines = (logs / "latest" / "worker-0.log").read_text().splitlines()
    return sorted(line for line in lines if line.startswith("the decoder warned"))


def check_equal(place: Path, counts: tuple[int, ...], *words: object) -> None:
    """Launches with so many loader processes make the rows, parts and counts of threads."""
    by_threads = launch(place, THREADS, *words)
    expected = rows(place / f"out{THREADS}")
    statuses = expected["status"].to_pylist()
    assert min(statuses.count("ok"), statuses.count("error")) > 5
    for count in counts:
        found = launch(place, count, *words)
        assert f"loader thread(s) in {count} loader process(es)" in found.stdout
        assert rows(place / f"out{count}").equals(expected), count
        for name in ("records: ", "errors"):
            assert told(found.stdout, name) == told(by_threads.stdout, name)
        assert fingerprint(found.stdout) == fingerprint(by_threads.stdout)
        for stage in ("read", "decode", "preprocess"):
            assert summary(place / f"logs{count}")["stage_thread_seconds"][stage] > 0
        own, others = (told_by_worker(place / f"logs{number}") for number in (count, THREADS))
        assert own == others != []


def test_rows_are_those_of_threads(place: Path) -> None:
    check_equal(place, (2,), "--batch_size", 6)


@long
@pytest.mark.parametrize(("batch_size", "decode"), [(6, "exact"), (1, "exact"), (4, "fast"), (20, "exact")])
def test_rows_are_those_of_threads_for_any_number_of_processes(place: Path, batch_size: int, decode: str) -> None:
    check_equal(place, (1, 2, 3), "--batch_size", batch_size, "--decode", decode)


def test_more_than_five_threads_get_processes_and_the_plan_says_so(place: Path) -> None:
    words = ("infer_launch", *LAUNCH[:-2], "--dry_run", "--precision", "fp32")
    several, few = (run(*words, "--num_workers", number, cwd=place) for number in (11, 5))
    assert "and 11 loader thread(s) in 3 loader process(es); spinning off" in several.stdout, several.stderr
    assert "and 5 loader thread(s); spinning off" in few.stdout
    assert fingerprint(several.stdout) == fingerprint(few.stdout), "no part of the job"


@long
def test_a_job_that_threads_began_goes_on_with_processes(place: Path) -> None:
    words = ("infer_launch", *LAUNCH, "--output", "out", "--batches_per_step", 2)
    assert run(*words, cwd=place).returncode == 3
    parts = sorted((place / "out").glob("part-*"))
    for part in parts[::2]:
        part.unlink()
    removed = {part.name for part in parts[::2]}
    found = run(*words, "--loader_processes", 2, cwd=place)
    assert found.returncode == 3, found.stderr
    assert {part.name for part in (place / "out").glob("part-*")} >= removed
    assert run("bulkinfer", "verify", "out", cwd=place).returncode == 0
