"""child.py: an answer, or a sentence, whatever becomes of the process that is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference import child
from inference.child import ask


def python_that(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the interpreter were this shell script."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(child.sys, "executable", str(path))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("kill -SEGV $$", "--device cpu ends its process: exit code -11"),
        ("echo 'first'; echo 'out of memory' >&2; exit 3", "--device cpu ends its process: out of memory"),
        ("echo 'no number'", "--device cpu ends its process: exit code 0"),
        ("echo '0x7f00 frame'; kill -SEGV $$", "--device cpu ends its process: exit code -11"),
        ("sleep 60", "--device cpu took more than 1 s to open and run"),
    ],
)
def test_a_process_that_dies_or_hangs_fails_alone(
    script: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_that(script, tmp_path, monkeypatch)
    assert ask("inference.probe", {}, "--device cpu", limit_s=1.0 if "sleep" in script else 30.0) == told


def test_what_libraries_print_is_not_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that("echo 'Failed to load libcudnn'\necho 'answer: 12.5'\necho 'and a last word'", tmp_path, monkeypatch)
    assert ask("inference.probe", {}, "--device cpu") == 12.5


def test_an_exception_is_a_sentence() -> None:
    """A trial without any of its fields."""
    assert ask("inference.probe", {"session": {"provider": "cpu"}}, "--device cpu").startswith("--device cpu: TypeError: ")
