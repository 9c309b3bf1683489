"""Processes killed in the middle of a batch or of a file: nothing is lost, nothing twice, and no half file is read."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import pictures
from tests.commands import records, run
from tests.forms import long, only_first
from tests.models import COLOURS, LABELS, tiny_graph, write_tiny_model
from tests.runtime_in_front import runtime_in_front

# `die()` ends this worker by SIGKILL, once in all; `with_launcher` first its launcher. `published()`: whether there is a part.
DIE = """
import glob, os, signal, time
def published():
    return bool(glob.glob("out/part-*"))
def is_first():
    try:
        os.close(os.open("died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
def kill(with_launcher):
    if with_launcher:
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
def die(with_launcher):
    if is_first():
        kill(with_launcher)
"""
AT_THE_THIRD_BATCH = """
import onnxruntime
plain, batches = onnxruntime.InferenceSession.run, 0
def run(self, *arguments):
    global batches
    batches += published()
    if batches == 3:
        die(False)
    return plain(self, *arguments)
onnxruntime.InferenceSession.run = run
"""
AT_A_WHITE_PICTURE = """
import onnxruntime
plain = onnxruntime.InferenceSession.run
def run(self, names, feed, *rest):
    (images,) = feed.values()
    if (images == 255).all(axis=(1, 2, 3)).any():
        while not published():
            time.sleep(0.01)
        die(True)
    return plain(self, names, feed, *rest)
onnxruntime.InferenceSession.run = run
"""
IN_THE_SECOND_FILE = """
import pyarrow.parquet
plain = pyarrow.parquet.write_table
def write_table(table, file, **options):
    if published() and is_first():
        pyarrow.parquet.ParquetWriter(file, table.schema).write_table(table.slice(0, 2))
        file.flush()
        kill({with_launcher})
    plain(table, file, **options)
pyarrow.parquet.write_table = write_table
"""
LAUNCH = ("--model_name", "tiny", "--device", "cpu", "--data_dir", "photos", "--batches_per_step", 1, "--output", "out")


def write_photos(place: Path, count: int) -> None:
    """000-black.png, 001-red.png and so on."""
    names = {f"{number:03d}-{LABELS[number % 8]}.png": COLOURS[LABELS[number % 8]] for number in range(count)}
    pictures.write_files(
        place / "photos", {name: pictures.encode(pictures.solid(colour, (40, 40))) for name, colour in names.items()}
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models", batch_sizes=(4, 6))
    return tmp_path


def check_all_done(place: Path, count: int) -> None:
    """A row for every picture, its own; a further run finds nothing to do and leaves no temporary file."""
    again = run("infer_launch", *LAUNCH, cwd=place)
    assert again.returncode == 0, again.stderr
    assert f"{count} of {count} records are done, 0 to do" in again.stdout
    found = records(place / "out")
    assert len(found) == count
    assert all(row["class_names"][0] in key for key, row in found.items())
    assert pq.read_table(place / "out").num_rows == count
    assert not list((place / "out").glob("_tmp-*"))
    assert run("bulkinfer", "verify", "out", cwd=place).returncode == 0


def test_b43_a_worker_killed_at_its_third_batch_is_replaced_within_seconds(place: Path) -> None:
    write_photos(place, 90)
    env = runtime_in_front(place / "front", after=DIE + AT_THE_THIRD_BATCH)
    started = time.monotonic()
    found = run("infer_launch", *LAUNCH, "--num_devices", 2, cwd=place, env=env)
    assert time.monotonic() - started < 150, "half of the time after which a worker that does not answer is ended"
    assert found.returncode == 0, found.stderr
    assert (place / "died").exists()
    (told,) = found.stderr.splitlines()
    assert re.fullmatch(r"infer_launch: worker [01] ended by signal 9 \(SIGKILL\); a new one takes over", told)
    assert "records: 90 = 90 ok + 0 errors" in found.stdout
    assert re.search(r"^replaced: worker [01] ended by signal 9 \(SIGKILL\)", found.stdout, re.MULTILINE)
    check_all_done(place, 90)


@pytest.mark.parametrize("with_launcher", only_first([False, True]), ids=["worker", "worker and launcher"])
def test_b46_a_writer_killed_in_the_middle_leaves_nothing_that_is_read(place: Path, with_launcher: bool) -> None:
    write_photos(place, 60)
    env = runtime_in_front(place / "front", after=DIE + IN_THE_SECOND_FILE.format(with_launcher=with_launcher))
    found = run("infer_launch", *LAUNCH, "--num_devices", 2, cwd=place, env=env)
    assert (place / "died").exists()
    if with_launcher:
        assert found.returncode == -9
        assert list((place / ".out.bulkinfer").glob("_tmp-*"))
        so_far = pq.read_table(place / "out")["key"].to_pylist()
        assert 0 < len(set(so_far)) == len(so_far) < 60
        assert run("infer_launch", *LAUNCH, cwd=place).returncode == 0
    else:
        assert found.returncode == 0, found.stderr
    check_all_done(place, 60)


@long
def test_b47_equal_pictures_are_all_run_after_a_stop_and_a_swapped_network_is_refused(place: Path) -> None:
    """Eight pictures in batches of four, three of them the same; killed when the second batch, the one with white, is run."""
    colours = ["black", "red", "red", "blue", "yellow", "red", "magenta", "white"]
    files = {f"{n:03d}-{name}.png": pictures.encode(pictures.solid(COLOURS[name])) for n, name in enumerate(colours)}
    pictures.write_files(place / "photos", files)
    env = runtime_in_front(place / "front", after=DIE + AT_A_WHITE_PICTURE)
    words = (*LAUNCH, "--batch_size", 4, "--num_devices", 1)
    assert run("infer_launch", *words, cwd=place, env=env).returncode == -9
    assert len(records(place / "out")) == 4
    (part,) = (place / "out").glob("part-*")
    written = part.stat().st_mtime_ns
    resumed = run("infer_launch", *words, cwd=place, env=env)
    assert resumed.returncode == 0, resumed.stderr
    assert "4 of 8 records are done, 4 to do" in resumed.stdout
    assert part.stat().st_mtime_ns == written
    found = records(place / "out")
    assert sorted(found) == sorted(files)
    assert all(row["class_names"][0] in key for key, row in found.items())
    assert "8 of 8 records are done, 0 to do" in run("infer_launch", *words, cwd=place).stdout
    graph = tiny_graph(4)
    graph.producer_name = "another"
    write_tiny_model(place / "models", batch_sizes=(4,), graph=graph)
    swapped = run("infer_launch", *words, cwd=place)
    assert swapped.returncode == 2
    assert "differs in graph_sha256" in swapped.stderr
    assert records(place / "out") == found
