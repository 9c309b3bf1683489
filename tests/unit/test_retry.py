"""retry.py and merge.py: error rows run again, a success takes the place of its row, and a retry may be killed anywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from inference import merge as merge_module
from inference import retry as retry_module
from inference.commands import partition_dataset
from inference.commands import retry as command
from inference.commands import verify as verify_command
from inference.config import LaunchConfig, RetryConfig
from inference.errors import RunError, UsageError
from inference.job import read_job
from inference.launcher import launch
from inference.parts import STAGING
from inference.retry import begun_config, retry
from inference.verify import verify
from tests.commands import records
from tests.launches import config_of

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
    assert launch(replace(config, data_dir=str(tmp_path / "datasets"))) == 3
    return good


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
    assert retry(RetryConfig(output=str(output))) == 3
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
    assert sorted(path.name for path in output.iterdir()) == ["_job.json", *sorted(files)]
    mend(tmp_path, whole, 1)
    assert retry(RetryConfig(output=str(output))) == 0
    assert all(row["status"] == "ok" for row in records(output).values())
    assert verify(output).faults == []
    assert retry(RetryConfig(output=str(output))) == 0, "nothing is left to do"


def test_what_fails_again_keeps_its_row_with_the_new_message(tmp_path: Path, whole: dict[str, bytes]) -> None:
    output, name = tmp_path / "out", next(iter(whole))
    (tmp_path / "photos" / name).unlink()
    assert retry(RetryConfig(output=str(output))) == 3
    row = records(output)[name]
    assert (row["status"], row["stage"]) == ("error", "read")
    assert verify(output).errors_by_stage == {"decode": 2, "read": 1}
    files = state(output)
    assert retry(RetryConfig(output=str(output))) == 3
    assert state(output) == files, "the same messages change nothing"


def test_only_some_stages(tmp_path: Path, whole: dict[str, bytes]) -> None:
    output, name = tmp_path / "out", next(iter(whole))
    (tmp_path / "photos" / name).unlink()
    assert retry(RetryConfig(output=str(output))) == 3
    mend(tmp_path, whole, 0, 1, 2)
    assert retry(RetryConfig(output=str(output), stage=("read",))) == 3
    assert {key for key, row in records(output).items() if row["status"] == "error"} == set(list(whole)[1:])


def test_a_dry_run_changes_nothing(tmp_path: Path, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    files = state(tmp_path / "out")
    assert retry(RetryConfig(output=str(tmp_path / "out"), dry_run=True)) == 0
    assert "retry: 3 error rows of " in capsys.readouterr().out
    assert state(tmp_path / "out") == files


class Killed(BaseException):
    """Stands in for the end of the process."""


@pytest.mark.parametrize(
    ("place", "name", "calls"),
    [
        ("merge", "publish_table", 0),  # nothing is put in yet
        ("merge", "publish_table", 1),  # one part is
        ("retry", "write_job", 1),  # before anything runs
        ("retry", "write_job", 2),
        ("retry", "write_job", 3),  # all parts are renamed, _job.json is old
        ("retry", "note_parts", 0),
        ("retry", "remove_if_empty", 0),
    ],
)
def test_a_killed_retry_loses_nothing(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, place: str, name: str, calls: int
) -> None:
    output = tmp_path / "out"
    module: Any = {"merge": merge_module, "retry": retry_module}[place]
    plain, made = getattr(module, name), []

    def killed(*words: Any) -> Any:
        made.append(words)
        if len(made) > calls:
            raise Killed
        return plain(*words)

    mend(tmp_path, whole, 0, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(Killed):
            retry(RetryConfig(output=str(output)))
    assert verify(output).faults == [], "as it lies there"
    assert len(records(output)) == 10
    assert retry(RetryConfig(output=str(output))) == 0
    assert all(row["status"] == "ok" for row in records(output).values())
    assert verify(output).faults == []
    assert not (output / STAGING).exists()


def test_a_resume_holds_after_a_killed_retry(tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    mend(tmp_path, whole, 0, 1, 2)
    made: list[Any] = []
    plain = merge_module.publish_table

    def killed(*words: Any) -> Any:
        made.append(plain(*words))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(merge_module, "publish_table", killed)
        with pytest.raises(Killed):
            retry(RetryConfig(output=str(output)))
    found = read_job(output)
    assert found is not None
    assert launch(begun_config(found, output)) == 3
    assert not list(output.glob("*.damaged"))
    assert made[0] in {part["sha256"] for part in (read_job(output) or {})["parts"].values()}
    assert verify(output).faults == []


def test_a_plain_folder_is_as_it_was_listed(tmp_path: Path) -> None:
    """A mended file has another size, and a new one is no matter of the retry."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    path = sorted(Path(config.data_dir).iterdir())[5]
    good = path.read_bytes()
    path.write_bytes(b"no picture")
    assert launch(config) == 3
    path.write_bytes(good)
    (path.parent / "zzz-new.png").write_bytes(good)
    with pytest.raises(UsageError, match="differs in manifest"):
        launch(config)
    assert retry(RetryConfig(output=config.output)) == 0
    assert len(records(Path(config.output))) == 10
    assert verify(Path(config.output)).faults == []


def test_a_plain_folder_may_lie_elsewhere(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    path = sorted(Path(config.data_dir).iterdir())[5]
    good = path.read_bytes()
    path.write_bytes(b"no picture")
    assert launch(config) == 3
    path.write_bytes(good)
    path.parent.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="is no folder: give --data_dir"):
        retry(RetryConfig(output=config.output))
    assert retry(RetryConfig(output=config.output, data_dir=str(tmp_path / "moved"))) == 0


def test_an_unfinished_job(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """Its missing records are not run, and are not forgotten."""
    output = tmp_path / "out"
    mend(tmp_path, whole, 0, 1, 2)
    sound = next(name for name in sorted(state(output)) if not (read_job(output) or {})["parts"][name]["stages"])
    (output / sound).unlink()
    assert retry(RetryConfig(output=str(output))) == 1
    found = records(output)
    assert len(found) < 10
    assert all(row["status"] == "ok" for row in found.values())


def test_another_network_is_refused_by_name(tmp_path: Path, whole: dict[str, bytes]) -> None:
    card = tmp_path / "models" / "tiny" / "card.json"
    value = json.loads(card.read_text())
    value["recipe"]["resize_size"] += 1
    card.write_text(json.dumps(value))
    files = state(tmp_path / "out")
    with pytest.raises(UsageError, match=r"differs in recipe\.resize_size"):
        retry(RetryConfig(output=str(tmp_path / "out")))
    assert state(tmp_path / "out") == files


def test_the_command(tmp_path: Path, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    mend(tmp_path, whole, 0, 1, 2)
    assert command.main([]) == 2
    assert "no output directory given, as in: bulkinfer retry" in capsys.readouterr().err
    assert command.main([str(tmp_path / "none")]) == 2
    assert "holds no _job.json" in capsys.readouterr().err
    assert command.main([str(tmp_path / "out"), "--stage", "write"]) == 2
    assert command.main([str(tmp_path / "out"), "--stage", "read", "decode", "--streams", "1"]) == 0
    assert "retry: 3 error rows are ok now, 0 failed again" in capsys.readouterr().out
    assert verify_command.main(["--output", str(tmp_path / "out")]) == 0


def test_options_of_another_kind_are_damage(tmp_path: Path) -> None:
    assert begun_config({"config": {"top_k": 3, "younger": 1, "save": ["topk"]}}, tmp_path) == LaunchConfig(top_k=3)
    assert begun_config({}, tmp_path) == LaunchConfig()
    with pytest.raises(RunError, match=r"_job\.json is damaged \(config\.top_k is '3', not int\)"):
        begun_config({"config": {"top_k": "3"}}, tmp_path)
