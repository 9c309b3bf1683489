"""isolated_call.py: an answer or a sentence, whatever happens to the process that is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.host import isolated_call as child
from bulkinfer.host.isolated_call import Failure, NoAnswer, ask


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
    assert ask("bulkinfer.launch.auto.device_trial", {}, "--device cpu", limit_s=1.0 if "sleep" in script else 120.0) == told


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("kill -SEGV $$", Failure),
        ("exit 3", Failure),
        ("kill -INT $$", NoAnswer),
        ("kill -TERM $$", NoAnswer),
        ("kill -KILL $$", NoAnswer),
    ],
)
def test_a_process_that_was_ended_is_no_failure(
    script: str, kind: type[NoAnswer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_that(script, tmp_path, monkeypatch)
    assert type(ask("bulkinfer.launch.auto.device_trial", {}, "--device cpu")) is kind


def test_what_libraries_print_is_not_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that("echo 'Failed to load libcudnn'\necho 'answer: 12.5'\necho 'and a last word'", tmp_path, monkeypatch)
    assert ask("bulkinfer.launch.auto.device_trial", {}, "--device cpu") == 12.5


def child_that(raises: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module whose answer is this exception."""
    code = f"from bulkinfer.host.isolated_call import answer\n\n\ndef find(question):\n    raise {raises}\n\n\n"
    (folder / "asked_here.py").write_text(f"{code}answer(find, lambda question: '--device cpu')\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "asked_here"


@pytest.mark.parametrize(
    ("raises", "told"),
    [
        ("RuntimeError('no kernel')", "--device cpu: RuntimeError: no kernel"),
        ("ValueError('odd')", "--device cpu: ValueError: odd"),
        ("MemoryError()", "--device cpu: MemoryError: MemoryError"),
        ("OSError(28, 'No space left')", "--device cpu: OSError: [Errno 28] No space left"),
    ],
)
def test_what_the_runtime_or_the_host_raises_is_a_sentence(
    raises: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(child_that(raises, tmp_path, monkeypatch), {}, "--device cpu") == told


@pytest.mark.parametrize(
    "raises", ["AssertionError('torn')", "TypeError('torn')", "KeyError('torn')", "AttributeError('torn')"]
)
def test_a_fault_of_ours_is_no_verdict(
    raises: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = child_that(raises, tmp_path, monkeypatch)
    name = raises.partition("(")[0]
    with pytest.raises(RunError, match=rf"^--device cpu: internal error in {module}, {name}: '?torn'?; the lines before have"):
        ask(module, {}, "--device cpu")
    assert f"raise {raises}" in capsys.readouterr().err


@pytest.mark.parametrize("raises", ["IndexError('list index out of range')", "KeyError('x')", "TypeError('torn')"])
def test_what_a_library_raises_over_a_malformed_graph_is_no_fault_of_ours(
    raises: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library.py").write_text(f"def helper():\n    raise {raises}\n")
    told = ask(child_that("__import__('library').helper()", tmp_path, monkeypatch), {}, "--device cpu")
    assert told.startswith(f"--device cpu: {raises.partition('(')[0]}: ")


def test_a_module_that_cannot_be_imported_is_a_fault_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked_here.py").write_text("import nothing_of_that_name\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RunError, match="internal error in asked_here, ModuleNotFoundError: "):
        ask("asked_here", {}, "--device cpu")


def test_a_question_without_its_fields_is_a_fault_of_ours() -> None:
    with pytest.raises(RunError, match=r"^--device cpu: internal error in bulkinfer\.launch\.auto\.device_trial, TypeError: "):
        ask("bulkinfer.launch.auto.device_trial", {"session": {"provider": "cpu"}}, "--device cpu")
