"""retry.py and retry_merge.py: error rows run again, a success replaces its row, and a retry may be killed anywhere."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.commands import partition_dataset
from bulkinfer.commands import retry as command
from bulkinfer.commands import retry as retry_command
from bulkinfer.commands import verify as verify_command
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.json_file import read_json
from bulkinfer.files.output_lock import LOCK_FILE
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch import close as close_module
from bulkinfer.launch import plan as plan_module
from bulkinfer.launch import retry as retry_module
from bulkinfer.launch import retry_merge as merge_module
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.jobs.begun_config import begun_config
from bulkinfer.launch.jobs.saved_manifest import kept_manifest
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.options import RetryConfig
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.launch.retry import plan_retry, retry
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import JobFile, job_path
from bulkinfer.results.parquet_parts import write_part
from bulkinfer.results.part_names import STAGING
from bulkinfer.results.verify import verify
from bulkinfer.types import Step

from tests.commands import records
from tests.launches import config_of
from tests.rows import filled_rows, task
from tests.sealed import write_sealed
from tests.temporaries import temporary_name

BROKEN = (1, 2, 9)


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """A job of 10 pictures in partitions of 5 and parts of 4, of which 3 were broken; returns the good bytes of those."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1, save=("topk", "embedding"))
    photos = sorted(Path(config.data_dir).iterdir())
    good = {photos[number].name: photos[number].read_bytes() for number in BROKEN}
    for number in BROKEN:
        photos[number].write_bytes(b"no picture")
    words = ["--data_dir", config.data_dir, "--output", str(tmp_path / "datasets"), "--partitions", "2"]
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{path.name}\n" for path in photos))
    assert partition_dataset.main([*words, "--list_file", str(listed)]) == 0
    assert launch(replace(config, data_dir=str(tmp_path / "datasets"))).exit_code == 3
    return good


def test_a_retry_without_pictures_names_its_own_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, engine="inline")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA_DIR", config.data_dir)
    next(iter(Path(config.data_dir).iterdir())).write_bytes(b"no picture")
    assert launch(replace(config, data_dir="")).exit_code == 3
    monkeypatch.delenv("DATA_DIR")
    with pytest.raises(UsageError, match=rf", as in: bulkinfer retry {config.output} --data_dir photos$"):
        retry(RetryConfig(config.output))


def mend(folder: Path, good: dict[str, bytes], *numbers: int) -> None:
    for number, (name, data) in enumerate(good.items()):
        if number in numbers:
            (folder / "photos" / name).write_bytes(data)


def state(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("part-*")}


def test_a_success_takes_the_place_of_its_error_row(tmp_path: Path, whole: dict[str, bytes]) -> None:
    output = tmp_path / "out"
    before, files = records(output), state(output)
    tables = {name: pq.read_table(output / name) for name in files}
    mend(tmp_path, whole, 0, 2)
    assert retry(RetryConfig(output=str(output))).exit_code == 3
    after = records(output)
    names = list(whole)
    assert set(after) == set(before)
    assert {key for key in after if after[key] != before[key]} == {names[0], names[2]}
    for name in (names[0], names[2]):
        assert after[name]["status"] == "ok"
        assert after[name]["class_names"][0] in name
        assert after[name]["size_bytes"] == len(whole[name])
    assert state(output).keys() == files.keys()
    changed = [name for name, data in state(output).items() if data != files[name]]
    assert len(changed) == 2, "one with each of the two"
    for name in changed:
        table = pq.read_table(output / name)
        assert table["key"].equals(tables[name]["key"])
        assert table.schema.equals(tables[name].schema)
    assert verify(output).faults == []
    assert sorted(path.name for path in output.iterdir()) == sorted(files)
    mend(tmp_path, whole, 1)
    assert retry(RetryConfig(output=str(output))).exit_code == 0
    assert all(row["status"] == "ok" for row in records(output).values())
    assert verify(output).faults == []
    assert retry(RetryConfig(output=str(output))).exit_code == 0, "nothing is left to do"


def test_what_fails_again_keeps_its_row_with_the_new_message(tmp_path: Path, whole: dict[str, bytes]) -> None:
    output, name = tmp_path / "out", next(iter(whole))
    (tmp_path / "photos" / name).unlink()
    assert retry(RetryConfig(output=str(output))).exit_code == 3
    row = records(output)[name]
    assert (row["status"], row["stage"]) == ("error", "read")
    assert verify(output).errors_by_stage == {"decode": 2, "read": 1}
    files = state(output)
    assert retry(RetryConfig(output=str(output))).exit_code == 3
    assert state(output) == files, "the same messages change nothing"


def test_only_some_stages(tmp_path: Path, whole: dict[str, bytes]) -> None:
    output, name = tmp_path / "out", next(iter(whole))
    (tmp_path / "photos" / name).unlink()
    assert retry(RetryConfig(output=str(output))).exit_code == 3
    mend(tmp_path, whole, 0, 1, 2)
    assert retry(RetryConfig(output=str(output), stage=("read",))).exit_code == 3
    assert {key for key, row in records(output).items() if row["status"] == "error"} == set(list(whole)[1:])


def test_a_dry_run_changes_nothing(tmp_path: Path, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    files = state(tmp_path / "out")
    assert retry(RetryConfig(output=str(tmp_path / "out"), dry_run=True)).exit_code == 0
    assert "retry: 3 error rows of " in capsys.readouterr().out
    assert state(tmp_path / "out") == files


class Killed(BaseException):
    """Stands in for the end of the process."""


@pytest.mark.parametrize(
    ("place", "name", "calls"),
    [
        ("merge", "publish_table", 0),  # nothing is put in yet
        ("merge", "publish_table", 1),  # one part is
        ("job file", "write", 0),  # before anything runs
        ("job file", "write", 1),
        ("job file", "write", 2),
        ("job file", "write", 3),  # all parts are renamed, _job.json is old
        ("job file", "write", 4),
        ("close", "note_parts", 0),
        ("retry", "remove_if_empty", 0),
    ],
)
def test_a_killed_retry_loses_nothing(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, place: str, name: str, calls: int
) -> None:
    output = tmp_path / "out"
    module: Any = {"merge": merge_module, "retry": retry_module, "close": close_module, "job file": JobFile}[place]
    plain, made = getattr(module, name), []

    def killed(*words: Any, **options: Any) -> Any:
        made.append(words)
        if len(made) > calls:
            raise Killed
        return plain(*words, **options)

    mend(tmp_path, whole, 0, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(Killed):
            retry(RetryConfig(output=str(output)))
    assert verify(output).faults == [], "as it lies there"
    assert len(records(output)) == 10
    assert retry(RetryConfig(output=str(output))).exit_code == 0
    assert all(row["status"] == "ok" for row in records(output).values())
    assert verify(output).faults == []
    assert not (own_folder(output) / STAGING).exists()


def test_a_resume_holds_after_a_killed_retry(tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    mend(tmp_path, whole, 0, 1, 2)
    made: list[Any] = []
    plain = merge_module.publish_table

    def killed(*words: Any, **options: Any) -> Any:
        made.append(plain(*words, **options))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(merge_module, "publish_table", killed)
        with pytest.raises(Killed):
            retry(RetryConfig(output=str(output)))
    assert launch(begun_config(require_job(output), output)).exit_code == 3
    assert not list(output.glob("*.damaged"))
    assert made[0] in {part["sha256"] for part in require_job(output).parts.values()}
    assert verify(output).faults == []


def test_a_plain_folder_is_as_it_was_listed(tmp_path: Path) -> None:
    """A mended file has another size, and a new one is no matter of the retry."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    path = sorted(Path(config.data_dir).iterdir())[5]
    good = path.read_bytes()
    path.write_bytes(b"no picture")
    assert launch(config).exit_code == 3
    path.write_bytes(good)
    (path.parent / "zzz-new.png").write_bytes(good)
    with pytest.raises(UsageError, match="began: 2 of the 11 pictures there now have no ok row; to run only those: infer_"):
        launch(config)
    assert retry(RetryConfig(output=config.output)).exit_code == 0
    assert len(records(Path(config.output))) == 10
    assert verify(Path(config.output)).faults == []


def test_a_plain_folder_may_lie_elsewhere(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    path = sorted(Path(config.data_dir).iterdir())[5]
    good = path.read_bytes()
    path.write_bytes(b"no picture")
    assert launch(config).exit_code == 3
    path.write_bytes(good)
    path.parent.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="does not exist: give a folder of pictures"):
        retry(RetryConfig(output=config.output))
    assert retry(RetryConfig(output=config.output, data_dir=str(tmp_path / "moved"))).exit_code == 0


def test_an_unfinished_job(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """Its missing records are not run, and are not forgotten."""
    output = tmp_path / "out"
    mend(tmp_path, whole, 0, 1, 2)
    sound = next(name for name in sorted(state(output)) if not require_job(output).parts[name]["stages"])
    (output / sound).unlink()
    assert retry(RetryConfig(output=str(output))).exit_code == 1
    found = records(output)
    assert len(found) < 10
    assert all(row["status"] == "ok" for row in found.values())


def test_another_network_is_refused_by_name(tmp_path: Path, whole: dict[str, bytes]) -> None:
    card = tmp_path / "models" / "tiny" / "card.json"
    value = json.loads(card.read_text())
    value["recipe"]["resize_size"] += 1
    write_sealed(card, value)
    files = state(tmp_path / "out")
    with pytest.raises(UsageError, match=r"differs in recipe\.resize_size"):
        retry(RetryConfig(output=str(tmp_path / "out")))
    assert state(tmp_path / "out") == files


def test_the_command(tmp_path: Path, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    mend(tmp_path, whole, 0, 1, 2)
    assert command.main(["--log_path", str(tmp_path / "none")]) == 2
    assert "none does not exist: give the folder of job logs" in capsys.readouterr().err
    assert command.main([str(tmp_path / "none")]) == 2
    assert "none does not exist: name a job by its results, its log folder or its name" in capsys.readouterr().err
    assert command.main([str(tmp_path / "out"), "--stage", "write"]) == 2
    assert command.main([str(tmp_path / "out"), "--stage", "read", "decode", "--streams", "1"]) == 0
    assert "retry: 3 error rows are ok now, 0 failed again" in capsys.readouterr().out
    assert verify_command.main(["--output", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("mode", ["copy", "manifest"])
def test_partitions_of_a_job_that_skipped_something_may_lie_elsewhere(tmp_path: Path, mode: str) -> None:
    """Its manifests are kept apart from them, and say where they lay."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    first = replace(config, limit=3)
    assert launch(first).exit_code == 0
    photos = sorted(Path(config.data_dir).iterdir())
    good = photos[8].read_bytes()
    photos[8].write_bytes(b"no picture")
    words = ["--data_dir", config.data_dir, "--output", str(tmp_path / "datasets"), "--partitions", "2", "--mode", mode]
    assert partition_dataset.main(words) == 0
    second = replace(config, data_dir=str(tmp_path / "datasets"), output=f"{config.output}2", skip_done=(config.output,))
    assert launch(second).exit_code == 3
    (tmp_path / "datasets").rename(tmp_path / "moved")
    (broken,) = list(tmp_path.glob(f"moved/*/{photos[8].name}")) or [photos[8]]
    broken.write_bytes(good)
    if mode == "copy":
        for path in photos:
            path.unlink()
    assert retry(RetryConfig(output=second.output, data_dir=str(tmp_path / "moved"))).exit_code == 0
    assert len(records(Path(second.output))) == 7
    assert verify(Path(second.output)).faults == []


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more"])
def test_a_staged_part_that_a_power_cut_left_empty(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    output = tmp_path / "out"
    mend(tmp_path, whole, 0, 1, 2)

    def killed(*words: Any, **options: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(merge_module, "publish_table", killed)
        with pytest.raises(Killed):
            retry(RetryConfig(output=str(output)))
    staged = sorted((own_folder(output) / STAGING).glob("part-*"))
    assert len(staged) == 2
    staged[0].write_bytes(content)
    capsys.readouterr()
    assert retry(RetryConfig(output=str(output))).exit_code == 0
    told = capsys.readouterr()
    assert told.err.startswith(f"{staged[0]} is damaged or not a part of a job (")
    assert told.err.endswith("; removed, its records run again\n")
    assert "retry: 1 error row is ok now" in told.out
    assert all(row["status"] == "ok" for row in records(output).values())
    assert verify(output).faults == []
    assert not (own_folder(output) / STAGING).exists()


def test_the_plan_is_that_of_this_machine_or_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = {"num_devices": 1, "num_workers": 3, "streams": 3, "threads_per_stream": 2, "loader_processes": -1}
    begun |= {"tuned_for": "x"}
    config = config_of(tmp_path, engine="inline", **begun)
    assert launch(config).exit_code == 0
    plans, plain = list[LaunchConfig](), plan_module.plan_workers

    def planned(config: LaunchConfig, *words: Any) -> Any:
        plans.append(config)
        return plain(config, *words)

    monkeypatch.setattr(plan_module, "plan_workers", planned)
    assert retry(RetryConfig(output=config.output)).exit_code == 0
    assert {name: getattr(plans[0], name) for name in begun} == {
        name: getattr(LaunchConfig, name) for name in begun
    }  # defaults
    assert retry(RetryConfig(output=config.output, num_workers=3)).exit_code == 0
    assert (plans[1].num_workers, plans[1].streams) == (3, 0)


def test_the_logs_tell_the_job_as_it_is_now(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """And what a killed retry was writing goes."""
    (log_dir,) = (path for path in (tmp_path / "logs").glob("tiny-*") if kept_manifest(path, 0).parent == path)
    before = read_json(log_dir / "summary.json")
    (log_dir / "retry").mkdir()
    for folder in (log_dir, log_dir / "retry"):
        (folder / temporary_name("0000")).touch()
    mend(tmp_path, whole, 0, 1, 2)
    assert retry(RetryConfig(output=str(tmp_path / "out"))).exit_code == 0
    assert not list(log_dir.rglob("_tmp-*"))
    own = json.loads((log_dir / "retry" / "summary.json").read_text())
    assert (own["job"], own["pictures"], own["errors"]) == (log_dir.name, 3, 0)
    counts = {"ok": 10, "errors": 0, "errors_by_stage": {}, "exit_code": 0}
    assert read_json(log_dir / "summary.json") == before | counts
    for folder in (log_dir, log_dir / "retry"):
        assert (folder / "_job.json").read_bytes() == job_path(tmp_path / "out").read_bytes()
    (log_dir / "summary.json").unlink()
    assert retry(RetryConfig(output=str(tmp_path / "out"))).exit_code == 0
    assert not (log_dir / "summary.json").exists()


def test_a_retry_that_has_lost_its_lock_replaces_no_part(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another took it for dead while it wrote the rows of a part: the look comes right before the rename."""
    output, plain = tmp_path / "out", merge_module.publish_table
    lock = own_folder(output) / LOCK_FILE

    def overtaken(*words: Any, **options: Any) -> Any:
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "token": "theirs"}))
        return plain(*words, **options)

    mend(tmp_path, whole, 0, 1, 2)
    before = {path.name: path.read_bytes() for path in output.glob("part-*")}
    with monkeypatch.context() as patch:
        patch.setattr(merge_module, "publish_table", overtaken)
        with pytest.raises(RunError, match=f"{LOCK_FILE} was lost"):
            retry(RetryConfig(output=str(output)))
    assert {path.name: path.read_bytes() for path in output.glob("part-*")} == before
    lock.unlink()
    assert retry(RetryConfig(output=str(output))).exit_code == 0
    assert all(row["status"] == "ok" for row in records(output).values())
    assert verify(output).faults == []


@pytest.mark.parametrize("writes", [0, 1], ids=["rows put in", "parts noted"])
def test_a_refusal_is_raised_even_if_the_books_cannot_be_closed(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """After the run _job.json is written when the rows are put in, and again when the parts are noted."""
    plain, made = JobFile.write, []

    def full(job_file: JobFile, output: Path) -> None:
        made.append(output)
        if len(made) > writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(job_file, output)

    def refused(launch: Launch, aggregate: Aggregate, **_: bool) -> Outcome:
        monkeypatch.setattr(JobFile, "write", full)
        return Outcome(aggregate, None, RunError("the disk is full"))

    monkeypatch.setattr(retry_module, "run_engine", refused)
    with pytest.raises(RunError, match="the disk is full"):
        retry(RetryConfig(output=str(tmp_path / "out")))
    assert len(made) == writes + 1


def test_warnings_name_the_command(tmp_path: Path, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    path = job_path(output)
    described = json.loads(path.read_text())
    write_sealed(path, {**described, "versions": {**described["versions"], "numpy": "1.0"}})
    next(output.glob("part-*")).write_bytes(b"")
    capsys.readouterr()
    assert retry_command.main([str(output)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3, told
    assert all(line.startswith("bulkinfer retry: ") for line in told)
    assert "was begun with numpy 1.0" in told[0]
    assert "set aside as" in told[1]
    assert " have no row; to continue: infer_launch " in told[2]
    assert told[2].endswith(f" --output {output}") or f" --output {output} " in told[2]


def test_many_rows_of_one_part(tmp_path: Path) -> None:
    """Over several staged parts, some ok now and some not, with other messages and with the same ones."""
    output, staging = tmp_path / "out", tmp_path / "staging"
    for folder in (output, staging):
        folder.mkdir()
    step, facts = Step(0, 0, 12), {"fingerprint": "f"}
    errors = dict.fromkeys(range(0, 12, 2), ("read", "gone"))
    part = write_part(output, filled_rows(step, task(), errors=errors), 12, facts)
    for number, (start, end, failed) in enumerate([(0, 5, {2: ("read", "gone")}), (5, 12, {3: ("decode", "cut")})]):
        rows = filled_rows(Step(0, start, end), task(), errors=failed)
        write_part(staging, rows, end - start, {**facts, "number": number})
    before, parts = pq.read_table(output / part.name), {part.name: part.as_json()}
    job_file = JobFile({"fingerprint": "f", "parts": parts})
    assert merge_module.merge(output, staging, job_file, before_rename=lambda: None) == (4, 2)
    after = pq.read_table(output / part.name)
    assert after["key"].equals(before["key"])
    assert {n: error for n, error in enumerate(after["error"].to_pylist()) if error} == {2: "gone", 8: "cut"}
    assert parts[part.name]["stages"] == {"read": 1, "decode": 1}
    undisturbed = write_part(tmp_path, filled_rows(step, task()), 12, facts)
    expected = pq.read_table(tmp_path / undisturbed.name)
    is_ok = [n for n in range(12) if n not in (2, 8)]
    assert after.take(is_ok).replace_schema_metadata(None).equals(expected.take(is_ok).replace_schema_metadata(None))
    assert merge_module.merge(output, staging, job_file, before_rename=lambda: None) == (0, 2)


def test_a_job_of_a_cluster_is_retried_on_this_host_unless_asked_for(tmp_path: Path) -> None:
    """The cluster may be gone."""
    config = config_of(tmp_path, engine="inline")
    next(iter(Path(config.data_dir).iterdir())).write_bytes(b"no picture")
    assert launch(config).exit_code == 3
    path = job_path(Path(config.output))
    described = read_json(path)
    write_sealed(path, described | {"config": described["config"] | {"engine": "ray", "ray_address": "gone:6379"}})
    plan = plan_retry(RetryConfig(config.output), Path(config.output))
    assert (plan.job.config.engine, plan.job.config.ray_address) == ("local", "")
    asked = plan_retry(RetryConfig(config.output, engine="ray", ray_address="local"), Path(config.output))
    assert (asked.job.config.engine, asked.job.config.ray_address) == ("ray", "local")
    with pytest.raises(UsageError, match="belongs to --engine ray"):
        plan_retry(RetryConfig(config.output, ray_address="local"), Path(config.output))
