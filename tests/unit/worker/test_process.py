"""process.py: a worker inside this process on a tiny network, its ear for the launcher, and once the real process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.host.usage import peak_memory_bytes
from bulkinfer.launch.run import write_run
from bulkinfer.launch.step_queue import split_step
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.results.job_file import job_path
from bulkinfer.results.parquet_parts import METADATA_KEY
from bulkinfer.results.part_names import part_name
from bulkinfer.runtime.session import Session
from bulkinfer.types import Fault, Step
from bulkinfer.worker import process as worker_process
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.loader import num_batches
from bulkinfer.worker.process import Manifests, Worker
from bulkinfer.worker.protocol import (
    Command,
    End,
    Ended,
    Event,
    ManifestRef,
    Ready,
    Refused,
    RunSpec,
    RunStep,
    StepDone,
    Stop,
    decode,
    encode,
)

from tests.commands import living, records
from tests.graphs import always_raises
from tests.launches import launch_of, spec_of
from tests.models import tiny_graph, write_tiny_model

STEPS = split_step(Step(0, 0, 10), 4)


# -- manifests -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of manifests that were read, in order."""
    paths: list[str] = []
    plain = Manifest.read_again
    monkeypatch.setattr(Manifest, "read_again", lambda path, *hashes: (paths.append(path.name), plain(path, *hashes))[1])
    return paths


def manifests_of(folder: Path, count: int) -> Manifests:
    """Manifest n has n + 1 records and the file name n."""
    refs = {}
    for index in range(count):
        manifest = Manifest.from_entries([Entry(b"%d.jpg" % n, 10) for n in range(index + 1)], b"/pictures")
        manifest.write(folder / str(index))
        refs[index] = ManifestRef(str(folder / str(index)), manifest.content_hash, file_sha256(folder / str(index)))
    spec: Any = SimpleNamespace(manifests=refs)
    return Manifests(spec)


def test_the_two_manifests_last_used_are_kept(tmp_path: Path, read: list[str]) -> None:
    manifests = manifests_of(tmp_path, 4)
    for index in (0, 1, 0, 1, 0):
        assert manifests.get(index).num_records == index + 1
    assert read == ["0", "1"]
    assert manifests.get(2).num_records == 3
    manifests.get(0)
    assert read == ["0", "1", "2"], "the running step's and the next one's are there"
    manifests.get(1)
    assert read == ["0", "1", "2", "1"]


def test_a_manifest_that_was_replaced_is_refused(tmp_path: Path) -> None:
    manifests = manifests_of(tmp_path, 2)
    (tmp_path / "0").rename(tmp_path / "1")
    with pytest.raises(RunError, match="1 was replaced during the run: run the job again, with another --output"):
        manifests.get(1)
    with pytest.raises(RunError, match="0 does not exist"):
        manifests.get(0)


# -- a worker in this process --------------------------------------------------------------------------------------------


class Place:
    """A worker on a launch of ten pictures, and what it says."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.events: list[Event] = []
        self.lines: list[str] = []
        self.react: Callable[[Event], None] = lambda _: None
        self.in_flight = InFlight(spec.num_workers, spec.session.streams)
        self.worker = Worker(
            replace(spec, devices=(0,) * 4), 3, report=self.hear, say=self.lines.append, in_flight=self.in_flight
        )

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self.react(event)

    def serve(self, *commands: Command) -> int:
        for command in commands:
            self.worker.take(command)
        return self.worker.serve()

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def done(self) -> list[StepDone]:
        return [event for event in self.events if isinstance(event, StepDone)]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        assert self.spec.output is not None
        return records(Path(self.spec.output))


def place_of(folder: Path, **options: Any) -> Place:
    return Place(spec_of(launch_of(folder, batches_per_step=1, **options)))


@pytest.mark.parametrize("input", ["uint8", "float32"])
def test_a_worker_runs_the_steps_it_is_given(tmp_path: Path, input: str) -> None:
    place = place_of(tmp_path, input=input)
    assert place.serve(*(RunStep(step) for step in STEPS), End()) == 0
    assert place.kinds == ["Ready", "StepDone", "StepDone", "StepDone", "Ended"]
    ready, *_, ended = place.events
    assert isinstance(ready, Ready)
    assert isinstance(ended, Ended)
    assert (ready.proof["provider"], ready.pid) == ("CPUExecutionProvider", os.getpid())
    assert ready.warm_up_rate == 0, "the first batch warms up"
    assert [event.warm_up for event in place.done] == [4, 0, 0]
    assert ended.totals.metrics["seconds"]["warm_up"] > 0
    assert sum(ended.totals.metrics["runs"].values()) == 2
    assert {"numpy", "onnxruntime"} <= set(ready.versions)
    assert [(event.step, event.count, event.ok, event.stages) for event in place.done] == [
        (step, len(step), len(step), {}) for step in STEPS
    ]
    assert set(ended.totals.metrics["seconds"]) >= {"read", "decode", "preprocess", "infer", "rows", "write"}
    assert len(place.rows) == 10
    assert all(row["class_names"][0] in key for key, row in place.rows.items())
    facts = json.loads(pq.read_metadata(tmp_path / "out" / part_name(STEPS[0])).metadata[METADATA_KEY])
    assert (facts["ran"], facts["versions"]) == (ready.proof, ready.versions)
    assert facts["fingerprint"] == place.spec.metadata["fingerprint"]


def test_a_worker_with_loader_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures are theirs as well, a GPU can copy from its batches, and they are gone when it has ended."""
    spec = replace(spec_of(launch_of(tmp_path, batches_per_step=1)), num_workers=3, loader_processes=2)
    place, marks, pinned, pids = Place(spec), shared(3, 1), list[Any](), list[int]()
    place.in_flight.descriptor = marks

    def pin(_session: Session, images: Any) -> Any:
        pinned.append(images)
        return images

    def react(_event: Event) -> None:
        assert place.worker._loaders is not None
        pids[:] = place.worker._loaders.pids

    monkeypatch.setattr(Session, "pin", pin)
    monkeypatch.setattr(worker_process, "load_record", None)  # a thread of the worker would fail
    place.react = react
    fault = Fault("decode", "it kills")
    assert place.serve(*(RunStep(step) for step in STEPS[:2]), RunStep(Step(0, 8, 10), fault=fault), End()) == 0
    os.close(marks)
    assert {event.step: event.stages for event in place.done} == {STEPS[0]: {}, STEPS[1]: {}, Step(0, 8, 10): {"decode": 2}}
    assert {key for key, row in place.rows.items() if row["class_names"] is None} == {"008-black.png", "009-red.png"}
    assert all(row["class_names"][0] in key for key, row in place.rows.items() if row["status"] == "ok")
    assert len(pinned) == num_batches(1, 3 * 4, 4)
    assert {images.ctypes.data % os.sysconf("SC_PAGESIZE") for images in pinned} == {0}
    ended = place.events[-1]
    assert isinstance(ended, Ended)
    seconds = ended.totals.metrics["seconds"]
    assert min(seconds[stage] for stage in ("read", "decode", "preprocess", "infer", "rows", "write")) > 0
    assert ended.totals.peak_memory_bytes > peak_memory_bytes(), "theirs is added"
    assert len(pids) == 2
    assert living(pids) == []


def test_the_log_of_a_worker_has_all_its_events(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert place.serve(RunStep(STEPS[0]), End()) == 0
    (log,) = Path(place.spec.log_dir).glob("worker-3.jsonl")
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["kind"] for event in told] == ["Ready", "StepDone", "modules", "Ended"]
    assert "bulkinfer" in told[2]["names"]
    assert place.lines[0].startswith("5 nodes on CPUExecutionProvider")
    assert place.lines[1] == "warm-up: 4 pictures", "the only batch"


def test_zeros_warm_up_where_the_run_says_so(tmp_path: Path) -> None:
    place = Place(replace(spec_of(launch_of(tmp_path, batches_per_step=1)), warm_up_s=0.0))
    assert place.serve(RunStep(STEPS[0]), End()) == 0
    ready, *_ = place.events
    assert isinstance(ready, Ready)
    assert ready.warm_up_rate > 0
    assert [event.warm_up for event in place.done] == [0]
    assert re.search(r"; loaded in [\d.]+ sec, warm-up [\d.]+ images/sec$", place.lines[0])
    assert place.lines[1].startswith("Total ")


def test_a_record_that_kills_gets_its_row_without_being_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, opened = place_of(tmp_path), Counter[bytes]()
    plain = worker_process.load_record

    def load_record(record: Any, *rest: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("bulkinfer.worker.loader.read_place", lambda path, limit: opened.update([path]))
            return plain(record, *rest)

    monkeypatch.setattr(worker_process, "load_record", load_record)
    fault = "every process that touched this record died; the last: worker 0 ended by signal 9 (SIGKILL)"
    assert place.serve(RunStep(Step(0, 5, 6), fault=Fault("infer", fault)), End()) == 0
    assert not opened
    (event,) = place.done
    assert (event.count, event.ok, event.stages) == (1, 0, {"infer": 1})
    (row,) = place.rows.values()
    assert (row["key"], row["status"], row["stage"], row["error"]) == ("005-cyan.png", "error", "infer", fault)
    assert row["width"] is row["class_ids"] is None


def test_only_the_step_with_a_fault_is_left_alone(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert (
        place.serve(
            RunStep(Step(0, 0, 5)), RunStep(Step(0, 5, 6), fault=Fault("decode", "it kills")), RunStep(Step(0, 6, 10)), End()
        )
        == 0
    )
    assert {key for key, row in place.rows.items() if row["status"] == "error"} == {"005-cyan.png"}
    assert len(place.rows) == 10


def test_a_worker_that_is_stopped_before_it_begins(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert place.serve(RunStep(STEPS[0]), Stop(), RunStep(STEPS[1])) == 0
    assert place.kinds == ["Ready", "Ended"]
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_stop_publishes_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, plain = place_of(tmp_path, photos=30), worker_process.load_record

    def stop_at_record_nine(record: Any, *rest: Any) -> Any:
        if record.number == 9:
            while place.worker._source is None:  # loading begins before the loader is known to the worker
                time.sleep(0.001)
            place.worker.take(Stop())
        return plain(record, *rest)

    monkeypatch.setattr(worker_process, "load_record", stop_at_record_nine)
    assert place.serve(RunStep(Step(0, 0, 30)), End()) == 0
    assert [(event.step, event.count) for event in place.done] == [(Step(0, 0, 30), 8)]
    assert [path.name for path in (tmp_path / "out").glob("part-*")] == [part_name(Step(0, 0, 8))]
    assert place.kinds[-1] == "Ended"


def test_a_synthetic_worker(tmp_path: Path) -> None:
    place = place_of(tmp_path, synthetic=True)
    assert place.serve(RunStep(Step(3, 0, 40)), RunStep(Step(3, 40, 80)), End()) == 0
    assert [(event.step, event.ok) for event in place.done] == [(Step(3, 0, 40), 40), (Step(3, 40, 80), 40)]
    assert not list(tmp_path.rglob("*.parquet"))


# -- refusals ------------------------------------------------------------------------------------------------------------


def refused(place: Place, *commands: Command) -> Refused:
    """What the worker refuses with; its exit code is the one it tells."""
    code = place.serve(*commands, End())
    refusal = place.events[-1]
    assert isinstance(refusal, Refused), place.events
    assert refusal.exit_code == code
    log = (Path(place.spec.log_dir) / "worker-3.jsonl").read_text()
    assert json.loads(log.splitlines()[-1])["message"] == refusal.message
    return refusal


def test_another_graph_than_the_launch_began_with_is_refused(tmp_path: Path) -> None:
    place, other = place_of(tmp_path), tiny_graph(4)
    other.producer_name = "another"
    write_tiny_model(tmp_path / "models", batch_sizes=(4,), graph=other)
    refusal = refused(place)
    assert (refusal.exit_code, place.kinds) == (1, ["Refused"])
    assert refusal.message.endswith("model_4.onnx was replaced during the run: run the job again, with another --output")


def test_a_graph_that_the_provider_cannot_run_is_wrong_use(tmp_path: Path) -> None:
    graph = tiny_graph(4)
    graph.graph.node[0].op_type = "NoSuchOperator"
    launch = launch_of(tmp_path)
    write_tiny_model(tmp_path / "models", batch_sizes=(4,), graph=graph)
    spec = spec_of(launch)
    sidecar = json.loads((tmp_path / "models" / "tiny" / "model_4.json").read_text())
    refusal = refused(Place(replace(spec, graph_sha256=sidecar["sha256"])))
    assert refusal.exit_code == 2
    assert "NoSuchOperator" in refusal.message


def test_a_network_that_cannot_run_is_one_sentence_and_no_row(tmp_path: Path) -> None:
    """It raises on pictures and on zeros: found with the first batch."""
    spec = spec_of(launch_of(tmp_path))
    write_tiny_model(tmp_path / "models", batch_sizes=(4,), graph=always_raises(4))
    sidecar = json.loads((tmp_path / "models" / "tiny" / "model_4.json").read_text())
    place = Place(replace(spec, graph_sha256=sidecar["sha256"]))
    refusal = refused(place, RunStep(Step(0, 0, 10)))
    assert (refusal.exit_code, place.kinds) == (1, ["Ready", "Refused"])
    assert refusal.message.startswith("the network fails on pictures, and on zeros as well: Non-zero status code")
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_replaced_manifest_is_refused_in_the_middle(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    path = Path(place.spec.manifests[0].path)
    Manifest.from_entries([Entry(b"other.jpg", 10)], b"/pictures").write(path)
    refusal = refused(place, RunStep(STEPS[0]))
    assert (refusal.message.startswith(f"{path} was replaced"), refusal.exit_code, place.kinds[0]) == (True, 1, "Ready")


def test_an_error_of_the_system_is_one_sentence(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    job_path(tmp_path / "out").unlink()
    (tmp_path / "out").rmdir()
    (tmp_path / "out").touch()
    refusal = refused(place, RunStep(STEPS[0]))
    assert refusal.exit_code == 1
    assert refusal.message.startswith(f"Not a directory: {tmp_path / 'out'}")


def test_a_bug_of_ours_ends_the_run_and_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not found out by bisecting: that would make error rows of good pictures."""

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(worker_process, "load_record", fails)
    place = place_of(tmp_path)
    assert place.serve(RunStep(STEPS[0]), End()) == 1
    assert place.kinds == ["Ready", "Refused"]
    assert place.events[-1].message.startswith("internal error, ZeroDivisionError: a bug of ours; ")
    assert place.events[-1].message.endswith("worker-3.log has the details")
    assert "Traceback" in capsys.readouterr().err


# -- the process ---------------------------------------------------------------------------------------------------------


class Process:
    """A real worker process, its log and both its pipes."""

    def __init__(self, run_file: Path) -> None:
        (reading, writing), marks = os.pipe(), shared(1, 1)
        words = [sys.executable, "-P", "-m", "bulkinfer.worker.process", str(run_file), "0", str(writing), str(marks)]
        self.log = run_file.parent / "worker-0.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writing, marks])
        os.close(writing)
        os.close(marks)
        self.reports = os.fdopen(reading)

    def hear(self) -> Event:
        """The next event."""
        event: Event = decode(self.reports.readline())
        return event

    def say(self, command: Command) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(command).encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Close our ends; returns the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(60)
        self.reports.close()
        return code


def test_the_process(tmp_path: Path) -> None:
    run_file = write_run(launch_of(tmp_path, batches_per_step=1))
    process = Process(run_file)
    ready = process.hear()
    assert isinstance(ready, Ready)
    assert ready.pid == process.process.pid
    process.say(RunStep(STEPS[0]))
    process.say(RunStep(Step(0, 4, 5), fault=Fault("decode", "it kills")))
    first, second = process.hear(), process.hear()
    assert isinstance(first, StepDone)
    assert isinstance(second, StepDone)
    assert (first.step, second.step, second.stages) == (STEPS[0], Step(0, 4, 5), {"decode": 1})
    process.say(End())
    assert isinstance(process.hear(), Ended)
    assert process.end() == 0
    assert process.log.read_text().startswith(f"$ {sys.executable} -P -m bulkinfer.worker.process {run_file} 0\ncores [")


def test_the_line_that_a_log_begins_with_can_be_typed(tmp_path: Path) -> None:
    """For a debugger: a worker that reports on stdout. Of a launch that is gone it runs, and publishes nothing."""
    run_file = write_run(launch_of(tmp_path / "it's here", batches_per_step=1))
    process = Process(run_file)
    process.hear()
    process.end()
    line = process.log.read_text().splitlines()[0].removeprefix("$ ")
    commands = "".join(f"{encode(command)}\n" for command in (RunStep(STEPS[0]), End()))

    def typed() -> tuple[int, list[Event]]:
        ended = subprocess.run(line, shell=True, input=commands, capture_output=True, text=True, check=False)
        assert ended.stderr == ""
        return ended.returncode, [decode(told) for told in ended.stdout.splitlines() if told.startswith("{")]

    code, events = typed()
    assert (code, [type(event) for event in events]) == (0, [Ready, StepDone, Ended])
    replace(RunSpec.read(run_file), locks={str(tmp_path / "_lock.json"): "of a launcher that has ended"}).write(run_file)
    code, events = typed()
    assert (code, [type(event) for event in events]) == (1, [Ready, Refused])
    assert isinstance(events[1], Refused)
    assert "_lock.json was lost: its holder has ended, or did not renew it for 60 s; nothing more is" in events[1].message


def test_the_process_without_its_launcher(tmp_path: Path) -> None:
    process = Process(write_run(launch_of(tmp_path, batches_per_step=1)))
    assert isinstance(process.hear(), Ready)
    assert process.end() == 1
    assert "Traceback" not in process.log.read_text()


def test_a_run_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "damaged.json").write_text("{")
    words = [sys.executable, "-P", "-m", "bulkinfer.worker.process"]
    for name in ("none.json", "damaged.json"):
        done = subprocess.run([*words, str(tmp_path / name), "0"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"worker 0: {tmp_path / name} ")
        assert done.stderr.count("\n") == 1
