"""claim.py: whose a results folder is, what of it is done, and what --overwrite may remove."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.lease import Lease, take
from bulkinfer.files.own_folder import LOCK_FILE, make_own_folder, own_folder
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch import claim as claim_module
from bulkinfer.launch import plan as plan_module
from bulkinfer.launch import recorded_part
from bulkinfer.launch.auto.choose import find_network
from bulkinfer.launch.claim import claim, claim_output, preview, remaining_steps, remove_results
from bulkinfer.launch.jobs.job import Job, joined_identity, new_job_file, resolved_there
from bulkinfer.launch.plan import Plan, plan_job
from bulkinfer.model.card import read_card, write_card
from bulkinfer.records.dataset import Dataset, Partition
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import JOB_FILE, JobFile, job_path
from bulkinfer.results.log_folder import LAUNCH_FILE, find_log_dir, recorded_output, take_log_dir
from bulkinfer.results.parquet_parts import Part, write_part
from bulkinfer.results.part_names import part_name
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.types import Step

from tests.launches import bind
from tests.models import tiny_graph, write_tiny_model
from tests.rows import filled_rows, task
from tests.temporaries import temporary_name

NAMES = b"%06d.jpg"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two partitions of 5 and 3 records."""
    write_tiny_model(tmp_path / "models")
    partitions = []
    for index, size in enumerate((5, 3)):
        manifest = Manifest.from_entries([Entry(NAMES % n, 10) for n in range(size)], b"/pictures")
        partitions.append(Partition(index, manifest, b"/pictures"))
    data = Dataset(Path("/pictures"), tuple(partitions), "pictures in /pictures", "m" * 64)
    return bind(LaunchConfig(model_path=str(tmp_path / "models"), model_name="tiny"), data)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def overwriting(job: Job) -> Job:
    return replace(job, config=replace(job.config, overwrite=True))


def publish(output: Path, job: Job, *steps: Step) -> list[Part]:
    return [write_part(output, filled_rows(step, task()), len(step), {"fingerprint": job.fingerprint}) for step in steps]


def begun(output: Path, job: Job, *steps: Step, **changes: Any) -> JobFile:
    """An output in which the job was begun and `steps` were published and recorded."""
    parts = {part.name: part.as_json() for part in publish(output, job, *steps)}
    job_file = JobFile({**new_job_file(job).content, "parts": parts} | changes)
    job_file.write(output)
    return job_file


def asking(job: Job, **flags: Any) -> Job:
    """The same with other flags."""
    return bind(replace(job.config, **flags), job.dataset)


def planned(job: Job, output: Path, **flags: Any) -> Plan:
    """The plan of the job with other flags, which goes on with what is in `output`."""
    config = replace(job.config, output=str(output), **flags)
    return plan_job(find_network(config), job.dataset, JobFile.read(output))


# -- whose it is ---------------------------------------------------------------------------------------------------------


def test_an_empty_output_is_a_new_job(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert claim_output(job, output) == new_job_file(job)
    assert list(output.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_resume_takes_what_was_there(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    begun(output, job, Step(0, 0, 5), complete=True)
    job_file = claim_output(job, output)
    assert (list(job_file.parts), job_file.is_complete) == ([part_name(Step(0, 0, 5))], False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("openvino")
def test_what_auto_became_is_kept(
    job: Job, output: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = replace(PROVIDERS["openvino"], native=lambda _numbers: ("bf16", ""))
    monkeypatch.setitem(PROVIDERS, "openvino", native)
    begun(output, job, resolved={"provider": "openvino", "precision": "bf16", "batches_per_step": 3})
    settled = planned(job, output).job
    began = f"as the job began, in {job_path(output)}"
    assert (settled.choice.provider, settled.choice.reason) == ("openvino", began)
    assert (settled.choice.precision, settled.choice.precision_reason) == ("bf16", began)
    assert claim_output(settled, output).resolved["batches_per_step"] == 3
    assert capfd.readouterr() == ("", "")
    with pytest.raises(RunError, match=r"another launch began the job in .* meanwhile: run the command again"):
        claim_output(job, output)


def test_what_auto_became_may_be_named_by_a_resume(job: Job, output: Path) -> None:
    """The parts there bear the fingerprint of a job on auto, and new ones get it too."""
    begun(output, job, Step(0, 0, 5), resolved={"provider": "cpu", "precision": "fp32"})
    for flags in ({"precision": "fp32"}, {"device": "cpu"}, {"precision": "fp32", "device": "cpu"}):
        asked = asking(job, **flags)
        assert asked.fingerprint != job.fingerprint
        settled = planned(job, output, **flags).job
        assert settled.fingerprint == job.fingerprint
        reason = "as asked" if "precision" in flags else f"as the job began, in {job_path(output)}"
        assert (settled.choice.precision, settled.choice.precision_reason) == ("fp32", reason)
        assert remaining_steps(settled, output, claim_output(settled, output)) == [Step(1, 0, 3)]


@pytest.mark.parametrize(
    ("resolved", "flags"),
    [
        ({"provider": "cpu", "precision": "bf16"}, {"precision": "fp32"}),
        ({"provider": "openvino", "precision": "fp32"}, {"device": "cpu"}),
        ({"provider": "cpu"}, {"precision": "fp32"}),  # of an older version, which did not tell
        ({"provider": "cpu", "precision": "fp32"}, {"precision": "fp32", "limit": 3}),
        ({"provider": "cpu", "precision": "fp32"}, {"precision": "fp32", "batch_size": 4}),
    ],
)
def test_anything_else_stays_another_job(job: Job, output: Path, resolved: dict[str, str], flags: dict[str, Any]) -> None:
    write_tiny_model(Path(job.config.model_path), batch_sizes=(4, 6))
    begun(output, job, resolved=resolved)
    asked = asking(job, **flags)
    there = require_job(output)
    assert joined_identity(asked.identity, there) is asked.identity
    with pytest.raises(UsageError, match="holds the results of another job"):
        resolved_there(there, output, asked.identity, asked.config)


def test_a_variant_that_auto_led_to_may_be_named(job: Job, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = PROVIDERS["cpu"]
    monkeypatch.setitem(PROVIDERS, "cpu", replace(cpu, precisions=("fp32", "fp16"), variants=("fp16",)))
    renamed = tiny_graph(6)
    renamed.producer_name = "another graph"
    variant = write_tiny_model(Path(job.config.model_path) / "tiny", "fp16", graph=renamed)
    sha256 = file_sha256(variant / "model_6.onnx")
    write_card(variant / "card.json", replace(read_card(variant / "card.json"), name="tiny"))
    asked = asking(job, precision="fp16", device="cpu")
    for told, is_same in ((sha256, True), ("0" * 64, False)):
        there = begun(output, job, resolved={"provider": "cpu", "precision": "fp16", "graph_sha256": told})
        assert (joined_identity(asked.identity, there) == job.identity) is is_same


def test_another_variant_of_the_network_is_refused(job: Job, output: Path) -> None:
    """Made anew since: its rows would stand beside those of the one before."""
    begun(output, job, resolved={"provider": "cpu", "precision": "fp32", "graph_sha256": "ab" * 32})
    with pytest.raises(
        UsageError, match=r"was begun with another fp32 variant of the network \(graph sha256 abababababab\): give"
    ):
        claim_output(job, output)


def test_nothing_is_measured_for_a_job_that_has_begun(job: Job, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(output, job)
    monkeypatch.setattr(plan_module, "settle", lambda *_: pytest.fail("measured"))
    assert planned(job, output).job.choice.reason.startswith("as the job began")


def test_devices_of_another_kind_are_told(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The last bits of two kinds of GPU differ."""
    begun(output, job, resolved={"provider": "cpu", "devices": ["NVIDIA A"]})
    claim_output(job, output)
    assert f"{output} was begun with NVIDIA A (now the processor): new rows may differ" in capfd.readouterr().err


def test_a_provider_that_is_unknown_here(job: Job, output: Path) -> None:
    begun(output, job, resolved={"provider": "tpu"})
    with pytest.raises(UsageError, match=r"_job\.json was begun on provider tpu, which is unknown here: install a newer"):
        planned(job, output)


def test_a_resume_with_other_versions_is_told_in_one_line(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    now = new_job_file(job).versions
    begun(output, job, versions=now | {"Pillow": "1.0", "numpy": "0.9", "python": "2.7"})
    job_file = claim_output(job, output)
    told = capfd.readouterr().err
    assert told == (
        f"warning: {output} was begun with numpy 0.9 (now {now['numpy']}), Pillow 1.0 (now {now['Pillow']}): "
        "new rows may differ from those there\n"
    )
    assert job_file.versions["Pillow"] == "1.0", "what the job began with"


def test_another_job_is_refused(job: Job, output: Path) -> None:
    begun(output, job)
    other = replace(job, identity={**job.identity, "limit": 7})
    with pytest.raises(UsageError, match=r"differs in limit \(0 there, 7 now\)"):
        claim_output(other, output)


def test_parts_without_a_description_are_somebody_elses(job: Job, output: Path) -> None:
    publish(output, job, Step(0, 0, 5))
    with pytest.raises(RunError) as caught:
        claim_output(job, output)
    own = own_folder(output)
    assert str(caught.value) == (
        f"{output} holds 1 part, but {own}/_job.json does not exist: {own} belongs to it, and is moved and copied together "
        "with it; for a new job give another --output, or --overwrite to remove these parts"
    )


DAMAGED = ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "fingerprint": "x", "parts": {}}', '{"format": 2}', "\0" * 100]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_or_newer_description_is_one_sentence_and_no_way_in(job: Job, output: Path, content: str) -> None:
    publish(output, job, Step(0, 0, 5))
    (output / JOB_FILE).write_text(content)
    with pytest.raises((RunError, UsageError), match=JOB_FILE) as caught:
        claim_output(job, output)
    assert "\n" not in str(caught.value)
    assert len(list(output.iterdir())) == 2


@pytest.mark.parametrize("content", DAMAGED)
def test_overwrite_gets_past_any_description(job: Job, output: Path, content: str) -> None:
    publish(output, job, Step(0, 0, 5))
    (output / JOB_FILE).write_text(content)
    job = overwriting(job)
    assert claim_output(job, output) == new_job_file(job)
    assert list(output.iterdir()) == []


# -- what --overwrite removes --------------------------------------------------------------------------------------------


def test_overwrite_removes_our_files_only(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step, other = Step(0, 0, 5), Step(1, 0, 3)
    begun(output, job, step)
    (output / f"_{part_name(other)}.damaged").touch()
    (output / "elsewhere.parquet").touch()
    (output / part_name(other)).symlink_to(output / "elsewhere.parquet")
    foreign = [
        "part-00000-abc.snappy.parquet",
        "part-00001",
        "_part-x",
        "_part-00000.damaged",
        "_SUCCESS",
        "_tmp-mine",
        "_job.bak",
    ]
    foreign += [f"{part_name(step)}.crc", f"_{part_name(step)}", "elsewhere.parquet"]
    for name in foreign:
        (output / name).touch()
    for name in ("part-dir", f"_{part_name(step)}.damaged"):
        (output / name).mkdir()
        (output / name / part_name(step)).touch()
        foreign.append(name)
    remove_results(output)
    assert sorted(path.name for path in output.iterdir()) == sorted(foreign)
    assert (output / "part-dir" / part_name(step)).exists()
    kinds = "1 _job.json, 2 part, 1 part that was set aside"
    assert capfd.readouterr().out == f"--overwrite: removes 4 files ({kinds}) from {output}\n"
    remove_results(output)
    assert capfd.readouterr().out == ""


def test_overwrite_tells_before_it_removes(job: Job, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(output, job, Step(0, 0, 5))
    there: list[int] = []
    monkeypatch.setattr(claim_module.log, "info", lambda _: there.append(len(list(output.iterdir()))))
    remove_results(output)
    assert (there, list(output.iterdir())) == ([1], [])
    assert not job_path(output).exists()


def test_a_dry_run_with_overwrite_does_not_name_the_record_that_stays(
    job: Job, output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun(output, job, Step(0, 0, 5))
    preview(planned(job, output, overwrite=True))
    assert f"--overwrite: would remove 2 files (1 _job.json, 1 part) from {output}\n" in capfd.readouterr().out
    (output / part_name(Step(0, 0, 5))).unlink()
    preview(planned(job, output, overwrite=True))
    assert f"--overwrite: would remove nothing from {output}\n" in capfd.readouterr().out


def test_overwrite_removes_an_unfinished_retry_but_nothing_of_others_in_it(
    job: Job, output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    staging = make_own_folder(output) / "_retry"
    staging.mkdir()
    begun(staging, job, Step(0, 0, 5))
    (staging / "mine.txt").touch()
    remove_results(output)
    told = "removes 2 files (1 _job.json of an unfinished retry, 1 part of an unfinished retry)"
    assert told in capfd.readouterr().out
    assert [path.name for path in staging.iterdir()] == ["mine.txt"]
    (staging / "mine.txt").unlink()
    remove_results(output)
    assert not list(own_folder(output).iterdir())


def test_a_folder_with_the_name_of_a_part_is_not_removed_but_told(job: Job, output: Path) -> None:
    (output / part_name(Step(0, 0, 5))).mkdir()
    with pytest.raises(RunError, match="is a folder with the name of a part: move it away"):
        claim_output(overwriting(job), output)
    assert (output / part_name(Step(0, 0, 5))).is_dir()


def test_temporaries_of_dead_processes_go_and_others_stay(job: Job, output: Path) -> None:
    for name in (temporary_name("0000"), "_tmp-notes.txt", temporary_name("photo.jpg")):
        (output / name).touch()
    (output / temporary_name("1111")).mkdir()
    claim_output(job, output)
    assert sorted(path.name for path in output.iterdir()) == [
        temporary_name("1111"), temporary_name("photo.jpg"), "_tmp-notes.txt",
    ]  # fmt: skip


# -- what is left to do --------------------------------------------------------------------------------------------------


def test_what_no_file_covers_is_to_do(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job_file = begun(output, job, Step(0, 1, 3))
    assert remaining_steps(job, output, job_file) == [Step(0, 0, 1), Step(0, 3, 5), Step(1, 0, 3)]
    assert "resume: 2 of 8 records are done, 6 to do" in capfd.readouterr().out


def test_a_recorded_part_is_known_by_its_hash_alone(job: Job, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job_file = begun(output, job, Step(0, 0, 5))
    monkeypatch.setattr(recorded_part, "inspect_part", lambda *_: pytest.fail("read in full"))
    assert remaining_steps(job, output, job_file) == [Step(1, 0, 3)]


def test_a_part_whose_record_does_not_add_up_is_counted_anew(job: Job, output: Path) -> None:
    job_file = begun(output, job, Step(0, 0, 5))
    job_file.parts[part_name(Step(0, 0, 5))]["ok"] = 7
    assert remaining_steps(job, output, job_file) == [Step(1, 0, 3)]
    assert job_file.parts[part_name(Step(0, 0, 5))]["ok"] == 5


def test_a_part_that_was_published_but_not_recorded_counts(job: Job, output: Path) -> None:
    job_file = begun(output, job)
    publish(output, job, Step(1, 0, 3))
    assert remaining_steps(job, output, job_file) == [Step(0, 0, 5)]
    assert job_file.parts[part_name(Step(1, 0, 3))]["ok"] == 3


def test_a_changed_part_is_set_aside(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job_file = begun(output, job, Step(0, 0, 5), Step(1, 0, 3))
    path = output / part_name(Step(0, 0, 5))
    write_part(output, filled_rows(Step(0, 0, 5), task()), 5, {"fingerprint": job.fingerprint, "note": "again"})
    assert remaining_steps(job, output, job_file) == [Step(0, 0, 5)]
    assert (
        f"{path} was changed after it was published; set aside as {own_folder(output)}/_{path.name}.damaged"
        in capfd.readouterr().err
    )
    assert list(job_file.parts) == [part_name(Step(1, 0, 3))]
    assert (own_folder(output) / f"_{path.name}.damaged").exists()


def test_a_part_that_was_cut_is_set_aside(job: Job, output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job_file = begun(output, job, Step(0, 0, 5), Step(1, 0, 3))
    path = output / part_name(Step(0, 0, 5))
    path.write_bytes(path.read_bytes()[:-3])
    assert remaining_steps(job, output, job_file) == [Step(0, 0, 5)]
    assert f"{path} is damaged or not a part of a job" in capfd.readouterr().err


def test_c48_a_sparse_part_of_a_terabyte_is_set_aside_at_once(
    job: Job, output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job_file = begun(output, job, Step(0, 0, 5), Step(1, 0, 3))
    path = output / part_name(Step(0, 0, 5))
    os.truncate(path, 1 << 40)
    before = time.monotonic()
    assert remaining_steps(job, output, job_file) == [Step(0, 0, 5)]
    assert time.monotonic() - before < 60, "a terabyte takes minutes"
    assert f"{path} has 1,099,511,627,776 bytes or more" in capfd.readouterr().err


def test_a_part_that_replaces_the_recorded_one_is_taken_and_recorded(job: Job, output: Path) -> None:
    """A retry was killed between renaming it and writing _job.json."""
    job_file = begun(output, job, Step(0, 0, 5))
    before = job_file.parts[part_name(Step(0, 0, 5))]["sha256"]
    facts = {"fingerprint": job.fingerprint, "replaces": before}
    part = write_part(output, filled_rows(Step(0, 0, 5), task()), 5, facts)
    assert part.sha256 != before
    assert remaining_steps(job, output, job_file) == [Step(1, 0, 3)]
    assert job_file.parts[part.name]["sha256"] == part.sha256


def test_a_recorded_part_that_is_gone_runs_again(job: Job, output: Path) -> None:
    job_file = begun(output, job, Step(0, 0, 5))
    (output / part_name(Step(0, 0, 5))).unlink()
    assert remaining_steps(job, output, job_file) == [Step(0, 0, 5), Step(1, 0, 3)]
    assert job_file.parts == {}


def test_each_part_is_looked_at_for_its_own_partition_only(job: Job, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many partitions as parts everything else would be their product."""
    steps = (Step(0, 0, 2), Step(0, 4, 5), Step(1, 1, 3))
    job_file = begun(output, job, *steps)
    looked_at: list[Step] = []
    plain = claim_module.missing_ranges
    monkeypatch.setattr(claim_module, "missing_ranges", lambda wanted, done: (looked_at.extend(done), plain(wanted, done))[1])
    assert remaining_steps(job, output, job_file) == [Step(0, 2, 4), Step(1, 0, 1)]
    assert sorted(looked_at) == sorted(steps)


def test_a_part_of_no_partition(job: Job, output: Path) -> None:
    job_file = begun(output, job, Step(2, 0, 3))
    with pytest.raises(RunError, match=r"part-00002-.* belongs to no partition of this job"):
        remaining_steps(job, output, job_file)


def begins_elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let another launcher lock `folder` in the moment in which its lock is released."""
    release = Lease.release

    def released(lease: Lease) -> None:
        release(lease)
        if lease.path.parent == folder and not locked:
            locked.append(True)
            assert isinstance(take(folder / LOCK_FILE), Lease)

    locked = list[bool]()
    monkeypatch.setattr(Lease, "release", released)


def first_plan(job: Job, output: Path) -> Plan:
    """The plan of a job into `output`, with its logs beside that."""
    logs = output.parent / "logs"
    job = replace(job, config=replace(job.config, log_path=str(logs), output=str(output)))
    return Plan(job, ThreadPlan(1, 1, 1, 1, ((),), (0,)), logs / f"{job.name}-20260101T000000Z", output, None)


def is_refused(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise UsageError("the job of somebody else")

    monkeypatch.setattr(claim_module, "claim_output", refuse)
    with pytest.raises(UsageError, match="somebody else"), claim(plan):
        pass


def test_a_launch_that_is_refused_leaves_no_log_folder(job: Job, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = first_plan(job, output)
    is_refused(plan, monkeypatch)
    assert not plan.log_dir.exists()


def test_a_log_folder_that_another_launch_locks_meanwhile_is_left_to_it(
    job: Job, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(job, output)
    begins_elsewhere(monkeypatch, plan.log_dir)
    is_refused(plan, monkeypatch)
    assert [path.name for path in plan.log_dir.iterdir()] == [LOCK_FILE], "the record was removed under the own lock"


def test_a_log_folder_that_a_failed_launch_emptied_names_its_job(
    job: Job, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = first_plan(job, output)

    def found_and_emptied(*words: Any) -> Path:
        folder = take_log_dir(*words)
        (folder / LAUNCH_FILE).unlink()
        return folder

    monkeypatch.setattr(claim_module, "take_log_dir", found_and_emptied)
    with claim(plan) as claimed:
        pass
    assert recorded_output(claimed.log_dir) == claimed.output == output
    assert find_log_dir(plan.log_dir.parent, plan.job.name, plan.job.fingerprint, output) == claimed.log_dir
