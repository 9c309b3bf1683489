"""compare_outputs.py and job_kind.py: a picture is doubled only where it is ok twice in outputs of one kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bulkinfer.results.compare_outputs import compare_outputs
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.job_kind import other_kind
from bulkinfer.results.ok_rows import OK_SCHEMA, identities
from bulkinfer.results.verify import Verdict

IDENTITY = {
    "model_name": "tiny", "precision": "fp32", "batch_size": 1, "device": "cpu", "limit": 0, "manifest": "m", "save": ["topk"],
    "graph_sha256": "g" * 64, "weights_sha256": "w" * 64, "recipe": {"height": 32},
}  # fmt: skip
RESOLVED = {"provider": "cpu", "precision": "fp32", "graph_sha256": "g" * 64}


def job(resolved: dict[str, Any] | None = None, **changes: Any) -> JobFile:
    return JobFile({"identity": {**IDENTITY, **changes}, "resolved": {**RESOLVED, **(resolved or {})}})


def sized(keys: list[bytes], sizes: list[int | None], **changes: Any) -> Verdict:
    table = pa.table([pa.array(keys, pa.large_binary()), pa.array(sizes, pa.int64())], OK_SCHEMA)
    return Verdict(job(**changes), ok_rows=[table])


@pytest.mark.parametrize(
    ("sizes", "num_pictures", "doubled"),
    [
        (([1, 2], [3, 4]), 3, [b"b"]),
        (([1, 2], [3, 9]), 4, []),
        (([1, None], [3, 9]), 3, [b"b"]),
        (([None] * 2, [None] * 2), 3, [b"b"]),
    ],
)
def test_pictures_that_are_ok_in_two_folders(sizes: Any, num_pictures: int, doubled: list[bytes]) -> None:
    """The first has a.jpg and b, the second c and b; the size of b as given."""
    one, two = sizes
    verdicts = [sized([b"a.jpg", b"b"], one), sized([b"c", b"b"], [two[0], two[1] if two[1] != 4 else one[1]])]
    count, notes, told = compare_outputs([Path("one"), Path("two")], verdicts)
    assert (count, notes) == (num_pictures, [])
    assert len(told) == len(doubled)
    assert all("1 pictures are ok in more than one folder (b in one and two): leave" in fault for fault in told)


def test_pictures_of_different_networks_are_not_doubled() -> None:
    verdicts = [sized([b"a", b"b"], [1, 2], model_name=name) for name in ("tiny", "other", "tiny", "third")]
    folders = [Path(name) for name in ("one", "two", "again", "third")]
    count, notes, faults = compare_outputs(folders[:2], verdicts[:2])
    assert (count, faults) == (2, [])
    assert notes == ["one and two are of different networks (tiny and other): their pictures are not compared"]
    count, notes, (fault,) = compare_outputs(folders, verdicts)
    assert (count, len(notes)) == (2, 2)
    assert fault.startswith("2 pictures are ok in more than one folder (a in one and again; b in one and again): leave")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (job(manifest="n", limit=7, device="cuda", batch_size=1), ""),
        (job(batch_size=4, graph_sha256="h" * 64, skipped="s"), ""),
        (job(graph_sha256="h" * 64), "are of different networks (graph_sha256 ggggggggggg… and hhhhhhhhhhh…)"),
        (job(weights_sha256="v" * 64), "are of different networks (weights_sha256 wwwwwwwwwww… and vvvvvvvvvvv…)"),
        (job(model_name="big", weights_sha256="v" * 64, recipe={"height": 64}), "are of different networks (tiny and big)"),
        (job(recipe={"height": 64}), "have different settings (recipe.height 32 and 64)"),
        (job(save=["logits", "topk"]), 'have different settings (save ["topk"] and ["logits","topk"])'),
        (job({"precision": "fp32"}, precision="auto"), ""),
        (
            job({"precision": "int8", "graph_sha256": "i" * 64}, precision="auto"),
            "graph_sha256 ggggggggggg… and iiiiiiiiiii…",
        ),
        (job({"precision": "fp32"}, precision="auto", weights_sha256="v" * 64), "are of different networks (weights_sha256 "),
    ],
)
def test_kinds_of_jobs(other: JobFile, said: str) -> None:
    assert other_kind(job(), job()) == ""
    found = other_kind(job(), other)
    assert said in found if said else not found


def test_auto_is_of_the_kind_of_the_variant_that_it_became() -> None:
    """The identity of a job with --precision int8 names the graph and weights of the variant."""
    became = job({"precision": "int8", "graph_sha256": "i" * 64}, precision="auto")
    asked = job(
        {"precision": "int8", "graph_sha256": "i" * 64}, precision="int8", graph_sha256="i" * 64, weights_sha256="v" * 64
    )
    assert other_kind(became, asked) == ""
    assert other_kind(became, job({"precision": "fp32"}, precision="auto"))


def test_keys_of_all_rows_may_be_more_than_two_gibibytes() -> None:
    """Which int32 offsets cannot count: pc.unique and pc.value_counts of `binary` raise ArrowCapacityError there."""
    rows = (sized([b"a"], [None]).ok_rows or [])[0]
    assert pa.types.is_large_binary(rows["key"].type)
    assert pa.types.is_large_binary(identities(rows).type)
    assert identities(rows).to_pylist() == [b"a\0"]
