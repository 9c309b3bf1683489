"""listener.py: the launcher's commands reach the worker, and without a launcher it ends."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from bulkinfer.types import Fault, Step
from bulkinfer.worker import listener
from bulkinfer.worker.protocol import Command, End, RunStep, Stop, encode

STEPS = [Step(0, 0, 4), Step(0, 4, 8)]


class Gone(BaseException):
    """Stands for the end of the process."""


def heard(monkeypatch: pytest.MonkeyPatch, *lines: str) -> tuple[list[Command], int | None]:
    """What a worker is told when these lines come in, and the exit code if the process ends when they do."""
    taken: list[Command] = []

    def leave(code: int) -> None:
        raise Gone(code)

    stdin = SimpleNamespace(buffer=io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
    monkeypatch.setattr(listener, "sys", SimpleNamespace(stdin=stdin, stderr=sys.stderr))
    monkeypatch.setattr(listener.os, "_exit", leave)
    try:
        listener.listen(taken.append)
    except Gone as gone:
        return taken, gone.args[0]
    return taken, None


def test_commands_reach_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [RunStep(STEPS[0]), RunStep(STEPS[1], fault=Fault("decode", "it kills")), End(), Stop()]
    assert heard(monkeypatch, *map(encode, commands)) == (commands, None)


@pytest.mark.parametrize("commands", [[], [RunStep(STEPS[0])], [Stop()]])
def test_without_its_launcher_a_worker_ends(monkeypatch: pytest.MonkeyPatch, commands: list[Command]) -> None:
    assert heard(monkeypatch, *map(encode, commands)) == (commands, 1)


def test_a_word_it_does_not_know_ends_a_worker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert heard(monkeypatch, encode(RunStep(STEPS[0])), '{"kind": "Pause"}', encode(End())) == ([RunStep(STEPS[0])], 1)
    assert "KeyError: 'Pause'" in capsys.readouterr().err
