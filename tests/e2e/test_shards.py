"""What every command makes of shards: of one, of the folder of all, and of the merged output."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.results.shard import SHARDS_FILE

from tests.commands import run_here
from tests.launches import write_photos
from tests.models import write_tiny_model

SHOWN = "out holds the shards of a job: bulkinfer merge out joins them; until then give one of them, such as "


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """out/ with three shards of 26 pictures."""
    folder = tmp_path_factory.mktemp("shards")
    write_tiny_model(folder / "models", batch_sizes=(4,))
    write_photos(folder / "photos", 26)
    for index in (1, 2, 3):
        done = launch_here(folder, f"{index}/3")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder


def launch_here(folder: Path, shard: str, *words: object) -> Any:
    asked = (
        "photos",
        "--model_name",
        "tiny",
        "--batch_size",
        4,
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--engine",
        "inline",
    )
    return run_here("infer_launch", *asked, "--batches_per_step", 1, "--output", "out", "--shard", shard, *words, cwd=folder)


def bulkinfer(folder: Path, *words: object, code: int = 0) -> str:
    """What a command prints, on stderr if it fails."""
    done = run_here("bulkinfer", *words, cwd=folder)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return str(done.stderr if code else done.stdout)


@pytest.mark.parametrize("words", [
    ("show",), ("rows", "--to", "x.csv"), ("score", "--labels", "folder"), ("report",), ("retry",), ("watch", "--once"),
])  # fmt: skip
def test_commands_that_take_one_output_say_what_to_type(made: Path, words: tuple[str, ...]) -> None:
    said = bulkinfer(made, words[0], "out", *words[1:], code=2)
    assert said == f"bulkinfer {words[0]}: {SHOWN}out/shard-1-of-3\n"


def test_commands_work_on_a_shard(made: Path) -> None:
    shard = "out/shard-2-of-3"
    assert "records: 8, rows: 8 ok + 0 errors in 2 parts\nsound" in bulkinfer(made, "verify", shard)
    assert f"{shard}: 8 of 8 rows (8 ok, 0 errors), tiny" in bulkinfer(made, "show", shard)
    assert "8 rows" in bulkinfer(made, "rows", shard, "--to", made / "one.csv")
    assert "finished: 8 of 8 pictures" in bulkinfer(made, "watch", shard, "--once")
    assert "0 error rows" in bulkinfer(made, "retry", shard, "--dry_run")
    listed = bulkinfer(made, "jobs")
    assert sorted(re.findall(r"finished +(\d+) of \1", listed)) == ["10", "8", "8"]
    bulkinfer(made, "report", shard, "--to", made / "shard.html", "--overwrite")
    assert "--output out/shard-2-of-3 --shard 2/3 --batches_per_step 1" in (made / "shard.html").read_text()
    again = launch_here(made, "2/3", "--output", shard)
    assert "nothing left to do" in again.stdout, "the command of the report works"


def test_the_whole_folder_is_verified_merged_and_removed(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    assert "records: 26, rows: 26 ok + 0 errors in 7 parts\nsound" in bulkinfer(tmp_path, "verify", "out")
    assert "results: out/merged" in bulkinfer(tmp_path, "merge", "out")
    assert "sound" in bulkinfer(tmp_path, "verify", "out/merged")
    assert "out/merged: 26 of 26 rows" in bulkinfer(tmp_path, "show", "out/merged")
    assert "give out/merged, which has the rows of all" in bulkinfer(tmp_path, "show", "out", code=2)
    bulkinfer(tmp_path, "report", "out/merged", "--to", tmp_path / "merged.html")
    assert "26 rows" in bulkinfer(tmp_path, "rows", "out/merged", "--to", tmp_path / "merged.csv")
    assert "26 pictures are ok in more than one folder" in bulkinfer(tmp_path, "verify", "out", "out/merged", code=1)
    assert bulkinfer(tmp_path, "clean", "out", "--yes").count("removed ") == 3
    assert not (tmp_path / "out" / SHARDS_FILE).exists()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".merged.bulkinfer", "merged"]
    assert "sound" in bulkinfer(tmp_path, "verify", "out/merged")
    done = launch_here(tmp_path, "1/2", "--dry_run")
    assert done.returncode == 0, "another number of shards may begin now"


def test_verify_names_the_shard_that_is_missing_or_damaged(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "shard-3-of-3")
    part = next((tmp_path / "out" / "shard-1-of-3").iterdir())
    part.write_bytes(part.read_bytes()[:-8])
    said = bulkinfer(tmp_path, "verify", "out", code=1)
    assert "bulkinfer verify: shard-3-of-3 is not there: run infer_launch of that shard\n" in said
    assert f"bulkinfer verify: shard-1-of-3: out/shard-1-of-3/{part.name} is damaged" in said
    assert "shard-2-of-3" not in said


def test_a_folder_whose_last_shard_was_removed_by_hand(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    for folder in (tmp_path / "out").glob("*shard-*"):
        shutil.rmtree(folder)
    assert "out holds no shard any more: remove out/_shards.json" in bulkinfer(tmp_path, "clean", "out", "--yes", code=2)
    assert "3 of 3 shards are not complete (1/3; 2/3; 3/3)" in bulkinfer(tmp_path, "merge", "out", code=1)
