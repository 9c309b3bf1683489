"""skip_done.py and ok_rows.py: of a data set that grew only what has no ok row is run, as part of what the new job is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulkinfer.commands import infer_launch, partition_dataset
from bulkinfer.commands import verify as verify_command
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import canonical_json
from bulkinfer.launch.jobs.begun_config import begun_config, continuing
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.options import RetryConfig
from bulkinfer.launch.retry import retry
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import job_path
from bulkinfer.results.job_place import place_and_output
from bulkinfer.results.parquet_parts import METADATA_KEY
from bulkinfer.results.verify import verify
from bulkinfer.types import shell_word

from tests.commands import records
from tests.launches import config_of, write_photos
from tests.sealed import write_sealed


@pytest.fixture
def first(tmp_path: Path) -> LaunchConfig:
    """A finished job on 10 pictures of which 004 is broken."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1, save=("topk", "embedding"))
    broken(config).write_bytes(b"no picture")
    assert launch(config).exit_code == 3
    return config


def broken(config: LaunchConfig) -> Path:
    return sorted(Path(config.data_dir).iterdir())[4]


def grown(config: LaunchConfig, **changes: Any) -> LaunchConfig:
    """The data set has two more pictures, and what is done is skipped."""
    write_photos(Path(config.data_dir), 12)  # mends the broken one too
    return replace(config, **{"output": f"{config.output}2", "skip_done": (config.output,), **changes})


def test_only_what_has_no_ok_row_is_run(first: LaunchConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = grown(first)
    assert launch(second).exit_code == 0
    assert f"--skip_done: 9 records have ok rows in {first.output}" in capsys.readouterr().out
    names = [path.name for path in sorted(Path(first.data_dir).iterdir())]
    assert sorted(records(Path(second.output))) == [names[4], *names[10:]]
    assert (
        pq.read_schema(next(Path(second.output).glob("part-*"))).names
        == pq.read_schema(next(Path(first.output).glob("part-*"))).names
    )
    described = require_job(Path(second.output)).content
    assert described["skipped"]["outputs"] == [first.output]
    assert described["skipped"]["num_records"] == 9
    assert described["identity"]["skipped"] == described["skipped"]["sha256"]
    assert verify(Path(second.output)).faults == []
    assert verify_command.main([first.output, second.output]) == 0
    assert "together: 12 different pictures are ok in at least one of 2 folders" in capsys.readouterr().out
    third = replace(second, output=f"{first.output}3", skip_done=(first.output, second.output))
    assert launch(third).exit_code == 0
    assert not list(Path(third.output).glob("part-*")), "nothing is left"
    assert verify(Path(third.output)).faults == []


def test_a_picture_of_another_size_is_another_picture(first: LaunchConfig) -> None:
    second = grown(first)
    path = sorted(Path(first.data_dir).iterdir())[7]
    path.write_bytes(path.read_bytes() + b"more")
    assert launch(second).exit_code == 0
    assert path.name in records(Path(second.output))
    assert verify_command.main([first.output, second.output]) == 0


def test_without_sizes_the_key_decides(first: LaunchConfig) -> None:
    """Rows of an older version."""
    for path in Path(first.output).glob("part-*"):
        table = pq.read_table(path).drop_columns(["size_bytes"])
        facts = json.loads(table.schema.metadata[METADATA_KEY])
        del facts["columns"]["size_bytes"]
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(facts)}), path, write_page_checksum=True)
    second = grown(first)
    path = sorted(Path(first.data_dir).iterdir())[7]
    path.write_bytes(path.read_bytes() + b"more")
    assert launch(second).exit_code == 0
    assert len(records(Path(second.output))) == 3


def test_partitions_keep_their_numbers(first: LaunchConfig, tmp_path: Path) -> None:
    write_photos(Path(first.data_dir), 12)
    words = ["--data_dir", first.data_dir, "--output", str(tmp_path / "datasets"), "--partitions", "3"]
    assert partition_dataset.main(words) == 0
    second = grown(first, data_dir=str(tmp_path / "datasets"))
    assert launch(second).exit_code == 0
    assert len(records(Path(second.output))) == 3
    assert verify(Path(second.output)).faults == []
    assert list(require_job(Path(second.output)).partitions) == [0, 1, 2]


def test_a_resume_is_the_same_set(first: LaunchConfig) -> None:
    second = grown(first)
    assert launch(second).exit_code == 0
    before = records(Path(second.output))
    next(Path(second.output).glob("part-*")).unlink()
    assert launch(second).exit_code == 0
    assert records(Path(second.output)) == before
    part = next(Path(first.output).glob("part-*-0000000008-*"))
    part.unlink()
    with pytest.raises(UsageError, match=r"it differs in skipped \("):
        launch(second)
    with pytest.raises(UsageError, match=r"it differs in skipped \("):
        launch(replace(second, skip_done=()))


def test_a_retry_of_such_a_job(first: LaunchConfig) -> None:
    """It takes the records that were listed then, whatever the earlier outputs have gained."""
    second = grown(first)
    good = broken(first).read_bytes()
    broken(first).write_bytes(b"none")
    assert launch(second).exit_code == 3
    broken(first).write_bytes(good)
    assert retry(RetryConfig(output=first.output)).exit_code == 0
    assert retry(RetryConfig(output=second.output)).exit_code == 0
    assert verify(Path(second.output)).faults == []


def test_a_picture_that_is_ok_twice_is_told(first: LaunchConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(replace(first, output=f"{first.output}2")).exit_code == 3
    assert verify_command.main([first.output, f"{first.output}2"]) == 1
    told = capsys.readouterr()
    assert "9 pictures are ok in more than one folder (" in told.err
    assert f" in {first.output} and {first.output}2; " in told.err
    assert "together: 9 different pictures" in told.out
    assert verify_command.main([first.output, first.output]) == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"top_k": 2}, "top_k (5 there, 2 now)"),
        ({"save": ("topk",)}, "save ("),
        ({"decode": "fast"}, "decode ("),
    ],
)
def test_rows_of_another_kind_are_refused_by_name(first: LaunchConfig, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        launch(grown(first, **changes))
    assert str(caught.value).startswith(f"--skip_done {first.output}: its rows are of another kind, by {named}")
    assert not Path(f"{first.output}2").exists()


@pytest.mark.parametrize(("there", "now"), [("fp32", "auto"), ("auto", "fp32")])
def test_auto_that_became_what_is_asked_for_is_of_one_kind(tmp_path: Path, there: str, now: str) -> None:
    config = config_of(tmp_path, engine="inline", precision=there)
    assert launch(config).exit_code == 0
    second = grown(config, precision=now)
    assert launch(second).exit_code == 0
    assert len(records(Path(second.output))) == 2
    assert verify_command.main([config.output, second.output]) == 0


@pytest.mark.parametrize(
    ("became", "named"),
    [
        ({"provider": "openvino", "precision": "bf16"}, 'precision ("bf16" there, "fp32" now)'),
        ({"graph_sha256": "0" * 64}, "graph_sha256 (00000000000… there, "),
    ],
)
def test_auto_that_became_something_else_is_refused_by_name(tmp_path: Path, became: dict[str, str], named: str) -> None:
    config = config_of(tmp_path, engine="inline", precision="auto")
    assert launch(config).exit_code == 0
    second = grown(config)
    assert launch(second).exit_code == 0, "auto became the same"
    path = job_path(Path(config.output))
    described = json.loads(path.read_text())
    write_sealed(path, {**described, "resolved": {**described["resolved"], **became}})
    third = replace(second, output=f"{config.output}3")
    with pytest.raises(UsageError) as caught:
        launch(third)
    assert str(caught.value).startswith(f"--skip_done {config.output}: its rows are of another kind, by {named}")
    assert not Path(third.output).exists()
    assert launch(replace(third, dry_run=True)).exit_code == 0, "which judges nothing"


@pytest.mark.parametrize(
    ("place", "value"), [("recipe", {"resize_size": 99}), ("model_name", "other"), ("weights_sha256", "x")]
)
def test_another_network_is_refused_by_name(first: LaunchConfig, place: str, value: Any) -> None:
    path = job_path(Path(first.output))
    described = json.loads(path.read_text())
    there = described["identity"]
    there[place] = {**there[place], **value} if isinstance(value, dict) else value
    described["resolved"] |= {place: value} if place in described["resolved"] else {}
    described["fingerprint"] = hashlib.sha256(canonical_json(there).encode()).hexdigest()
    write_sealed(path, described)
    with pytest.raises(UsageError, match=rf"of another kind, by {place}"):
        launch(grown(first))


def test_what_cannot_be_skipped(first: LaunchConfig, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--skip_done: .*nothing does not exist: name a job by its results, its log folder or its name$"
    ):
        launch(grown(first, skip_done=(str(tmp_path / "nothing"),)))
    with pytest.raises(UsageError, match="is the --output itself"):
        launch(grown(first, output=first.output))
    with pytest.raises(UsageError, match="--skip_done is of pictures, and --synthetic has none"):
        LaunchConfig(synthetic=True, skip_done=("out",))


def test_a_word_for_the_newest_job_is_kept_as_the_folder_that_it_named(
    first: LaunchConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(first.output).parent)
    second = grown(first, skip_done=("latest", Path(first.output).name))
    assert launch(second).exit_code == 0
    assert place_and_output("latest", second.log_path)[1] == Path(second.output), "it is the second job by now"
    described = require_job(Path(second.output))
    assert described.config["skip_done"] == [first.output]
    assert described.content["skipped"]["outputs"] == [first.output]
    again = begun_config(described, Path(second.output))
    assert f"--skip_done {shell_word(first.output)} " in f"{continuing(again)} "
    before = records(Path(second.output))
    next(Path(second.output).glob("part-*")).unlink()
    capsys.readouterr()
    monkeypatch.chdir("/")
    assert launch(again).exit_code == 0
    assert f"--skip_done: 9 records have ok rows in {first.output}\n" in capsys.readouterr().out
    assert records(Path(second.output)) == before


def test_one_folder_by_several_words(first: LaunchConfig, capsys: pytest.CaptureFixture[str]) -> None:
    second = grown(first)
    words = ["--batch_size=4", "--model_name=tiny", "--device=cpu", "--precision=fp32", "--save=topk,embedding", "--dry_run"]
    words += [f"--{name}={getattr(second, name)}" for name in ("model_path", "log_path", "data_dir", "output", "engine")]
    assert infer_launch.main([*words, "--skip_done", first.output, f"{first.output}/../out"]) == 0
    assert f"9 records have ok rows in {first.output}\n" in capsys.readouterr().out


def test_parts_that_are_gone_or_damaged_are_told(first: LaunchConfig, capsys: pytest.CaptureFixture[str]) -> None:
    second, parts = grown(first), sorted(Path(first.output).glob("part-*"))
    whole = parts[0].read_bytes()
    parts[0].write_bytes(whole[:-9])
    with pytest.raises(
        RunError,
        match=f"{parts[0].name} is damaged .*; type this command again after: bulkinfer retry ",
    ):
        launch(second)
    parts[0].unlink()
    assert launch(second).exit_code == 0
    assert (
        f"warning: --skip_done {first.output}: {parts[0].name} is gone, so what was there runs again" in capsys.readouterr().err
    )
    assert {"000-black.png", "003-blue.png"} <= set(records(Path(second.output)))
