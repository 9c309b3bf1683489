"""bulkinfer seal: edits by hand are shown and accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bulkinfer.commands.seal import main
from bulkinfer.files.json_file import read_json, write_json


def test_it_prints_what_changed_and_seals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "card.json"
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
