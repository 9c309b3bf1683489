"""__main__.py: what the words name, signals during the imports, help that nobody reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bulkinfer.__main__ import COMMANDS, main

from tests.commands import command, python_path

# Sends a signal to this process when it imports the module that WHEN names, as a user may at any moment.
SIGNAL_AT_IMPORT = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["WHEN"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Finder())
"""
SENTENCES = {signal.SIGINT: "interrupted", signal.SIGTERM: "stopped by SIGTERM", signal.SIGHUP: "stopped by SIGHUP"}
SCRIPTS = [
    ("infer_launch", ["infer_launch", "--synthetic"]),
    ("get_model", ["get_model", "--list"]),
    ("bulkinfer train", ["bulkinfer", "train", "--help"]),
    ("bulkinfer", ["bulkinfer", "--help"]),
]


@pytest.fixture
def signals(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH whose processes get a signal while they import something."""
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_AT_IMPORT)
    return tmp_path


@pytest.mark.parametrize("number", SENTENCES)
@pytest.mark.parametrize(("name", "words"), SCRIPTS)
def test_c53_a_signal_during_the_imports_is_one_sentence(signals: Path, number: int, name: str, words: list[str]) -> None:
    when = "bulkinfer.commands.outcome" if name == "bulkinfer" else "absl"
    environment = {"PYTHONPATH": python_path(signals), "WHEN": when, "SIGNAL": str(int(number)), "PATH": ""}
    done = subprocess.run(
        command(words[0], *words[1:]), env=environment, cwd=signals, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", f"{name}: {SENTENCES[signal.Signals(number)]}\n")


def test_c53_a_signal_during_the_imports_of_the_package_run_as_a_module(signals: Path) -> None:
    environment = {"PYTHONPATH": python_path(signals, *sys.path), "WHEN": "absl", "SIGNAL": str(int(signal.SIGINT)), "PATH": ""}
    words = [sys.executable, "-m", "bulkinfer", "infer_launch", "--synthetic"]
    done = subprocess.run(words, env=environment, cwd=signals, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (130, "bulkinfer infer_launch: interrupted\n")


def test_c53_an_ignored_signal_stays_ignored(signals: Path) -> None:
    """As under nohup."""
    environment = {"PYTHONPATH": python_path(signals), "WHEN": "absl", "SIGNAL": str(int(signal.SIGHUP)), "PATH": ""}
    words = ["/bin/sh", "-c", 'trap "" HUP; exec "$0" --help', *command("infer_launch")]
    done = subprocess.run(words, env=environment, cwd=signals, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["help", "infer_launch"], ["--help"], ["help"], ["--version"], ["verify", "--help"]])
def test_c53_help_into_a_closed_pipe_is_one_sentence(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command("bulkinfer", *words), stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr.endswith(": stopped, since nobody reads its output any more\n")
    assert done.stderr.count("\n") == 1


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "get-model"]) == 0
    assert capsys.readouterr().out.startswith("get_model: ")
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert main([]) == 2
    assert main(["verfy"]) == 2
    assert capsys.readouterr().err == "bulkinfer: unknown command 'verfy'; did you mean verify?\n"


def test_help_of_a_command_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "infer_lunch"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "bulkinfer: unknown command 'infer_lunch'; did you mean infer_launch?\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lanch"], "unknown command 'lanch'; did you mean infer_launch?"),
        (["infer"], "unknown command 'infer'; did you mean infer_launch?"),
        (["my photos"], "unknown command 'my photos'; did you mean bulkinfer run 'my photos'?"),
        (["xyzzy"], "unknown command 'xyzzy'; bulkinfer --help lists all"),
    ],
)
def test_what_an_unknown_command_was_meant_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    assert main(words) == 2
    assert capsys.readouterr().err == f"bulkinfer: {told}\n"


@pytest.mark.parametrize("words", [["help", "jobs"], ["--help", "jobs"], ["-h", "jobs"], ["help", "jobs", "show"]])
def test_help_of_a_command_however_it_is_asked(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("bulkinfer jobs: ")
