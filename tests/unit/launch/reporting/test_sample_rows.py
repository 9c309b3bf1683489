"""sample_rows.py: the rows that the end of a launch shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.launch.reporting import sample_rows
from bulkinfer.launch.reporting.sample_rows import error_lines, ok_lines
from bulkinfer.results.job_file import JobFile

from tests.logged import logged
from tests.made_jobs import write_job
from tests.shown_job import finished_job


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_job(tmp_path_factory.mktemp("sampled"))


def job_of(output: Path) -> JobFile:
    job = JobFile.read(output)
    assert job is not None
    return job


def test_ok_rows(output: Path) -> None:
    assert ok_lines(output, job_of(output)) == [
        "  000-black.png  0.391  black",
        "  001-red.png    0.391  red",
        "  002-lime.png   0.391  lime",
        "  003-blue.png   0.391  blue",
    ]


def test_of_a_long_key_the_end_is_shown(tmp_path: Path) -> None:
    long, short = b"a/" * 200 + b"1.jpg", b"2.jpg"
    made = write_job(tmp_path / "out", [long, short], [1, 2])
    first, second = ok_lines(made, job_of(made))
    assert first == f"  …{('a/' * 200 + '1.jpg')[-59:]}  0.900  class 1"
    assert second == f"  2.jpg{' ' * 55}  0.900  class 2"


def test_error_rows(output: Path) -> None:
    first, second = error_lines(output, job_of(output))
    assert first.startswith("  decode: broken.jpg: not a picture")
    assert second.startswith("  decode: empty.png: ")


def test_only_parts_that_are_needed_are_read(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, real = list[int](), sample_rows.read_part

    def counting(*given: object, **named: object) -> object:
        read.append(given[1].start)  # type: ignore[attr-defined]
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(sample_rows, "read_part", counting)
    job = job_of(output)
    ok_lines(output, job)
    assert read == [0]
    error_lines(output, job)
    assert read[1:] == [int(name[11:21]) for name, part in sorted(job.parts.items()) if part["stages"]]


def test_a_large_part_is_not_read(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_rows, "_MOST_BYTES", 1)
    assert ok_lines(output, job_of(output)) == []


def test_a_damaged_part_is_a_warning(tmp_path: Path) -> None:
    output, lines = finished_job(tmp_path), list[str]()
    job = job_of(output)
    for part in output.iterdir():
        part.write_bytes(b"damaged")
    assert logged(lines, ok_lines, output, job) == logged(lines, error_lines, output, job) == []
    assert all(line.startswith("warning: no rows are shown: ") for line in lines)


def test_other_columns_than_classes(tmp_path: Path) -> None:
    output = finished_job(tmp_path, save=("embedding",))
    assert ok_lines(output, job_of(output))[0] == "  000-black.png"
