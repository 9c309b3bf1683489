"""remote_loader.py and loader_process.py: real processes fill the batches of a worker, and take it with them when they die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.pillow_warnings import take_counts
from bulkinfer.types import Array, Fault, Record, Step
from bulkinfer.worker import remote_loader
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.loader import Limits, Loader, load_record
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.protocol import RunSpec
from bulkinfer.worker.remote_loader import LoaderProcessError, LoaderProcesses

from tests import pictures
from tests.commands import living
from tests.launches import launch_of, spec_of
from tests.models import RECIPE

PATIENCE_S = 120.0  # nothing here takes a tenth of it; a machine may be busy
# A loader process that ends when it comes to a picture called so.
DYING = """
import os, sys, time
from bulkinfer.worker import loader_process
plain = loader_process.load_record
def load_record(record, *rest):
    name = os.path.basename(record.place)
    if name.startswith(b"signal-"):
        os.kill(os.getpid(), int(name[7:]))
        time.sleep(600)  # it may come a moment later
    if name.startswith(b"exit-"):
        os._exit(int(name[5:]))
    if name == b"bug":
        raise ZeroDivisionError("a bug of ours")
    if name == b"hang":
        time.sleep(600)
    while name == b"slow" and not os.path.exists(os.path.dirname(record.place) + b"/go"):
        time.sleep(0.01)
    return plain(record, *rest)
loader_process.load_record = load_record
loader_process.main(sys.argv[1:])
"""


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return replace(spec_of(launch_of(tmp_path)), num_workers=3, loader_processes=2)


class Pool:
    """Loader processes of a worker of three threads, and what its log says."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.meter, self.said = spec, Meter(), list[str]()
        self.descriptor = shared(spec.num_workers, 0)
        self.marks = InFlight(spec.num_workers, 0, self.descriptor)
        self.processes = LoaderProcesses(spec, self.descriptor, self.meter, self.said.append)
        self.processes.wait_until_ready()
        self.batch = self.processes.new_batch((4, RECIPE.height, RECIPE.width, 3))

    def load(self, *paths: Path, thread: int = 0) -> Any:
        """What becomes of pictures in the first slots of a batch, and the batch."""
        batch = self.batch
        records = [Record(number, b"key", os.fsencode(path)) for number, path in enumerate(paths, 70)]
        return self.processes.load_chunk(self.marks.loaders[thread], 5, records, batch), batch


@pytest.fixture
def pool(spec: RunSpec) -> Iterator[Pool]:
    made = Pool(spec)
    yield made
    made.processes.close()
    os.close(made.descriptor)


@pytest.fixture
def dying(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """With processes that do what the names of their pictures say."""
    (tmp_path / "dying.py").write_text(DYING)
    monkeypatch.setattr(remote_loader, "COMMAND", (sys.executable, str(tmp_path / "dying.py")))
    made = Pool(spec)
    yield made
    made.processes.close()
    os.close(made.descriptor)


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def odd_pictures(folder: Path) -> list[Path]:
    """Good ones, and one of each kind of error and flag."""
    files = {
        "photo.jpg": pictures.jpeg(640, 480), "cut.jpg": pictures.cut(pictures.jpeg(640, 480)), "empty": b"",
        "page.png": pictures.HTML_PAGE, "turned.jpg": pictures.oriented(pictures.noise(64, 48), 6),
        "deep.png": pictures.grey16_png(), "huge.png": pictures.bit_png(20_000, 20_000), "moving.gif": pictures.animated("GIF"),
    }  # fmt: skip
    pictures.write_files(folder, files)
    return [folder / name for name in (*files, "missing.jpg", ".")]


def by_threads(path: Path, limits: Limits) -> tuple[Any, Array]:
    """The same by a thread of this process."""
    out = np.zeros((RECIPE.height, RECIPE.width, 3), np.uint8)
    try:
        return load_record(Record(0, b"", os.fsencode(path)), RECIPE, limits, out, Meter()), out
    except Exception as error:
        return (error.stage, error.message), out  # type: ignore[attr-defined]


def test_pictures_come_out_as_by_threads(pool: Pool, tmp_path: Path) -> None:
    prepare_decoder()
    limits = Limits(pool.spec.max_pixels, pool.spec.max_file_bytes)
    for number, path in enumerate(odd_pictures(tmp_path / "odd")):
        (loaded,), batch = pool.load(path, thread=number % 3)
        expected, pixels = by_threads(path, limits)
        assert loaded == expected, path
        if not isinstance(expected, tuple):
            assert (batch[0] == pixels).all(), path


def test_a_chunk_goes_side_by_side_and_its_seconds_and_warnings_count_here(pool: Pool, tmp_path: Path) -> None:
    colours = [(250, 1, 2), (3, 250, 4), (5, 6, 250)]
    files = {f"{n}.png": pictures.encode(pictures.solid(colour)) for n, colour in enumerate(colours)}
    files["odd.jpg"] = pictures.with_app1(pictures.jpeg(), b"Exif\0\0II*\0" + b"\xff" * 40)
    pictures.write_files(tmp_path / "some", files)
    pool.meter.enter("wait_for_slot")
    loaded, batch = pool.load(*(tmp_path / "some" / name for name in files), thread=2)
    assert [facts.format for facts in loaded] == ["PNG", "PNG", "PNG", "JPEG"]
    assert [tuple(batch[n, 5, 5]) for n in range(3)] == colours
    assert {"read", "decode", "preprocess"} <= set(pool.meter.snapshot().seconds)
    waited_s = pool.meter.snapshot().seconds["wait_for_slot"]
    assert pool.meter.snapshot().seconds["wait_for_slot"] == waited_s, "the thread is in no stage"
    assert sum(take_counts().values()) >= 1
    assert pool.marks.loading() == []


def test_each_batch_begins_at_a_page(pool: Pool) -> None:
    addresses = {pool.processes.new_batch((4, RECIPE.height, RECIPE.width, 3)).ctypes.data for _ in range(5)}
    assert len(addresses - {pool.batch.ctypes.data}) == 5
    assert all(address % os.sysconf("SC_PAGESIZE") == 0 for address in addresses)


def test_a_record_that_kills_is_not_sent(pool: Pool) -> None:
    record = Record(0, b"key", b"missing.jpg", fault=Fault("infer", "every process died"))
    pool.processes._connections[0].pipes.close()  # nobody could be asked
    assert pool.processes.load_chunk(pool.marks.loaders[0], 0, [record], pool.batch) == [("infer", "every process died")]


def test_the_marks_name_the_very_picture(dying: Pool, tmp_path: Path) -> None:
    """Also where it is in the middle of a chunk."""
    pictures.write_files(tmp_path / "some", {"a.png": pictures.encode(pictures.solid()), "slow": b"", "z": b""})
    paths = [tmp_path / "some" / name for name in ("a.png", "slow", "z")]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(dying.load(*paths, thread=1)))
    thread.start()
    until(lambda: dying.marks.loading() == [Step(5, 71, 72)], "the slow one is marked")
    dying.processes.stop()
    (tmp_path / "some" / "go").touch()
    thread.join(PATIENCE_S)
    ((loaded, _),) = found
    assert [type(one).__name__ for one in loaded] == ["Facts", "tuple"], "what was begun is finished, the last one is not begun"


def test_a_bug_is_raised_here(dying: Pool, tmp_path: Path) -> None:
    with pytest.raises(LoaderProcessError, match="ZeroDivisionError: a bug of ours"):
        dying.load(tmp_path / "bug")


def test_nothing_is_left_after_close(spec: RunSpec) -> None:
    pool = Pool(spec)
    pids = pool.processes.pids
    assert (len(pids), living(pids)) == (2, pids)
    pool.processes.close()
    assert living(pids) == []
    with pytest.raises(ValueError, match="closed file"):
        pool.load(Path("a.png"))
    os.close(pool.descriptor)


# A worker, as far as its loader processes go: argv are the run file, the command of a process, and a picture.
WORKER = """
import json, sys, threading
from pathlib import Path
from tests.unit.worker.test_remote_loader import Pool
from bulkinfer.worker import remote_loader
from bulkinfer.worker.protocol import RunSpec
from dataclasses import replace
remote_loader.COMMAND = tuple(json.loads(sys.argv[2]))
spec = replace(RunSpec.read(Path(sys.argv[1])), num_workers=3, loader_processes=2)
pool = Pool(spec)
pool.said = print
pool.processes._say = lambda text: print(text, flush=True)
print(json.dumps(pool.processes.pids), flush=True)
for thread in (0, 2):  # of the other process
    threading.Thread(target=pool.load, args=(Path("hang"),), kwargs={"thread": thread}, daemon=True).start()
pool.load(Path(sys.argv[3]), thread=1)
input()
"""


def start_worker(tmp_path: Path, spec: RunSpec, command: list[str], picture: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A worker that loads the picture; and the ids of its loader processes."""
    (tmp_path / "dying.py").write_text(DYING)
    spec.write(tmp_path / "run.json")
    words = [sys.executable, "-c", WORKER, str(tmp_path / "run.json"), json.dumps(command), picture]
    root = Path(__file__).parents[3]
    process = subprocess.Popen(words, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, json.loads(line) if line.startswith("[") else []


@pytest.mark.parametrize(("picture", "code"), [("signal-9", -9), ("signal-11", -11), ("signal-6", -6), ("exit-3", 3)])
def test_a_worker_ends_as_its_loader_process(tmp_path: Path, spec: RunSpec, picture: str, code: int) -> None:
    process, pids = start_worker(tmp_path, spec, [sys.executable, str(tmp_path / "dying.py")], picture)
    told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    assert told.startswith("loader process ")
    assert told.endswith(f" ended by {how}: its worker ends in the same way\n")
    until(lambda: living(pids) == [], "the other one ends as well")


def test_a_loader_process_that_cannot_start_ends_the_worker(tmp_path: Path, spec: RunSpec) -> None:
    process, _ = start_worker(tmp_path, spec, [sys.executable, "-c", "raise SystemExit(7)"], "a.png")
    told, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told) == (7, "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_loader_processes_end_with_their_worker(tmp_path: Path, spec: RunSpec, number: int) -> None:
    process, pids = start_worker(tmp_path, spec, list(remote_loader.COMMAND), "missing.jpg")
    assert living(pids) == pids
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    until(lambda: living(pids) == [], "they end")


def test_signals_of_a_terminal_do_not_reach_them(pool: Pool, tmp_path: Path) -> None:
    pictures.write_files(tmp_path / "some", {"a.png": pictures.encode(pictures.solid())})
    for pid in pool.processes.pids:
        assert os.getsid(pid) != os.getsid(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
    for thread in range(3):
        (loaded,), _ = pool.load(tmp_path / "some" / "a.png", thread=thread)
        assert loaded.format == "PNG"


def test_a_loader_with_processes_delivers_every_record_in_its_slot(pool: Pool, tmp_path: Path) -> None:
    colours = [(n * 5, 250 - n * 5, 100) for n in range(50)]
    files = {f"{n:02d}.png": pictures.encode(pictures.solid(colour)) for n, colour in enumerate(colours)}
    files["13.png"] = pictures.cut(files["13.png"])
    pictures.write_files(tmp_path / "some", files)

    def records(step: Step) -> Iterator[Record]:
        return (Record(n, b"%d" % n, os.fsencode(tmp_path / "some" / f"{n:02d}.png")) for n in range(step.start, step.end))

    def load(*_: Any) -> Any:
        raise AssertionError("a thread of the worker loads nothing")

    pool.processes._offsets = iter(range(0, 1 << 40, pool.processes._stride))  # that of pool.batch as well
    loader = Loader(
        [Step(0, 0, 10), Step(0, 10, 11), Step(0, 11, 50)], records=records, new_rows=lambda step: step, load=load,
        batch_shape=(4, RECIPE.height, RECIPE.width, 3), marks=pool.marks.loaders, num_streams=pool.spec.session.streams,
        meter=pool.meter, new_batch=pool.processes.new_batch, chunk_loader=pool.processes,
    )  # fmt: skip
    seen = []
    while (batch := loader.next_ready()) is not None:
        for index, record in enumerate(batch.records[: batch.count]):
            assert record is not None
            expected = (0, 0, 0) if record.number == 13 else colours[record.number]
            assert tuple(batch.images_NHWC[index, 9, 9]) == expected
            assert (index in batch.errors) == (record.number == 13)
            seen.append(record.number)
        assert not batch.images_NHWC[batch.count :].any()
        loader.recycle(batch)
    assert sorted(seen) == list(range(50))
