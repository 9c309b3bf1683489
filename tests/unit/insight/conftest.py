"""What several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shown_job import finished_job


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a finished job, which no test changes."""
    return finished_job(tmp_path_factory.mktemp("shown"))
