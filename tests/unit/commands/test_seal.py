"""bulkinfer seal: edits by hand are shown and accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bulkinfer.commands.seal import main
from bulkinfer.files import json_file
from bulkinfer.files.guarded import read_bytes
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.launch.launcher import launch
from bulkinfer.model import card
from bulkinfer.results.job_file import job_path
from bulkinfer.types import shell_word

from tests.launches import config_of


def test_it_prints_what_changed_and_seals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "source.json"
    write_json(path, {"name": "a", "labels": ["x"]})
    path.write_text(path.read_text().replace('"x"', '"y"'))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == f'{path}: changed: labels is now ["y"]\n{path}: sealed\n'
    assert read_json(path) == {"name": "a", "labels": ["y"]}
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: nothing has changed since it was written\n"


def test_without_a_file_it_names_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for there in ("models/resnet50/card.json", "models/my net/card.json", "models/a/card.json"):
        if there != "models/resnet50/card.json":
            Path(there).parent.mkdir(parents=True)
            Path(there).touch()
        assert main([]) == 2
        assert capsys.readouterr().err == f"bulkinfer seal: no file given, as in: bulkinfer seal {shell_word(there)}\n"


def test_what_cannot_be_sealed_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no file given, as in: bulkinfer seal " in capsys.readouterr().err
    assert main([str(tmp_path / "nothing")]) == 2
    (tmp_path / "text").write_text("{")
    assert main([str(tmp_path / "text")]) == 1
    (tmp_path / "other.json").write_text(json.dumps({"a": 1}))
    assert main([str(tmp_path / "other.json")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[3:5] for line in lines] == [["does", "not"], ["is", "damaged"], ["is", "damaged"]]


def test_what_its_reader_would_refuse_is_not_sealed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edit that no command takes afterwards would be a dead end; the other files are sealed all the same."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    job, card = job_path(tmp_path / "out"), tmp_path / "models" / "tiny" / "card.json"
    before = job.read_bytes().replace(b'"top_k": 5', b'"top_k": 3')
    job.write_bytes(before)
    card.write_text(card.read_text().replace("made by the tests", "made by me"))
    capsys.readouterr()
    assert main([str(job), str(card)]) == 2
    told = capsys.readouterr()
    fault = f"bulkinfer seal: {job} is damaged (its identity does not fit its fingerprint)"
    assert told.err.startswith(f"{fault}. It was not sealed: undo what was changed (changed: ")
    assert "--overwrite" not in told.err, "the advice for a job that cannot be saved"
    assert "identity is now " in told.err
    assert job.read_bytes() == before
    assert f"{card}: sealed" in told.out
    job.write_bytes(before.replace(b'"top_k": 3', b'"top_k": 5'))
    assert main([str(job)]) == 0


WRONG = {
    "card.json": {"name": 5},
    "model.json": {"sha256": 5},
    "model_12.json": {"batch_size": "12"},
    "dataset.json": {"partitions": {}},
    "_job.json": {"parts": 5},
    "_job-01234567.json": {"parts": 5},
    "state.json": {"step": "x"},
}


@pytest.mark.parametrize("name", WRONG)
def test_every_kind_is_checked_before_anything_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    write_json(path, {**WRONG[name], "comment": "mine"})
    edited = path.read_text().replace("mine", "ours")
    path.write_text(edited)
    assert main([str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"bulkinfer seal: {path} is damaged (")
    assert told.endswith('It was not sealed: undo what was changed (changed: comment is now "ours")\n')
    assert path.read_text() == edited
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_what_nobody_has_edited_and_its_reader_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model_4.json"
    write_json(path, {"sha256": 5})
    before = path.stat()
    assert main([str(path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"bulkinfer seal: {path} is damaged (sha256 is 5, not str")
    assert told.endswith("): make it again, or restore it\n")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_reader_that_is_interrupted_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "card.json"
    write_json(path, {"name": "mine"})
    edited = path.read_text().replace("mine", "ours")
    path.write_text(edited)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(card, "card_of", interrupted)
    assert main([str(path)]) == 130
    assert path.read_text() == edited


def test_an_error_of_the_system_is_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "source.json"
    write_json(path, {"name": "a"})
    path.write_text(path.read_text().replace('"a"', '"b"'))
    assert main([str(path / "card.json"), str(path)]) == 1
    told = capsys.readouterr()
    assert told.err == f"bulkinfer seal: Not a directory: {path}/card.json\n"
    assert told.out.endswith(f"{path}: sealed\n")


def test_a_job_file_may_be_larger_than_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, int] = {}

    def spy(path: Path, most_bytes: int) -> bytes:
        limits[path.name] = most_bytes
        return read_bytes(path, most_bytes)

    monkeypatch.setattr(json_file, "read_bytes", spy)
    names = ["_job.json", "_job-01234567.json", "card.json", "other.json"]
    for name in names:
        write_json(tmp_path / name, {})
    main([str(tmp_path / name) for name in names])
    assert [limits[name] >> 20 for name in names] == [1024, 1024, 64, 64]
