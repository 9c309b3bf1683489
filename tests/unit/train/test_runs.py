"""train/runs.py: the folder of a run; tables that are continued without a row twice."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.files.atomic import naming
from bulkinfer.train.runs import TRAINING_COLUMNS, Run, Silence, memory_mb, new_run, read_table, write_arguments

ROW: dict[str, Any] = {"epoch": 0.25, "learning_rate": 0.1, "loss": 2.5, "accuracy": 1 / 3, "images_per_sec": 10.0,
                       "loss_scale": 1.0, "memory_mb": 5.0, "total_s": 1.5}  # fmt: skip


def run_of(folder: Path, *steps: int, from_step: int = 0) -> None:
    log = Run(folder, from_step=from_step, tensorboard=False)
    for step in steps:
        log.training({"step": step, **ROW})
    log.say("a line")
    log.close()


def steps(folder: Path) -> list[int]:
    return [int(row["step"]) for row in read_table(folder / "training.csv")]


def test_folders_of_runs_are_new_and_named(tmp_path: Path) -> None:
    folders = {new_run(tmp_path / "logs", "net", "set", "my end") for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.is_dir() and folder.name.startswith("net-set-2") for folder in folders)


def test_rows_are_there_at_once_and_kept(tmp_path: Path) -> None:
    log = Run(tmp_path, from_step=0, tensorboard=False)
    log.training({"step": 1, **ROW})
    assert read_table(tmp_path / "training.csv")[0]["accuracy"] == "0.333333333"
    log.close()
    run_of(tmp_path, 2, from_step=1)
    assert steps(tmp_path) == [1, 2]
    assert (tmp_path / "log.txt").read_text().count("a line") == 1


def test_rows_beyond_the_checkpoint_are_made_again(tmp_path: Path) -> None:
    run_of(tmp_path, 1, 2, 3, 4)
    run_of(tmp_path, 3, 4, 5, from_step=2)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_a_row_that_was_cut_off_is_taken_out(tmp_path: Path) -> None:
    run_of(tmp_path, 1, 2)
    path = tmp_path / "training.csv"
    path.write_text(path.read_text()[:-3])
    assert steps(tmp_path) == [1]
    run_of(tmp_path, 2, 3, from_step=2)
    assert steps(tmp_path) == [1, 2, 3]


def test_tables_of_a_run_that_is_looked_at_are_not_written(tmp_path: Path) -> None:
    run_of(tmp_path, 1, 2)
    before = (tmp_path / "training.csv").stat()
    run_of(tmp_path, from_step=2)
    after = (tmp_path / "training.csv").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_tensorboard_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = Run(tmp_path, from_step=0, tensorboard=True)
    log.training({"step": 7, **ROW})
    log.validation({"name": "step-7", "step": 7, "epoch": 1.0, "accuracy": 0.5, "top5": 0.75, "loss": 1.0, "count": 8,
                    "images_per_sec": 1.0, "seconds": 8.0})  # fmt: skip
    log.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert scalars["training/learning_rate"] == [(7, pytest.approx(0.1))]
    assert scalars["validation/accuracy"] == [(7, 0.5)]


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_pictures_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    log = Run(tmp_path, from_step=0, tensorboard=False, pictures=40)
    log.advance(30)
    log._screen.tick(0.0)
    log.say("step: 1")
    log.close()
    assert "step: 1" in terminal.getvalue()
    assert "30 of 40 pictures" in terminal.getvalue()
    assert (tmp_path / "log.txt").read_text().endswith(" step: 1\n")


def test_arguments_of_each_start_are_kept(tmp_path: Path) -> None:
    for number in range(3):
        write_arguments(tmp_path, {"number": number})
    names = ["arguments-2.json", "arguments-3.json", "arguments.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [json.loads((tmp_path / name).read_text())["number"] for name in names] == [1, 2, 0]


def test_other_replicas_are_silent(tmp_path: Path, capsys: Any) -> None:
    log = Silence()
    log.say("x")
    log.warn("x")
    log.advance(1)
    log.training({})
    log.validation({})
    log.close()
    assert capsys.readouterr() == ("", "")
    assert memory_mb() > 10


def test_a_full_disk_is_named_with_its_file(tmp_path: Path) -> None:
    run = Run(tmp_path, from_step=0, tensorboard=False)
    (tmp_path / "training.csv").unlink()
    (tmp_path / "training.csv").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        run.training(dict.fromkeys(TRAINING_COLUMNS, 1))
    assert error.value.filename == str(tmp_path / "training.csv")
    run.close()
    with pytest.raises(OSError, match="No space left on device") as error, naming(tmp_path / "log.txt"), full_file() as file:
        file.write("x")
    assert error.value.filename == str(tmp_path / "log.txt")


def full_file() -> Any:
    """A file on a full disk."""
    return Path("/dev/full").open("a", buffering=1)
