"""compare_outputs.py and job_kind.py: a picture is doubled only where it is ok twice in outputs of one kind."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bulkinfer.results.compare_outputs import compare_outputs
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.job_kind import differing_fields, effective_identity, kind_key
from bulkinfer.results.ok_rows import OK_SCHEMA, identities
from bulkinfer.results.verify import Verdict

IDENTITY = {
    "model_name": "tiny", "precision": "fp32", "batch_size": 1, "device": "cpu", "limit": 0, "manifest": "m", "save": ["topk"],
    "graph_sha256": "g" * 64, "weights_sha256": "w" * 64, "recipe": {"height": 32},
}  # fmt: skip


def job(resolved: dict[str, Any] | None = None, **changes: Any) -> JobFile:
    """A job of this identity; by default it runs the network that it names, in fp32 on the processor."""
    identity, became = IDENTITY | changes, {"provider": "cpu", "precision": "fp32"} | (resolved or {})
    if "graph_sha256" not in became:
        became |= {name: identity[name] for name in ("graph_sha256", "weights_sha256")}
    return JobFile({"identity": identity, "resolved": became})


def sized(keys: list[bytes], sizes: Any, resolved: dict[str, Any] | None = None, **changes: Any) -> Verdict:
    table = pa.table([pa.array(keys, pa.large_binary()), pa.array(sizes, pa.int64())], OK_SCHEMA)
    return Verdict(job(resolved, **changes), ok_rows=[table])


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
    assert all(fault.startswith("1 picture is ok in more than one folder (b in one and two): leave") for fault in told)


def test_pictures_of_different_networks_are_not_doubled() -> None:
    verdicts = [sized([b"a", b"b"], [1, 2], model_name=name) for name in ("tiny", "other", "tiny", "third")]
    folders = [Path(name) for name in ("one", "two", "again", "third")]
    count, notes, faults = compare_outputs(folders[:2], verdicts[:2])
    assert (count, faults) == (2, [])
    assert notes == ["the pictures of one are not compared with those of two: they are of different networks (tiny and other)"]
    count, notes, (fault,) = compare_outputs(folders, verdicts)
    assert count == 2
    assert notes == [
        "the pictures of one; again are not compared with those of two: they are of different networks (tiny and other)",
        "the pictures of one; again are not compared with those of third: they are of different networks (tiny and third)",
        "the pictures of two are not compared with those of third: they are of different networks (other and third)",
    ]
    assert fault.startswith("2 pictures are ok in more than one folder (a in one and again; b in one and again): leave")


def test_the_order_of_the_folders_changes_nothing() -> None:
    """The graph of batch 4 may be of either network of batch 1, and these two are different."""
    jobs = {
        "one": {"graph_sha256": "g" * 64},
        "two": {"graph_sha256": "h" * 64},
        "four": {"graph_sha256": "i" * 64, "batch_size": 4},
    }
    keys = {"one": [b"a", b"b"], "two": [b"a", b"c"], "four": [b"b", b"c", b"d"]}
    for names in permutations(jobs):
        verdicts = [sized(keys[name], [1] * len(keys[name]), {}, **jobs[name]) for name in names]
        count, (note,), (fault,) = compare_outputs([Path(name) for name in names], verdicts)
        assert count == 4
        assert {word.strip(":;") for word in note.split()} & {"one", "two", "four"} == {"one", "two"}
        assert "different networks (graph_sha256 " in note
        assert fault.startswith("2 pictures are ok in more than one folder (")
        places = dict(place.split(" in ") for place in fault.partition("folder (")[2].partition(")")[0].split("; "))
        assert {key: {*where.split(" and ")} for key, where in places.items()} == {"b": {"one", "four"}, "c": {"two", "four"}}


def test_a_message_names_three_of_many() -> None:
    keys = [b"%d" % number for number in range(5)]
    _, _, (fault,) = compare_outputs([Path("one"), Path("two")], [sized(keys, [1] * 5), sized(keys, [1] * 5)])
    assert fault.startswith(
        "5 pictures are ok in more than one folder (0 in one and two; 1 in one and two; 2 in one and two and 2 more): leave"
    )


def differing(one: JobFile, other: JobFile) -> set[str]:
    """The fields by which two jobs are of different kinds; the same in both directions."""
    there, now = (effective_identity(job.identity, job.resolved) for job in (one, other))
    found = differing_fields(there, now)
    assert {name: values[::-1] for name, values in differing_fields(now, there).items()} == found
    assert not found or kind_key(there) != kind_key(now)
    return {*found}


AUTO_INT8 = {"provider": "cpu", "precision": "int8", "graph_sha256": "i" * 64, "weights_sha256": "v" * 64}


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        (job(), set()),
        (job(manifest="n", limit=7, max_pixels=5, skipped="s"), set()),
        (job(batch_size=4, graph_sha256="h" * 64), set()),
        (job(graph_sha256="h" * 64), {"graph_sha256"}),
        (job(weights_sha256="v" * 64), {"weights_sha256"}),
        (job(batch_size=4, graph_sha256="h" * 64, weights_sha256="v" * 64), {"weights_sha256"}),
        (job({"provider": "cuda"}, device="cuda"), set()),
        (job({"provider": "cuda"}, device="cuda", weights_sha256="v" * 64), {"weights_sha256"}),
        (job(model_name="big", weights_sha256="v" * 64), {"model_name", "weights_sha256"}),
        (job(recipe={"height": 64}), {"recipe.height"}),
        (job(save=["logits", "topk"]), {"save"}),
        (job(precision="auto"), set()),
        (job(precision="auto", weights_sha256="v" * 64), {"weights_sha256"}),
        (job(AUTO_INT8, precision="auto"), {"precision", "graph_sha256", "weights_sha256"}),
    ],
)
def test_kinds_of_jobs(other: JobFile, fields: set[str]) -> None:
    assert differing(job(), other) == fields


def test_auto_is_of_the_kind_of_the_variant_that_it_became() -> None:
    """The identity of a job with --precision int8 names the graph and weights of the variant."""
    asked = job(AUTO_INT8, precision="int8", graph_sha256="i" * 64, weights_sha256="v" * 64)
    other_variant = job(
        AUTO_INT8 | {"weights_sha256": "u" * 64}, precision="int8", batch_size=4, graph_sha256="j" * 64, weights_sha256="u" * 64
    )
    assert differing(job(AUTO_INT8, precision="auto"), asked) == set()
    assert differing(job(AUTO_INT8, precision="auto"), other_variant) == {"weights_sha256"}
    before = {name: value for name, value in AUTO_INT8.items() if name != "weights_sha256"}
    assert differing(job(before, precision="auto"), asked) == set(), "earlier versions did not record the weights"
    assert differing(job(before, precision="auto"), other_variant) == set(), "which nobody can tell"


def test_a_provider_may_have_a_variant_of_its_own() -> None:
    """fp16 is a variant on CUDA, and the network itself on TensorRT."""
    cuda = {"provider": "cuda", "precision": "fp16", "graph_sha256": "i" * 64, "weights_sha256": "v" * 64}
    tensorrt = {"provider": "tensorrt", "precision": "fp16", "graph_sha256": "g" * 64, "weights_sha256": "w" * 64}
    one = job(cuda, precision="auto", device="auto")
    assert differing(one, job(tensorrt, precision="auto", device="auto")) == set()
    other = job(tensorrt | {"weights_sha256": "u" * 64}, precision="auto", device="auto", weights_sha256="u" * 64)
    assert differing(one, other) == {"weights_sha256"}


def test_keys_of_all_rows_may_be_more_than_two_gibibytes() -> None:
    """Which int32 offsets cannot count: pc.unique and pc.value_counts of `binary` raise ArrowCapacityError there."""
    rows = (sized([b"a"], [None]).ok_rows or [])[0]
    assert pa.types.is_large_binary(rows["key"].type)
    assert pa.types.is_large_binary(identities(rows).type)
    assert identities(rows).to_pylist() == [b"a\0"]
