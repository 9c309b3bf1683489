"""bulkinfer report, as a user calls it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bulkinfer.results.verify import verify

from tests.commands import run_here
from tests.models import write_tiny_model
from tests.reports import Page, Row, write_job, write_run, write_shapes


def refused(cwd: Path, *words: object) -> str:
    done = run_here("bulkinfer", "report", *words, cwd=cwd)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return str(done.stderr)


def test_a_launch_and_its_report(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models")
    keys = write_shapes(tmp_path / "photos", 16)
    (tmp_path / "photos" / "cut.png").write_bytes((tmp_path / "photos" / "square" / "0009.png").read_bytes()[:90])
    flags = (
        "--data_dir",
        "photos",
        "--model_name",
        "tiny",
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--save",
        "topk",
        "embedding",
    )
    launched = run_here("infer_launch", *flags, "--engine", "inline", cwd=tmp_path)
    assert launched.returncode == 3, launched.stderr
    done = run_here("bulkinfer", "report", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert run_here("bulkinfer", "report", cwd=tmp_path).returncode == 0, "the page in the log folder is replaced"
    (path,) = (tmp_path / "logs").glob("tiny-*/report.html")
    assert f"report: {path.relative_to(tmp_path)} (" in done.stdout
    page = Page(path.read_text())
    assert f"Rows ok {len(keys)} of {len(keys) + 1} pictures" in page.text
    assert "decode 1 cut.png : truncated PNG" in page.text
    command = re.search(r"infer_launch( --\w+( [\w./]+)+)+", page.text)
    assert command is not None
    for words in ("--data_dir photos", "--model_name tiny", "--device cpu", "--precision fp32", "--save topk embedding"):
        assert f" {words}" in command[0]
    assert "Near duplicates" in page.text
    assert not verify(path.parent / "results").faults


def test_places_and_refusals(tmp_path: Path) -> None:
    log_dir = write_job(tmp_path, [Row(b"one.png")])
    assert run_here("bulkinfer", "report", log_dir / "results", "--to", "new/page.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "new" / "page.html").is_file()
    assert "exists: give another place with --to, or --overwrite to replace it" in refused(
        tmp_path, log_dir, "--to", "new/page.html"
    )
    assert run_here("bulkinfer", "report", log_dir, "--to", "new/page.html", "--overwrite", cwd=tmp_path).returncode == 0
    assert "lies among the rows" in refused(tmp_path, log_dir, "--to", log_dir / "results" / "page.html")
    assert "is a folder: give the name of a file" in refused(tmp_path, log_dir, "--to", "new")
    assert "does not exist" in refused(tmp_path, "nothing")
    assert "--pictures 101 is too many" in refused(tmp_path, log_dir, "--pictures", 101)


@pytest.mark.parametrize("word", ["logs/run", "run"])
def test_a_training_run(tmp_path: Path, word: str) -> None:
    write_run(tmp_path / "logs" / "run")
    done = run_here("bulkinfer", "report", word, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Report of a training run" in Page((tmp_path / "logs" / "run" / "report.html").read_text()).text
    assert "--labels is for jobs" in refused(tmp_path, word, "--labels", "folder", "--overwrite")
