"""json_file.py: control files carry a checksum; damage and edits are refused, files of earlier versions are read."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from random import Random

import pytest
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files import json_file
from bulkinfer.files.json_file import read_edited, read_json, write_json

from tests.logged import logged

VALUE = {"name": "small", "labels": ["cat", "dog"], "recipe": {"mean": [0.5, 1e-7], "crop": None}, "seed": 5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A control file of VALUE."""
    write_json(tmp_path / "card.json", VALUE)
    return tmp_path / "card.json"


def edited(path: Path, **changes: object) -> Path:
    """The file with other fields, as somebody with an editor leaves it."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=4))
    return path


def seal(path: Path) -> list[str]:
    """Accept the edits of a file; returns them."""
    content, changes = read_edited(path)
    write_json(path, content)
    return changes


def test_round_trip(tmp_path: Path) -> None:
    value = {"text": "é \udce9 \n", "list": [1, 2.5, None], "tuple": (1, 2), "numbers": {10: "a", 9: "b"}}
    write_json(tmp_path / "file.json", value)
    assert read_json(tmp_path / "file.json") == {
        "text": "é \udce9 \n", "list": [1, 2.5, None], "tuple": [1, 2], "numbers": {"10": "a", "9": "b"},
    }  # fmt: skip
    assert (tmp_path / "file.json").read_bytes().isascii()
    assert json.loads((tmp_path / "file.json").read_text())["format"] == 2


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"format": 1', b"<!DOCTYPE html>", b"[" * 100_000])
def test_what_is_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(DamagedError, match=r"file\.json is damaged \(not JSON: .*\)$"):
        read_json(tmp_path / "file.json")


def test_what_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(UsageError, match=r"file\.json does not exist"):
        read_json(path)
    for content in ("[]", "1", "null", '"format"'):
        path.write_text(content)
        with pytest.raises(DamagedError, match=r"not a JSON object\)$"):
            read_json(path)
    path.write_text('{"format": 3}')
    with pytest.raises(UsageError, match="has format 3; this bulkinfer reads formats up to 2: install a newer bulkinfer"):
        read_json(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedError, match=r"file\.json is a folder, not a file$"):
        read_json(path)


@pytest.mark.parametrize(("found", "shown"), [
    ("{}", "null"), ('{"format": "1"}', '"1"'), ('{"format": null}', "null"), ('{"format": 0}', "0"),
    ('{"format": true}', "true"), ('{"format": [1]}', r"\[1\]"), ('{"format": 2.5}', "2.5"),
])  # fmt: skip
def test_without_its_format_number_it_is_damaged_and_not_newer(tmp_path: Path, found: str, shown: str) -> None:
    (tmp_path / "file.json").write_text(found)
    with pytest.raises(DamagedError, match=rf"file\.json is damaged \(its format is {shown}, not 2\)$"):
        read_json(tmp_path / "file.json")


def test_every_flipped_bit_is_refused_or_changes_nothing(path: Path) -> None:
    sound = path.read_bytes()
    refused = 0
    for place in Random(0).sample(range(8 * len(sound)), 500):
        data = bytearray(sound)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            assert read_json(path) == VALUE
        except (DamagedError, UsageError) as error:
            assert "card.json" in str(error)  # noqa: PT017 -- both outcomes are right
            refused += 1
    assert refused > 400


def test_an_edit_is_refused_with_the_command_that_accepts_it(path: Path) -> None:
    edited(path, labels=["cat", "cow"])
    with pytest.raises(DamagedError) as refusal:
        read_json(path)
    advice = str(refusal.value).partition("run: ")[2].removesuffix(")")
    assert shlex.split(advice) == ["bulkinfer", "seal", str(path)]
    assert seal(path) == ['changed: labels is now ["cat", "cow"]']
    assert read_json(path) == {**VALUE, "labels": ["cat", "cow"]}
    assert seal(path) == []


def test_a_seal_names_every_field_that_was_edited(path: Path) -> None:
    edited(path, seed=4, classes=[])
    content = json.loads(path.read_text())
    del content["name"]
    path.write_text(json.dumps(content))
    assert seal(path) == ["changed: seed is now 4", "added: classes is []", "removed: name"]
    edited(path, checksum="nonsense")
    assert seal(path) == ["changed: the checksum itself"]
    assert read_json(path)["seed"] == 4


def test_a_file_of_an_earlier_version_is_read_with_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "_has_warned", False)
    old = tmp_path / "old name.json"
    old.write_text(json.dumps({"format": 1, **VALUE}))
    lines: list[str] = []
    assert logged(lines, read_json, old) == logged(lines, read_json, old) == VALUE
    assert len(lines) == 1
    assert f"{old} was written by an earlier version, without a checksum" in lines[0]
    assert lines[0].endswith(f"bulkinfer seal '{old}'")
    assert seal(old) == ["added: the checksum, which an earlier version did not write"]
    assert read_json(old) == VALUE


def test_a_larger_file_is_not_read(path: Path) -> None:
    edited(path, labels=["y" * 200])
    with pytest.raises(DamagedError, match="such a file has at most 100"):
        read_edited(path, 100)
    content, changes = read_edited(path, 10_000)
    assert content["labels"] == ["y" * 200]
    assert changes == [f"changed: labels is now {json.dumps(['y' * 200])[:100]}…"]
