"""The page about a job: its numbers, and that names are never markup."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.json_file import write_json
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.insight.find_job import find_job
from bulkinfer.insight.options import ReportConfig
from bulkinfer.insight.report.job_page import job_page

from tests.reports import HOSTILE, Page, Row, write_job, write_logs, write_shapes

SUMMARY = {
    "images_per_s": 123.4, "running_s": 65.0, "startup_s": 3.0, "device": {"reason": "auto: the only one"},
    "plan": {"num_devices": 2, "streams": 2, "threads_per_stream": 1, "num_workers": 3},
    "stage_thread_seconds": {"decode": 30.0, "wait_for_slot": 1.0, "wait_for_batch": 20.0, "infer": 10.0},
}  # fmt: skip


def page_of(log_dir: Path, **options: object) -> str:
    return job_page(find_job(str(log_dir)), ReportConfig(**options))  # type: ignore[arg-type]


def test_numbers_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = [Row(b"%03d.png" % i, (i % 3, 3), (0.25 if i < 30 else 0.95, 0.05), label=0) for i in range(40)]
    rows += [Row(b"bad-%d.png" % i, error=("decode", f"fault {i}")) for i in range(5)]
    log_dir = write_job(tmp_path, rows, more=5)
    write_logs(log_dir, [(1010.0, 40, 10.0)], summary=SUMMARY)
    page = Page(page_of(log_dir))
    assert "Rows ok 40 of 50 pictures" in page.text
    assert "Error rows 5 10.0 % of the pictures" in page.text
    assert "Without a row 5 not done yet" in page.text
    assert "Rate 123.4 images/sec" in page.text
    assert "Running time 1 min 5 s and 3 s of start-up" in page.text
    assert "Mean best score 0.425" in page.text  # (30 x 0.25 + 10 x 0.95) / 40
    assert "decode 5 bad-0.png : fault 0 bad-1.png : fault 1 bad-2.png : fault 2 To run" in page.text
    assert f"bulkinfer retry {log_dir}/results" in page.text
    assert "preparing pictures, most of all: decode" in page.text
    assert "75.0 % below 0.5, 25.0 % of at least 0.9" in page.text
    assert "circle 14 35.0 % square 13 32.5 % triangle 13 32.5 %" in page.text  # the first synonym
    assert "Top-1 35.00 % 14 of 40 rows" in page.text
    assert "sha256 of the weights " + "cd" * 32 in page.text
    assert "2 workers, each 2 streams x 1 threads and 3 loader threads" in page.text


def test_times_that_a_summary_lacks_are_left_out(tmp_path: Path) -> None:
    log_dir = write_job(tmp_path, [Row(b"one.png")])
    for lacks, shown in (
        ({"running_s"}, "Rate 123.4 images/sec without start-up and warm-up Mean best score"),
        ({"startup_s"}, "Running time 1 min 5 s Mean best score"),
    ):
        write_logs(log_dir, [(1010.0, 1, 10.0)], summary={name: SUMMARY[name] for name in SUMMARY if name not in lacks})
        assert shown in Page(page_of(log_dir)).text


def test_names_are_text_and_nothing_is_loaded(tmp_path: Path) -> None:
    keys = write_shapes(tmp_path / "photos", 12)
    rows = [Row(key, (i % 4, (i + 1) % 4), (0.9 - i / 50, 0.05), embedding=(1.0, i / 90)) for i, key in enumerate(keys)]
    rows += [Row(key + b".jpg", error=("decode", "<b>corrupt</b> \u202e"), embedding=(0.0, 0.0)) for key in HOSTILE]
    page = Page(page_of(write_job(tmp_path, rows)))
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "iframe", "object", "embed", "form", "b", "base"}
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]
    assert all(address.startswith(("data:image/jpeg;base64,", "data:,")) for address in page.addresses())
    assert [found for tag, found in page.tags if tag == "img" and not found.get("alt")] == []
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2 * 12 + 2 * 6  # least and most sure, and six pairs
    for shown in ("<script>alert(1)</script>.png", '"><img src=x onerror=alert(2)>.png', "rtl-\\u202egnp.exe.png",
                  "line\\nbreak.png", "{{ 7*7 }}{% raw %}.png", "caf\\xe9 'quoted'.png", "<b>corrupt</b> \\u202e"):  # fmt: skip
        assert shown in page.text, shown
    assert "\u202e" not in page.text


def test_a_job_without_logs_pictures_and_rows(tmp_path: Path) -> None:
    text = Page(page_of(write_job(tmp_path, [Row(b"only.png", error=("read", "gone"))]))).text
    assert "summary.json is not there" in text
    assert "The logs of the workers hold no steps" in text
    assert "no longer" not in text
    assert "The pictures are not in" in text
    command = "to save embedding, run: infer_launch --data_dir "
    assert f"Near duplicates are found by embeddings, which this job did not save: {command}" in text
    assert re.search(r" --output shapes-\w+-2 --save topk embedding What ran ", text)


def test_pictures_that_are_gone_are_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir, warnings = write_job(tmp_path, [Row(b"%d.png" % i) for i in range(3)]), list[str]()
    monkeypatch.setattr(logging.getLogger("bulkinfer"), "warning", warnings.append)
    page_of(log_dir, data_dir=str(tmp_path / "nix"), pictures=0)
    assert not warnings, "none is wanted"
    page_of(log_dir, data_dir=str(tmp_path / "nix"))
    (tmp_path / "empty").mkdir()
    page_of(log_dir, data_dir=str(tmp_path / "empty"))
    gone, absent = warnings
    assert gone.endswith("nix does not exist: say with --data_dir where the pictures are now")
    assert re.match(r"warning: (\d+) of \1 pictures could not be read in .*empty \(file not found", absent)


def test_near_duplicates_say_how_they_were_found(tmp_path: Path) -> None:
    rows = [Row(b"%d.png" % i, embedding=(1.0, 0.001 * i) if i < 2 else (0.0, float(i))) for i in range(3)]
    text = Page(page_of(write_job(tmp_path, rows))).text
    assert "1 pair of pictures is nearly the same, among 3 of 3 rows." in text
    assert "All ok rows are compared with each other." in text
    assert "Near duplicates are found" not in text


def test_labels_give_the_accuracy_by_name(tmp_path: Path) -> None:
    rows = [Row(b"square/%d.png" % i, (1 if i < 3 else 2, 1), (0.9, 0.1)) for i in range(4)]
    log_dir = write_job(tmp_path, rows)
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(f"square/{i}.png,1\n" for i in range(4)))
    text = Page(page_of(log_dir, labels=str(tmp_path / "labels.csv"))).text
    assert "Top-1 75.00 % 3 of 4 rows" in text
    assert "1 4 3 75.00 % 2 (1)" in text


def test_labels_that_are_no_class_of_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkinfer.insight.report.job_page.classes_of", lambda *_: ClassNames(("cat", "dog")))
    log_dir = write_job(tmp_path, [Row(b"%d.png" % i, label=5) for i in range(4)])
    text = Page(page_of(log_dir)).text
    assert (
        "By the column label of the rows: none of 4 rows can be scored: the labels of 4 are no class of the network (5)" in text
    )
    with pytest.raises(UsageError, match="none of 4 rows can be scored"):
        page_of(log_dir, labels="folder")


@pytest.mark.parametrize("most", [0, 3])
def test_pictures_are_as_many_as_asked_for(tmp_path: Path, most: int) -> None:
    keys = write_shapes(tmp_path / "photos", 8)
    page = Page(page_of(write_job(tmp_path, [Row(key) for key in keys]), pictures=most))
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2 * most


def test_host_and_damaged_records(tmp_path: Path) -> None:
    log_dir = write_job(tmp_path, [Row(b"one.png")])
    write_json(log_dir / "status.json", {"host": "<i>machine</i>", "started": "2026-01-02T03:04:05Z"})
    (log_dir / "summary.json").write_text("{")
    text = Page(page_of(log_dir)).text
    assert "Host of the last launch <i>machine</i> Started 2026-01-02T03:04:05Z" in text
    assert "summary.json is damaged (not JSON" in text
