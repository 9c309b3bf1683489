"""Decoders and trainings that take their time, for runs that are disturbed meanwhile."""

from __future__ import annotations

from pathlib import Path

_SLOW = """
import glob, os, time, PIL.Image
plain = PIL.Image.open
def is_held():
    if not os.path.exists(os.environ.get("HELD", "")):
        return False
    return len(glob.glob(glob.escape(os.environ["HELD_AT"]) + "/part-*")) >= int(os.environ["HELD_PARTS"])
def slow(fp, *args, **options):
    time.sleep(0.1)
    while is_held():
        time.sleep(0.02)
    return plain(fp, *args, **options)
PIL.Image.open = slow
"""


def slow_site(folder: Path) -> dict[str, str]:
    """The environment of a launch whose every picture takes 0.1 s; what it needs is written into `folder`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_SLOW)
    return {"PYTHONPATH": str(folder / "site")}


def held_at(output: Path, parts: int, held: Path) -> dict[str, str]:
    """More of that environment: no further picture is opened once `output` has so many parts, while the file `held` is there.

    The worker that publishes a part may have opened those of its next step: with a step more, a launch cannot end. The file is
    made here.
    """
    held.touch()
    return {"HELD": str(held), "HELD_AT": str(output), "HELD_PARTS": str(parts)}


_HELD_LINE = """
import os, sys, time
write = sys.stdout.write
def held(text):
    count = write(text)
    sys.stdout.flush()
    while text.startswith({begin!r}) and os.path.exists({held!r}):
        time.sleep(0.02)
    return count
if "train" in sys.orig_argv:
    sys.stdout.write = held
"""


def held_at_line(folder: Path, begin: str, held: Path) -> dict[str, str]:
    """The environment of a training that goes no further than a line that begins so, while the file `held` is there.

    The file is made here. What is needed is written into `folder`.
    """
    held.touch()
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_HELD_LINE.format(begin=begin, held=str(held)))
    return {"PYTHONPATH": str(folder / "site")}
