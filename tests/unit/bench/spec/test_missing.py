"""missing.py: what an entry needs and a machine lacks, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.bench.spec.entry import Entry, Needs, Variant
from bulkinfer.bench.spec.missing import missing


def entry(cmd: str = "echo", **needs: object) -> Entry:
    return Entry("e", cmd, (Variant("e", {}),), (), needs=Needs(**needs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"packages": ("numpy", "no_such_package")}, ["the package no_such_package"]),
        ({"programs": ("sh", "no-such-program")}, ["the program no-such-program"]),
        ({"devices": ("cpu", "nonsense")}, ["--device nonsense"]),
        ({"processor": ("no_such_set",)}, ["a processor with no_such_set"]),
        ({"processor": ("no no_such_set",)}, []),
        ({"processor": ("no avx2", "avx2")}, ["a processor without avx2"]),
        ({"files": ("there", "gone")}, ["the file or folder gone"]),
        ({"environment": ("PATH", "NO_SUCH_VARIABLE")}, ["the environment variable NO_SUCH_VARIABLE"]),
        ({"cores": 100_000}, ["100000 cores"]),
        ({"memory_gib": 1_000_000}, ["1000000 GiB of memory"]),
        ({"other": ("a quiet evening",)}, ["a quiet evening"]),
        ({"cores": 1, "memory_gib": 1}, []),
    ],
)
def test_needs(tmp_path: Path, needs: dict[str, object], words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkinfer.bench.spec.missing.processor_features", lambda: {"avx2"})
    (tmp_path / "there").touch()
    assert missing(entry(**needs), tmp_path) == words


def test_the_program_of_the_command(tmp_path: Path) -> None:
    assert missing(entry("infer_launch --help"), tmp_path) == []  # found without an activated environment
    assert missing(entry("poprun python3 train.py"), tmp_path) == ["the program poprun"]
    assert missing(entry("./script.sh"), tmp_path) == ["the program ./script.sh"]
    assert missing(entry("$NO_SUCH_VARIABLE/x"), tmp_path) == ["the environment variable NO_SUCH_VARIABLE"]
