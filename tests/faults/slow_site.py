"""A decoder that takes its time, for launches that are disturbed while they run."""

from __future__ import annotations

from pathlib import Path

_SLOW = """
import time, PIL.Image
plain = PIL.Image.open
def slow(fp, *args, **options):
    time.sleep(0.1)
    return plain(fp, *args, **options)
PIL.Image.open = slow
"""


def slow_site(folder: Path) -> dict[str, str]:
    """The environment of a launch whose every picture takes 0.1 s; what it needs is written into `folder`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_SLOW)
    return {"PYTHONPATH": str(folder / "site")}
