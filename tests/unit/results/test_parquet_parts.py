"""parquet_parts.py and part_names.py: rows as a table, complete parts, damage that is found, records that are still missing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.files import guarded
from bulkinfer.files.atomic import file_sha256
from bulkinfer.records.manifest_rows import hash_keys
from bulkinfer.results import output_store
from bulkinfer.results import parquet_parts as results
from bulkinfer.results.parquet_parts import (
    METADATA_KEY,
    Part,
    inspect_part,
    published_steps,
    read_part,
    schema,
    set_aside,
    to_table,
    write_part,
)
from bulkinfer.results.part_names import by_partition, is_set_aside, missing_ranges, part_name, part_step
from bulkinfer.results.rows import StepRows
from bulkinfer.types import Facts, Step
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import batch_of, filled_rows, logits_of, record, task

JOB = {"fingerprint": "f" * 64, "model": "tiny"}
STEP = Step(3, 100, 110)
ERRORS = {1: ("read", "file not found"), 8: ("infer", "RuntimeError: index"), 9: ("read", "x")}


def write(output: Path, step: Step = STEP, **facts: Any) -> Part:
    rows = filled_rows(step, task("topk", "logits"), errors=ERRORS)
    return write_part(output, rows, len(step), {**JOB, **facts})


# -- rows as a table -----------------------------------------------------------------------------------------------------


def test_schema_is_that_of_the_job_whatever_the_rows_hold() -> None:
    assert schema(task("none")).names == [
        "key", "key_bytes", "partition", "status", "stage", "error", "format", "frames", "width", "height",
        "size_bytes", "flags", "label",
        "label_ids",
    ]  # fmt: skip
    full = schema(task("topk", "logits", "embedding", labels=("a", "b", "c", "d"), num_features=7))
    assert full.names[14:] == ["class_ids", "scores", "class_names", "logits", "embedding"]
    assert full.field("logits").type == pa.list_(pa.float32(), 4)
    assert full.field("embedding").type == pa.list_(pa.float32(), 7)
    assert full.field("partition").type == full.field("label").type == pa.int32()
    assert full.field("scores").type == pa.list_(pa.float32())
    assert full.field("embedding").metadata == {b"shape": b"[7]"}
    halves = schema(replace(task("embedding", num_features=7), precision="fp16"))
    assert halves.field("embedding").type == pa.list_(pa.float16(), 7)
    failed = dict.fromkeys(range(4), ("decode", "empty file"))
    assert to_table(filled_rows(Step(0, 0, 4), task("logits"), errors=failed), 4).schema == schema(task("logits"))


def test_values() -> None:
    labels = ("a", "b", "c", "d")
    rows = StepRows(Step(7, 20, 26), task("topk", "logits", "embedding", labels=labels, num_features=1), 4)
    records = [
        record(20, b"a/1.jpg", label=5, category_ids=(1, 9)),
        record(21, b"caf\xe9.png"),
        record(22, "café.png".encode(), category_ids=()),
        record(23, b"a,\"b\"\n.png", label=0),
        record(24),
        record(25),
    ]  # fmt: skip
    batch = batch_of(records[:4], errors={1: ("decode", "truncated JPEG: no end marker")})
    batch.facts[2] = Facts("PNG", 3, 7, 9, ("scaled_16bit",))
    logits = logits_of([20, 21, 22, 23])
    logits[2, 0] = math.nan
    rows.fill(batch, {"logits": logits, "embedding": np.arange(4, dtype=np.float32)[:, None]})
    after = batch_of(records[4:], offset=4)
    after.errors[1] = ("infer", "RuntimeError: it broke")  # decoded, then failed in the network: facts are known
    rows.fill(after, {"logits": logits_of([24, 25]), "embedding": np.full((4, 1), 4, np.float32)})
    table = to_table(rows, 6)

    def column(name: str) -> list[Any]:
        values: list[Any] = table[name].to_pylist()
        return values

    assert column("key") == ["a/1.jpg", r"caf\xe9.png", "café.png", 'a,"b"\n.png', "000024.jpg", "000025.jpg"]
    assert column("key_bytes") == [None, b"caf\xe9.png", None, None, None, None]
    assert column("partition") == [7] * 6
    assert column("status") == ["ok", "error", "ok", "ok", "ok", "error"]
    assert column("stage") == [None, "decode", None, None, None, "infer"]
    assert column("error") == [None, "truncated JPEG: no end marker", None, None, None, "RuntimeError: it broke"]
    assert column("format") == ["JPEG", None, "PNG", "JPEG", "JPEG", "JPEG"]
    assert column("frames") == [1, None, 3, 1, 1, 1]
    assert column("width") == [640, None, 7, 640, 640, 640]
    assert column("height") == [480, None, 9, 480, 480, 480]
    assert column("flags") == [[], [], ["scaled_16bit", "non_finite"], [], [], []]
    assert column("label") == [5, None, None, 0, None, None]
    assert column("label_ids") == [[1, 9], None, [], None, None, None]
    assert column("class_ids") == [[0, 1], None, [2, 1], [3, 0], [0, 1], None]
    assert column("class_names") == [["a", "b"], None, ["c", "b"], ["d", "a"], ["a", "b"], None]
    assert column("logits")[3] == pytest.approx([-1, -1, -1, 1.23])
    assert column("logits")[1] is None
    assert column("logits")[5] is None
    assert column("embedding") == [[0.0], None, [2.0], [3.0], [4.0], None]
    assert all(math.isnan(score) for score in column("scores")[2])
    other = math.exp(-2.23)
    assert column("scores")[3] == pytest.approx([1 / (1 + 3 * other), other / (1 + 3 * other)])


def test_b50_parquet_keeps_every_bit_of_a_float(tmp_path: Path) -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 1e-45], [3.4028235e38, -0.0, 1 / 3, 16777217.0]], np.float32)
    rows = StepRows(Step(0, 0, 2), task("logits"), 2)
    rows.fill(batch_of([record(0), record(1)], size=2), {"logits": values})
    write_part(tmp_path, rows, 2, JOB)
    column = pq.read_table(tmp_path / part_name(Step(0, 0, 2)))["logits"].combine_chunks()
    assert column.flatten().to_numpy().tobytes() == values.tobytes()


def test_a_row_without_its_record_is_no_row() -> None:
    rows = StepRows(Step(0, 0, 8), task(), 4)
    rows.fill(batch_of([record(n) for n in range(4)]), {"logits": logits_of([0, 1, 2, 3])})
    assert to_table(rows, 4).num_rows == 4
    with pytest.raises(AssertionError, match="a row without its record"):
        to_table(rows, 5)


# -- parts ---------------------------------------------------------------------------------------------------------------


def test_part_names() -> None:
    assert part_name(Step(3, 9000, 18000)) == "part-00003-0000009000-0000018000.parquet"
    assert part_name(Step(123456, 0, 10**11)) == "part-123456-0000000000-100000000000.parquet"


@pytest.mark.parametrize(
    "name",
    [
        "part-00000-abc.snappy.parquet", "part-00000-5d1c-c000.snappy.parquet", "part-dir", "part-0-0-1.parquet", "part-00003",
        "part-000003-0000009000-0000018000.parquet", "part-00003-0000009000-0000009000.parquet",
        "part-00003-0000009000-0000008000.parquet", "part-00003-0000009000-0000018000.parquet.bak", "_job.json",
        "part-0000\u0663-0000009000-0000018000.parquet", "_part-00003-0000009000-0000018000.parquet",
    ],
)  # fmt: skip
def test_names_that_are_no_part_names(name: str) -> None:
    assert part_step(name) is None
    assert not is_set_aside(name)


def test_part_names_and_back(tmp_path: Path) -> None:
    for step in (STEP, Step(0, 0, 1), Step(123456, 0, 10**11)):
        name = part_name(step)
        assert part_step(name) == step
        assert part_step(f"_{name}.damaged") is None
        assert is_set_aside(f"_{name}.damaged")
        for other in (name, f"{name}.damaged", f"_{name}", f"__{name}.damaged", f"_{name}.damaged.damaged"):
            assert not is_set_aside(other)
    write(tmp_path)
    assert is_set_aside(set_aside(tmp_path, STEP).name)


def test_a_folder_with_the_name_of_a_part(tmp_path: Path) -> None:
    (tmp_path / part_name(STEP)).mkdir()
    with pytest.raises(RunError, match=f"{part_name(STEP)} is a folder with the name of a part: move it away"):
        published_steps(tmp_path)


def test_round_trip(tmp_path: Path) -> None:
    part = write(tmp_path)
    path = tmp_path / part.name
    assert part == Part(STEP, 7, {"read": 2, "infer": 1}, file_sha256(path))
    assert (part.num_errors, part.as_json()["errors"]) == (3, 3)
    assert inspect_part(tmp_path, STEP, JOB["fingerprint"]) == part
    facts = json.loads(pq.read_metadata(path).metadata[METADATA_KEY])
    assert facts["model"] == "tiny"
    assert (facts["format"], facts["partition"], facts["start"], facts["end"]) == (1, 3, 100, 110)
    assert facts["keys_sha256"] == hash_keys([pq.read_table(path)])
    assert [p.name for p in tmp_path.iterdir()] == [part.name]


def test_the_own_folder_is_made_for_the_first_part_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    plain = output_store.make_own_folder
    monkeypatch.setattr(output_store, "make_own_folder", lambda output: (made.append(output), plain(output))[1])
    (tmp_path / "out").mkdir()
    for step in (Step(0, 0, 3), Step(0, 3, 5), Step(0, 5, 6)):
        write_part(tmp_path / "out", filled_rows(step, task()), len(step), {"fingerprint": "f"})
    assert made == [tmp_path / "out"]
    assert not list((tmp_path / ".out.bulkinfer").iterdir())
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_an_output_directory_with_a_difficult_name(tmp_path: Path) -> None:
    output = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 a=1 %20 [x]"))
    output.mkdir()
    part = write(output)
    assert inspect_part(output, STEP, JOB["fingerprint"]) == part


def test_a_step_cut_short_is_a_part_of_its_own_range(tmp_path: Path) -> None:
    rows = StepRows(STEP, task(), 4)
    numbers = [100, 101, 102, 103]
    rows.fill(batch_of([record(n) for n in numbers], errors={3: ERRORS[1]}), {"logits": logits_of(numbers)})
    rows.errors[4] = ("decode", "of a record that is not published")
    part = write_part(tmp_path, rows, rows.finished_prefix(), JOB)
    assert part.step == Step(3, 100, 104)
    assert (part.num_ok, part.stages) == (3, {"read": 1})
    assert inspect_part(tmp_path, part.step, JOB["fingerprint"]) == part


def damaged_copies(path: Path, start: int, end: int, every: int, bits: int) -> Iterator[None]:
    """`path` with one byte changed, again and again."""
    sound = path.read_bytes()
    for position in range(start, end, every):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ bits]) + sound[position + 1 :])
        yield
    path.write_bytes(sound)


def fault(output: Path) -> str:
    """What inspect_part finds; empty if nothing."""
    try:
        inspect_part(output, STEP, JOB["fingerprint"])
    except BulkinferError as error:
        return str(error)
    return ""


def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path) -> None:
    """Pages, page headers and footer alike; and whatever is wrong with a file is told in a sentence that names it."""
    path = tmp_path / write(tmp_path).name
    sound, size = pq.read_table(path), path.stat().st_size
    found = harmless = 0
    for bits in (0x10, 0x01):
        for _ in damaged_copies(path, 0, size, 31, bits):
            if told := fault(tmp_path):
                assert path.name in told
                found += 1
            else:
                assert pq.read_table(path).equals(sound)
                harmless += 1
    assert found > harmless > 0


def test_a_flipped_bit_in_a_page_of_scores_is_found(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path).name
    scores = next(
        column for i in range(16) if (column := pq.read_metadata(path).row_group(0).column(i)).path_in_schema[:6] == "scores"
    )
    start = scores.dictionary_page_offset or scores.data_page_offset
    sound, missed, unnoticed = pq.read_table(path)["scores"], 0, 0
    for _ in damaged_copies(path, start, start + scores.total_compressed_size, 1, 0x04):
        try:
            if not pq.read_table(path)["scores"].equals(sound):
                unnoticed += 1
        except (OSError, pa.ArrowException):
            continue
        try:
            inspect_part(tmp_path, STEP, JOB["fingerprint"])
            missed += not pq.read_table(path)["scores"].equals(sound)
        except RunError:
            continue
    assert unnoticed > 0, "a plain reader does not see the damage: that is what the checksums are for"
    assert missed == 0


@pytest.mark.parametrize(
    "facts",
    [b"[]", b"{}", b"7", b'{"format": 1}', b'{"format": 1, "start": "a", "end": 1}', b"{", b"\xff", b"null", b"[" * 100_000],
)  # fmt: skip
def test_facts_that_are_none(tmp_path: Path, facts: bytes) -> None:
    path = tmp_path / part_name(STEP)
    pq.write_table(pa.table({"key": ["a"]}).replace_schema_metadata({METADATA_KEY: facts}), path)
    with pytest.raises(RunError, match="is damaged or not a part of a job"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])


def rewrite_facts(path: Path, change: dict[str, Any], *, without: str = "") -> None:
    """The part with its rows as they are and other facts."""
    table = pq.read_table(path)
    facts = {**json.loads(table.schema.metadata[METADATA_KEY]), **change}
    facts.pop(without, None)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(facts)}), path)


@pytest.mark.parametrize("missing", ["fingerprint", "partition", "keys_sha256", "columns"])
def test_facts_that_lack_one(tmp_path: Path, missing: str) -> None:
    path = tmp_path / write(tmp_path).name
    rewrite_facts(path, {}, without=missing)
    with pytest.raises(RunError, match=rf"is damaged or not a part of a job \({missing} is missing\)"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])


@pytest.mark.parametrize("change", [
    {"fingerprint": 7}, {"fingerprint": None}, {"start": "100"}, {"end": 110.5}, {"end": True}, {"partition": [3]},
    {"columns": ["key"]}, {"columns": {"key": 1}}, {"keys_sha256": 0}, {"format": "1"}, {"format": None}, {"format": 0},
])  # fmt: skip
def test_facts_of_another_kind(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / write(tmp_path).name
    rewrite_facts(path, change)
    with pytest.raises(RunError, match=rf"{path.name} is damaged or not a part of a job \(.*{next(iter(change))}") as caught:
        inspect_part(tmp_path, STEP, JOB["fingerprint"])
    assert "\n" not in str(caught.value)


def test_a_parquet_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / part_name(STEP)
    pq.write_table(pa.table({"a": range(10)}), path)
    with pytest.raises(RunError, match=r"is damaged or not a part of a job \(its metadata names no job\)"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])


def test_a_part_without_the_columns_of_one(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path).name
    metadata = pq.read_schema(path).metadata
    facts = {**json.loads(metadata[METADATA_KEY]), "columns": {"a": "int64"}}
    pq.write_table(pa.table({"a": range(10)}).replace_schema_metadata({METADATA_KEY: json.dumps(facts)}), path)
    with pytest.raises(RunError, match=f"{path.name} is damaged"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])


@pytest.mark.parametrize(
    "keep", [0, 1, 8, -8, -1, 0.5], ids=["empty", "one byte", "eight bytes", "without its last 8", "without its last", "half"]
)
def test_b46_cut_files(tmp_path: Path, keep: float) -> None:
    path = tmp_path / write(tmp_path).name
    sound = path.read_bytes()
    path.write_bytes(sound[: int(len(sound) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(RunError, match=f"{path.name} is damaged"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])
    assert set_aside(tmp_path, STEP).name == f"_{path.name}.damaged"
    assert published_steps(tmp_path) == []


def test_a_failing_disk_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error", "part")

    for place, name in ((output_store, "read_bytes"), (results.pq, "ParquetFile")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, broken)
            with pytest.raises(OSError, match="Input/output error"):
                inspect_part(tmp_path, STEP, JOB["fingerprint"])


def test_a_part_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write(tmp_path)
    opened, opens = guarded.open_regular, []

    def counted(path: Path, **options: Any) -> Any:
        opens.append(path.name)
        return opened(path, **options)

    monkeypatch.setattr(guarded, "open_regular", counted)
    part, table = read_part(tmp_path, STEP, JOB["fingerprint"])
    assert (part, table.num_rows, opens) == (written, 10, [written.name])
    assert table["key"].to_pylist() == [f"{n:06d}.jpg" for n in range(100, 110)]


def test_keys_that_are_not_those_of_the_facts(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path).name
    table = pq.read_table(path)
    pq.write_table(table.take(list(range(9, -1, -1))), path)
    with pytest.raises(RunError, match="its keys are not those it was written with"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])
    pq.write_table(table.slice(0, 9), path)
    with pytest.raises(RunError, match="9 rows for records 100 to 110"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])


def test_a_renamed_part(tmp_path: Path) -> None:
    part = write(tmp_path)
    (tmp_path / part.name).rename(tmp_path / part_name(Step(3, 200, 210)))
    with pytest.raises(RunError, match="was renamed: it holds records 100 to 110 of 3"):
        inspect_part(tmp_path, Step(3, 200, 210), JOB["fingerprint"])


def test_a_part_of_another_job(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(RunError, match="belongs to another job \\(fingerprint ffffffff, this one 00000000\\)"):
        inspect_part(tmp_path, STEP, "0" * 64)


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path).name
    rewrite_facts(path, {"format": 2}, without="columns")
    with pytest.raises(UsageError, match=rf"{path.name} has format 2; this bulkinfer reads format 1"):
        inspect_part(tmp_path, STEP, JOB["fingerprint"])


def test_others_read_the_directory_as_one_table(tmp_path: Path) -> None:
    steps = [Step(0, 0, 7), Step(0, 7, 12), Step(1, 0, 3)]
    for step in reversed(steps):
        write(tmp_path, step)
    (tmp_path / "_job.json").write_text("{}")
    (tmp_path / "_tmp-1-2-abcd").write_bytes(b"half a file")
    (tmp_path / f"_{part_name(Step(1, 3, 9))}.damaged").write_bytes(b"PAR1")
    table = pq.read_table(tmp_path)
    assert table.num_rows == 15
    assert table["key"].to_pylist() == [f"{n:06d}.jpg" for n in (*range(12), *range(3))]
    assert published_steps(tmp_path) == steps


def test_overlapping_parts_are_an_error_that_names_both(tmp_path: Path) -> None:
    for step in (Step(0, 0, 10), Step(0, 9, 12), Step(1, 5, 9)):
        (tmp_path / part_name(step)).touch()
    with pytest.raises(RunError, match=f"{part_name(Step(0, 0, 10))} and {part_name(Step(0, 9, 12))} overlap"):
        published_steps(tmp_path)


def test_no_directory_holds_no_parts(tmp_path: Path) -> None:
    assert published_steps(tmp_path / "none") == []


# -- ranges --------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.sets(st.integers(0, 60)), st.data())
def test_done_and_missing_are_all_records_once(num_records: int, cuts: set[int], data: st.DataObject) -> None:
    bounds = sorted({0, num_records, *(cut for cut in cuts if cut < num_records)})
    ranges = [Step(2, *pair) for pair in pairwise(bounds)]
    done = [step for step in ranges if data.draw(st.booleans())]
    data.draw(st.randoms()).shuffle(done)
    missing = missing_ranges([Step(2, 0, num_records)], by_partition([Step(3, 5, 7), *done, Step(1, 0, 1000)]).get(2, []))
    covered = [number for step in done + missing for number in range(step.start, step.end)]
    assert sorted(covered) == list(range(num_records))
    assert all(step.partition == 2 and len(step) > 0 for step in missing)
    assert missing == sorted(missing)
    assert all(one.end < other.start for one, other in pairwise(missing)), "neighbours are one range"


def test_a_part_beyond_the_partition() -> None:
    with pytest.raises(
        RunError, match=r"part-00002-0000000005-0000000012\.parquet reaches beyond the 11 records of partition 2"
    ):
        missing_ranges([Step(2, 0, 11)], [Step(2, 0, 5), Step(2, 5, 12)])
