"""partition_dataset with --list_file and --balance: what is told, the exit codes, and changing only one of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.partition_dataset import main
from bulkinfer.records.dataset import open_dataset

MODES = ["symlink", "hardlink", "copy", "manifest"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with photos/0/0.jpg to photos/7/7.jpg of 1,000 to 2,000,000 bytes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    for number, size in enumerate([2_000_000, 1000, 1000, 1000, 1000, 1_000_000, 1000, 1_000_000]):
        (tmp_path / f"photos/{number}").mkdir(parents=True)
        (tmp_path / f"photos/{number}/{number}.jpg").write_bytes(bytes([number]) * size)
    return tmp_path


def listed(folder: Path, *numbers: int) -> None:
    (folder / "list.txt").write_text("".join(f"photos/{number}/{number}.jpg\n" for number in numbers))


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    paths = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path): (status.st_mode, status.st_ino, status.st_mtime_ns) for path, status in paths.items()}


def layout(output: Path) -> dict[str, Any]:
    """What an output holds, without times and inodes; manifests by their content hash, since a root may be their own."""
    found: dict[str, Any] = {part.manifest.content_hash: part.index for part in open_dataset(output).partitions}
    for path in output.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(output))] = os.readlink(path)
        elif path.name != "manifest.parquet":
            found[str(path.relative_to(output))] = path.read_bytes() if path.is_file() else None
    return found


def counts(output: Path) -> list[int]:
    return [part.manifest.num_records for part in open_dataset(output).partitions]


def told(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> tuple[str, str]:
    assert main([*arguments]) == code
    return capsys.readouterr()


def test_balance_by_bytes_is_told_and_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, 0, "--data_dir", "photos", "--partitions", "2", "--balance", "bytes")
    assert "datasets/0 to datasets/1: 3 to 5 pictures, 2.0 MB each (8 symbolic links)\n" in out
    assert "datasets/0: 3 pictures, 2.0 MB\ndatasets/1: 5 pictures, 2.0 MB\n" in out
    assert counts(folder / "datasets") == [3, 5]
    assert json.loads((folder / "datasets/dataset.json").read_text())["balance"] == "bytes"
    out, _ = told(capsys, 0, "--data_dir", "photos", "--partitions", "17", "--balance", "bytes")
    assert "datasets/0 to datasets/16: 0 or 1 picture, 0 kB to 2.0 MB each" in out
    assert "datasets/1: " not in out
    assert "note: 9 partitions without pictures" in out


@pytest.mark.parametrize("mode", MODES)
def test_changing_only_balance_or_list(folder: Path, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    plain = ["--mode", mode, "--partitions", "3", "--data_dir", "."]
    if mode == "manifest":
        plain[-1] = str(folder)
    listed(folder, 6, 0, 1, 5)
    (folder / "other.txt").write_text("photos/0/0.jpg\nphotos/2/2.jpg\nphotos/3/3.jpg\nphotos/4/4.jpg\nphotos/5/5.jpg\n")
    variants = [
        [],
        ["--balance", "bytes"],
        ["--list_file", "list.txt"],
        ["--list_file", "other.txt"],
        ["--list_file", "other.txt", "--balance", "bytes"],
        [],
    ]
    for variant in variants:
        assert main([*plain, *variant]) == 0
        capsys.readouterr()
        before = tree(folder / "datasets")
        assert "nothing to do" in told(capsys, 0, *plain, *variant)[0]
        assert tree(folder / "datasets") == before
        assert main([*plain, *variant, "--output", "fresh"]) == 0
        assert layout(folder / "datasets") == layout(folder / "fresh")
    assert sum(counts(folder / "datasets")) == 8


def test_a_list_of_the_whole_folder_gives_what_the_folder_gives(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed(folder, 7, 6, 5, 4, 3, 2, 1, 0, 3)
    assert main(["--data_dir", ".", "--output", "a"]) == 0
    capsys.readouterr()
    out, _ = told(capsys, 0, "--list_file", "list.txt", "--output", "b")
    assert out.startswith(f"list names 8 pictures (4.0 MB) in {folder}\ndropped 1 repeated line: photos/3/3.jpg\n")
    assert open_dataset(folder / "a").content_hash == open_dataset(folder / "b").content_hash
    described = json.loads((folder / "b/dataset.json").read_text())
    assert (described["found"], described["source"]) == (8, str(folder))
    assert (described["list_file"]["repeated"], described["list_file"]["missing"]) == (1, 0)


def test_a_reordered_list_changes_no_partition(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed(folder, 1, 2, 3)
    assert main(["--list_file", "list.txt"]) == 0
    listed(folder, 3, 1, 2, 2)
    capsys.readouterr()
    assert "nothing to do" in told(capsys, 0, "--list_file", "list.txt")[0]


@pytest.mark.parametrize("mode", MODES[:3])
def test_missing_files_keep_their_records(folder: Path, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    (folder / "list.txt").write_text("0/0.jpg\n1\n1/1.jpg\n9/9.jpg\nnowhere.jpg\n")
    arguments = ["--list_file", "list.txt", "--data_dir", "photos", "--mode", mode, "--partitions", "2"]
    for repeat in (False, True):
        out, errors = told(capsys, 3, *arguments)
        assert (
            errors == "partition_dataset: missing or not accessible, will be error rows: 3 pictures: 1, 9/9.jpg, nowhere.jpg\n"
        )
        assert ("nothing to do" in out) == repeat
    entries = [entry for part in open_dataset(folder / "datasets").partitions for entry in part.manifest.entries()]
    assert [entry.size_bytes for entry in entries] == [2_000_000, None, 1000, None, None]
    (folder / "photos/nowhere.jpg").write_bytes(b"now it is there")
    assert "will be error rows: 2 pictures" in told(capsys, 3, *arguments)[1]
    (record,) = list(open_dataset(folder / "datasets").partitions[1].manifest.records())[1:]
    assert Path(os.fsdecode(record.place)).read_bytes() == b"now it is there"


def test_with_manifests_alone_files_are_not_looked_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "list.txt").write_text("0/0.jpg\nnowhere.jpg\n")
    arguments = ["--list_file", "list.txt", "--data_dir", "photos", "--mode", "manifest", "--partitions", "1"]
    out, errors = told(capsys, 0, *arguments)
    assert "did not look at the files: sizes are not known, and a missing file becomes an error row" in out
    assert errors == ""
    (part,) = open_dataset(folder / "datasets").partitions
    assert [entry.size_bytes for entry in part.manifest.entries()] == [None, None]
    assert next(part.manifest.records()).place == os.fsencode(folder / "photos/0/0.jpg")
    out, errors = told(capsys, 3, *arguments, "--balance", "bytes")
    assert "list names 2 pictures (2.0 MB)" in out
    assert "will be error rows: 1 picture: nowhere.jpg" in errors


def test_where_the_root_comes_from(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "photos/list.txt").write_text(f"1/1.jpg\n{folder}/photos/2/2.jpg\n")
    assert main(["--list_file", "photos/list.txt"]) == 0
    monkeypatch.setenv("DATA_DIR", "photos")
    (folder / "list.txt").write_text("1/1.jpg\n2/2.jpg\n")
    assert "nothing to do" in told(capsys, 0, "--list_file", "list.txt")[0].partition("next: ")[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--list_file", "list.txt", "--annotations", "a.json"], "--annotations and --list_file both name the pictures"),
        (["--list_file", "photos"], "--list_file: photos is a folder, not a file"),
        (["--list_file", "gone.txt"], "--list_file: gone.txt cannot be read: No such file or directory"),
        (["--list_file", "empty.txt"], "--list_file: empty.txt contains no paths"),
        (["--list_file", "photos/0/0.jpg"], "is not a text file: give a file with one path per line"),
        (["--list_file", "list.txt", "--data_dir", "photos/1"], "--list_file: none of its 1 paths is a file in"),
        (["--list_file", "out.txt"], "--list_file: out.txt line 2: ../1.jpg leads out of"),
        (["--list_file", "list.txt", "--data_dir", "gone"], "gone is not a folder"),
        (["--list_file", "list.txt", "--output", "."], "is the folder of the pictures itself"),
        (["--list_file", "own.txt"], "line 1: datasets/0/1.jpg lies in a partition"),
        (["--data_dir", "photos", "--balance", "size"], "value should be one of <count|bytes>"),
    ],
)
def test_refusals_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    listed(folder, 0)
    (folder / "empty.txt").touch()
    (folder / "out.txt").write_text("# a list\n../1.jpg\n")
    (folder / "own.txt").write_text("./datasets/0/1.jpg\n")
    out, errors = told(capsys, 2, *arguments)
    assert sentence in errors
    assert errors.count("\n") == 1
    assert out == ""
    assert not (folder / "datasets").exists()


def test_a_setting_without_effect_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed(folder, 0)
    assert "--include_hidden changes nothing" in told(capsys, 0, "--list_file", "list.txt", "--include_hidden")[0]


@pytest.mark.parametrize(
    ("line", "first", "advice"),
    [
        ("photos/{n}/{n}.jpg  ", "photos/0/0.jpg  ", "remove the blanks at the ends of the lines"),
        ('"photos/{n}/{n}.jpg"', '"photos/0/0.jpg"', "remove the quotes"),
        ("photos/{n}/{n}.jpg 3", "photos/0/0.jpg 3", "the list seems to have a second column: leave only the paths"),
        ("photos/{n}/{n}.jpg,cat", "photos/0/0.jpg,cat", "the list seems to have a second column: leave only the paths"),
        ("photos/{n}/{n}.jpg\tb.jpg", "photos/0/0.jpg\\tb.jpg", "the list seems to have a second column"),
        ("D:\\elsewhere\\{n}.png", "D:\\elsewhere\\0.png", "it is a path of Windows: give the folder of the pictures"),
        ("photos/{n}/{n}.jpeg", "photos/0/0.jpeg", ""),
    ],
)
def test_c39_lists_whose_lines_are_more_than_paths(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, first: str, advice: str
) -> None:
    """The refusal quotes the first name; where some files are found, or none was looked at, a warning does."""
    lines = [line.format(n=number) for number in range(3)]
    (folder / "list.txt").write_text("\n".join(lines))
    _, errors = told(capsys, 2, "--list_file", "list.txt")
    assert f"none of its 3 paths is a file in {folder}; the first is '{first}'" in errors
    assert advice in errors
    _, errors = told(capsys, 0, "--list_file", "list.txt", "--mode", "manifest", "--output", "unseen")
    assert f"'{first}'" in errors
    assert advice in errors
    (folder / "list.txt").write_text("\n".join([*lines, "photos/7/7.jpg"]))
    _, errors = told(capsys, 3, "--list_file", "list.txt", "--output", "some")
    assert "3 pictures" in errors
    assert (f"'{first}' is no file: {advice}" in errors) == bool(advice)


def test_c39_a_list_from_windows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed(folder, 0, 1)
    assert main(["--list_file", "list.txt", "--output", "a"]) == 0
    (folder / "list.txt").write_text("photos\\0\\0.jpg\r\nC:\\data\\set\\photos\\1\\1.jpg\r\n")
    _, errors = told(capsys, 0, "--list_file", "list.txt", "--output", "b")
    assert not errors
    assert open_dataset(folder / "a").content_hash == open_dataset(folder / "b").content_hash
