"""run.py: what the workers of a launch are told in run.json."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands import partition_dataset
from bulkinfer.host.cores import CoreBudget
from bulkinfer.launch.run import plan_host, write_run
from bulkinfer.records.layout import MANIFEST_FILE
from bulkinfer.records.manifest import Manifest
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.worker.protocol import RunSpec, session_spec

from tests.launches import config_of, launch_of, plan_of, spec_of
from tests.models import RECIPE


def test_workers_are_told_everything(tmp_path: Path) -> None:
    made = launch_of(tmp_path, save=("topk", "embedding"), top_k=3, precision="fp32", max_pixels=77, max_file_bytes=88)
    made = replace(made, threads=replace(plan_of(), streams=3, threads_per_stream=2, num_workers=5))
    spec = spec_of(made)
    assert (spec.input, spec.batch_size, spec.recipe, spec.num_workers) == ("pictures", 4, RECIPE, 5)
    assert (spec.max_pixels, spec.max_file_bytes, spec.warm_up_s) == (77, 88, None)
    assert (spec.task.save, spec.task.top_k, spec.task.columns) == (frozenset({"topk", "embedding"}), 3, {"embedding": (3,)})
    assert spec.session == session_spec(made.job.config, made.job.model.graph, made.job.choice, made.threads)
    assert (spec.session.streams, spec.session.threads_per_stream, spec.session.provider) == (3, 2, "cpu")
    assert Path(spec.session.graph) == tmp_path / "models" / "tiny" / "model_4.onnx"
    assert (spec.output, spec.log_dir) == (str(made.output), str(made.log_dir))
    assert spec.graph_sha256 == made.job.model.sidecar.sha256
    assert spec.metadata["fingerprint"] == made.job.fingerprint


def test_workers_are_told_how_to_decode(tmp_path: Path) -> None:
    for mode, reduce_to in (("exact", 0), ("fast", RECIPE.short_side_needed)):
        spec = spec_of(launch_of(tmp_path / mode, decode=mode))
        assert (spec.reduce_to, spec.metadata["decode"]) == (reduce_to, mode)


def test_paths_are_those_of_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    spec = spec_of(launch_of(Path("here")))
    paths = [spec.session.graph, spec.output, spec.log_dir, *(ref.path for ref in spec.manifests.values())]
    assert all(path is not None and Path(path).is_relative_to(tmp_path) for path in paths), paths


def test_the_manifest_of_a_plain_folder_is_made_for_the_workers(tmp_path: Path) -> None:
    made = launch_of(tmp_path)
    spec = spec_of(made)
    assert list(spec.manifests) == [0]
    path = Path(spec.manifests[0].path)
    assert path == made.log_dir / MANIFEST_FILE
    manifest = Manifest.read(path)
    assert manifest.content_hash == spec.manifests[0].content_hash
    assert [record.key for record in manifest.records()][:2] == [b"000-black.png", b"001-red.png"]


def test_partitions_have_their_manifests_already(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    words = ["--data_dir", config.data_dir, "--output", str(tmp_path / "datasets"), "--partitions", "3"]
    assert partition_dataset.main(words) == 0
    made = launch_of(tmp_path, data_dir=str(tmp_path / "datasets"))
    spec = spec_of(made)
    assert {index: Path(ref.path) for index, ref in spec.manifests.items()} == {
        index: tmp_path / "datasets" / str(index) / MANIFEST_FILE for index in range(3)
    }
    assert not (made.log_dir / MANIFEST_FILE).exists()


def test_a_synthetic_run_has_neither_manifests_nor_output(tmp_path: Path) -> None:
    made = launch_of(tmp_path, synthetic=True, batches_per_step=5)
    spec = spec_of(made)
    assert (spec.input, spec.manifests, spec.output) == ("synthetic", {}, None)
    assert spec.warm_up_s == 0.0, "the rate is not needed"
    assert not (made.log_dir / MANIFEST_FILE).exists()
    assert RunSpec.read(write_run(made)) == spec


@pytest.mark.parametrize(
    ("options", "memory", "seconds"),
    [
        ({}, "", None),
        ({"batches_per_step": 5}, "", None),
        ({}, "cuda", 0.0),
        ({"generated": True}, "", 1.0),
        ({"generated": True, "batches_per_step": 5}, "", 0.0),
        ({"synthetic": True}, "cuda", 1.0),
    ],
)
def test_who_warms_up_with_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], memory: str, seconds: float | None
) -> None:
    """Runs without pictures, and devices with memory of their own; what a rate is needed for."""
    monkeypatch.setitem(PROVIDERS, "cpu", replace(PROVIDERS["cpu"], memory=memory))
    assert spec_of(launch_of(tmp_path, **options)).warm_up_s == seconds


def test_the_workers_of_another_host_follow_from_its_cores_and_gpus(tmp_path: Path) -> None:
    """Each sees its own GPU, or its share of one, as number 0; --num_devices is that of all hosts together."""
    job = launch_of(tmp_path).job
    config, cores = replace(job.config, engine="ray", num_devices=3), CoreBudget(tuple(range(32)), 16.0)
    on_cores = plan_host(config, job.choice, cores, 4)
    assert on_cores is not None
    assert (on_cores.threads.num_devices, on_cores.gpus_per_worker) == (2, 0.0), "one for every eight cores"
    on_gpus = replace(job.choice, provider="cuda")
    assert plan_host(config, on_gpus, cores, 0) is None
    found = plan_host(replace(config, processes_per_device=2), on_gpus, cores, 4)
    assert found is not None
    assert (found.threads.num_devices, found.threads.devices, found.gpus_per_worker) == (8, (0,) * 8, 0.5)
