"""user_path.py: what cannot be a path or a folder is one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files import user_path as user_path_module
from bulkinfer.files.user_path import (
    did_you_mean,
    example_path,
    made_folder,
    real_path,
    require_folder_place,
    require_utf8,
    unused_beside,
    user_path,
)


@pytest.mark.parametrize("value", [None, 5, b"x", 1.5, ["x"], "a\0b", Path("a\0b")])
def test_what_is_no_path(value: Any) -> None:
    with pytest.raises(UsageError, match=r"output is .*: give a path"):
        user_path(value, "output")


def test_what_is_a_path() -> None:
    assert user_path("a/b", "output") == user_path(Path("a/b"), "output") == Path("a/b")


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_path("~/a", "output") == user_path(Path("~/a"), "output") == Path("/home/me/a")
    assert user_path("./~/a", "output") == Path("~/a"), "a folder of that name can be given"
    assert user_path("a~", "output") == Path("a~")


def test_what_can_be_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "new" / "newer", Path(), Path("new")):
        require_folder_place(path, "--output")
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("dangling", "dangling/x"):
        with pytest.raises(UsageError, match=r"--output: .*dangling is a link to nowhere, which does not exist: make"):
            require_folder_place(tmp_path / name, "--output")
    for name in ("file", "file/x", "file/x/y", "x" * 300):
        with pytest.raises(UsageError, match=r"--output.*: give another folder"):
            require_folder_place(tmp_path / name, "--output")
    with pytest.raises(UsageError, match=r"^--output s3://bkt/x: this is written to this machine alone: give a folder$"):
        require_folder_place(Path("s3://bkt/x"), "--output")


def test_a_loop_of_links_has_a_real_path(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(tmp_path)
    assert real_path(tmp_path / "loop" / "x") == tmp_path / "loop" / "x"
    assert real_path(tmp_path / "link" / "x" / "..") == tmp_path


def test_a_path_that_is_not_utf8_is_refused_before_onnxruntime_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff"))
    folder.mkdir()
    require_utf8(tmp_path / "\u00e4", "--model_path")
    monkeypatch.chdir(folder)
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, Path("models"), tmp_path / "link"):
        with pytest.raises(UsageError, match=r"--model_path: .* not UTF-8, such as .*/d\\xff.*: give another --model_path$"):
            require_utf8(path, "--model_path")


def test_a_folder_that_was_made_for_a_failure_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(RuntimeError), made_folder(tmp_path / "a" / "b" / "c"):
        raise RuntimeError
    assert not (tmp_path / "a" / "b").exists()
    with pytest.raises(FileNotFoundError), made_folder(tmp_path / "a" / "b" / "c"):
        (tmp_path / "a" / "b" / "c").rename(tmp_path / "a" / "b" / "file").joinpath("none", "x").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]
    with made_folder(tmp_path / "d" / "e"):
        pass
    assert (tmp_path / "d" / "e").is_dir()


def test_an_output_for_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unused_beside(Path("a/out")) == Path("a/out-2")
    (tmp_path / "a" / "out-2").mkdir(parents=True)
    (tmp_path / "a" / "out-3").symlink_to("nowhere")
    assert unused_beside(Path("a/out")) == Path("a/out-4")
    assert unused_beside(Path("logs/tiny-12345678/results")) == Path("tiny-12345678-2"), "not among the logs"


def test_an_example_is_the_first_path_that_fits(tmp_path: Path) -> None:
    otherwise = Path("out/x.json")
    assert example_path(tmp_path, "*/x.json", otherwise) == example_path(tmp_path / "no", "*/x.json", otherwise) == otherwise
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.json").touch()
    assert example_path(tmp_path, "*/x.json", otherwise) == tmp_path / "a" / "x.json"


def test_names_are_compared_unless_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_path_module, "_MOST_NAMES", 20)
    for number in range(20):
        (tmp_path / f"photos-of-may-{number:02d}").mkdir()
    meant = f"did you mean {tmp_path}/photos-of-may-07?"
    assert did_you_mean(tmp_path / "photos-of-may.07") == meant
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "photos-of-may-00").rmdir()
    assert did_you_mean(tmp_path / "link") == "", "a name of itself: the link leads nowhere"
    (tmp_path / ".hidden").touch()
    assert did_you_mean(tmp_path / "photos-of-may.07") == ""
    zebras = [f"{tmp_path}/zebra-{number}" for number in range(20)]
    assert did_you_mean(tmp_path / "zebra_7", zebras) == f"did you mean {tmp_path}/zebra-7?"
    assert did_you_mean(tmp_path / "zebra_7", [*zebras, "more"]) == ""


def test_only_what_can_be_given_is_suggested(tmp_path: Path) -> None:
    for name in ("one.jpg", "two.jpg", "photo1.tar", "photos.txt"):
        (tmp_path / name).touch()
    assert did_you_mean(tmp_path / "one2.jpg") == ""
    assert did_you_mean(tmp_path / "photos.tar") == ""
    assert did_you_mean(tmp_path / "photos.tar", takes_file=lambda name: name.endswith(".tar")).endswith("/photo1.tar?")
    (tmp_path / "photo").mkdir()
    assert did_you_mean(tmp_path / "photos.tx") == f"did you mean {tmp_path}/photo?"
