"""plan.py: where a launch logs, what it refuses before it writes anything, and what it says of what it will do."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.launch.jobs.job import new_job_file
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.plan import choose_log_dir, describe_decoding, open_network
from bulkinfer.results import log_folder
from bulkinfer.results.job_file import JobFile, job_path
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.worker.protocol import session_spec

from tests.launches import config_of, job_of, plan_of
from tests.models import RECIPE, write_tiny_model


class Noon(datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Noon:
        return cls(2026, 11, 28, 12, 0, 0, tzinfo=tz)


def test_a_job_logs_where_it_logged_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "datetime", Noon)
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    first = launch(config)
    fingerprint = json.loads(job_path(Path(config.output)).read_text())["fingerprint"]
    assert first.log_dir == tmp_path / "logs" / f"tiny-{fingerprint[:8]}-20261128T120000Z"
    monkeypatch.setattr(log_folder, "datetime", datetime)
    next((tmp_path / "out").glob("part-*")).unlink()
    assert launch(config).log_dir == first.log_dir


def test_half_precision_is_a_variant_on_cuda_and_an_option_on_tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "tensorrt"):
        monkeypatch.setitem(PROVIDERS, name, replace(PROVIDERS[name], find_devices=lambda: ["A"]))
    config = config_of(tmp_path, precision="fp16")
    assert open_network(replace(config, device="tensorrt")).model.graph.parent.name == "tiny"
    missing = r"fp16/card\.json does not exist: run get_model --model_name tiny --batch_size 4 .* --precision fp16$"
    for device in ("cuda", "auto"):
        with pytest.raises(UsageError, match=missing):
            open_network(replace(config, device=device))
    write_tiny_model(tmp_path / "models" / "tiny", "fp16", batch_sizes=(4,))
    for device in ("cuda", "auto"):
        asked = open_network(replace(config, device=device))
        (choice,) = asked.candidates.choices
        assert choice.provider == "cuda"
        assert asked.model.graph.parent.name == "fp16"
        assert session_spec(asked.config, asked.model.graph, choice, plan_of()).precision == "fp16"


def test_synthetic_runs_have_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_folder, "datetime", Noon)
    job = job_of(config_of(tmp_path, synthetic=True))
    found = []
    for _ in range(3):
        found.append(choose_log_dir(job.config, "tiny", job.fingerprint))
        found[-1].mkdir(parents=True)
    name = f"{job.name}-20261128T120000Z"
    assert [path.name for path in found] == [name, f"{name}-2", f"{name}-3"]


def test_how_pictures_are_decoded_is_described() -> None:
    fast = LaunchConfig(decode="fast")
    assert describe_decoding(LaunchConfig(), RECIPE) == "exact"
    assert describe_decoding(fast, replace(RECIPE, resize_size=256)).startswith("fast: ")
    assert "282 pixels or more" in describe_decoding(fast, replace(RECIPE, resize_size=256))
    assert "does not allow" in describe_decoding(fast, replace(RECIPE, interpolation="nearest"))


def test_fast_decoding_without_its_package_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, decode="fast")
    monkeypatch.setattr("bulkinfer.images.jpeg._turbo", lambda: None)
    with pytest.raises(UsageError, match=r"--decode fast needs simplejpeg"):
        open_network(config)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "bulkinfer.images.jpeg")
    with pytest.raises(UsageError, match=r"--decode fast needs Pillow, which is not installed: pip install \."):
        open_network(config)


def test_a_resume_may_name_what_auto_became(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log folder, too, is that of the job as it began."""
    began = config_of(tmp_path, device="auto", precision="auto")
    job = job_of(began)
    Path(began.output).mkdir()
    resolved = {"provider": "cpu", "precision": "fp32"}
    JobFile({**new_job_file(job).content, "resolved": resolved}).write(Path(began.output))
    assert launch(replace(began, device="cpu", precision="fp32", dry_run=True)).exit_code == 0
    told = capsys.readouterr().out
    assert f"job: {job.name}-" in told
    assert f", fingerprint {job.fingerprint}" in told
    assert f"resume: 0 of {job.num_records} records are done" in told


def test_options_that_contradict_the_engine_of_a_cluster_are_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(UsageError, match="--ray_address here:1 belongs to --engine ray: give that too"):
        launch(replace(config, ray_address="here:1"))
    with pytest.raises(UsageError, match="--device cuda:1: Ray picks the devices of its nodes: leave the numbers out"):
        launch(replace(config, engine="ray", device="cuda:1"))
    assert not (tmp_path / "out").exists()
