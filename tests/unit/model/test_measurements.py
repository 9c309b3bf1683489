"""measurements.py: notes come back as they were written, or not at all."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TypedDict

import pytest
from bulkinfer.model.measurements import add_measurement, read_measurements


class Note(TypedDict):
    rate: float


def test_notes_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    assert read_measurements(path, "notes", Note) == []
    for rate in (1.0, 2.0):
        add_measurement(path, "notes", Note, {"rate": rate, "host": "a"})
    assert read_measurements(path, "notes", Note) == [{"rate": 1.0, "host": "a"}, {"rate": 2.0, "host": "a"}]
    assert read_measurements(path, "others", Note) == []


def test_entries_of_another_structure_are_left_out_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"format": 1, "notes": [{"rate": "fast"}, {"rate": 3.0}, 5]}))
    assert read_measurements(path, "notes", Note) == [{"rate": 3.0}]
    add_measurement(path, "notes", Note, {"rate": 4.0})
    assert json.loads(path.read_text())["notes"] == [{"rate": 3.0}, {"rate": 4.0}]


def test_where_nothing_can_be_written_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    add_measurement(tmp_path / "file" / "notes.json", "notes", Note, {"rate": 1.0})
    assert "notes.json is not written (Not a directory): the next launch measures again" in capsys.readouterr().err


def test_c29_one_flipped_bit_leads_to_another_measurement_and_to_no_other_value(tmp_path: Path) -> None:
    path, draw = tmp_path / "fastest.json", random.Random(29)
    entry = {"rate": 12.5, "graph_sha256": "ab" * 32}
    add_measurement(path, "measured", Note, entry)
    data = path.read_bytes()
    for _ in range(400):
        changed = bytearray(data)
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        assert read_measurements(path, "measured", Note) in ([], [entry])
