"""A headless Chromium for tests of pages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 120_000  # for anything that a page has to show


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser of playwright, until the block ends."""
    from playwright.sync_api import sync_playwright

    assert Path(CHROMIUM).exists(), "install Debian's package chromium, as tools/test --long does"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # its pipes are closed by the process that it started
        with sync_playwright() as playwright:
            found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
            yield found
            found.close()


def new_context(browser: Any, *, width: int, **options: Any) -> Any:
    """A context of the browser whose pages are so wide, and in which a slow machine has time for everything."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    context.set_default_timeout(PATIENCE_MS)
    return context
