"""An interpreter that runs tests/fake_worker.py in place of a worker process."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_interpreter(folder: Path) -> Path:
    """The path of an executable, which takes the words of a worker process."""
    python = folder / "python"
    fake = f'env -u COVERAGE_PROCESS_CONFIG "{sys.executable}"'  # what a fake runs says nothing of what tests reach
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {fake} -m tests.fake_worker "$@"\n')
    python.chmod(0o755)
    return python
