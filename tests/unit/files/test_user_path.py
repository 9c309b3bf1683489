"""user_path.py: what cannot be a path or a folder is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.user_path import require_folder_place, user_path


@pytest.mark.parametrize("value", [None, 5, b"x", 1.5, ["x"], "a\0b", Path("a\0b")])
def test_what_is_no_path(value: Any) -> None:
    with pytest.raises(UsageError, match=r"output is .*: give a path"):
        user_path(value, "output")


def test_what_is_a_path() -> None:
    assert user_path("a/b", "output") == user_path(Path("a/b"), "output") == Path("a/b")


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
