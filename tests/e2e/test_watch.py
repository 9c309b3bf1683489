"""The live view of infer_launch in a pseudo-terminal, progress without one, and bulkinfer watch beside it and afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands import command, run_here, run_installed
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.terminal import Display, run_in_terminal

LAUNCH = ["--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32", "--batch_size", "6"]
NOT_IGNORED = ["env", "--default-signal=INT,TERM,HUP"]  # as they may be for these tests
VIEW = re.compile(r"images/sec   |starting workers|first batches")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a network and pictures."""
    write_tiny_model(tmp_path / "models", batch_sizes=(6,))
    write_photos(tmp_path / "photos", 30)
    return tmp_path


def screen_after(text: str, columns: int) -> list[str]:
    """The lines of a terminal to which `text` was written."""
    display = Display(columns)
    display.write(text)
    return display.text().splitlines()


def frames(text: str, columns: int) -> list[list[str]]:
    """What the terminal showed after each drawing of the view."""
    display, found = Display(columns), []
    for piece in re.split(r"(?<=\x1b\[J)", text):
        display.write(piece)
        found.append(display.text().splitlines())
    return found


@pytest.mark.parametrize("columns", [80, 20])
def test_a_terminal_shows_a_view_that_begins_at_once_and_ends_clean(place: Path, columns: int) -> None:
    words = command("infer_launch", *LAUNCH, "--output", "out")
    code, text = run_in_terminal(words, place, columns=columns)
    assert code == 0, text
    first = next(frame for frame in frames(text, columns) if any("0 of 30" in line for line in frame))
    assert any(line.startswith("0.0 % ━") for line in first)
    assert any("starting workers" in line for line in first)
    assert not any(line.startswith("Total") for line in first), "before the first step ends"
    for frame in frames(text, columns):
        view = [line for line in frame if "% ━" in line or VIEW.search(line)]
        assert all(len(line) < columns for line in view)
    plain = run_installed("infer_launch", *LAUNCH, "--output", "other", cwd=place)
    last = "".join(line.ljust(columns) if len(line) == columns else f"{line}\n" for line in screen_after(text, columns))
    unwrapped = [re.sub(r"[\d.]+", "N", line) for line in "".join(last).splitlines()]
    if columns == 80:
        assert "━" not in last
        total = [line for line in plain.stdout.splitlines() if line.startswith("records: ")]
        assert total == ["records: 30 = 30 ok + 0 errors"]
        assert total[0] in last.splitlines()
        assert unwrapped[-1] == "next: bulkinfer show out"


def test_a_dumb_terminal_gets_lines(place: Path) -> None:
    code, text = run_in_terminal(command("infer_launch", *LAUNCH), place, columns=80, env={"TERM": "dumb"})
    assert code == 0, text
    assert "\x1b" not in text
    assert "━" not in text


def test_no_color(place: Path) -> None:
    code, text = run_in_terminal(command("infer_launch", *LAUNCH), place, columns=80, env={"NO_COLOR": "1"})
    assert code == 0, text
    assert "of 30 pictures" in text
    assert set(re.findall(r"\x1b\[[\d;]*([A-Za-z])", text)) == {"A", "K", "J"}


@long
def test_ctrl_c_leaves_a_clean_terminal(place: Path) -> None:
    """The key reaches the launcher as a terminal sends it."""
    sent = []

    def press(process: subprocess.Popen[bytes], text: str) -> None:
        if "starting workers" in text and not sent:
            sent.append(process.send_signal(signal.SIGINT))

    words = [*NOT_IGNORED, *command("infer_launch", *LAUNCH, "--output", "out")]
    code, text = run_in_terminal(words, place, columns=80, on_output=press)
    assert code == 130
    lines = screen_after(text, 80)
    assert not [line for line in lines if "━" in line or VIEW.search(line)], lines
    assert "Traceback" not in text
    seen = run_here("bulkinfer", "watch", "out", "--once", cwd=place)
    assert (seen.returncode, seen.stdout.split()[1]) == (1, "stopped:")


def test_without_a_terminal_stdout_has_no_line_of_progress(place: Path) -> None:
    """Byte for byte: each line is one that other programs parse, or that a launch has always printed."""
    done = run_installed("infer_launch", *LAUNCH, "--output", "out", "--batches_per_step", 2, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [re.sub(r"\d+\.\d+", "N", line) for line in done.stdout.splitlines()]
    step = "Total N sec.   Preprocessing N sec (N%).   Compute N sec (N%).   N images/sec."
    assert lines.count(step) in (2, 3), "30 pictures are three steps, and the first of each worker warms up"
    known = ("model: ", "device: ", "precision: ", "cores: ", "input: ", "decode: ", "job: ", "output: ", "2 batches x 6 ",
             "worker 0: ", "Total ", "total: ", "thread-seconds: ", "records: ", "results: ",
             "summary: ", "next: ", "  ")  # fmt: skip
    assert [line for line in lines if not line.startswith(known)] == []
    assert "\x1b" not in done.stdout


def test_watch_after_a_job(place: Path) -> None:
    (place / "photos" / "broken.png").write_bytes(b"no picture")
    assert run_here("infer_launch", *LAUNCH, "--engine", "inline", "--output", "out", cwd=place).returncode == 3
    job = next(path.name for path in (place / "logs").iterdir() if not path.is_symlink())
    for words in ((), ("out",), ("logs/latest",), (job,), ("out", "--once")):
        seen = run_here("bulkinfer", "watch", *words, cwd=place)
        assert (seen.returncode, seen.stderr) == (3, "")
        told = rf"{job}: finished: 31 of 31 pictures \(100.0 %\), ([\d.]+ images/sec, )?1 error \(1 \w+\)\n"
        assert re.fullmatch(told, seen.stdout), seen.stdout
    again = run_here("infer_launch", *LAUNCH, "--engine", "inline", "--output", "out", cwd=place)
    assert again.returncode == 3, again.stderr
    assert run_here("bulkinfer", "watch", "--once", cwd=place).returncode == 3, "a launch that had nothing to do says so too"


def test_a_retry_is_watched_too(place: Path) -> None:
    broken = place / "photos" / "broken.png"
    whole = (place / "photos" / "000-black.png").read_bytes()
    broken.write_bytes(whole[:60])
    assert run_here("infer_launch", *LAUNCH, "--engine", "inline", "--output", "out", cwd=place).returncode == 3
    broken.write_bytes(whole)
    (place / "logs" / "latest").unlink()
    assert run_here("bulkinfer", "retry", "out", cwd=place).returncode == 0
    assert (place / "logs" / "latest" / "summary.json").is_file()
    content = json.loads((place / "logs" / "latest" / "status.json").read_text())
    total = len(list((place / "photos").iterdir()))
    assert (content["command"], content["state"]) == ("bulkinfer retry", "finished")
    assert (content["done"], content["total"], content["errors"]) == (total, total, {}), "those of the whole job"
    assert content["job"] == (place / "logs" / "latest").resolve().name


@long
def test_a_job_that_is_killed_while_it_is_watched(place: Path) -> None:
    """The view of another terminal ends by itself, with the reason."""
    launcher = subprocess.Popen(
        command("infer_launch", *LAUNCH[:2], "--synthetic", "--iterations", 500, *LAUNCH[4:]),
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert launcher.stdout is not None
    next(line for line in launcher.stdout if line.startswith("Total "))
    running = run_here("bulkinfer", "watch", "--once", cwd=place)
    assert running.returncode == 4
    assert ": running: " in running.stdout

    def kill(_process: subprocess.Popen[bytes], text: str) -> None:
        if f"infer_launch on {json.loads(status.read_text())['host']}, pid {launcher.pid}" in text:
            launcher.kill()

    status = place / "logs" / "latest" / "status.json"
    code, text = run_in_terminal(command("bulkinfer", "watch"), place, columns=80, on_output=kill)
    launcher.communicate()
    assert code == 1
    (last,) = screen_after(text, 80)[:1]
    assert ": killed: " in last
    seen = run_here("bulkinfer", "watch", "--once", cwd=place)
    assert (seen.returncode, seen.stdout.split()[1]) == (1, "killed:")
