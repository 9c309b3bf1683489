"""compile_cache.py: compiled code lies where nobody else can put a library."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from bulkinfer.train.network.compile_cache import private_cache, why_not_private
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from tests.forms import long
from tests.logged import logged
from tests.training import trained

NAMES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, and no variable of torch."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bulkinfer" / "compiled"


def entered() -> tuple[Path, list[str]]:
    """The folder of torch's variables inside, and what was said."""
    said: list[str] = []

    def enter() -> Path:
        with private_cache(True):
            folders = {Path(os.environ[name]).parent for name in NAMES}
        (folder,) = folders
        return folder

    return logged(said, enter), said


def test_c51_compiled_code_lies_in_a_private_folder(cache: Path) -> None:
    assert entered() == (cache, [])
    assert (stat.S_IMODE(cache.stat().st_mode), cache.stat().st_uid) == (0o700, os.geteuid())
    assert not set(NAMES) & set(os.environ)
    with private_cache(False):
        assert not set(NAMES) & set(os.environ)


@pytest.mark.parametrize("whose", ["the folder", "the folder above", "mode", "link"])
def test_c51_a_folder_of_somebody_else_is_not_used(whose: str, cache: Path, tmp_path: Path) -> None:
    cache.mkdir(parents=True)
    if whose == "link":
        cache.rmdir()
        cache.symlink_to(tmp_path / "theirs")
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
    elif whose == "mode":
        cache.chmod(0o777)
    else:
        os.chown(cache if whose == "the folder" else cache.parent, 65534, 65534)
    folder, said = entered()
    assert folder.name.startswith("bulkinfer-compiled-")
    assert not folder.exists(), "removed at the end"
    assert len(said) == 1
    assert "for this run only" in said[0]


def test_c51_what_the_user_has_set_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMES[0], "/mine")
    with private_cache(True):
        assert os.environ[NAMES[0]] == "/mine"
        assert os.environ[NAMES[1]] == str(cache / "triton")
    monkeypatch.setenv(NAMES[0], default_cache_dir())  # as torch sets it
    with private_cache(True):
        assert os.environ[NAMES[0]] == str(cache / "inductor")


def test_c51_a_shared_folder_with_the_sticky_bit_may_be_above(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "own").mkdir(parents=True)
    shared.chmod(0o1777)
    assert why_not_private(shared / "own") == ""
    shared.chmod(0o777)
    assert why_not_private(shared / "own") == f"{shared} can be written by others (mode 0777)"


@long
def test_c51_nothing_is_compiled_below_tmp(cache: Path, tmp_path: Path) -> None:
    before = Path(default_cache_dir()).exists()
    trained(tmp_path, compile=True, steps=2)
    assert any((cache / "inductor").rglob("*.so"))
    assert Path(default_cache_dir()).exists() == before
