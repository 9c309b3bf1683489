"""The page about a training run."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.insight.report.training_page import training_page

from tests.reports import Page, write_run


def test_numbers_are_those_of_the_tables(tmp_path: Path) -> None:
    page = Page(training_page(write_run(tmp_path / "shapes-run", epochs=6)))
    assert "Updates done 60 6 epochs in 18 s" in page.text
    assert "Best validation 85.00 % top-1 after epoch 6" in page.text  # 0.9 - 0.3 / 6
    assert "Last training loss 0.3333 accuracy 91.67 %" in page.text  # 2 / 6 and 1 - 0.5 / 6
    assert "Loss over 6 epochs: training from 2 to 0.3333; validation from 2.5 to 0.4167." in page.text
    assert "network shapes, 12 parameters" in page.text
    assert "--model shapes --lr 0.1 Versions" in page.text  # and not --momentum 0.9, which is the default
    rows = page.text.partition("Confusion")[2]
    assert "circle 8 1 1 <b>square</b> 10 star 2 8" in rows
    assert len([tag for tag, _ in page.tags if tag == "polyline"]) == 6  # loss and accuracy have two


def test_the_average_of_the_weights_has_a_curve_of_its_own(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    head, *rows = (folder / "validation.csv").read_text().splitlines()
    averages = [row.replace(",30,", ",31,") for row in rows]  # of 31 pictures
    lines = [f"{head},weights", *(f"{row},raw" for row in rows), *(f"{row},ema" for row in averages)]
    (folder / "validation.csv").write_text("\n".join(lines) + "\n")
    (folder / "confusion-step-00000060-ema.csv").write_text("7,2,1\n0,10,0\n2,0,8\n")
    page = Page(training_page(folder))
    assert "validation from 2.5 to 0.4167; validation (ema) from 2.5 to 0.4167." in page.text
    assert "top-1 of 31 pictures" in page.text
    assert "Validation pictures of step-00000060-ema" in page.text
    assert "circle 7 2 1 <b>square</b> 10 star 2 8" in page.text.partition("Confusion")[2]


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name in ("training.csv", "validation.csv"):
        head = (folder / name).read_text().splitlines()[0]
        (folder / name).write_text(f"{head}\n")
    (folder / "confusion-step-00000060.csv").unlink()
    text = Page(training_page(folder)).text
    assert "This run has logged no updates yet." in text
    assert "Confusion" not in text


def test_an_accuracy_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", epochs=6)
    head, *rows = [line.split(",") for line in (folder / "training.csv").read_text().splitlines()]
    for row in rows:
        row[head.index("accuracy")] = "nan"
    (folder / "training.csv").write_text("".join(f"{','.join(row)}\n" for row in (head, *rows)))
    text = Page(training_page(folder)).text
    assert "Last training loss 0.3333 Speed" in text
    assert "nan" not in text


@pytest.mark.parametrize(
    ("name", "text"), [("training.csv", "step,epoch,loss\n1,one,2\n"), ("confusion-step-00000060.csv", "1,2\nx,3\n")]
)
def test_damaged_tables_are_named(tmp_path: Path, name: str, text: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(RunError, match=rf"{name} is damaged"):
        training_page(folder)


def test_confusion_without_the_names_of_classes_has_numbers(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "checkpoints" / "step-00000060" / "state.json").unlink()
    assert "class 0 1 2 0 8 1 1 1 10 2 2 8" in Page(training_page(folder)).text
