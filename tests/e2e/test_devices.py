"""infer_launch --device, --generated and --save_precision as a user calls them, on processors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bulkinfer.host.versions import processor_vendor
from bulkinfer.results.job_file import job_path

from tests.commands import children, command, python_path, records, rows, run, run_here, summary, wait_until_gone
from tests.forms import long
from tests.launches import write_photos
from tests.models import colour_logits, write_tiny_model
from tests.sealed import write_sealed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models/tiny and 30 solid pictures."""
    folder = tmp_path_factory.mktemp("place")
    write_tiny_model(folder / "models", batch_sizes=(4,))
    write_photos(folder / "photos", 30)
    return folder


def launch(place: Path, *words: object, log_path: Path, start: Any = run) -> Any:
    base = ("--model_name", "tiny", "--batch_size", 4, "--precision", "fp32", "--data_dir", "photos", "--log_path", log_path)
    return start("infer_launch", *base, *words, cwd=place)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1,3", "tensorrt"])
def test_b37_a_gpu_that_is_not_here_is_refused_before_any_picture_is_read(place: Path, tmp_path: Path, device: str) -> None:
    """microsoft/onnxruntime#23372: a line in a log, and then the whole run on the processor."""
    found = launch(place, "--device", device, "--data_dir", "not/even/there", log_path=tmp_path / "logs", start=run_here)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"infer_launch: --device {device.partition(':')[0]}: the installed onnxruntime ")
    assert found.stderr.count("\n") == 1
    assert re.search(r"pip uninstall --yes onnxruntime onnxruntime-gpu && pip install '\S+\[", found.stderr)
    assert not (tmp_path / "logs").exists()


@long
@pytest.mark.usefixtures("openvino")
def test_b37_the_provider_that_ran_is_recorded(place: Path, tmp_path: Path) -> None:
    for device, ep_name in (("cpu", "CPUExecutionProvider"), ("openvino", "OpenVINOExecutionProvider")):
        found = launch(place, "--device", device, "--output", tmp_path / device, log_path=tmp_path / "logs")
        assert found.returncode == 0, found.stderr
        told = summary(tmp_path / "logs")
        assert told["device"] == {
            "asked": device, "provider": device, "reason": "as asked", "numbers": [0], "names": ["the processor"]
        }  # fmt: skip
        assert list(told["ran"]["0"]["nodes"]) == [ep_name]
        assert f"nodes on {ep_name} (CPU" in found.stdout


@pytest.mark.usefixtures("openvino")
def test_auto_measures_once_says_why_and_a_resume_keeps_it(place: Path, tmp_path: Path) -> None:
    logs, output = tmp_path / "logs", tmp_path / "out"
    dry = launch(place, "--dry_run", log_path=logs)
    assert dry.returncode == 0, dry.stderr
    assert "device: cpu (auto: a launch would first measure cpu, openvino)\n" in dry.stdout
    assert not (place / "models" / "tiny" / "fastest.json").exists()
    first = launch(place, "--output", output, "--limit", 10, log_path=logs)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[0] == "device: auto measures cpu, openvino once for this network"
    (line,) = (line for line in first.stdout.splitlines() if "(auto: " in line)
    provider = line.split()[1]
    assert line.count("images/sec") == 2
    job = json.loads(job_path(output).read_text())
    assert (job["resolved"]["provider"], job["identity"]["device"]) == (provider, "auto")

    kept = place / "models" / "tiny" / "fastest.json"
    found = json.loads(kept.read_text())
    (entry,) = found["measured"]
    other = "openvino" if provider == "cpu" else "cpu"
    entry["images_per_s"] = {"cpu": 1.0, "openvino": 1.0, other: 5.0}
    write_sealed(kept, found)
    next(output.glob("part-*")).unlink()
    again = launch(place, "--output", output, "--limit", 10, "--num_devices", 2, log_path=logs)
    assert again.returncode == 0, again.stderr
    assert "auto measures" not in again.stdout
    assert f"device: {provider} (as the job began, in {job_path(output)})" in again.stdout
    assert {ran["device"].partition(",")[0] for ran in summary(logs)["ran"].values()} == {"CPU"}
    assert summary(logs)["device"]["provider"] == provider
    kept.unlink()


@pytest.mark.usefixtures("without_openvino")
def test_c33_a_plugin_that_does_not_serve_this_processor_is_passed_over(place: Path, tmp_path: Path) -> None:
    """Asked for, it is refused by a dry run as by the run itself; auto goes on as if it were not installed."""
    words, logs = ("--device", "openvino", "--output", tmp_path / "out"), tmp_path / "logs"
    refused = f"--device openvino: its plugin does not serve this processor ({processor_vendor()}): use --device cpu"
    for more in (("--dry_run",), ()):
        found = launch(place, *words, *more, log_path=logs)
        assert (found.returncode, found.stdout, found.stderr) == (2, "", f"infer_launch: {refused}\n")
    assert not logs.exists()
    for more in (("--dry_run",), ("--output", tmp_path / "out")):
        found = launch(place, *more, log_path=logs)
        assert (found.returncode, found.stderr) == (0, "")
        assert "device: cpu (auto: no other provider is available)\n" in found.stdout
    assert list(summary(logs)["ran"]["0"]["nodes"]) == ["CPUExecutionProvider"]


def test_generated_pictures_go_through_the_loaders(place: Path, tmp_path: Path) -> None:
    words = ("--device", "cpu", "--generated", "--num_devices", 2, "--iterations", 2, "--batches_per_step", 25)
    found = launch(place, *words, log_path=tmp_path / "logs")
    assert found.returncode == 0, found.stderr
    assert "generated: without reading, decoding, resizing and writing" in found.stdout
    told = summary(tmp_path / "logs")
    assert (told["input"], told["pictures"], told["output"]) == ("generated", 2 * 2 * 25 * 4, None)
    assert told["stage_thread_seconds"]["preprocess"] > 0
    assert not {"decode", "read"} & set(told["stage_thread_seconds"])
    assert not list((tmp_path / "logs").rglob("*.parquet"))
    both = launch(place, "--generated", "--synthetic", log_path=tmp_path / "logs")
    assert (both.returncode, both.stderr.count("\n")) == (2, 1)


@long
def test_embeddings_in_half_precision(place: Path, tmp_path: Path) -> None:
    words = ("--device", "cpu", "--save", "topk,embedding,logits")
    for precision in ("fp32", "fp16"):
        words_now = (*words, "--save_precision", precision, "--output", tmp_path / precision)
        found = launch(place, *words_now, log_path=tmp_path / "logs")
        assert found.returncode == 0, found.stderr
    full, half = rows(tmp_path / "fp32"), rows(tmp_path / "fp16")
    assert half.schema.field("embedding").type == pa.list_(pa.float16(), 3)
    for name in ("embedding", "logits"):
        exact = np.array(full[name].to_pylist(), np.float32)
        assert (np.array(half[name].to_pylist(), np.float32) == exact.astype(np.float16)).all()
    assert half["scores"] == full["scores"]
    for row in records(tmp_path / "fp16").values():
        np.testing.assert_allclose(row["logits"], colour_logits(np.array([row["embedding"]], np.float32))[0], atol=0.02)
    assert run("bulkinfer", "verify", tmp_path / "fp16", cwd=place).returncode == 0


@long
def test_several_processes_on_a_processor(place: Path, tmp_path: Path) -> None:
    found = launch(place, "--device", "cpu", "--processes_per_device", 3, "--dry_run", log_path=tmp_path / "logs")
    assert found.returncode == 0, found.stderr
    assert "; 3 workers, each" in found.stdout
    inline = launch(place, "--engine", "inline", "--processes_per_device", 3, log_path=tmp_path / "logs")
    assert (inline.returncode, inline.stderr.count("\n")) == (2, 1)
    assert "--engine inline runs one worker: it cannot take --processes_per_device 3" in inline.stderr


# on PYTHONPATH: the process that measures never comes to read what it is asked
MEASURES = """
import json, sys, time
def never_comes_back(file):
    while True:
        time.sleep(1)
if "bulkinfer.launch.auto.device_trial" in sys.orig_argv:
    json.load = never_comes_back
"""


@pytest.mark.usefixtures("openvino")
@long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_launch_that_is_ended_while_it_measures_leaves_nothing(place: Path, tmp_path: Path, number: int) -> None:
    (place / "models" / "tiny" / "fastest.json").unlink(missing_ok=True)
    for name in ("temporary", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(MEASURES)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": python_path(tmp_path / "site")}
    words = command("infer_launch", "--model_name", "tiny", "--batch_size", 4, "--precision", "fp32", "--data_dir", "photos")
    with subprocess.Popen(
        [*words, "--log_path", str(tmp_path / "logs")], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env=environment,
    ) as launcher:  # fmt: skip
        assert launcher.stdout is not None
        assert launcher.stdout.readline().startswith(b"device: auto measures")
        deadline = time.monotonic() + 300
        while not (measuring := children(launcher.pid)):
            assert time.monotonic() < deadline, "nothing measures"
            time.sleep(0.01)
        launcher.send_signal(number)
        launcher.communicate(timeout=300)
    wait_until_gone(measuring)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "logs").exists()
    assert not list((place / "models" / "tiny").glob("_tmp-*"))
