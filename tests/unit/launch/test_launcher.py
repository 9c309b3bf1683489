"""launcher.py: whole launches without child processes, and each field of the fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bulkinfer.commands import infer_launch
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.launch import run as run_module
from bulkinfer.launch.launcher import LaunchResult, launch
from bulkinfer.model.recipe import Recipe
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import JobFile

from tests.commands import records, summary
from tests.launches import config_of
from tests.models import tiny_graph, write_tiny_model


def test_a_launch_and_its_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    found = records(tmp_path / "out")
    assert len(found) == 10
    assert all(row["class_names"][0] in key for key, row in found.items())
    assert require_job(tmp_path / "out").is_complete
    capsys.readouterr()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert launch(config).exit_code == 0
    assert "total: nothing left to do" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")} == before
    assert summary(tmp_path / "logs")["pictures"] == 10
    next((tmp_path / "out").glob("part-*-0000000004-*")).unlink()
    assert launch(config).exit_code == 0
    assert summary(tmp_path / "logs")["pictures"] == 4
    assert records(tmp_path / "out") == found
    assert not list(tmp_path.rglob("_lock.json"))


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_a_launch_in_a_thread_leaves_signals_alone(tmp_path: Path, engine: str) -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(launch, config_of(tmp_path, engine=engine, num_devices=1)).result().exit_code == 0
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    assert len(records(tmp_path / "out")) == 10


def test_the_result_counts_the_rows_of_the_whole_job(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    broken = sorted(Path(config.data_dir).iterdir())[4]
    broken.write_bytes(b"no picture")
    result = launch(config)
    log_dir = next((tmp_path / "logs").glob("tiny-*"))
    output = tmp_path / "out"
    assert result == LaunchResult(3, 10, 9, 1, {"decode": 1}, output, log_dir, log_dir / "summary.json")
    assert launch(config) == result, "nothing was left to do"
    assert launch(replace(config, dry_run=True)) == replace(result, exit_code=0, summary=None)


def test_job_json_is_read_once_for_the_plan_and_once_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, plain, read = config_of(tmp_path, engine="inline"), JobFile.read, list[Path]()
    assert launch(config).exit_code == 0
    monkeypatch.setattr(JobFile, "read", lambda output, logs: (read.append(output), plain(output, logs))[1])
    for dry_run in (True, False):
        assert launch(replace(config, dry_run=dry_run)).exit_code == 0
    assert read == [tmp_path / "out"] * 3


def test_a_synthetic_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(config_of(tmp_path, engine="inline", synthetic=True, iterations=3, batches_per_step=2)).exit_code == 0
    assert "total: 24 pictures in " in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(config_of(tmp_path, dry_run=True)).exit_code == 0
    assert f"output: {tmp_path / 'out'}" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "photos"]


class Refusing:
    """An engine that does nothing and ends with an error."""

    signal, replaced = None, ()
    nodes: ClassVar[dict[str, Any]] = {}

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def run(self) -> None:
        raise RunError("the network is gone")


def test_a_refusal_is_raised_after_the_books_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_module, "make_engine", Refusing)
    with pytest.raises(RunError, match="the network is gone"):
        launch(config_of(tmp_path))
    told = summary(tmp_path / "logs")
    assert (told["exit_code"], told["refusal"], told["ok"]) == (1, "the network is gone", 0)
    assert "+ 10 not done" in capsys.readouterr().out
    assert not list(tmp_path.rglob("_lock.json"))


def test_a_refusal_before_anything_was_done_is_wrong_use(tmp_path: Path) -> None:
    config, graph = config_of(tmp_path, engine="inline"), tiny_graph(4)
    graph.graph.node[0].op_type = "NoSuchOperator"
    write_tiny_model(tmp_path / "models", batch_sizes=(4,), graph=graph)
    with pytest.raises(UsageError, match=r"--device cpu cannot run .*NoSuchOperator"):
        launch(config)
    assert summary(tmp_path / "logs")["exit_code"] == 2
    assert not list((tmp_path / "out").glob("part-*"))


# -- every field of the fingerprint --------------------------------------------------------------------------------------

LATER = ("colour", "alpha_over")  # facts of a recipe only where it has them (test_recipe.py)
FIELDS = [
    "batch_size",
    "precision",
    "limit",
    "max_pixels",
    "max_file_bytes",
    "allow_cpu_nodes",
    "decode",
    "top_k",
    "device",
    "model_name",
    "graph_sha256",
    "weights_sha256",
    "labels_sha256",
    "save_precision",
    "save",
    "manifest",
    "skipped",
    "outputs.logits",
    "outputs.embedding",
    *(f"recipe.{field.name}" for field in fields(Recipe) if field.name not in ("colour", "alpha_over")),
]  # fmt: skip -- these two are facts of a recipe only where it has them (test_recipe.py)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[LaunchConfig, dict[str, Any]]:
    """A finished job that skipped what another has done, and what its _job.json says."""
    folder = tmp_path_factory.mktemp("fields")
    config = config_of(folder, engine="inline", limit=4, save=("topk", "embedding"))
    assert launch(config).exit_code == 0
    config = replace(config, limit=0, output=str(folder / "out2"), skip_done=(config.output,))
    config = replace(config, skip_done=(str(folder / "out"),))
    assert launch(config).exit_code == 0
    return config, require_job(folder / "out2").content


def test_the_list_of_fields_is_whole(begun: tuple[LaunchConfig, dict[str, Any]]) -> None:
    identity = begun[1]["identity"]
    names = [[f"{name}.{part}" for part in value] if isinstance(value, dict) else [name] for name, value in identity.items()]
    assert sorted(chain.from_iterable(names)) == sorted(FIELDS)


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
    JobFile(changed).write(Path(config.output))
    words = ["--batch_size=4", "--model_name=tiny", "--device=cpu", "--precision=fp32", "--save=topk,embedding"]
    words += [f"--{name}={getattr(config, name)}" for name in ("model_path", "log_path", "data_dir", "output", "engine")]
    try:
        assert infer_launch.main([*words, f"--skip_done={config.skip_done[0]}"]) == 2
    finally:
        JobFile(described).write(Path(config.output))
    told = capsys.readouterr().err
    if name == "manifest":
        assert re.search(r"out2 holds the results of a job on other pictures \(pictures in .*: 6\): give another ", told)
        return
    assert re.findall(r"(\S+) \([^()]* there, [^()]* now\)", told) == [name]
    assert re.search(r"differs in [^:]+: give another --output, or --overwrite to remove them(; --.*)?$", told.strip())


def test_c31_a_repeat_with_nothing_left_keeps_the_summary(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    first = launch(config)
    assert first.summary is not None
    made = json.loads(first.summary.read_text())
    assert made["images_per_s"] > 0
    assert made["versions"]
    assert launch(config).exit_code == 0
    assert json.loads(first.summary.read_text()) == made
    other = launch(replace(config, output=str(tmp_path / "other")))  # the same job, another output
    assert (other.exit_code, other.summary != first.summary) == (0, True)
    assert json.loads(first.summary.read_text()) == made


def test_c31_a_summary_that_is_damaged_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline")
    path = launch(config).summary
    assert path is not None
    path.write_text("{")
    assert launch(config).exit_code == 0
    assert "summary.json is damaged" in capsys.readouterr().err
    assert json.loads(path.read_text())["ok"] == 10
