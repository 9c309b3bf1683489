"""infer_launch: what its last line says to type works when it is typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from bulkinfer.commands import infer_launch, score

from tests.launches import write_photos
from tests.models import write_tiny_model


@pytest.mark.parametrize(
    ("folders", "following"), [(("red", "lime"), "score"), (("cats", "lime"), "score"), (("cats", "dogs"), "show")]
)
def test_rows_are_scored_next_if_a_label_is_a_class(
    folders: tuple[str, str], following: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_model(tmp_path / "models", batch_sizes=(4,))
    for name in folders:
        write_photos(tmp_path / "photos" / name, 2)
    places = ["--model_path", str(tmp_path / "models"), "--log_path", str(tmp_path / "logs")]
    words = ["--data_dir", str(tmp_path / "photos"), "--model_name", "tiny", "--device", "cpu", "--precision", "fp32"]
    words += ["--labels", "folders", "--output", str(tmp_path / "out"), "--batch_size", "4", "--engine", "inline"]
    assert infer_launch.main([*words, *places]) == 0
    *_, before, last = capsys.readouterr().out.splitlines()
    assert last == f"next: bulkinfer {following} {tmp_path}/out"
    in_vain = "labels: none is a class of tiny, which has other classes than 'cats', 'dogs': the rows cannot be scored"
    assert (before == in_vain) == (following == "show")
    if following == "score":
        assert score.main([*shlex.split(last)[3:], *places]) == 0
