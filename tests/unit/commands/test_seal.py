"""bulkinfer seal: edits by hand are shown and accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bulkinfer.commands.seal import main
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.launch.launcher import launch
from bulkinfer.results.job_file import job_path

from tests.launches import config_of


def test_it_prints_what_changed_and_seals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model_4.json"
    write_json(path, {"name": "a", "labels": ["x"]})
    path.write_text(path.read_text().replace('"x"', '"y"'))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == f'{path}: changed: labels is now ["y"]\n{path}: sealed\n'
    assert read_json(path) == {"name": "a", "labels": ["y"]}
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: nothing has changed since it was written\n"


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
    assert f"bulkinfer seal: {job} is damaged (its identity does not fit its fingerprint)" in told.err
    assert "It was not sealed: undo what was changed (changed: " in told.err
    assert "identity is now " in told.err
    assert job.read_bytes() == before
    assert f"{card}: sealed" in told.out
    job.write_bytes(before.replace(b'"top_k": 3', b'"top_k": 5'))
    assert main([str(job)]) == 0
