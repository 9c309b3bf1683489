"""job.py: what identifies a job and what does not, what is refused by name, and which command would help."""

from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.host.versions import versions
from bulkinfer.launch.jobs.job import Job, check_same_job, new_job_file, version_changes
from bulkinfer.model.card import read_card, read_sidecar, write_card, write_sidecar
from bulkinfer.records.dataset import Dataset, Partition
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry, entries_table, hash_keys
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import JobFile, job_path
from bulkinfer.results.parquet_parts import write_part
from bulkinfer.types import Step

from tests.launches import bind
from tests.models import write_tiny_model
from tests.rows import filled_rows, task


def dataset(*sizes: int, content_hash: str = "m" * 64) -> Dataset:
    partitions = []
    for index, size in enumerate(sizes):
        entries = [Entry(b"%06d.jpg" % n, 10) for n in range(size)]
        partitions.append(Partition(index, Manifest.from_entries(entries, b"/pictures"), b"/pictures"))
    return Dataset(Path("/pictures"), tuple(partitions), "pictures in /pictures", content_hash)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models", batch_sizes=(4, 6))
    return tmp_path / "models"


def job_of(models: Path, data: Dataset | None = None, **changes: Any) -> Job:
    return bind(LaunchConfig(model_path=str(models), model_name="tiny", **changes), data or dataset(5, 3))


def refusal(before: Job, now: Job) -> str:
    """Why the second job may not use the results folder of the first."""
    with pytest.raises(UsageError) as caught:
        check_same_job(Path("out"), new_job_file(before), now.identity, now.config)
    return str(caught.value)


def test_the_same_job_is_the_same(models: Path) -> None:
    one, other = job_of(models), job_of(models)
    assert one.fingerprint == other.fingerprint
    assert re.fullmatch(r"[0-9a-f]{64}", one.fingerprint)
    check_same_job(Path("out"), new_job_file(one), other.identity, other.config)


DECIDING = {
    "batch_size": 4, "device": "cpu", "precision": "fp32", "save": ("topk", "logits"), "top_k": 3, "limit": 7, "max_pixels": 9,
    "max_file_bytes": 9, "allow_cpu_nodes": True, "decode": "fast",
}  # fmt: skip
FREE = {
    "num_devices": 8, "num_workers": 3, "streams": 5, "batches_per_step": 11, "log_path": "elsewhere", "output": "there",
    "overwrite": True, "dry_run": True, "iterations": 9, "data_dir": "/mnt", "engine": "inline", "max_failures": 9,
    "processes_per_device": 2, "threads_per_stream": 3, "tuned_for": "another host", "stall_timeout_s": 7,
    "loader_processes": -1, "shard": "3/16", "ray_address": "head:6379",
}  # fmt: skip


def test_every_setting_either_decides_or_is_free() -> None:
    """A new setting must be put into one of the two: does it change what the rows hold?"""
    named = {field.name for field in fields(LaunchConfig)}
    assert named == {
        *DECIDING,
        *FREE,
        "model_name",
        "model_path",
        "synthetic",
        "generated",
        "save_precision",
        "skip_done",
        "labels",
        "image_column",
        "label_column",
    }


@pytest.mark.parametrize("name", DECIDING)
def test_a_setting_that_changes_rows_is_refused_by_name(models: Path, name: str) -> None:
    before, now = job_of(models), job_of(models, **{name: DECIDING[name]})
    told = refusal(before, now)
    assert re.match(r"out holds the results of another job; it differs in .*: give another --output, or --overwrite", told)
    names = re.findall(r"(\S+) \(", told)
    assert names == (["batch_size", "graph_sha256"] if name == "batch_size" else [name])


def test_what_to_type_where_only_device_and_precision_differ(models: Path) -> None:
    auto, asked = job_of(models), job_of(models, precision="fp32", device="cpu")
    assert refusal(asked, auto).endswith(" to remove them; --device cpu --precision fp32 continues it")
    assert refusal(auto, job_of(models, precision="fp32")).endswith("; --precision auto continues it")
    assert refusal(asked, job_of(models, limit=3)).endswith("--overwrite to remove them")


@pytest.mark.parametrize("name", FREE)
def test_a_setting_that_changes_no_row_may_change(models: Path, name: str) -> None:
    before, now = job_of(models), job_of(models, **{name: FREE[name]})
    assert before.fingerprint == now.fingerprint
    check_same_job(Path("out"), new_job_file(before), now.identity, now.config)


def test_the_precision_of_saved_outputs_decides_where_some_are_saved(models: Path) -> None:
    before, now = (job_of(models, save=("embedding",), save_precision=precision) for precision in ("fp32", "fp16"))
    assert 'differs in save_precision ("fp32" there, "fp16" now)' in refusal(before, now)


def test_values_are_told_and_all_differences_are(models: Path) -> None:
    told = refusal(job_of(models), job_of(models, top_k=3, limit=7))
    assert "differs in limit (0 there, 7 now); top_k (5 there, 3 now):" in told


def test_the_order_of_columns_does_not_matter_nor_one_that_is_named_twice(models: Path) -> None:
    saves = [("topk", "logits"), ("logits", "topk"), ("topk", "logits", "topk")]
    assert len({job_of(models, save=save).fingerprint for save in saves}) == 1


def test_top_k_decides_only_as_far_as_there_are_classes(models: Path) -> None:
    """The network has 8 classes."""
    assert job_of(models, top_k=8).fingerprint == job_of(models, top_k=1000).fingerprint
    assert job_of(models, top_k=7).fingerprint != job_of(models, top_k=8).fingerprint


@pytest.mark.parametrize("save", [("logits",), ("embedding",), ("none",)])
def test_top_k_decides_nothing_where_classes_are_not_saved(models: Path, save: tuple[str, ...]) -> None:
    before, now = job_of(models, save=save), job_of(models, save=save, top_k=3)
    assert "top_k" not in now.identity
    check_same_job(Path("out"), new_job_file(before), now.identity, now.config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"labels": tuple("abcdefgh")}, "labels_sha256"),
        ({"outputs": {"logits": "probabilities", "embedding": "embedding"}}, "outputs.logits"),
        ({"name": "other"}, "model_name"),
        ({"recipe.resize_size": 40}, "recipe.resize_size"),
        ({"recipe.mean": (0.5, 0.0, 0.0)}, "recipe.mean"),
        ({"recipe.orientation": "stored"}, "recipe.orientation"),
    ],
)
def test_a_changed_card_is_refused_by_name(models: Path, change: dict[str, Any], named: str) -> None:
    before = job_of(models)
    path = models / "tiny" / "card.json"
    card = read_card(path)
    for name, value in change.items():
        if name.startswith("recipe."):
            card = replace(card, recipe=replace(card.recipe, **{name.partition(".")[2]: value}))
        else:
            card = replace(card, **{name: value})
    write_card(path, card)
    told = refusal(before, job_of(models))
    assert re.findall(r"(\S+) \(", told) == [named]


def test_changed_graph_and_weights_are_refused_by_name(models: Path) -> None:
    before = job_of(models)
    graph, weights = models / "tiny" / "model_6.onnx", models / "tiny" / "weights.bin"
    graph.write_bytes(graph.read_bytes() + b"\x3a\x00")
    write_sidecar(graph, replace(read_sidecar(graph), sha256=file_sha256(graph)))
    weights.write_bytes(b"other weights")
    card = read_card(models / "tiny" / "card.json")
    write_card(models / "tiny" / "card.json", replace(card, external_data_sha256=file_sha256(weights)))
    assert re.findall(r"(\S+) \(", refusal(before, job_of(models))) == ["graph_sha256", "weights_sha256"]


def test_other_pictures_are_refused_in_words(models: Path) -> None:
    before = job_of(models)
    now = job_of(models, dataset(5, 3, content_hash="n" * 64))
    assert refusal(before, now) == (
        "out holds the results of a job on other pictures (pictures in /pictures: 8): give another --output, or --overwrite "
        "to remove them; to run only pictures without an ok row there: infer_launch --skip_done out --model_name tiny "
        f"--model_path {models}"
    )
    limited = job_of(models, dataset(5, 3, content_hash="n" * 64), limit=3)
    assert "differs in limit (0 there, 3 now); pictures (other names or sizes):" in refusal(before, limited)


def test_a_field_that_an_older_job_did_not_have_is_named(models: Path) -> None:
    now = job_of(models)
    identity = {k: v for k, v in now.identity.items() if k != "decode"}
    found = JobFile({**new_job_file(now).content, "fingerprint": "0" * 64, "identity": identity})
    with pytest.raises(UsageError, match=r'differs in decode \(null there, "exact" now\)'):
        check_same_job(Path("out"), found, now.identity, now.config)


def test_counts_and_limit(models: Path) -> None:
    assert job_of(models).counts == {0: 5, 1: 3}
    assert job_of(models, limit=6).counts == {0: 5, 1: 1}
    assert job_of(models, limit=2).counts == {0: 2, 1: 0}
    assert job_of(models, limit=99).num_records == 8


def test_description(models: Path, tmp_path: Path) -> None:
    data = dataset(5, 3)
    job = job_of(models, data, limit=6)
    job_file = new_job_file(job)
    job_file.resolve(batches_per_step=3)
    described = job_file.content
    assert (described["fingerprint"], described["identity"]) == (job.fingerprint, job.identity)
    assert described["config"] == asdict(job.config)
    assert described["resolved"] == {
        "provider": "cpu", "devices": ["the processor"], "precision": "fp32", "precision_reason": "as asked",
        "graph_sha256": job.model.sidecar.sha256, "weights_sha256": job.model.card.external_data_sha256,
        "batches_per_step": 3,
    }  # fmt: skip
    assert described["versions"] == versions()
    assert (described["num_records"], described["complete"], described["parts"]) == (6, False, {})
    assert {index: part["num_records"] for index, part in described["partitions"].items()} == {"0": 5, "1": 1}
    assert described["partitions"]["1"]["keys_sha256"] == hash_keys(
        [entries_table(list(data.partitions[1].manifest.entries(0, 1)))]
    )
    assert JobFile.read(tmp_path) is None
    job_file.write(tmp_path)
    found = require_job(tmp_path)
    check_same_job(tmp_path, found, job.identity, job.config)
    before = job_path(tmp_path).read_bytes()
    found.write(tmp_path)
    assert job_path(tmp_path).read_bytes() == before


def test_the_keys_of_the_parts_are_those_the_description_expects(models: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    expected = new_job_file(job_of(models)).partitions[0]["keys_sha256"]
    for step in (Step(0, 0, 3), Step(0, 3, 5)):
        write_part(tmp_path, filled_rows(step, task()), len(step), {"fingerprint": ""})
    assert hash_keys(pq.read_table(path) for path in sorted(tmp_path.glob("part-*"))) == expected


@pytest.mark.parametrize(
    ("found", "now", "told"),
    [
        ({"Pillow": "12.0", "numpy": "2.0"}, {"Pillow": "12.0", "numpy": "2.0"}, []),
        ({"Pillow": "12.0"}, {"Pillow": "13.0"}, ["Pillow 12.0 (now 13.0)"]),
        (
            {"numpy": "2.0", "bulkinfer": "1"},
            {"numpy": "2.1", "bulkinfer": "2"},
            ["bulkinfer 1 (now 2)", "numpy 2.0 (now 2.1)"],
        ),
        ({"onnxruntime": "1.24"}, {"onnxruntime-gpu": "1.24"}, ["onnxruntime 1.24 (now not installed)"]),
        ({"onnxruntime-ep-openvino": "1.7"}, {"onnxruntime-ep-openvino": "1.8"}, ["onnxruntime-ep-openvino 1.7 (now 1.8)"]),
        ({"numpy": "2.0"}, {"numpy": "2.0", "onnxruntime-ep-openvino": "1.8"}, []),
        ({"python": "3.11.1", "pyarrow": "18"}, {"python": "3.12.0", "pyarrow": "19"}, []),
    ],
)
def test_packages_that_decide_what_a_row_holds_are_told_when_they_change(
    found: dict[str, str], now: dict[str, str], told: list[str]
) -> None:
    assert version_changes(found, now) == told


def test_names_of_jobs(models: Path) -> None:
    card = models / "tiny" / "card.json"
    write_card(card, replace(read_card(card), name="my net/é"))
    job = job_of(models)
    assert job.name == f"my_net__-{job.fingerprint[:8]}"
    synthetic = bind(replace(job.config, synthetic=True), None)
    assert re.fullmatch(r"my_net__-[0-9a-f]{8}", synthetic.name)
    assert (synthetic.counts, synthetic.num_records) == ({}, 0)
    assert new_job_file(synthetic).source == "synthetic"


def test_c59_an_old_card_keeps_its_fingerprint(models: Path) -> None:
    """The identity has no fields of the recipe that were added later, unless they are used; then it is another job."""
    before = job_of(models)
    card = read_card(models / "tiny" / "card.json")
    assert before.identity["recipe"].keys() == {
        "height", "width", "resize", "resize_size", "crop_fraction", "interpolation", "mean", "std", "long_side_rounding",
        "crop_offset", "antialias", "fill", "channels", "value_range", "orientation",
    }  # fmt: skip
    assert "alpha_over" not in (models / "tiny" / "card.json").read_text()
    write_card(models / "tiny" / "card.json", replace(card, recipe=replace(card.recipe, colour="srgb")))
    assert "recipe.colour (null there, " in refusal(before, job_of(models))
