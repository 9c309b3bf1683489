"""What several tests of the commands start from: made once, however many processes run the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import run_installed
from tests.made_once import made_once


@pytest.fixture(scope="session")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models/efficientnet_lite0 at batch 6, made by the installed get_model from its package's weights.

    printed.txt holds what it printed. Tests copy what they change.
    """

    def make(home: Path) -> None:
        made = run_installed("get_model", "--batch-size", 6, "--model_name", "EfficientNet-Lite0", cwd=home)
        assert (made.returncode, made.stderr) == (0, "")
        (home / "printed.txt").write_text(made.stdout)

    return made_once(tmp_path_factory, "lite0", make)
