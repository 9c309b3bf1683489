"""--precision auto as a user meets it: what it says, what it keeps, and what a resume takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.results.job_file import job_path

from tests import pictures
from tests.commands import run
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model

# put in front of launcher, judges and workers: a processor that computes in bf16, which here gives the bits of fp32
NATIVE = """
from dataclasses import replace
from bulkinfer.results.job_file import job_path
from bulkinfer.runtime import providers
from bulkinfer.runtime.providers import openvino
openvino._HINTS["bf16"] = openvino._HINTS["fp32"]
entry = providers.PROVIDERS["openvino"]
providers.PROVIDERS["openvino"] = replace(entry, native=lambda numbers: ("bf16", ""))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models", batch_sizes=(4,))
    write_photos(tmp_path / "photos", 40)
    pictures.write_files(tmp_path / "site", {"sitecustomize.py": NATIVE.encode()})
    return tmp_path


def launch(place: Path, *words: object, native: bool = False) -> Any:
    base = ("--model_name", "tiny", "--batch_size", 4, "--batches_per_step", 2, "--data_dir", "photos", "--output", "out")
    done = run("infer_launch", *base, *words, cwd=place, env={"PYTHONPATH": str(place / "site")} if native else None)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done


def kept(place: Path) -> dict[str, Any]:
    resolved: dict[str, Any] = json.loads(job_path(place / "out").read_text())["resolved"]
    return resolved


def test_where_there_is_nothing_cheaper_it_says_so(place: Path) -> None:
    done = launch(place, "--device", "cpu")
    assert "precision: fp32 (auto: the provider has nothing cheaper than fp32)" in done.stdout.splitlines()
    assert kept(place)["precision"] == "fp32"


@pytest.mark.usefixtures("openvino")
@long
def test_the_verdict_is_printed_kept_and_taken_again(place: Path) -> None:
    verdict = (
        "top-1 agrees on 100.0% of 40 clear pictures, mean change of probability 0.000; output error 0.000, on 40 pictures"
    )
    judging = "precision: auto judges bf16 on openvino by up to 64 pictures, once for this network"
    first = launch(place, "--device", "openvino", native=True)
    assert judging in first.stdout.splitlines()
    assert f"precision: bf16 (auto: {verdict})" in first.stdout.splitlines()
    assert (kept(place)["precision"], kept(place)["precision_reason"]) == ("bf16", f"auto: {verdict}")
    part = next(iter((place / "out").glob("part-*.parquet")))
    metadata = json.loads(pq.read_metadata(part).metadata[b"bulkinfer"])["precision"]
    assert metadata == {"asked": "auto", "ran": "bf16", "reason": f"auto: {verdict}"}
    summary = json.loads((place / "logs" / "latest" / "summary.json").read_text())
    assert summary["precision"] == metadata
    part.unlink()
    again = launch(place, "--device", "openvino", native=True)
    assert judging not in again.stdout
    assert "precision: bf16 (as the job began, in .out.bulkinfer/_job.json)" in again.stdout.splitlines()
    other = launch(place, "--device", "openvino", "--output", "other", "--limit", 8, native=True)
    assert judging not in other.stdout
    assert f"precision: bf16 (auto: {verdict})" in other.stdout.splitlines()


@pytest.mark.usefixtures("openvino")
def test_what_a_dry_run_cannot_know(place: Path) -> None:
    done = launch(place, "--device", "openvino", "--dry_run", native=True)
    assert "precision: fp32 (auto: a launch would first judge bf16)" in done.stdout.splitlines()
    assert not (place / "models" / "tiny" / "precision.json").exists()
