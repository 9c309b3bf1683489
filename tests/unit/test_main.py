"""__main__.py: an interrupt before a command handles it; other tests call the commands."""

from __future__ import annotations

import importlib

import pytest
from bulkinfer.__main__ import main


def test_an_interrupt_while_the_command_is_imported_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main(["bench"]) == 130
    assert capsys.readouterr().err == "bulkinfer bench: interrupted\n"
