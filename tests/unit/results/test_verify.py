"""verify.py: a sound output has no faults, and every way in which one can be unsound is one sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files import guarded
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.output_lock import results_lock
from bulkinfer.records.manifest_rows import Entry, entries_table, hash_keys
from bulkinfer.results import parquet_parts as results
from bulkinfer.results import verify as verify_module
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.results.parquet_parts import write_part
from bulkinfer.results.part_names import part_name
from bulkinfer.results.verify import verify
from bulkinfer.types import Step

from tests.rows import filled_rows, task
from tests.sealed import write_sealed

IDENTITY = {"model_name": "tiny"}
FINGERPRINT = hashlib.sha256(canonical_json(IDENTITY).encode()).hexdigest()
STEPS = (Step(0, 0, 3), Step(0, 3, 8), Step(1, 0, 4))
SIZES = {0: 8, 1: 4, 2: 0}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A complete job of three partitions, one of them empty, with one error row."""
    parts = {}
    for step in STEPS:
        errors = {1: ("decode", "empty file")} if step == STEPS[0] else {}
        rows = filled_rows(step, task(), errors=errors)
        part = write_part(tmp_path, rows, len(step), {"fingerprint": FINGERPRINT})
        parts[part.name] = part.as_json()
    partitions = {str(index): {"num_records": size, "keys_sha256": keys_hash(size)} for index, size in SIZES.items()}
    describe(tmp_path, format=1, fingerprint=FINGERPRINT, identity=IDENTITY, resolved={"provider": "cpu"}, versions={},
             num_records=12, partitions=partitions, complete=True, parts=parts)  # fmt: skip
    return tmp_path


def keys_hash(size: int) -> str:
    return hash_keys([entries_table([Entry(b"%06d.jpg" % n, 1) for n in range(size)])])


def describe(output: Path, **changes: Any) -> None:
    path = output / JOB_FILE
    before = json.loads(path.read_text()) if path.exists() else {}
    write_sealed(path, before | changes)


def faults(output: Path) -> list[str]:
    found = verify(output).faults
    assert not any("\n" in fault for fault in found)
    return found


def test_a_sound_output(output: Path) -> None:
    verdict = verify(output)
    assert verdict.faults == []
    assert [part.step for part in verdict.parts] == list(STEPS)
    assert (verdict.num_ok, dict(verdict.errors_by_stage)) == (11, {"decode": 1})


def test_every_part_is_read_once(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, opens = guarded.open_regular, []

    def counted(path: Path, **options: Any) -> Any:
        opens.append(path.name)
        return opened(path, **options)

    monkeypatch.setattr(guarded, "open_regular", counted)
    monkeypatch.setattr(results.pq, "read_table", lambda *_, **__: pytest.fail("read past read_part"))
    assert verify(output).faults == []
    assert sorted(name for name in opens if name != JOB_FILE) == sorted(map(part_name, STEPS))


@pytest.mark.parametrize("name", ["extra.parquet", part_name(STEPS[1])])
def test_keys_are_not_read_again_where_none_can_be_doubled(output: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of an unfinished job, and beside a fault that has nothing to do with keys."""
    (output / name).write_bytes(b"")
    read, reads = verify_module.read_part, []

    def counted(output: Path, step: Step, *words: Any) -> Any:
        reads.append(step)
        return read(output, step, *words)

    monkeypatch.setattr(verify_module, "read_part", counted)
    assert faults(output)
    assert len(reads) == len(set(reads)) >= 2


def test_a_key_that_stands_twice_in_one_part(output: Path) -> None:
    """And an overlap in one partition hides nothing of the others."""
    rows = filled_rows(STEPS[1], task())
    rows.records[0] = rows.records[1]
    part = write_part(output, rows, len(STEPS[1]), {"fingerprint": FINGERPRINT})
    describe(output, parts=json.loads((output / JOB_FILE).read_text())["parts"] | {part.name: part.as_json()})
    write_part(output, filled_rows(Step(1, 2, 4), task()), 2, {"fingerprint": FINGERPRINT})
    told = faults(output)
    assert "partition 0: the keys of the rows are not those of the manifest" in told[1]
    assert f"1 key has more than one row (000004.jpg in {TWO} and {TWO}): remove" in told[2]
    assert "2 keys have more than one row (000002.jpg in " in told[3]


def test_no_output_directory(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=r"holds no _job\.json: give the results folder of a job"):
            verify(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "fingerprint": "x"}'])
def test_a_damaged_description(output: Path, content: str) -> None:
    (output / JOB_FILE).write_text(content)
    with pytest.raises(RunError, match=r"_job\.json is damaged \(.*\): run the job with --overwrite, or into another --output"):
        verify(output)


def cut(output: Path) -> None:
    path = output / part_name(STEPS[1])
    path.write_bytes(path.read_bytes()[:-9])


def rewrite(output: Path) -> None:
    """The same rows in another file."""
    rows = filled_rows(STEPS[1], task())
    write_part(output, rows, len(STEPS[1]), {"fingerprint": FINGERPRINT, "note": "again"})


def move_keys(output: Path) -> None:
    """Whole and recorded, but other records than those of the manifest."""
    rows = filled_rows(STEPS[1], task())
    rows.records[0], rows.records[1] = rows.records[1], rows.records[0]
    part = write_part(output, rows, len(STEPS[1]), {"fingerprint": FINGERPRINT})
    describe(output, parts=json.loads((output / JOB_FILE).read_text())["parts"] | {part.name: part.as_json()})


def other_job(output: Path) -> None:
    write_part(output, filled_rows(STEPS[2], task()), len(STEPS[2]), {"fingerprint": "f" * 64})


def overlapping(output: Path) -> None:
    """A sound part of the job with records that another holds too."""
    write_part(output, filled_rows(Step(0, 4, 6), task()), 2, {"fingerprint": FINGERPRINT})


def recount(output: Path) -> None:
    parts = json.loads((output / JOB_FILE).read_text())["parts"]
    parts[part_name(STEPS[0])]["ok"] = 3
    describe(output, parts=parts)


ONE, TWO, THREE = map(part_name, STEPS)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (cut, [f"{TWO} is damaged or not a part of a job", "partition 0: records 3 to 8 have no row"]),
        (lambda output: (output / TWO).write_bytes(b""), [f"{TWO} is damaged", "partition 0: records 3 to 8 have no row"]),
        (rewrite, [f"{TWO} was changed after it was published (sha256 ", "partition 0: records 3 to 8 have no row"]),
        (lambda output: (output / ONE).unlink(), [f"{ONE} was published, and is gone", "partition 0: records 0 to 3 have no"]),
        (move_keys, ["partition 0: the keys of the rows are not those of the manifest"]),
        (recount, [f"{ONE} holds other numbers of ok and error rows than {JOB_FILE} counts"]),
        (lambda output: (output / THREE).rename(output / part_name(Step(5, 0, 4))),
         ["part-00005-0000000000-0000000004.parquet belongs to no partition of the job", f"{THREE} was published, and is gone",
          "partition 1: records 0 to 4 have no row"]),
        (lambda output: (output / THREE).rename(output / part_name(Step(1, 1, 5))),
         ["was renamed: it holds records 0 to 4 of 1", f"{THREE} was published, and is gone",
          "partition 1: records 0 to 4 have no row"]),
        (lambda output: (output / part_name(Step(0, 2, 4))).touch(),
         [f"{ONE} and {part_name(Step(0, 2, 4))} overlap: move {part_name(Step(0, 2, 4))} away, which _job.json does not know",
          f"{part_name(Step(0, 2, 4))} and {TWO} overlap: move {part_name(Step(0, 2, 4))} away",
          f"{part_name(Step(0, 2, 4))} is damaged"]),
        (other_job, ["belongs to another job (fingerprint ffffffff, this one ", "partition 1: records 0 to 4 have no row"]),
        (overlapping, [f"{TWO} and {part_name(Step(0, 4, 6))} overlap: move {part_name(Step(0, 4, 6))} away",
                       f"2 keys have more than one row (000004.jpg in {TWO} and {part_name(Step(0, 4, 6))}; 000005.jpg in "]),
        (lambda output: (output / "extra.parquet").touch(), ["extra.parquet is no part of the job, but programs that read"]),
        (lambda output: (output / part_name(Step(1, 4, 6))).mkdir(), ["is a folder with the name of a part"]),
        (lambda output: (output / THREE).rename(output / f"_{THREE}.damaged"),
         [f"{THREE} was published, and is gone", "partition 1: records 0 to 4 have no row", f"_{THREE}.damaged was set aside"]),
    ],
)  # fmt: skip
def test_faults(output: Path, damage: Callable[[Path], object], told: list[str]) -> None:
    damage(output)
    found = faults(output)
    assert len(found) == len(told), found
    for fault, words in zip(found, told, strict=True):
        assert words in fault


def test_what_was_set_aside_is_no_fault_once_its_records_have_run_again(output: Path) -> None:
    (output / f"_{ONE}.damaged").touch()
    (output / "_part-foreign.damaged").touch()
    assert faults(output) == []


def test_partitions_are_told_in_order_of_their_numbers(output: Path) -> None:
    partitions = {str(index): {"num_records": 1, "keys_sha256": ""} for index in (10, 9, 2)}
    describe(output, partitions=partitions, num_records=3, parts={})
    for name in (ONE, TWO, THREE):
        (output / name).unlink()
    assert [fault.partition(":")[0] for fault in faults(output)] == ["partition 2", "partition 9", "partition 10"]


def test_a_part_that_a_killed_retry_has_put_in_place_is_sound(output: Path) -> None:
    before = json.loads((output / JOB_FILE).read_text())["parts"][ONE]["sha256"]
    write_part(output, filled_rows(STEPS[0], task()), len(STEPS[0]), {"fingerprint": FINGERPRINT, "replaces": before})
    verdict = verify(output)
    assert (verdict.faults, verdict.num_ok) == ([], 12)
    write_part(output, filled_rows(STEPS[0], task()), len(STEPS[0]), {"fingerprint": FINGERPRINT, "replaces": "0" * 64})
    assert "was changed after it was published" in faults(output)[0]


def test_an_unfinished_retry_is_a_note(output: Path) -> None:
    (output / "_retry").mkdir()
    verdict = verify(output)
    assert verdict.faults == []
    assert verdict.notes == [
        f"{output / '_retry'} holds rows of a retry that was ended early: bulkinfer retry {output} goes on with it"
    ]


def test_a_launcher_that_is_at_work_is_named(output: Path) -> None:
    with results_lock(output):
        (note,) = verify(output).notes
    assert note.startswith("a launcher on ")
    assert note.endswith(" is at work on it: what is missing may still come, verify it again after that")
    assert verify(output).notes == []
