"""A headless Chromium for tests of pages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser of playwright, until the block ends."""
    from playwright.sync_api import sync_playwright

    assert Path(CHROMIUM).exists(), "install Debian's package chromium, as tools/test --long does"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # its pipes are closed by the process that it started
        with sync_playwright() as playwright:
            found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            yield found
            found.close()
