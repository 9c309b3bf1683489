"""run_entry.py: rounds in alternating order, commands before them, and failures that end one entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.bench.spec.entry import Entry, Metric, Variant
from bulkinfer.bench.spec.run_entry import Settings, run_entry

RATE = Metric("rate", "rate", regexp=r"rate (\S+)", position=0)
BOTH = (Variant("a", {"n": "6"}), Variant("b", {"n": "3"}))


def run(tmp_path: Path, entry: Entry, timeout_s: float = 0.0) -> dict[str, object]:
    return run_entry(entry, Settings(tmp_path / "f.yml", tmp_path / "out", timeout_s))


def test_variants_alternate(tmp_path: Path) -> None:
    entry = Entry("e", "echo rate {n}", BOTH, (RATE,), rounds=3, ratios=(("a", "b"),))
    found = run(tmp_path, entry)
    assert found["status"] == "done"
    assert [(run["variant"], run["round"]) for run in found["runs"]] == [  # type: ignore[attr-defined]
        ("a", 1), ("b", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3),
    ]  # fmt: skip
    assert found["ratios"][0]["values"] == [2.0, 2.0, 2.0]  # type: ignore[index]
    assert (tmp_path / "out" / "e" / "b" / "2" / "stdout").read_text() == "rate 3\n"


def test_a_command_that_takes_the_rounds_runs_once(tmp_path: Path) -> None:
    found = run(tmp_path, Entry("e", "echo rate {rounds}", BOTH[:1], (RATE,), rounds=7))
    assert [(run["round"], run["samples"]) for run in found["runs"]] == [(1, {"rate": [7.0]})]  # type: ignore[attr-defined]


def test_commands_before_run_once_and_in_the_folder(tmp_path: Path) -> None:
    entry = Entry("e", "cat before.txt", BOTH, (RATE,), before=("cp {n}.txt before.txt", "cp 6.txt other.txt"))
    for name in ("3", "6"):
        (tmp_path / f"{name}.txt").write_text(f"rate {name}")
    found = run(tmp_path, entry)
    assert found["figures"]["a"]["rate"]["value"] == 3.0  # type: ignore[index] # the last of those before
    assert len(list((tmp_path / "out" / "e" / "before").iterdir())) == 3


@pytest.mark.parametrize(
    ("cmd", "timeout_s", "code", "sentence"),
    [
        ("false", 0.0, 1, "e: a: false: it ended with exit code 1; see "),
        ("echo nothing", 0.0, 2, "e: a: rate: the pattern"),
        ("sleep 600", 0.3, 1, "it took longer than its time-out of 0.3 s"),
    ],
)
def test_failures(tmp_path: Path, cmd: str, timeout_s: float, code: int, sentence: str) -> None:
    found = run(tmp_path, Entry("e", cmd, BOTH, (RATE,), rounds=2, timeout_s=500), timeout_s)
    assert (found["status"], found["exit_code"], found["runs"]) == ("failed", code, [])
    assert sentence in str(found["reason"])
