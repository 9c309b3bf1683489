"""infer_launch as a user calls it, on a tiny network whose best class is the colour of the picture."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bulkinfer.files.own_folder import own_folder
from PIL import Image

from tests import pictures
from tests.commands import children, command, living, records, rows, run, summary, wait_until_gone
from tests.forms import long, long_param, only_first
from tests.models import COLOURS, LABELS, colour_logits, write_tiny_model
from tests.runtime_in_front import held_after, runtime_in_front


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models/tiny, 103 photographs' worth of solid pictures, one of them cut, and 8 partitions of them."""
    folder = tmp_path_factory.mktemp("place")
    write_tiny_model(folder / "models", batch_sizes=(1, 6))
    for number in range(103):
        name = LABELS[number % 8]
        data = pictures.encode(Image.new("RGB", (40 + number % 7, 50), COLOURS[name]), "JPEG", quality=95)
        path = folder / "photos" / f"{number % 3}" / f"{number:03d}-{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if number != 50 else pictures.cut(data))
    found = run("partition_dataset", "--data-dir", "photos", "--partitions", 8, cwd=folder)
    assert found.returncode == 0, found.stderr
    return folder


def on_cpu_unless_said(words: tuple[object, ...]) -> tuple[object, ...]:
    """Rows are compared bit for bit: auto would take what happens to be faster at the moment."""
    return words if "--device" in words else ("--device", "cpu", *words)


def launch(place: Path, *words: object, model: str = "tiny", **options: Any) -> Any:
    return run("infer_launch", "--model_name", model, *on_cpu_unless_said(words), cwd=place, **options)


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    """The output of one worker on the plain folder."""
    output = place / "undisturbed"
    found = launch(place, "--data_dir", "photos", "--num_devices", 1, "--output", output, "--save", "topk,logits,embedding")
    assert found.returncode == 3, found.stderr
    return output


@pytest.fixture(scope="module")
def undisturbed_on(place: Path, undisturbed: Path) -> Callable[[str], Path]:
    """The same on any device."""

    @cache
    def output_on(device: str) -> Path:
        if device == "cpu":
            return undisturbed
        output = place / f"undisturbed-{device}"
        found = launch(place, "--device", device, "--num_devices", 1, "--output", output, "--save", "topk,logits,embedding")
        assert found.returncode == 3, found.stderr
        return output

    return output_on


def test_every_picture_has_its_own_row(undisturbed: Path) -> None:
    found = records(undisturbed)
    assert len(found) == 103
    failed = {key for key, row in found.items() if row["status"] == "error"}
    assert len(failed) == 1
    (key,) = failed
    assert "050" in key
    assert found[key]["stage"] == "decode"
    assert "truncated" in found[key]["error"]
    assert found[key]["class_ids"] is found[key]["scores"] is found[key]["logits"] is found[key]["embedding"] is None
    for key, row in found.items():
        if row["status"] == "ok":
            assert row["class_names"][0] in key, (key, row["class_names"])
            expected = colour_logits(np.array([row["embedding"]], np.float32))[0]
            assert np.allclose(row["logits"], expected, atol=1e-5)
            assert row["class_ids"] == list(np.argsort(-np.array(row["logits"]), kind="stable")[:5])
            odds = np.exp(np.array(row["logits"], np.float64))
            assert np.allclose(row["scores"], np.sort(odds / odds.sum())[::-1][:5], atol=1e-6)
            assert (row["format"], row["frames"], row["height"]) == ("JPEG", 1, 50)


def test_rows_are_in_input_order_and_files_say_what_ran(undisturbed: Path) -> None:
    keys = []
    for path in sorted(undisturbed.glob("part-*.parquet")):
        facts = json.loads(pq.read_metadata(path).metadata[b"bulkinfer"])
        assert facts["ran"]["provider"] == "CPUExecutionProvider"
        assert facts["ran"]["nodes"]["CPUExecutionProvider"] > 0
        assert facts["recipe"]["interpolation"] == "bilinear"
        assert {"onnxruntime", "Pillow", "numpy", "bulkinfer"} <= set(facts["versions"])
        keys += pq.read_table(path)["key"].to_pylist()
    assert keys == sorted(keys)


@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("device", only_first(["cpu", "openvino"]))
def test_same_rows_with_one_worker_and_with_eight(place: Path, undisturbed: Path, device: str, tmp_path: Path) -> None:
    words = ("--device", device, "--save", "topk,logits,embedding")
    found = launch(place, *words, "--data_dir", "photos", "--num_devices", 1, "--output", tmp_path / "1")
    assert found.returncode == 3, found.stderr
    found = launch(place, *words, "--num_ipus", 8, "--output", tmp_path / "8", "--batches-per-step", 1)
    assert found.returncode == 3, found.stderr
    assert "records: 103 = 102 ok + 1 errors (1 at decode)" in found.stdout
    assert rows(tmp_path / "1").equals(rows(tmp_path / "8"))
    if device == "cpu":
        assert rows(tmp_path / "1").equals(rows(undisturbed))
    checked = run("bulkinfer", "verify", tmp_path / "8", cwd=place)
    assert checked.returncode == 0, checked.stderr
    assert "records: 103, rows: 102 ok + 1 errors (1 at decode)" in checked.stdout


def test_a_second_run_does_nothing(place: Path, undisturbed: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in undisturbed.glob("part-*")}
    found = launch(place, "--data_dir", "photos", "--output", undisturbed, "--save", "topk,logits,embedding")
    assert found.returncode == 3, found.stderr
    assert "103 of 103 records are done, 0 to do" in found.stdout
    assert {path.name: path.stat().st_mtime_ns for path in undisturbed.glob("part-*")} == before


@pytest.mark.parametrize(
    "change", [("--top_k", "3"), *map(long_param, [("--batch_size", "1"), ("--limit", "50"), ("--save", "none")])]
)
def test_another_job_on_the_same_output_is_refused_by_name(place: Path, undisturbed: Path, change: tuple[str, str]) -> None:
    base = {"--save": "topk,logits,embedding"} | dict([change])
    words = [word for pair in base.items() for word in pair]
    found = launch(place, "--data_dir", "photos", "--output", undisturbed, *words)
    assert found.returncode == 2
    assert f"differs in {change[0].lstrip('-')}" in found.stderr
    assert "Traceback" not in found.stderr


def start(place: Path, output: Path, *words: object, hold: Path, after: int = 1) -> subprocess.Popen[str]:
    """A run of 8 workers in steps of one batch, in the background, with a /dev/shm of its own in the folder HOLD-memory.

    Each worker process runs so many batches, and no more until the file `hold` exists.
    """
    memory = hold.with_name(f"{hold.name}-memory")
    memory.mkdir()
    apart = ["unshare", "--mount", "sh", "-c", f'mount --bind {shlex.quote(str(memory))} /dev/shm && exec "$@"', "sh"]
    launch = command("infer_launch", "--model_name", "tiny", "--num_devices", 8, "--num_workers", 1, "--batches_per_step", 1,
                     "--save", "topk,logits,embedding", "--output", output, *on_cpu_unless_said(words))  # fmt: skip
    environment = os.environ | runtime_in_front(hold.with_name(f"{hold.name}-front"), after=held_after(after, hold))
    return subprocess.Popen(
        [*apart, *launch], cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for it while the run goes on."""
    deadline = time.monotonic() + 300
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_for_parts(output: Path, process: subprocess.Popen[str], count: int) -> None:
    """Wait until so many parts are published, of the 8 that there are while the workers are held."""
    wait_until(lambda: len(list(output.glob("part-*"))) >= count, process)


def wait_for_another_worker(process: subprocess.Popen[str], before: list[int]) -> None:
    """Wait until a worker is replaced."""
    wait_until(lambda: bool(set(children(process.pid)) - set(before)), process)


def shared_segments(hold: Path) -> list[str]:
    """Shared memory with a name that a run has left."""
    return os.listdir(hold.with_name(f"{hold.name}-memory"))


@pytest.mark.usefixtures("openvino")
@long
@pytest.mark.parametrize("device", ["cpu", "openvino"])
@pytest.mark.parametrize("victim", ["worker", "launcher"])
def test_b43_b44_kill_and_run_again_gives_the_same_rows(
    place: Path, undisturbed_on: Callable[[str], Path], victim: str, device: str, tmp_path: Path
) -> None:
    luck = random.Random(victim)
    for attempt in range(2):
        output, hold = tmp_path / str(attempt), tmp_path / f"go-{attempt}"
        process = start(place, output, "--device", device, hold=hold)
        wait_for_parts(output, process, luck.randint(1, 8))
        workers = children(process.pid)
        os.kill(luck.choice(workers) if victim == "worker" else process.pid, signal.SIGKILL)
        if victim == "worker":
            wait_for_another_worker(process, workers)
            hold.touch()
        stdout, stderr = process.communicate(timeout=300)
        if victim == "worker":
            assert process.returncode == 3, stderr
            assert "replaced: " in stdout
            assert "SIGKILL" in stdout
        else:
            assert rows(output).num_rows < 103
        wait_until_gone(workers)
        assert shared_segments(hold) == []
        words = ("--num_devices", 3, "--batches_per_step", 2, "--save", "topk,logits,embedding", "--output", output)
        again = launch(place, "--device", device, *words)
        assert again.returncode == 3, again.stderr
        assert rows(output).equals(rows(undisturbed_on(device)))
        assert not list(output.glob("_tmp-*"))
        assert not (own_folder(output) / "_lock.json").exists()
        assert run("bulkinfer", "verify", output, cwd=place).returncode == 0


@long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_b44_a_signal_ends_everything_and_the_run_can_be_continued(
    place: Path, undisturbed: Path, number: int, code: int, tmp_path: Path
) -> None:
    """Its workers come back from no batch any more: it does not wait for them."""
    output, hold = tmp_path / "out", tmp_path / "never"
    process = start(place, output, hold=hold)
    wait_for_parts(output, process, 1)
    workers = children(process.pid)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert not living(workers)
    assert shared_segments(hold) == []
    again = launch(place, "--save", "topk,logits,embedding", "--output", output)
    assert again.returncode == 3, again.stderr
    assert rows(output).equals(rows(undisturbed))


@long
def test_two_launchers_on_one_output(place: Path, tmp_path: Path) -> None:
    output, hold = tmp_path / "out", tmp_path / "go"
    process = start(place, output, hold=hold, after=0)
    wait_until((own_folder(output) / "_lock.json").exists, process)
    same = ("--save", "topk,logits,embedding", "--output", output)
    second = launch(place, *same, "--log_path", tmp_path / "logs")
    assert process.poll() is None, "the first one is still at work"
    hold.touch()
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 3, stderr
    assert second.returncode == 1
    assert f"pid {process.pid}" in second.stderr
    assert second.stderr.count("\n") == 1


def test_synthetic_run_as_in_the_reference(place: Path) -> None:
    found = launch(place, "--num_ipus", 8, "--synthetic", "--iterations", 2, "--batches_per_step", 50)
    assert found.returncode == 0, found.stderr
    lines = [line for line in found.stdout.splitlines() if line.startswith("Total ")]
    assert 1 <= len(lines) <= 3
    assert f"total: {8 * 2 * 50 * 6} pictures" in found.stdout
    assert "synthetic: without reading" in found.stdout
    log_dir = place / "logs" / "latest"
    assert len(list(log_dir.glob("worker-*.log"))) == 8
    assert summary(place / "logs")["pictures"] == 8 * 2 * 50 * 6
    assert not list(log_dir.glob("**/*.parquet"))


@long
def test_worker_logs_tell_the_command_the_lines_and_the_modules(place: Path, tmp_path: Path) -> None:
    found = launch(place, "--num_devices", 2, "--output", tmp_path / "out", "--log_path", tmp_path / "logs")
    assert found.returncode == 3, found.stderr
    log_dir = tmp_path / "logs" / "latest"
    told_modules = []
    for index in (0, 1):
        text = (log_dir / f"worker-{index}.log").read_text()
        if not text:  # it was starting when the other one had done all
            continue
        assert text.startswith("$ ")
        assert "bulkinfer.worker.process" in text.splitlines()[0]
        events = [json.loads(line) for line in (log_dir / f"worker-{index}.jsonl").read_text().splitlines()]
        told_modules += [set(event["names"]) for event in events if event["kind"] == "modules"]
    assert told_modules, "a worker that is not ready when all is done ends without a word, but not both"
    for modules in told_modules:
        assert not {"torch", "onnx", "timm", "ray"} & modules
        assert "onnxruntime" in modules
    told = summary(tmp_path / "logs")
    assert told["ok"] == 102
    assert told["errors_by_stage"] == {"decode": 1}
    assert told["stage_thread_seconds"]["decode"] > 0
    assert told["run_percentiles_s"]["p50"] <= told["run_percentiles_s"]["p99"]
    assert set(told["peak_memory_bytes"]) <= {"0", "1"}
    assert min(told["peak_memory_bytes"].values()) > 10_000_000
    assert json.loads((log_dir / "_job.json").read_text())["complete"] is True


def test_limit_takes_the_first_records(place: Path, tmp_path: Path) -> None:
    found = launch(place, "--limit", 20, "--output", tmp_path)
    assert found.returncode == 0, found.stderr
    keys = sorted(path.relative_to(place / "photos").as_posix() for path in (place / "photos").rglob("*.jpg"))
    assert rows(tmp_path)["key"].to_pylist() == keys[:20]


def test_the_inline_engine_gives_the_same_rows(place: Path, undisturbed: Path, tmp_path: Path) -> None:
    found = launch(place, "--engine", "inline", "--save", "topk,logits,embedding", "--output", tmp_path)
    assert found.returncode == 3, found.stderr
    assert rows(tmp_path).equals(rows(undisturbed))
    assert "images/sec" in (place / "logs" / "latest" / "worker-0.log").read_text()
    refused = launch(place, "--engine", "inline", "--stall_timeout_s", 20, "--output", tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--stall_timeout_s 20: --engine inline has no process to end when it hangs" in refused.stderr
    refused = launch(place, "--engine", "inline", "--num_devices", 2, "--output", tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


@long
def test_too_many_failures_end_the_job(place: Path, tmp_path: Path) -> None:
    words = ("--output", tmp_path, "--max_pixels", 100, "--batches_per_step", 1, "--num_devices", 2)
    found = launch(place, *words, "--max_failures", 10)
    assert found.returncode == 1
    assert "more than --max_failures 10" in found.stderr
    assert found.stderr.count("\n") == 1
    again = launch(place, *words)
    assert again.returncode == 3
    assert set(rows(tmp_path)["status"].to_pylist()) == {"error"}


def test_save_none_accounts_for_every_record(place: Path, tmp_path: Path) -> None:
    found = launch(place, "--save", "none", "--output", tmp_path)
    assert found.returncode == 3
    table = rows(tmp_path)
    assert table.num_rows == 103
    assert "scores" not in table.column_names
    assert table["status"].to_pylist().count("error") == 1


def test_dry_run_writes_nothing(place: Path, tmp_path: Path) -> None:
    found = launch(place, "--dry_run", "--output", tmp_path / "out", "--log_path", tmp_path / "logs")
    assert found.returncode == 0
    assert "fingerprint" in found.stdout
    assert "103 records" in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_dry_run_says_what_is_left_and_refuses_what_a_run_would_refuse(place: Path, undisturbed: Path) -> None:
    words = ("--dry_run", "--data_dir", "photos", "--output", undisturbed)
    before = sorted(path.name for path in undisturbed.iterdir())
    found = launch(place, *words, "--save", "topk,logits,embedding")
    assert found.returncode == 0, found.stderr
    assert "103 of 103 records are done, 0 to do" in found.stdout
    refused = launch(place, *words, "--save", "topk,logits,embedding", "--top_k", 3)
    assert refused.returncode == 2
    assert "differs in top_k" in refused.stderr
    assert sorted(path.name for path in undisturbed.iterdir()) == before


@long
def test_overwrite_removes_our_files_only(place: Path, tmp_path: Path) -> None:
    assert launch(place, "--output", tmp_path, "--limit", 20).returncode == 0
    (tmp_path / "mine.txt").write_text("keep")
    found = launch(place, "--output", tmp_path, "--limit", 10, "--overwrite")
    assert found.returncode == 0, found.stderr
    assert "--overwrite: removes" in found.stdout
    assert rows(tmp_path).num_rows == 10
    assert (tmp_path / "mine.txt").exists()


@long
def test_b46_damaged_parts_are_set_aside_and_run_again(place: Path, undisturbed: Path, tmp_path: Path) -> None:
    words = ("--output", tmp_path, "--save", "topk,logits,embedding", "--batches_per_step", 1)
    assert launch(place, *words).returncode == 3
    one, other, *_ = sorted(tmp_path.glob("part-*"))
    one.write_bytes(b"")
    other.write_bytes(other.read_bytes()[:-8])
    assert run("bulkinfer", "verify", tmp_path, cwd=place).returncode == 1
    found = launch(place, *words)
    assert found.returncode == 3, found.stderr
    assert found.stderr.count("set aside") == 2
    assert rows(tmp_path).equals(rows(undisturbed))
    assert run("bulkinfer", "verify", tmp_path, cwd=place).returncode == 0


def test_missing_model_names_the_command_to_type(place: Path) -> None:
    found = launch(place, "--batch_size", 16)
    assert found.returncode == 2
    assert found.stderr.strip().endswith("run get_model --model_name tiny --batch_size 16")
    found = launch(place, model="tynie")
    assert found.returncode == 2
    assert "none is called so; nearest of what models holds: tiny" in found.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--device", "cpu", "--precision", "bf16"), "--device cpu runs fp32 or int8, not --precision bf16"),
        (("--data_dir", "nowhere"), "nowhere"),
        (("--output", "datasets/0/out"), "lies in the partition datasets/0"),
        (("--save", "topk,none"), "none cannot be combined"),
        (("--top_k", "0"), "top_k"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(place: Path, words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    found = launch(place, "--output", tmp_path / "out", "--log_path", tmp_path / "logs", *words)
    assert found.returncode == 2, found.stdout
    assert sentence in found.stderr
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr


@long
def test_a_full_disk_is_one_sentence_and_the_run_can_be_continued(place: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        words = ("--output", disk / "out", "--save", "topk,logits,embedding", "--batches_per_step", 1, "--num_devices", 2)
        found = launch(place, *words)
        assert found.returncode == 1
        assert "No space left on device" in found.stderr
        assert "Traceback" not in found.stderr
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        again = launch(place, *words)
        assert again.returncode == 3, again.stderr
        assert rows(disk / "out").num_rows == 103
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # a reader of ours may still be closing its file
