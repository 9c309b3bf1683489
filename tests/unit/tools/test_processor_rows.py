"""tools/bench/processor_rows.py, and the page that it has made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.bench.processor_rows import PAGE, ROWS, Way, page, rows, together, ways


def bench_json(alone: float, whole: float, share: float) -> dict[str, Any]:
    """What bulkinfer bench writes, as far as it is read."""
    rates = {"inference": {"median": alone}, "end_to_end": {"median": whole}}
    return {
        "images_per_s": rates,
        "share_of_ideal": share,
        "hardware": {"processor": "Some Processor", "usable_cores": 2},
        "time": "2026-01-01T00:00:00Z",
        "device": {"provider": "openvino"},
        "versions": {"python": "3.11.7"},
    }


def test_ways_of_a_processor(tmp_path: Path) -> None:
    assert [way.key for way in ways("net", tmp_path, frozenset())] == ["cpu fp32", "openvino fp32"]
    assert ways("net", tmp_path, frozenset({"amx_bf16"}))[2:] == [Way("net", "openvino", "bf16")]
    (tmp_path / "net" / "int8").mkdir(parents=True)
    assert [way.key for way in ways("net", tmp_path, frozenset())[2:]] == ["cpu int8", "openvino int8"]


def test_a_row_has_medians_and_ratios_of_rounds() -> None:
    todo = [Way("net", "cpu", "fp32"), Way("net", "openvino", "fp32"), Way("net", "cpu", "int8")]
    found = {
        "cpu fp32": [bench_json(8, 7, 0.9), bench_json(8, 7, 0.9), bench_json(8, 7, 0.9)],
        "openvino fp32": [bench_json(10, 9, 0.9), bench_json(20, 18, 0.9), bench_json(10, 9, 0.9)],
        "cpu int8": [bench_json(30, 20, 0.8), bench_json(40, 20, 0.9), bench_json(50, 20, 0.7)],
    }
    slow, fast, int8 = rows(todo, found, 16)
    assert fast["times_fp32"]["median"] == 1  # openvino is the faster one in fp32: all are compared with it
    assert slow["times_fp32"]["median"] == 0.8
    assert int8["times_fp32"]["median"] == 3  # of 3, 2 and 5
    assert (int8["alone"]["median"], int8["share_of_ideal"]["median"]) == (40, 0.8)
    assert (int8["network"], int8["rounds"], int8["cores"]) == ("net", 3, 2)
    assert "| net, 16 | cpu | int8 | 40.0 (35.0 - 45.0) | 20.0 (20.0 - 20.0) | 80 % | 3.00 | 3 |" in page([slow, fast, int8])


def test_rows_of_others_stay() -> None:
    todo = [Way("net", "cpu", "fp32")]
    (old,) = rows(todo, {"cpu fp32": [bench_json(1, 1, 1)]}, 16)
    (new,) = rows(todo, {"cpu fp32": [bench_json(2, 2, 1)]}, 16)
    other = {**old, "processor": "Another"}
    assert together([old, other], [new]) == [other, new] or together([old, other], [new]) == [new, other]


def test_the_page_is_that_of_its_rows() -> None:
    """Nobody types a figure: the page is what the file gives, and the file is what the script has written."""
    assert PAGE.read_text() == page(json.loads(ROWS.read_text()))
