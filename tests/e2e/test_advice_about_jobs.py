"""Advice about jobs and shards is executed, as in test_advice.py: unsaved columns, shards, examples, damaged parts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import records, run_here
from tests.launches import write_photos
from tests.models import write_tiny_model

LAUNCH = ("infer_launch", "--model_name", "tiny", "--device", "cpu", "--engine", "inline", "--batches_per_step", "1")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a network and 12 pictures; its name needs quotes in a shell."""
    folder = tmp_path / "a place; with #"
    write_tiny_model(folder / "models", batch_sizes=(6,))
    write_photos(folder / "my photos", 12)
    return folder


def says(place: Path, *words: object, code: int = 0) -> str:
    """What a command prints that ends with `code`."""
    done = run_here(str(words[0]), *words[1:], cwd=place)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return str(done.stdout + done.stderr)


def named(told: str, pattern: str) -> list[str]:
    """The words of the command that `pattern` finds, as a shell splits them."""
    found = re.search(pattern, told)
    assert found, told
    return shlex.split(found[1])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show"], 0),
        (["show", "--class", "red"], 2),
        (["show", "--least_sure", "3"], 2),
        (["score", "--labels", "folder"], 2),
        (["rows", "--format", "label_studio", "--to", "x.json"], 2),
        (["rows", "--format", "npy", "--to", "x.npy"], 2),
    ],
    ids=str,
)
def test_a_column_that_was_not_saved(place: Path, words: list[str], code: int) -> None:
    says(place, *LAUNCH, "--data_dir", "my photos", "--output", "my out", "--save", "none", "--limit", 7)
    told = says(place, "bulkinfer", words[0], "my out", *words[1:], code=code)
    says(place, *named(told, r"to save \w+, run: (infer_launch .*)"))
    assert len(records(place / "my out-2")) == 7
    if words[0] != "score":  # these pictures lie in no class folders
        says(place, "bulkinfer", words[0], "my out-2", *words[1:])


def test_a_column_that_the_network_does_not_give(place: Path) -> None:
    says(place, *LAUNCH, "--data_dir", "my photos", "--output", "out", "--save", "none")
    told = says(place, "bulkinfer", "rows", "out", "--format", "npy", "--column", "depth", "--to", "x.npy", code=2)
    (gives,) = re.findall("its network gives only topk, (.*)", told)
    for name in gives.split(", "):
        says(place, *LAUNCH, "--data_dir", "my photos", "--output", f"with {name}", "--save", name)
        says(place, "bulkinfer", "rows", f"with {name}", "--format", "npy", "--column", name, "--to", f"{name}.npy")


def test_shards(place: Path) -> None:
    shard = [*LAUNCH, "--data_dir", "my photos", "--output", "my shards"]
    says(place, *shard, "--shard", "1/2")
    told = says(place, "bulkinfer", "merge", "my shards", code=1)
    says(place, *named(told, r"\(2/2\): run (infer_launch .*)"))
    told = says(place, *LAUNCH, "--data_dir", "my photos", "--output", "my shards/shard-1-of-2", code=2)
    says(place, *LAUNCH[:-2], "--data_dir", "my photos", *named(told, r"give (--shard .*)"))
    told = says(place, "bulkinfer", "show", "my shards", code=2)
    says(place, "bulkinfer", "show", *named(told, r"such as (.*)"))
    says(place, *named(told, r"(bulkinfer merge .*) joins them"), "--output", "elsewhere")
    told = says(place, "bulkinfer", "merge", "my shards/shard-1-of-2", code=2)
    merged = says(place, *named(told, r"one of the shards: (bulkinfer merge .*)"))
    says(place, *named(merged, r"next: (bulkinfer verify .*)"))
    told = says(place, "bulkinfer", "show", "my shards", code=2)
    says(place, "bulkinfer", "show", *named(told, r"give (.*), which has the rows of all"))
    told = says(place, "bulkinfer", "merge", code=2)
    assert named(told, r"as in: (bulkinfer merge .*)") == ["bulkinfer", "merge", "my shards"]
    told = says(place, *shard, "--shard", "1/2", "--save", "logits", code=2)
    says(place, *named(told, r"; (bulkinfer clean .*) removes the shards there"), "--yes")
    says(place, *shard, "--shard", "1/2", "--save", "logits")


def test_examples_are_of_what_is_there(place: Path) -> None:
    says(place, *LAUNCH, "--data_dir", "my photos", "--output", "elsewhere")
    says(place, *named(says(place, "bulkinfer", "seal", code=2), r"as in: (bulkinfer .*)"))
    says(place, *named(says(place, "partition_dataset", code=2), r"as in: (partition_dataset .*)"))
    says(place, *named(says(place, "bulkinfer", "rows", code=2), r"as in: (bulkinfer [^;]*)"))
    says(place, *named(says(place, "bulkinfer", "clean", code=2), r"that (bulkinfer jobs) lists"))


def test_a_damaged_part_of_a_job_whose_folder_has_grown(place: Path) -> None:
    """No advice leads back to one that was typed before."""
    launch = [*LAUNCH, "--data_dir", "my photos", "--output", "my out"]
    says(place, *launch)
    max((place / "my out").glob("part-*")).write_bytes(b"")
    write_photos(place / "my photos", 14)
    told = says(place, *launch, code=1)
    says(place, *named(told, r"; type this command again after: (bulkinfer retry .*)"), code=1)
    says(place, *launch)  # the job, which has lost a part, goes on with the pictures that it listed
    told = says(place, *launch, code=2)
    says(place, *named(told, r"; to run only those: (infer_launch .*); to run all again"))
    assert (len(records(place / "my out")), len(records(place / "my out-2"))) == (12, 2)
