"""One flipped bit in a file of bulkinfer's, and what its commands make of it: a refusal naming the file, or the same answers.

Any third outcome is a fault: other rows, classes, scores or weights without a word, or an error that is no sentence.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from bulkinfer.errors import BulkinferError

from tests.commands import run_here


@dataclass(frozen=True)
class Flip:
    """A bit of a file, whose path is relative to the home of a scene."""

    file: str
    bit: int

    def apply(self, home: Path) -> None:
        """Flip it."""
        path = home / self.file
        data = bytearray(path.read_bytes())
        data[self.bit // 8] ^= 1 << self.bit % 8
        path.write_bytes(data)


def choose(home: Path, files: Sequence[Path], count: int, seed: int) -> list[Flip]:
    """So many flips: the file is chosen first, each equally often, then the bit."""
    generator, found = random.Random(seed), []
    for number in range(count):
        path = files[number % len(files)]
        found.append(Flip(str(path.relative_to(home)), generator.randrange(8 * path.stat().st_size)))
    return found


Check = Callable[[Path, Flip], set[str]]


def run_flips(home: Path, flips: Sequence[Flip], check: Check, work: Path) -> Counter[str]:
    """Apply each flip to a fresh copy of `home` and check it; returns how often what `check` saw was seen, by file name too.

    Nothing waits for the disk meanwhile: what would be left after a power cut is no matter here, and it is a fifth of the time.
    """
    seen = Counter[str]()
    for flip in flips:
        if work.exists():
            shutil.rmtree(work)
        shutil.copytree(home, work, symlinks=True)
        flip.apply(work)
        try:
            with mock.patch("os.fsync"):
                outcomes = check(work, flip)
        except Exception as error:
            raise AssertionError(f"{flip}: {type(error).__name__}: {error}") from error
        assert outcomes <= {"refused", "equal"}, (flip, outcomes)
        seen["refused" if "refused" in outcomes else "equal"] += 1
    return seen


def called(work: Path, flip: Flip, name: str, *words: object, sound: Sequence[int] = (0,)) -> bool:
    """Run a command in this process: True if it ends as on sound files, False if it refused and named the file."""
    done = run_here(name, *words, cwd=work)
    if done.returncode in sound:
        return True
    told = done.stdout + done.stderr
    assert done.returncode in (1, 2), (name, flip, done.returncode, told)
    assert "Traceback" not in told, (name, flip, told)
    assert is_named(flip, told), (name, flip, "is not named in", told)
    return False


def is_named(flip: Flip, told: str) -> bool:
    """True if a text names the file of a flip, or the folder of which it is a part."""
    path = Path(flip.file)
    return path.name in told or (path.stem in told and path.suffix == ".json")


def outcome(flip: Flip, read: Callable[[], Any], expected: Any, *, refusals: bool = False) -> str:
    """Of a function of the library: "equal" to what is expected, or "refused" with one of bulkinfer's errors.

    With `refusals` another value than the expected one is a list of sentences that refuse.
    """
    try:
        found = read()
    except BulkinferError as error:
        assert is_named(flip, str(error)), (flip, "is not named in", str(error))  # noqa: PT017 -- both outcomes are right
        return "refused"
    if found.equals(expected) if isinstance(expected, pa.Table) else found == expected:
        return "equal"
    assert refusals, (flip, "gives another answer", found, expected)
    assert is_named(flip, "\n".join(found)), (flip, "is not named in", found)
    return "refused"
