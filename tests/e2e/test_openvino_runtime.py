"""infer_launch --device openvino by OpenVINO's own runtime, on any processor, and a resume where another backend runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.host.versions import versions
from bulkinfer.results.job_file import job_path
from bulkinfer.runtime.providers.openvino import VARIABLE

from tests.commands import rows, run, summary
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.openvino import plugin

OWN = f"openvino {versions()['openvino']}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models/tiny and 30 solid pictures, on a host where OpenVINO's own runtime is wanted."""
    write_tiny_model(tmp_path / "models", batch_sizes=(4,))
    write_photos(tmp_path / "photos", 30)
    monkeypatch.setenv(VARIABLE, "runtime")
    return tmp_path


def launch(place: Path, output: str, *words: object, code: int = 0) -> Any:
    base = ("--model_name", "tiny", "--batch_size", 4, "--data_dir", "photos", "--precision", "fp32", "--output", output)
    found = run("infer_launch", *base, "--batches_per_step", 2, *words, cwd=place)
    assert found.returncode == code, found.stderr
    return found


def removed_a_part(output: Path) -> dict[str, Any]:
    """Makes a finished job an unfinished one; returns its rows as they were."""
    before = rows(output)
    min(output.glob("part-*")).unlink()
    return before


def test_rows_and_their_proof(place: Path) -> None:
    found = launch(place, "out", "--device", "openvino")
    assert f"device: openvino by {OWN} (as asked)\n" in found.stdout
    (ran,) = summary(place / "logs")["ran"].values()
    assert (ran["provider"], f"openvino {ran['openvino']}", ran["precision"]) == ("OpenVINO", OWN, "fp32")
    assert f"worker 0: {ran['nodes']['OpenVINO']} nodes on OpenVINO (CPU), fp32 (" in found.stdout
    job = json.loads(job_path(place / "out").read_text())
    assert job["resolved"]["backend"] == job["identity"]["backend"] == OWN
    launch(place, "cpu", "--device", "cpu")
    mine, others = rows(place / "out"), rows(place / "cpu")
    assert mine.num_rows == 30
    for name in ("key", "status", "class_ids"):
        assert mine[name].equals(others[name])


@long
def test_a_resume_keeps_the_backend_or_is_refused_with_both_named(place: Path) -> None:
    output = place / "out"
    launch(place, "out", "--device", "openvino")
    before = removed_a_part(output)
    launch(place, "out", "--device", "openvino")
    assert rows(output) == before
    removed_a_part(output)
    with plugin("present"):  # and no other backend
        found = launch(place, "out", "--device", "openvino", code=2)
    begun = f"{job_path(output)} was begun on openvino in fp32 by {OWN}, and here runs onnxruntime-ep-openvino "
    assert begun.replace(str(place) + "/", "") in found.stderr
    assert found.stderr.count("\n") == 1
    assert found.stderr.endswith(": give another --output to start a new job\n")
