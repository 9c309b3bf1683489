"""Which class a label means."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.datasets import imagenet
from bulkinfer.insight.class_names import ClassNames, classes_of
from bulkinfer.results.job_file import JobFile

from tests.made_jobs import write_job
from tests.models import LABELS, write_tiny_model

NAMES = ("tabby, tabby cat", "crane", "tiger cat", "maillot", "maillot, tank suit", "crane", "7")


@pytest.mark.parametrize(
    ("label", "numbers"),
    [
        ("tabby, tabby cat", (0,)),
        ("tabby", (0,)),
        ("Tabby_Cat", (0,)),
        ("tabby,cat", (0,)),
        ("cat", ()),
        ("crane", (1, 5)),  # two classes have this name
        ("maillot", (3,)),  # the whole name of one class, a synonym of another
        ("tank suit", (4,)),
        ("7", (6,)),  # a name comes before a number
        ("5", (5,)),
        ("05", (5,)),
        ("8", ()),
        ("-1", ()),
        ("", ()),
        ("9" * 30, ()),
        ("n02123045", ()),  # the network is not of ImageNet
    ],
)
def test_labels(label: str, numbers: tuple[int, ...]) -> None:
    assert ClassNames(NAMES).find(label) == numbers


def test_wordnet_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tuple(f"n{number:08d}" for number in range(1000))
    monkeypatch.setattr(imagenet, "wnids", lambda: ids)
    names = ClassNames([f"name {number}" for number in range(1000)])
    assert names.find("n00000281") == (281,)
    assert names.find("n00000281_tabby") == (281,)
    assert names.find("n00001000") == ()


def test_unknown_names_leave_numbers() -> None:
    names = ClassNames((), "why")
    assert (names.find("red"), names.find("12"), names.name(12)) == ((), (12,), "")


def test_names_come_from_the_card_that_made_the_rows(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models")

    def job(folder: str, **more: object) -> JobFile:
        output = write_job(tmp_path / folder, [b"a"], [1], config={"model_path": str(tmp_path / "models")}, **more)
        found = JobFile.read(output)
        assert found is not None
        return found

    assert classes_of(job("a")).find("lime") == (LABELS.index("lime"),)
    moved = classes_of(job("b"), str(tmp_path))
    assert moved.why_unknown.endswith("tiny/card.json is not there or damaged")
    other = classes_of(job("c", names=("one", "two")))
    assert other.why_unknown.endswith("has other class names than the network of the job")
    assert other.find("lime") == ()
