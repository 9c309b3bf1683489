"""commands.py: words of a command without a shell, and its environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.commands import environment_of, expanded, folder_of, unset_variables, words_of
from bulkinfer.bench.spec.entry import Entry, Variant
from bulkinfer.errors import UsageError


def entry(cmd: str = "echo", **more: object) -> Entry:
    return Entry("e", cmd, (Variant("e", {}),), (), **more)  # type: ignore[arg-type]


def words(command: str, **values: str) -> list[str]:
    return words_of(command, values, {"run_dir": "/my folder/1", "rounds": "9"}, Place("e"))


def test_words() -> None:
    assert words("a {more} --to {run_dir}/x 'b c' \\\n d{n}", more="--x 1 --y", n="5") == (
        ["a", "--x", "1", "--y", "--to", "/my folder/1/x", "b c", "d5"]
    )
    assert words('a \'{"opt.x":"false"}\' --json={"a":1}') == ["a", '{"opt.x":"false"}', "--json={a:1}"]
    assert words("a {none} {rounds}", none="") == ["a", "9"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("a {b}", "there is no parameter 'b'; there are run_dir, rounds"),
        ("a 'b", "it cannot be split into words"),
        ("a | b", "it holds '|', and no shell runs it"),
        ("a && b", "it holds '&&'"),
        ("a > b", "it holds '>'"),
        ("a 2>&1", "it holds '2>&1'"),
        ("A=1 b", "write this under env"),
        ("  ", "it is empty"),
    ],
)
def test_faults(command: str, sentence: str) -> None:
    with pytest.raises(UsageError) as failed:
        words(command)
    assert sentence in str(failed.value)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSIDE", "here")
    monkeypatch.delenv("ABSENT", raising=False)
    found = environment_of(entry(env={"MINE": "$OUTSIDE/x", "OTHER": "${MINE}/y"}))
    assert (found["MINE"], found["OTHER"]) == ("here/x", "here/x/y")
    assert found["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)  # programs of this installation first
    assert expanded("a$MINE b${OTHER} $", found) == "ahere/x bhere/x/y $"
    assert unset_variables(entry("echo $ABSENT ${ABSENT} $OUTSIDE $MINE", env={"MINE": "1"})) == ["ABSENT"]


def test_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    spec = tmp_path / "benchmarks.yml"
    assert folder_of(entry(), spec) == (tmp_path, "")
    assert folder_of(entry(location="there"), spec) == (tmp_path / "there", "")
    folder, note = folder_of(entry(location="gone"), spec)
    assert folder == tmp_path
    assert note == f"location is left out, since {tmp_path / 'gone'} is no folder: commands run in {tmp_path}"
