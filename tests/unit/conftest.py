"""Fixtures of more than one module: what variants in int8 are made with."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.export.variants import make

from tests.variants import write_photos


@pytest.fixture(scope="session")
def int8_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough pictures for a variant in int8, 50 of which judge it."""
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def cpu_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this provider judges; the other one does in the test through the commands."""
    monkeypatch.setattr(make, "_JUDGES", ("cpu",))
