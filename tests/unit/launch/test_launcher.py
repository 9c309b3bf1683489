"""launcher.py: where a launch logs, what its workers are told, and what becomes of a launch that ends early."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import fields, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands import infer_launch, partition_dataset
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.output_lock import LOCK_FILE, output_lock
from bulkinfer.launch import launcher as launcher_module
from bulkinfer.launch.job import describe_job, fields_of
from bulkinfer.launch.launcher import free_log_dir, launch, open_job, run, told_decoding, write_run
from bulkinfer.model.card import Recipe
from bulkinfer.records.layout import MANIFEST_FILE
from bulkinfer.records.manifest import Manifest
from bulkinfer.results.job_file import read_job, write_job
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.worker.protocol import RunSpec

from tests.commands import records, summary
from tests.launches import config_of, launch_of, plan_of, spec_of
from tests.models import RECIPE, tiny_graph, write_tiny_model


class Noon(datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Noon:
        return cls(2026, 11, 28, 12, 0, 0, tzinfo=tz)


def test_a_job_logs_where_it_logged_before(tmp_path: Path) -> None:
    job, _ = open_job(config_of(tmp_path))
    for _ in range(2):
        log_dir = free_log_dir(job)
        assert log_dir == tmp_path / "logs" / f"tiny-{job.fingerprint[:8]}"
        log_dir.mkdir(parents=True, exist_ok=True)


def test_half_precision_is_a_variant_on_cuda_and_an_option_on_tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "tensorrt"):
        monkeypatch.setitem(PROVIDERS, name, replace(PROVIDERS[name], find_devices=lambda: ["A"]))
    config = config_of(tmp_path, precision="fp16")
    job, _ = open_job(replace(config, device="tensorrt"))
    assert job.model.graph.parent.name == "tiny"
    missing = r"fp16/card\.json does not exist: run get_model --model_name tiny --batch_size 4 .* --precision fp16$"
    for device in ("cuda", "auto"):
        with pytest.raises(UsageError, match=missing):
            open_job(replace(config, device=device))
    write_tiny_model(tmp_path / "models" / "tiny", "fp16", batch_sizes=(4,))
    for device in ("cuda", "auto"):
        job, found = open_job(replace(config, device=device))
        assert [choice.provider for choice in found.choices] == ["cuda"]
        assert job.model.graph.parent.name == "fp16"
        assert job.session_spec(plan_of()).precision == "fp16"


def test_synthetic_runs_have_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_module, "datetime", Noon)
    job, _ = open_job(config_of(tmp_path, synthetic=True))
    found = []
    for _ in range(3):
        found.append(free_log_dir(job))
        found[-1].mkdir(parents=True)
    name = f"{job.name}-20261128T120000Z"
    assert [path.name for path in found] == [name, f"{name}-2", f"{name}-3"]


# -- run.json ------------------------------------------------------------------------------------------------------------


def test_workers_are_told_everything(tmp_path: Path) -> None:
    made = launch_of(tmp_path, save=("topk", "embedding"), top_k=3, precision="fp32", max_pixels=77, max_file_bytes=88)
    made = replace(made, plan=replace(plan_of(), streams=3, threads_per_stream=2, num_workers=5))
    spec = spec_of(made)
    assert (spec.input, spec.batch_size, spec.recipe, spec.num_workers) == ("pictures", 4, RECIPE, 5)
    assert (spec.max_pixels, spec.max_file_bytes, spec.warm_up_s) == (77, 88, 1.0)
    assert (spec.task.save, spec.task.top_k, spec.task.columns) == (frozenset({"topk", "embedding"}), 3, {"embedding": (3,)})
    assert spec.session == made.job.session_spec(made.plan)
    assert (spec.session.streams, spec.session.threads_per_stream, spec.session.provider) == (3, 2, "cpu")
    assert Path(spec.session.graph) == tmp_path / "models" / "tiny" / "model_4.onnx"
    assert (spec.output, spec.log_dir) == (str(made.output), str(made.log_dir))
    assert spec.graph_sha256 == made.job.model.sidecar.sha256
    assert spec.metadata["fingerprint"] == made.job.fingerprint


def test_workers_are_told_how_to_decode(tmp_path: Path) -> None:
    for mode, reduce_to in (("exact", 0), ("fast", RECIPE.short_side_needed)):
        spec = spec_of(launch_of(tmp_path / mode, decode=mode))
        assert (spec.reduce_to, spec.metadata["decode"]) == (reduce_to, mode)


def test_how_pictures_are_decoded_is_told() -> None:
    fast = LaunchConfig(decode="fast")
    assert told_decoding(LaunchConfig(), RECIPE) == "exact"
    assert told_decoding(fast, replace(RECIPE, resize_size=256)).startswith("fast: ")
    assert "282 pixels or more" in told_decoding(fast, replace(RECIPE, resize_size=256))
    assert "does not allow" in told_decoding(fast, replace(RECIPE, interpolation="nearest"))


def test_fast_decoding_without_its_package_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, decode="fast")
    monkeypatch.setattr("bulkinfer.images.jpeg._turbo", lambda: None)
    with pytest.raises(UsageError, match=r"--decode fast needs simplejpeg"):
        open_job(config)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "bulkinfer.images.jpeg")
    with pytest.raises(
        UsageError, match=r"--decode fast needs Pillow, which is not installed: pip install 'bulkinfer\[fast\]'"
    ):
        open_job(config)


def test_a_resume_may_name_what_auto_became(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log folder, too, is that of the job as it began."""
    began = config_of(tmp_path, device="auto", precision="auto")
    job, _ = open_job(began)
    Path(began.output).mkdir()
    write_job(Path(began.output), {**describe_job(job, {}), "resolved": {"provider": "cpu", "precision": "fp32"}})
    assert launch(replace(began, device="cpu", precision="fp32", dry_run=True)) == 0
    told = capsys.readouterr().out
    assert f"job: {job.name}, fingerprint {job.fingerprint}" in told
    assert f"resume: 0 of {job.num_records} records are done" in told


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


# -- whole launches, without child processes -----------------------------------------------------------------------------


def test_a_launch_and_its_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config) == 0
    found = records(tmp_path / "out")
    assert len(found) == 10
    assert all(row["class_names"][0] in key for key, row in found.items())
    assert (read_job(tmp_path / "out") or {})["complete"] is True
    capsys.readouterr()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert launch(config) == 0
    assert "total: nothing left to do" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")} == before
    assert summary(tmp_path / "logs")["pictures"] == 0
    next((tmp_path / "out").glob("part-*-0000000004-*")).unlink()
    assert launch(config) == 0
    assert summary(tmp_path / "logs")["pictures"] == 4
    assert records(tmp_path / "out") == found
    assert not list(tmp_path.rglob("_lock.json"))


def test_a_synthetic_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(config_of(tmp_path, engine="inline", synthetic=True, iterations=3, batches_per_step=2)) == 0
    assert "total: 24 pictures in " in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(config_of(tmp_path, dry_run=True)) == 0
    assert f"output: {tmp_path / 'out'}" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "photos"]


class Refusing:
    """An engine that does nothing and ends with an error."""

    signal, replaced = None, ()

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def run(self) -> None:
        raise RunError("the network is gone")


def test_a_refusal_is_raised_after_the_books_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launcher_module, "make_engine", Refusing)
    with pytest.raises(RunError, match="the network is gone"):
        launch(config_of(tmp_path))
    told = summary(tmp_path / "logs")
    assert (told["exit_code"], told["refusal"], told["ok"]) == (1, "the network is gone", 0)
    assert "+ 10 not done" in capsys.readouterr().out
    assert not list(tmp_path.rglob("_lock.json"))


def test_a_refusal_is_raised_even_if_the_books_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launcher_module, "finish", full_disk)
    made = launch_of(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        run(replace(made, todo=[]), 0.0)
    monkeypatch.setattr(launcher_module, "make_engine", Refusing)
    with pytest.raises(RunError, match="the network is gone"):
        run(made, 0.0)


def test_a_refusal_before_anything_was_done_is_wrong_use(tmp_path: Path) -> None:
    config, graph = config_of(tmp_path, engine="inline"), tiny_graph(4)
    graph.graph.node[0].op_type = "NoSuchOperator"
    write_tiny_model(tmp_path / "models", batch_sizes=(4,), graph=graph)
    with pytest.raises(UsageError, match=r"--device cpu cannot run .*NoSuchOperator"):
        launch(config)
    assert summary(tmp_path / "logs")["exit_code"] == 2
    assert not list((tmp_path / "out").glob("part-*"))


# -- every field of the fingerprint --------------------------------------------------------------------------------------

FIELDS = [
    "batch_size", "precision", "limit", "max_pixels", "max_file_bytes", "allow_cpu_nodes", "decode", "top_k", "device",
    "model_name", "graph_sha256", "weights_sha256", "labels_sha256", "save_precision", "save", "manifest", "skipped",
    "outputs.logits", "outputs.embedding", *(f"recipe.{field.name}" for field in fields(Recipe)),
]  # fmt: skip


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[LaunchConfig, dict[str, Any]]:
    """A finished job that skipped what another has done, and what its _job.json says."""
    folder = tmp_path_factory.mktemp("fields")
    config = config_of(folder, engine="inline", limit=4, save=("topk", "embedding"))
    assert launch(config) == 0
    config = replace(config, limit=0, output=str(folder / "out2"), skip_done=(config.output,))
    config = replace(config, skip_done=(str(folder / "out"),))
    assert launch(config) == 0
    return config, read_job(folder / "out2") or {}


def test_the_list_of_fields_is_whole(begun: tuple[LaunchConfig, dict[str, Any]]) -> None:
    assert sorted(fields_of(begun[1]["identity"])) == sorted(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_alone_is_refused_by_its_name(
    begun: tuple[LaunchConfig, dict[str, Any]], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The job there differs in this one field; the command is that of before."""
    config, described = begun
    identity = json.loads(json.dumps(described["identity"]))
    outer, _, inner = name.partition(".")
    place, key = (identity[outer], inner) if inner else (identity, outer)
    assert key in place
    place[key] = "something else"
    changed = {**described, "identity": identity, "fingerprint": hashlib.sha256(canonical_json(identity).encode()).hexdigest()}
    write_job(Path(config.output), changed)
    words = ["--batch_size=4", "--model_name=tiny", "--device=cpu", "--precision=fp32", "--save=topk,embedding"]
    words += [f"--{name}={getattr(config, name)}" for name in ("model_path", "log_path", "data_dir", "output", "engine")]
    try:
        assert infer_launch.main([*words, f"--skip_done={config.skip_done[0]}"]) == 2
    finally:
        write_job(Path(config.output), described)
    told = capsys.readouterr().err
    assert re.findall(r"(\S+) \([^()]* there, [^()]* now\)", told) == [name]
    assert re.search(r"differs in [^:]+: give another --output, or --overwrite to remove them(; --.*)?$", told.strip())


def test_a_launch_whose_lock_is_anothers_keeps_no_books(tmp_path: Path) -> None:
    """The engine is that of a launcher that was cut off for a while."""
    made = launch_of(tmp_path)
    assert made.output is not None
    before = (made.output / "_job.json").read_bytes()
    with output_lock(made.output, flag="--output") as lease:
        (made.output / LOCK_FILE).write_text("{}")
        with pytest.raises(RunError, match=r"_lock\.json was lost"):
            run(replace(made, todo=[], leases=(lease,)), 0.0)
    assert (made.output / "_job.json").read_bytes() == before
    assert not (made.log_dir / "summary.json").exists()
