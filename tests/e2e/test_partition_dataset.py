"""partition_dataset through the installed script: odd names, odd folders, repeats, refusals and kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.partition_dataset import main
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.types import Record

from tests.commands import UNPRIVILEGED
from tests.forms import only_first

SCRIPT = Path(sys.executable).parent / "partition_dataset"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0 not decoded here"


def run(*arguments: str | os.PathLike[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    plain = {name: value for name, value in os.environ.items() if name != "DATA_DIR"}
    return subprocess.run([SCRIPT, *arguments], cwd=cwd, env=plain | environment, capture_output=True, timeout=300, check=False)


def succeeded(result: subprocess.CompletedProcess[bytes], code: int = 0) -> str:
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    assert b"Traceback" not in result.stderr
    return result.stdout.decode()


def refused(result: subprocess.CompletedProcess[bytes], code: int = 2) -> str:
    succeeded(result, code)
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def put(folder: Path, *names: str | bytes) -> None:
    for name in names:
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG)


def records(dataset: Dataset) -> list[Record]:
    return [record for partition in dataset.partitions for record in partition.manifest.records()]


def keys(output: Path) -> set[bytes]:
    found = records(open_dataset(output))
    assert all(Path(os.fsdecode(record.place)).read_bytes() == JPEG for record in found)
    assert len({record.key for record in found}) == len(found)
    return {record.key for record in found}


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    paths = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path): (status.st_mode, status.st_ino, status.st_mtime_ns) for path, status in paths.items()}


def layout(folder: Path) -> dict[str, str | bytes]:
    """What an output holds, without times and inodes."""
    found: dict[str, str | bytes] = {}
    for path in folder.rglob("*"):
        if not path.is_dir():
            found[str(path.relative_to(folder))] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


def test_data_dir_from_the_environment_and_a_second_run(tmp_path: Path) -> None:
    put(tmp_path / "photos", *(f"{number}.jpg" for number in range(103)))
    out = succeeded(run("--partitions", "8", cwd=tmp_path, DATA_DIR="photos"))
    assert "found 103 pictures" in out
    assert "datasets/0 to datasets/7: 12 or 13 pictures each (103 symbolic links)" in out
    assert out.endswith("next: bulkinfer run --data_dir datasets\n")
    assert len(keys(tmp_path / "datasets")) == 103
    before = tree(tmp_path / "datasets")
    assert "nothing to do" in succeeded(run("--partitions=8", "--data-dir", "photos", cwd=tmp_path))
    assert tree(tmp_path / "datasets") == before
    assert "removed 5 partitions no longer wanted" in succeeded(run("--data_dir=photos", "--partitions", "3", cwd=tmp_path))
    assert sorted(os.listdir(tmp_path / "datasets")) == ["0", "1", "2", "dataset.json"]
    assert [part.manifest.num_records for part in open_dataset(tmp_path / "datasets").partitions] == [35, 34, 34]
    described = json.loads((tmp_path / "datasets/dataset.json").read_text())
    assert described["format"] == 2
    assert described["source"] == str(tmp_path / "photos")


def test_no_folder_given_names_the_command_to_type(tmp_path: Path) -> None:
    assert "as in: partition_dataset --partitions 8 --data_dir PHOTOS (PHOTOS: a folder of pictures)" in refused(
        run(cwd=tmp_path)
    )
    assert os.listdir(tmp_path) == []


def test_wrong_folders_get_one_sentence(tmp_path: Path) -> None:
    put(tmp_path, "photos/1.jpg", "one.jpg")
    (tmp_path / "empty/sub").mkdir(parents=True)
    assert "nowhere does not exist" in refused(run("--data_dir", "nowhere", cwd=tmp_path))
    assert "one.jpg is one picture: give the folder that it lies in" in refused(run("--data_dir", "one.jpg", cwd=tmp_path))
    assert "empty holds no pictures" in refused(run("--data_dir", "empty", cwd=tmp_path))
    assert "is the folder of the pictures itself" in refused(run("--data_dir", "photos", "--output", "photos", cwd=tmp_path))
    assert "one.jpg is not a folder: give another" in refused(run("--data_dir", "photos", "--output", "one.jpg", cwd=tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["empty", "one.jpg", "photos"]


def test_a_foreign_numbered_folder_is_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path, "photos/1.jpg", "datasets/3/mine.jpg")
    before = tree(tmp_path)
    assert "datasets/3 was not made by partition_dataset" in refused(run("--data_dir", "photos", cwd=tmp_path))
    assert tree(tmp_path) == before


def test_what_a_user_put_into_a_partition_is_named_and_stays(tmp_path: Path) -> None:
    put(tmp_path / "photos", *(f"{number}.jpg" for number in range(6)))
    arguments = ["--data_dir", "photos", "--output", "m/u", "--partitions"]
    succeeded(run(*arguments, "2", cwd=tmp_path))
    put(tmp_path, "m/u/0/notes.txt", "m/u/1/part-0-00000.parquet")
    before = tree(tmp_path)
    assert "nothing to do" in succeeded(run(*arguments, "2", cwd=tmp_path))
    for name in ("0/notes.txt", "1/part-0-00000.parquet"):
        told = refused(run(*arguments, "3", cwd=tmp_path))
        assert told == f"partition_dataset: m/u/{name} was not put there by partition_dataset: move it away"
        assert tree(tmp_path) == before
        (tmp_path / "m/u" / name).unlink()
        before = tree(tmp_path)
    assert "wrote 3 partitions" in succeeded(run(*arguments, "3", cwd=tmp_path))


def test_too_many_partitions_are_refused_at_once(tmp_path: Path) -> None:
    put(tmp_path, "photos/1.jpg")
    told = refused(run("--data_dir", "photos", "--partitions", "100000000", cwd=tmp_path))
    assert "--partitions 100000000 is too many: give at most 100,000" in told
    assert os.listdir(tmp_path) == ["photos"]


def test_b14_system_files_are_counted_as_ignored(tmp_path: Path) -> None:
    put(tmp_path / "photos", "001.jpg", "._001.jpg", ".DS_Store", "Thumbs.db", "__MACOSX/x.jpg", ".hidden/y.jpg")
    (tmp_path / "photos/._001.jpg").write_bytes(b"\0\x05\x16\x07" + bytes(4092))
    out = succeeded(run("--data_dir", "photos", cwd=tmp_path))
    assert "found 1 picture " in out
    assert "ignored 5 hidden or system files and folders" in out
    assert "note: 7 partitions without pictures" in out
    assert keys(tmp_path / "datasets") == {b"001.jpg"}
    assert "found 2 pictures" in succeeded(run("--data_dir", "photos", "--include_hidden", "--output", "o", cwd=tmp_path))


ODD_FOLDERS = ["set[1]", "a*b", "q?x", "100% #1", "-v", "a b"]
ODD_NAMES = ["line\nbreak.jpg", 'comma, and "quote".jpg', "semi;colon'.jpg", "back\\slash.jpg", "$HOME.jpg", "\x1b[31mred.jpg"]


def test_b16_odd_names_are_literal(tmp_path: Path) -> None:
    put(tmp_path / "photos", *(f"{folder}/{name}" for folder in ODD_FOLDERS for name in ODD_NAMES))
    succeeded(run("--data_dir", "photos", "--partitions", "3", cwd=tmp_path))
    expected = {f"{folder}/{name}".encode() for folder in ODD_FOLDERS for name in ODD_NAMES}
    assert keys(tmp_path / "datasets") == expected
    assert set(json.loads(json.dumps([record.name for record in records(open_dataset(tmp_path / "datasets"))])))


@pytest.mark.parametrize("folder", only_first(ODD_FOLDERS, 2))
def test_b16_odd_folders_as_argument_and_as_output(tmp_path: Path, folder: str) -> None:
    put(tmp_path / folder, "1.jpg", "2.jpg")
    out = succeeded(run("--data_dir", folder, "--output", f"out {folder}", "--partitions", "1", cwd=tmp_path))
    assert "found 2 pictures" in out
    assert keys(tmp_path / f"out {folder}") == {b"1.jpg", b"2.jpg"}


NOT_UTF8 = b"caf\xe9.png"
TWINS = ("caf\u00e9.jpg".encode(), "cafe\u0301.jpg".encode())
LONGEST = b"x" * 251 + b".jpg"
ASCII_ONLY = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("environment", only_first([{}, ASCII_ONLY]), ids=["utf8", "ascii"])
@pytest.mark.parametrize("mode", ["symlink", "copy", "manifest"])
def test_b17_names_that_are_not_utf8(tmp_path: Path, environment: dict[str, str], mode: str) -> None:
    photos = tmp_path / os.fsdecode(b"photos \xff\xe9")
    put(photos, NOT_UTF8, *TWINS, LONGEST, b"\xe9/1.jpg", "日本.jpg")
    (photos / os.fsdecode(b"broken \xe9")).symlink_to("nowhere")
    result = run("--data_dir", photos, "--partitions", "2", "--mode", mode, cwd=tmp_path, **environment)
    out = succeeded(result, 3)
    assert r"photos \xff\xe9" in out
    assert (
        result.stderr.decode("ascii") == "partition_dataset: unreadable, its pictures are missing: broken \\xe9 (broken link)\n"
    )
    assert keys(tmp_path / "datasets") == {NOT_UTF8, *TWINS, LONGEST, b"\xe9/1.jpg", "日本.jpg".encode()}
    before = tree(tmp_path / "datasets")
    out = succeeded(run("--data_dir", photos, "--partitions", "2", "--mode", mode, cwd=tmp_path, **environment), 3)
    assert "nothing to do" in out
    assert tree(tmp_path / "datasets") == before


def test_b19_equal_base_names_stay_apart(tmp_path: Path) -> None:
    put(tmp_path / "photos", "a/1.jpg", "b/1.jpg", "a/1.png")
    succeeded(run("--data_dir", "photos", "--partitions", "1", cwd=tmp_path))
    assert keys(tmp_path / "datasets") == {b"a/1.jpg", b"b/1.jpg", b"a/1.png"}


# Root may read everything, so the command runs as another user; what it needs is imported while that is still possible.
@pytest.mark.parametrize("mode", ["symlink", "copy"])
def test_b20_unreadable_folders_and_files(tmp_path: Path, mode: str) -> None:
    put(tmp_path / "photos", "1.jpg", "2.jpg", "shut/3.jpg", "shut/4.jpg", "shut/5.jpg", "shut file.jpg", "shut noext")
    (tmp_path / "photos/shut").chmod(0)
    (tmp_path / "photos/shut file.jpg").chmod(0)
    (tmp_path / "photos/shut noext").chmod(0)
    arguments = ["--data_dir", "photos", "--partitions", "1", "--mode", mode]
    for repeat in (False, True):
        result = subprocess.run(
            [*UNPRIVILEGED, SCRIPT, *arguments], cwd=tmp_path, capture_output=True, timeout=300, check=False
        )
        out = succeeded(result, 3)
        assert "found 3 pictures" in out
        assert ("nothing to do" in out) == repeat
        assert result.stderr.decode().splitlines() == [
            "partition_dataset: unreadable, its pictures are missing: shut (Permission denied)",
            "partition_dataset: unreadable, its pictures are missing: shut noext (Permission denied)",
        ]
        found = records(open_dataset(tmp_path / "datasets"))
        assert [record.key for record in found] == [b"1.jpg", b"2.jpg", b"shut file.jpg"]
        assert all(os.path.lexists(record.place) for record in found)


def test_b20_a_folder_that_is_shut_altogether(tmp_path: Path) -> None:
    put(tmp_path / "photos", "1.jpg")
    (tmp_path / "photos").chmod(0)
    result = subprocess.run(
        [*UNPRIVILEGED, SCRIPT, "--data_dir", "photos"], cwd=tmp_path, capture_output=True, timeout=300, check=False
    )
    assert "photos cannot be searched: Permission denied" in refused(result)


def test_b22_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    put(tmp_path / "photos", "1.jpg")
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets").chmod(0o555)
    result = subprocess.run(
        [*UNPRIVILEGED, SCRIPT, "--data_dir", "photos"], cwd=tmp_path, capture_output=True, timeout=300, check=False
    )
    assert "Permission denied: datasets" in refused(result, 1)


def test_b23_output_inside_the_input(tmp_path: Path) -> None:
    put(tmp_path / "d", *(f"{number}.jpg" for number in range(6)))
    first = succeeded(run("--data_dir", "d", "--output", "d/out", "--partitions", "2", cwd=tmp_path))
    before = tree(tmp_path / "d")
    second = succeeded(run("--data_dir", "d", "--output", "d/out", "--partitions", "2", cwd=tmp_path))
    assert tree(tmp_path / "d") == before
    assert "found 6 pictures" in first
    assert "found 6 pictures" in second
    assert "left out: out/ (an output of bulkinfer)" in second
    third = succeeded(run("--data_dir", "d", "--output", "elsewhere", "--partitions", "1", cwd=tmp_path))
    assert "found 6 pictures" in third
    assert len(records(open_dataset(tmp_path / "d"))) == 6
    assert "was made by partition_dataset" in refused(run("--data_dir", "d/out", "--output", "x", cwd=tmp_path))
    assert "was made by partition_dataset" in refused(run("--data_dir", "d/out/0", "--output", "x", cwd=tmp_path))


def test_coco_annotations(tmp_path: Path) -> None:
    names = [f"COCO_val2014_{number:012d}.jpg" for number in (42, 73, 74)]
    put(tmp_path / "val2014", *names, "extra.jpg")
    images = [{"id": number, "file_name": f"COCO_val2014_{number:012d}.jpg"} for number in (42, 73, 74, 133)]
    annotations = [{"image_id": 73, "category_id": 4}, {"image_id": 73, "category_id": 4}, {"image_id": 74, "category_id": 1}]
    (tmp_path / "instances.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    arguments = ["--data_dir", "val2014", "--annotations", "instances.json", "--partitions", "2"]
    for repeat in (False, True):
        result = run(*arguments, cwd=tmp_path)
        out = succeeded(result, 3)
        assert "annotations name 4 images" in out
        assert "left out 1 file that the annotations do not name: extra.jpg" in out
        assert b"will be error rows: 1 picture: COCO_val2014_000000000133.jpg" in result.stderr
        assert ("nothing to do" in out) == repeat
    found = records(open_dataset(tmp_path / "datasets"))
    assert [record.category_ids for record in found] == [(), (4,), (1,), ()]
    entries = [entry for part in open_dataset(tmp_path / "datasets").partitions for entry in part.manifest.entries()]
    assert [entry.image_id for entry in entries] == [42, 73, 74, 133]
    assert [entry.size_bytes for entry in entries] == [len(JPEG)] * 3 + [None]
    (tmp_path / "instances.json").write_text("{")
    assert "instances.json is not JSON" in refused(run(*arguments, cwd=tmp_path))


# Dies by SIGKILL just before the n-th change it makes to the file system.
KILLED_AT = """
import os, signal, sys
from bulkinfer.commands.partition_dataset import main
left = int(sys.argv.pop(1))
def counted(call):
    def wrapper(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return wrapper
for name in ("symlink", "rename", "unlink", "mkdir", "rmdir", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
sys.exit(main())
"""


@pytest.mark.parametrize("moment", only_first([10, 1, 4, 7, 9, 11, 12, 13, 15, 18, 20, 22, 26, 30, 33, 36, 40]))
def test_killed_at_any_moment_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    put(tmp_path / "photos", *(f"{number}/{number}.jpg" for number in range(5)))
    monkeypatch.chdir(tmp_path)
    arguments = ["--data_dir", "photos", "--partitions"]
    assert main([*arguments, "2", "--output", "undisturbed"]) == 0
    assert main([*arguments, "3"]) == 0
    killed = subprocess.run([sys.executable, "-c", KILLED_AT, str(moment), *arguments, "2"], capture_output=True, check=False)
    assert killed.returncode == -9, killed
    for folder in (tmp_path / "datasets").glob("[0-9]*"):
        whole = Manifest.read(folder / "manifest.parquet")
        assert all(os.path.isfile(record.place) for record in whole.records())
    assert main([*arguments, "2"]) == 0
    assert layout(tmp_path / "datasets") == layout(tmp_path / "undisturbed")
    assert len(keys(tmp_path / "datasets")) == 5


def test_help_is_quick_and_names_every_flag(tmp_path: Path) -> None:
    out = succeeded(run("--help", cwd=tmp_path))
    options = (
        "data_dir",
        "partitions",
        "output",
        "mode",
        "balance",
        "annotations",
        "list_file",
        "labels",
        "[no]include_hidden",
    )
    for flag in (f"--{option}" for option in options):
        assert flag in out
    code = "import sys, bulkinfer.commands.partition_dataset\nprint(sorted({'pyarrow', 'numpy', 'PIL'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"[]\n"
