"""A job scored as scikit-learn scores the same answers, and what becomes of rows that cannot be scored."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.insight.accuracy.figures import Figures, lines
from bulkinfer.insight.accuracy.labels import open_labels
from bulkinfer.insight.accuracy.score import score
from bulkinfer.insight.accuracy.score_files import NAMES, write_files
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.results.reader import read_results
from PIL import Image
from sklearn import metrics

from tests.made_jobs import without_classes, write_job
from tests.models import LABELS

NUM = 1000
NETWORK = ClassNames(LABELS)


class Made:
    """1,000 rows of eight classes, most of them right, with all scores of each."""

    def __init__(self) -> None:
        random = np.random.default_rng(5)
        self.truth_N = random.integers(0, 7, NUM)  # no picture is of the last class
        logits_NC = random.normal(size=(NUM, 8)) * 1.5
        logits_NC[np.arange(NUM), self.truth_N] += 1.5
        odds = np.exp(logits_NC)
        self.scores_NC = (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)
        self.order_NC = np.argsort(-self.scores_NC, axis=1, kind="stable")
        self.keys = [f"{LABELS[truth]}/{n:04d}.jpg".encode() for n, truth in enumerate(self.truth_N)]

    def job(self, output: Path, top_k: int = 5) -> Path:
        ids = self.order_NC[:, :top_k]
        return write_job(output, self.keys, ids, np.take_along_axis(self.scores_NC, ids, axis=1), part_rows=137)


@pytest.fixture(scope="module")
def made() -> Made:
    return Made()


@pytest.fixture(scope="module")
def figures(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Figures:
    return scored(made.job(tmp_path_factory.mktemp("made") / "out"))


def scored(output: Path, labels: str = "folder", names: ClassNames = NETWORK) -> Figures:
    results = read_results(output)
    return score(results, open_labels(labels, results, names), names)


def test_accuracy_is_that_of_scikit_learn(made: Made, figures: Figures) -> None:
    best = made.order_NC[:, 0]
    assert figures.num_scored == NUM
    assert figures.top1 == pytest.approx(metrics.accuracy_score(made.truth_N, best))
    for k in range(1, 6):
        expected = metrics.top_k_accuracy_score(made.truth_N, made.scores_NC, k=k, labels=range(8))
        assert figures.hits[k - 1] / NUM == pytest.approx(expected)


def test_confusion_and_mean_recall_are_those_of_scikit_learn(made: Made, figures: Figures) -> None:
    best = made.order_NC[:, 0]
    expected = metrics.confusion_matrix(made.truth_N, best, labels=range(8))
    found = [[figures.confusion[number, answer] for answer in range(8)] for number in range(8)]
    assert found == expected.tolist()
    recall = metrics.recall_score(made.truth_N, best, labels=range(7), average=None)
    assert figures.mean_per_class == pytest.approx(recall.mean())
    assert [each.recall for each in figures.classes[:7]] == pytest.approx(recall.tolist())
    assert figures.classes[7].recall is None
    precision = metrics.precision_score(made.truth_N, best, labels=range(8), average=None, zero_division=0)
    assert [each.precision for each in figures.classes] == pytest.approx(precision.tolist())


def test_calibration_error_is_that_of_a_plain_loop(made: Made, figures: Figures) -> None:
    best = made.order_NC[:, 0]
    total = 0.0
    for number in range(15):
        low, high = number / 15, (number + 1) / 15
        inside = [n for n in range(NUM) if low < float(made.scores_NC[n, best[n]]) <= high]
        if inside:
            right = sum(best[n] == made.truth_N[n] for n in inside) / len(inside)
            confidence = sum(float(made.scores_NC[n, best[n]]) for n in inside) / len(inside)
            total += len(inside) / NUM * abs(right - confidence)
    assert figures.ece == pytest.approx(total)
    assert sum(rows for rows, _, _ in figures.bins) == NUM


def test_the_files_hold_all_figures(made: Made, figures: Figures, tmp_path: Path) -> None:
    write_files(figures, tmp_path, {"output": "out"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    content = json.loads((tmp_path / "score.json").read_text())
    assert content["top"]["1"] == {"right": figures.hits[0], "share": figures.top1}
    assert content["calibration"]["ece"] == figures.ece
    pairs = list(csv.DictReader((tmp_path / "confusion.csv").read_text().splitlines()))
    assert sum(int(row["count"]) for row in pairs) == NUM
    assert {(int(row["class"]), int(row["answer"])) for row in pairs} == set(figures.confusion)
    classes = list(csv.DictReader((tmp_path / "classes.csv").read_text().splitlines()))
    assert [row["name"] for row in classes] == list(LABELS)
    assert classes[7]["recall"] == ""
    with Image.open(tmp_path / "confusion.png") as picture:
        assert picture.format == "PNG"


def test_rows_that_keep_fewer_classes_have_no_top_5(made: Made, tmp_path: Path) -> None:
    found = scored(made.job(tmp_path / "out", top_k=3))
    told = list(lines(found))
    assert "top-5: not known, since the rows keep 3 of the classes (--top_k 3)" in told
    assert any(line.startswith("top-3: ") for line in told)


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    keys = [b"red/1", b"red/2", b"2.jpg", b"dog/1", b"cat/1", b"cat/2", b"lime/1", b"lime/2"]
    output = write_job(tmp_path / "out", keys, [1, 1, 1, 1, 1, 1, 3, 2], errors={1: ("decode", "no"), 4: ("read", "no")})
    found = scored(output)
    counts = (found.num_scored, found.num_errors, found.num_unlabelled, found.unmatched.total())
    assert counts == (3, 1, 1, 3)
    assert found.unmatched == {"cat": 2, "dog": 1}
    assert found.top1 == pytest.approx(2 / 3)
    assert found.top1_with_errors == pytest.approx(2 / 4)
    told = "\n".join(lines(found))
    assert "labels that are no class: cat, dog\n" in told
    assert "66.67 % (2 of 3); 50.00 % if the 1 error row counts as wrong" in told
    assert "      1         2  2 lime -> 3 blue (1)" in told


def test_several_categories_of_a_picture(tmp_path: Path) -> None:
    content = {
        "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(4)],
        "annotations": [{"image_id": i, "category_id": c} for i, c in ((0, 1), (0, 2), (1, 2), (1, 1), (2, 3), (2, 3))],
        "categories": [{"id": n, "name": name} for n, name in ((1, "red"), (2, "lime"), (3, "dog"))],
    }
    (tmp_path / "c.json").write_text(json.dumps(content))
    output = write_job(tmp_path / "out", [b"0.jpg", b"a/1.jpg", b"2.jpg", b"3.jpg"], [[2, 0], [0, 1], [1, 2], [1, 2]])
    found = scored(output, str(tmp_path / "c.json"))
    assert (found.num_scored, found.num_unlabelled, found.unmatched) == (2, 1, {"dog": 1})
    assert found.hits == (1, 2)
    assert found.num_several == 2
    assert found.mean_per_class is None


def test_what_cannot_be_scored_says_why(tmp_path: Path) -> None:
    output = write_job(tmp_path / "out", [b"dog/1", b"2.jpg"], [1, 1])
    with pytest.raises(UsageError, match="none of 2 rows can be scored: 1 have no label in the first folder of each key; the "
                                         r"labels of 1 are no class of the network \(dog\)$"):  # fmt: skip
        scored(output)
    with pytest.raises(UsageError, match=r"card\.json is not there, so that only class numbers are known: give --model_path"):
        scored(output, names=ClassNames((), "card.json is not there"))
    with pytest.raises(UsageError, match="keeps no best classes: to save topk, run: infer_launch "):
        scored(without_classes(tmp_path / "none"))


def test_folders_that_are_numbers_are_said_to_be_classes(tmp_path: Path) -> None:
    keys, ids = [b"2/a.jpg", b"02/b.jpg", b"1/c.jpg", b"x/d.jpg"], [[2, 1]] * 4
    found = scored(write_job(tmp_path / "out", keys, ids))
    assert f"labels: the first folder of each key, read as numbers of classes: 1 is {LABELS[1]}" in list(lines(found))
    found = scored(write_job(tmp_path / "named", [*keys, LABELS[1].encode() + b"/e.jpg"], [*ids, [1, 2]]))
    assert "labels: the first folder of each key" in list(lines(found))
    found = scored(tmp_path / "out", names=ClassNames(("zero", "1", "2")))
    assert "labels: the first folder of each key" in list(lines(found)), "1 and 2 are names here"


def test_scores_that_are_no_probabilities_have_no_calibration(tmp_path: Path) -> None:
    output = write_job(tmp_path / "out", [b"red/1", b"red/2"], [[1, 2], [1, 2]], [[7.5, 1], [3, 2]])
    found = scored(output)
    assert (found.top1, found.ece) == (1.0, None)
    assert "calibration: not known, since the scores of this network are no probabilities" in list(lines(found))


def test_a_score_that_is_no_number_is_left_out_of_the_calibration(tmp_path: Path) -> None:
    output = write_job(tmp_path / "out", [b"red/1", b"red/2"], [[1, 2], [1, 2]], [[np.nan, np.nan], [0.75, 0.25]])
    found = scored(output)
    assert (found.num_without_score, found.ece) == (1, pytest.approx(0.25))


def test_the_worst_classes(made: Made, figures: Figures) -> None:
    is_right_N = made.order_NC[:, 0] == made.truth_N
    recalls = {number: is_right_N[made.truth_N == number].mean() for number in range(7)}  # no picture is of the last class
    assert [each.number for each in figures.worst(3)] == sorted(recalls, key=lambda number: recalls[number])[:3]
    assert len(figures.worst(10)) == 7
