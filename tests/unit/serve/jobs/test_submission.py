"""What may be submitted, and the command that becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.serve import _parse_job
from bulkinfer.config import LaunchConfig
from bulkinfer.serve.jobs.settings import JobSettings
from bulkinfer.serve.jobs.submission import options_of, words_of
from bulkinfer.serve.refusals import InvalidError


@pytest.fixture
def settings(tmp_path: Path) -> JobSettings:
    for folder in ("photos", "models/tiny"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "models" / "tiny" / "card.json").touch()
    return JobSettings({}, (str(tmp_path / "photos"), "s3://bucket"), str(tmp_path / "models"))


def submitted(body: str | dict[str, Any], settings: JobSettings) -> dict[str, Any]:
    is_json = isinstance(body, dict)
    text = json.dumps(body) if is_json else str(body)
    return options_of(text.encode(), is_json, _parse_job, settings, results_of)


def results_of(job_id: str) -> Path | None:
    return Path("/jobs") / job_id / "results" if job_id == "earlier" else None


def test_json_and_a_flag_file_are_the_same_job(settings: JobSettings, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    lines = f"""
        # pictures
        --data_dir {tmp_path}/link
        --model-name=tiny
        --micro_batch_size 4
        --save topk logits
        // no more
        --allow_cpu_nodes
        --skip_done earlier
    """
    fields = {
        "data_dir": f"{tmp_path}/link",
        "model_name": "tiny",
        "batch_size": 4,
        "save": ["topk", "logits"],
        "allow_cpu_nodes": True,
        "top_k": 5,
        "skip_done": ["earlier"],
    }
    found = submitted(fields, settings)
    assert submitted(lines, settings) == found
    del fields["top_k"]  # it is the default
    assert found == {**fields, "data_dir": f"{tmp_path}/photos"}


def test_the_command_has_the_options(settings: JobSettings, tmp_path: Path) -> None:
    found = submitted(
        {"data_dir": "s3://bucket/x y,z", "model_name": "tiny", "limit": 3, "save": ["topk", "logits"],
         "skip_done": ["earlier"], "labels": "folders", "allow_cpu_nodes": True},
        settings,
    )  # fmt: skip
    config = _parse_job(words_of(found, tmp_path / "job", settings, results_of))
    assert config == LaunchConfig(
        data_dir="s3://bucket/x y,z", model_name="tiny", limit=3, save=("topk", "logits"), skip_done=("/jobs/earlier/results",),
        labels="folders", allow_cpu_nodes=True, output=f"{tmp_path}/job/results", log_path=f"{tmp_path}/job/logs",
        model_path=f"{tmp_path}/models",
    )  # fmt: skip


def test_ray_is_that_of_the_service(settings: JobSettings, tmp_path: Path) -> None:
    fields = {"data_dir": str(tmp_path / "photos"), "model_name": "tiny", "engine": "ray"}
    with pytest.raises(InvalidError, match="has no Ray cluster"):
        submitted(fields, settings)
    with_ray = JobSettings({}, settings.data, settings.models, ray_address="head:6379")
    config = _parse_job(words_of(submitted(fields, with_ray), tmp_path, with_ray, results_of))
    assert (config.engine, config.ray_address) == ("ray", "head:6379")


def test_places_are_checked_again_at_each_start(settings: JobSettings, tmp_path: Path) -> None:
    (tmp_path / "photos" / "inner").mkdir()
    found = submitted({"data_dir": f"{tmp_path}/photos/inner", "model_name": "tiny"}, settings)
    assert f"--data_dir={tmp_path}/photos/inner" in words_of(found, tmp_path, settings, results_of)
    (tmp_path / "photos" / "inner").rmdir()
    (tmp_path / "photos" / "inner").symlink_to("/etc")
    with pytest.raises(InvalidError, match=r"data_dir .* is not in a folder or store"):
        words_of(found, tmp_path, settings, results_of)


def test_a_job_of_skip_done_may_have_lost_its_results_meanwhile(settings: JobSettings, tmp_path: Path) -> None:
    found = submitted({"data_dir": f"{tmp_path}/photos", "model_name": "tiny", "skip_done": ["earlier"]}, settings)
    with pytest.raises(InvalidError, match="skip_done: the job earlier has no results any more: leave it out"):
        words_of(found, tmp_path, settings, lambda job_id: None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"output": "/tmp/x"}, "output is set by the service: leave it out"),
        ({"log_path": "/tmp/x"}, "log_path is set by the service"),
        ({"model_path": "/tmp/x"}, "model_path is set by the service"),
        ({"overwrite": True}, "overwrite is set by the service"),
        ({"shard": "0/2"}, "shard is set by the service"),
        ({"ray_address": "evil:1"}, "ray_address is set by the service"),
        ({"dry_run": True}, "dry_run is set by the service"),
        ({"synthetic": True}, "synthetic gives no rows"),
        ({"engine": "inline"}, "engine inline runs in the process of the launcher"),
        ({"data_dir": ""}, "data_dir is missing"),
        ({"data_dir": "/etc"}, "data_dir /etc is not in a folder or store that jobs may read"),
        ({"data_dir": "photos"}, "data_dir photos is a relative path"),
        ({"data_dir": "folders"}, "data_dir folders is a relative path"),
        ({"data_dir": "s3//bucket"}, "data_dir begins with 's3//'"),
        ({"labels": "/etc/passwd"}, "labels /etc/passwd is not in"),
        ({"skip_done": ["/etc"]}, "skip_done /etc is not in"),
        ({"skip_done": ["other"]}, "skip_done 'other' is no job of yours"),
        ({"skip_done": ["--output=x"]}, "'--output=x' in a list"),
        ({"save": ["topk,logits"]}, "'topk,logits' in a list"),
        ({"model_name": "other"}, "model_name other is no network in the models of this service: give one of tiny"),
        ({"model_name": "../models/tiny"}, "is no name of a network"),
        ({"model_name": ".."}, "is no name of a network"),
        ({"batch_size": "4"}, "batch_size is '4': it must be a whole number"),
        ({"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        ({"save": "topk"}, "save is 'topk': give a list"),
        ({"jobs": 1}, "'jobs' is no option of infer_launch"),
    ],
)  # fmt: skip
def test_what_is_refused(settings: JobSettings, tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidError) as refusal:
        submitted({"data_dir": str(tmp_path / "photos"), "model_name": "tiny", **fields}, settings)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('{"data_dir": "/a"}', "send it with the header Content-Type: application/json"),
        ("--flagfile /etc/passwd", "--flagfile names a file of the service"),
        ("-flagfile=/etc/passwd", "--flagfile names a file of the service"),
        ("--flag_file=/etc/passwd", "--flagfile names a file of the service"),
        ("--help", "not --help or --version"),
        ("--nothing=1", "unknown flag: '--nothing'"),
        ("photos", "word that belongs to no flag"),
        ("--output /tmp/x\n--data_dir s3://bucket", "output is set by the service"),
        ("", "data_dir is missing"),
    ],
)
def test_what_is_refused_in_lines(settings: JobSettings, lines: str, reason: str) -> None:
    with pytest.raises(InvalidError) as refusal:
        submitted(lines, settings)
    assert reason in str(refusal.value)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"data_dir": NaN}', b"[" * 100_000])
def test_no_json_object(settings: JobSettings, body: bytes) -> None:
    with pytest.raises(InvalidError, match="the job is no JSON"):
        options_of(body, True, _parse_job, settings, results_of)


def test_no_text(settings: JobSettings) -> None:
    with pytest.raises(InvalidError, match="no UTF-8 text"):
        options_of(b"--data_dir \xff", False, _parse_job, settings, results_of)
