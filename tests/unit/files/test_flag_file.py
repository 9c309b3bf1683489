"""flag_file.py: which flag files lack their end, however they are named; test_tuned_flags.py cuts complete ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.commands.parse import parse
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.flag_file import END_MARK, FIRST_LINE, refuse_unfit

OURS = f"{FIRST_LINE} at noon\n# more\n--streams=2\n"


@pytest.mark.parametrize("text", [
    f"{OURS}{END_MARK}\n", f"{OURS}{END_MARK}", f"{OURS}{END_MARK}\n--streams=3\n", "# mine\n", "--streams=2", "# written by I",
    "", "\n", "#", "# writ", "# written by bulkinfer bench\n--streams=2\n",
])  # fmt: skip
def test_files_that_are_whole_or_of_others(tmp_path: Path, text: str) -> None:
    """Somebody may add flags at the end, and write a file with comments alone, or with nothing."""
    (tmp_path / "a").write_text(text)
    words = ["--flagfile", str(tmp_path / "a")]
    refuse_unfit(words)
    given = [int(line.rpartition("=")[2]) for line in text.splitlines() if line.startswith("--streams=")]
    assert parse("infer_launch", LaunchConfig, words).streams == (given[-1] if given else LaunchConfig.streams)


@pytest.mark.parametrize("text", [OURS, FIRST_LINE[:30], FIRST_LINE, f"{OURS}{END_MARK[:-1]}"])
@pytest.mark.parametrize(
    "words", [("--flagfile", "{}"), ("--flagfile={}",), ("-flagfile", "{}"), ("--x", "1", "--flagfile={}")]
)
def test_files_that_are_cut(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"^--flagfile: {path} is cut short: make it again with bulkinfer bench --tune"):
        refuse_unfit([word.format(path) for word in words])


def test_files_that_another_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(OURS)
    (tmp_path / "b").write_text(f"# mine\n--flagfile={tmp_path / 'a'}\n--flagfile={tmp_path / 'b'}\n")
    with pytest.raises(UsageError, match=f"{tmp_path / 'a'} is cut short"):
        refuse_unfit(["--flagfile", str(tmp_path / "b")])


def test_what_cannot_be_read_is_left_to_who_reads_it(tmp_path: Path) -> None:
    """Here it gives no sentence."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    refuse_unfit(["--flagfile", str(tmp_path / "binary")])
    with pytest.raises(UsageError, match=r"^--flagfile: .*not a readable text file"):
        parse("infer_launch", LaunchConfig, ["--flagfile", str(tmp_path / "binary")])
    refuse_unfit(["--flagfile", str(tmp_path / "binary"), "--flagfile"])
    refuse_unfit([])
    refuse_unfit(["--", f"--flagfile={tmp_path / 'none'}"])


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "outer").write_text(f"--flagfile={tmp_path / 'none'}\n")
    for name in ("none", "outer"):
        with pytest.raises(UsageError, match=r"^--flagfile: .*none cannot be read: No such file or directory$"):
            parse("infer_launch", LaunchConfig, ["--flagfile", str(tmp_path / name)])


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize(("name", "told"), [
    ("pipe", "is a named pipe, not a file"), ("/dev/zero", "is a device, not a file"), ("folder", "is a folder, not a file"),
    ("large", "has 67,108,865 bytes or more; such a file has at most 67,108,864"),
])  # fmt: skip
def test_what_has_no_end_is_not_waited_for(tmp_path: Path, name: str, told: str, is_nested: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate((64 << 20) + 1)
    (tmp_path / "outer").write_text(f"--streams=2\n--flagfile={tmp_path / name}\n")
    words = ["--flagfile", str(tmp_path / ("outer" if is_nested else name))]
    with pytest.raises(UsageError) as caught:
        parse("infer_launch", LaunchConfig, words)
    assert str(caught.value) == f"--flagfile: {tmp_path / name} {told}: give a file with one flag a line"
