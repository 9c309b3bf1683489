"""device_trial.py: candidates are measured by processes of their own, once, and a failing one fails alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.host.isolated_call import NoAnswer
from bulkinfer.launch.auto import device_trial as probe
from bulkinfer.launch.auto.device_trial import KEPT_FILE, Trial, measure
from bulkinfer.runtime.providers import SessionSpec

from tests.commands import children, wait_until_gone
from tests.graphs import save
from tests.models import tiny_graph
from tests.sealed import write_sealed

SHA256 = "ab" * 32


@pytest.fixture
def graph(tmp_path: Path) -> str:
    return save(tiny_graph(4), tmp_path)


def candidate(graph: str, provider: str = "cpu") -> Trial:
    return Trial(SessionSpec(graph, provider, "fp32", 1, 1), ["the processor"], ["logits"], [0])


@pytest.mark.usefixtures("openvino")
def test_rates_of_real_sessions(graph: str, tmp_path: Path) -> None:
    kept = tmp_path / KEPT_FILE
    rates = measure([candidate(graph), candidate(graph, "openvino")], SHA256, kept)
    assert list(rates) == ["cpu", "openvino"]
    assert all(isinstance(rate, float) and rate > 0 for rate in rates.values())
    (entry,) = json.loads(kept.read_text())["measured"]
    assert entry["images_per_s"] == rates
    assert entry["versions"]["onnxruntime"]


def test_a_graph_that_does_not_run_is_a_sentence_and_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no graph")
    told = measure([candidate(str(tmp_path / "m.onnx"))], SHA256, tmp_path / KEPT_FILE)["cpu"]
    assert str(told).startswith(f"--device cpu cannot run {tmp_path / 'm.onnx'}: ")
    assert not (tmp_path / KEPT_FILE).exists()


@pytest.mark.usefixtures("without_openvino")
def test_c33_that_a_provider_does_not_run_is_kept_with_the_rates_of_the_others(
    graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, both = tmp_path / KEPT_FILE, [candidate(graph), candidate(graph, "openvino")]
    measured = measure(both, SHA256, kept)
    assert isinstance(measured["cpu"], float)
    assert str(measured["openvino"]).startswith("--device openvino: its plugin does not serve this processor (")
    monkeypatch.setattr(probe, "_measure_apart", lambda trial: 1 / 0)
    again = f"{measured['openvino']}; kept in {kept}, remove it to measure again"
    assert measure(both, SHA256, kept) == {"cpu": measured["cpu"], "openvino": again}
    assert measure(both, SHA256, kept, only_kept=True)["openvino"] == again


@pytest.mark.parametrize("failing", [("cuda",), ("cpu", "openvino", "cuda")], ids=["a GPU", "all"])
def test_what_may_be_repaired_tomorrow_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: tuple[str, ...]
) -> None:
    def measured(trial: Trial) -> float | str:
        return "a library is missing" if trial.session.provider in failing else 10.0

    monkeypatch.setattr(probe, "_measure_apart", measured)
    trials = [candidate("a.onnx", name) for name in ("cuda", "cpu", "openvino")]
    assert measure(trials, SHA256, tmp_path / KEPT_FILE)["cuda"] == "a library is missing"
    assert not (tmp_path / KEPT_FILE).exists()


def test_that_a_child_gave_no_answer_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed, or too slow: it may answer on another day."""
    monkeypatch.setattr(
        probe, "_measure_apart", lambda trial: NoAnswer("it took too long") if trial.session.provider == "openvino" else 10.0
    )
    trials = [candidate("a.onnx", name) for name in ("cpu", "openvino")]
    assert measure(trials, SHA256, tmp_path / KEPT_FILE) == {"cpu": 10.0, "openvino": "it took too long"}
    assert not (tmp_path / KEPT_FILE).exists()


@pytest.mark.parametrize("failures", [["openvino"], {"openvino": 1}, {"cpu": "no", "openvino": "no"}, {"another": "no"}])
def test_failures_that_are_damaged_are_measured_again(counting: Counting, tmp_path: Path, failures: Any) -> None:
    kept, both = tmp_path / KEPT_FILE, [candidate("a.onnx"), candidate("a.onnx", "openvino")]
    measure(both, SHA256, kept)
    note = json.loads(kept.read_text())
    note["measured"][0] |= {"images_per_s": {"cpu": 5.0}, "does_not_run": failures}
    write_sealed(kept, note)
    assert measure(both, SHA256, kept) == {"cpu": 30.0, "openvino": 40.0}


class Counting:
    """Stands in for the child processes; counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, trial: Trial) -> float:
        self.asked.append(trial.session.provider)
        return 10.0 * len(self.asked)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setattr(probe, "_measure_apart", counting)
    return counting


def test_what_was_measured_is_kept_as_long_as_nothing_changes(counting: Counting, tmp_path: Path) -> None:
    kept = tmp_path / KEPT_FILE
    both = [candidate("a.onnx"), candidate("a.onnx", "openvino")]
    first = measure(both, SHA256, kept)
    assert first == {"cpu": 10.0, "openvino": 20.0}
    moved = [candidate("elsewhere/a.onnx"), candidate("elsewhere/a.onnx", "openvino")]
    assert measure(moved, SHA256, kept) == first
    assert counting.asked == ["cpu", "openvino"]
    for others, sha256 in (
        (both, "cd" * 32),
        (both[:1], SHA256),
        ([replace(one, cores=[0, 1]) for one in both], SHA256),
        ([replace(one, devices=["another"]) for one in both], SHA256),
        ([replace(one, session=replace(one.session, streams=2)) for one in both], SHA256),
    ):
        before = len(counting.asked)
        measure(others, sha256, kept)
        assert len(counting.asked) > before
    assert measure(both, SHA256, kept) == first, "the older ones are still there"


def test_a_dry_run_takes_what_is_kept_and_measures_nothing(counting: Counting, tmp_path: Path) -> None:
    kept = tmp_path / KEPT_FILE
    assert measure([candidate("a.onnx")], SHA256, kept, only_kept=True) == {}
    assert (counting.asked, kept.exists()) == ([], False)
    first = measure([candidate("a.onnx")], SHA256, kept)
    assert measure([candidate("a.onnx")], SHA256, kept, only_kept=True) == first


def test_another_processor_or_version_measures_again(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / KEPT_FILE
    for name, value in (("processor", "Some Processor"), ("versions", {"onnxruntime": "9"})):
        measure([candidate("a.onnx")], SHA256, kept)
        before = len(counting.asked)
        monkeypatch.setattr(probe, name, lambda value=value: value)
        measure([candidate("a.onnx")], SHA256, kept)
        assert len(counting.asked) == before + 1


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"format": 1}', '{"format": 1, "measured": {"a": 1}}', '{"format": 99}', "{" + " " * (1 << 20) + "}",
    '{"format": 1, "measured": [{"images_per_s": {"cpu": -1}, "trials": [1]}]}',
])  # fmt: skip
def test_a_note_that_is_damaged_is_written_anew(counting: Counting, tmp_path: Path, text: str) -> None:
    kept = tmp_path / KEPT_FILE
    kept.write_text(text)
    for _ in range(2):
        assert measure([candidate("a.onnx")], SHA256, kept) == {"cpu": 10.0}
    assert counting.asked == ["cpu"]


def test_a_folder_that_cannot_be_written_is_told(
    counting: Counting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "missing" / KEPT_FILE
    assert measure([candidate("a.onnx")], SHA256, kept) == {"cpu": 10.0}
    assert f"{kept} is not written (No such file or directory): the next launch measures again" in capsys.readouterr().err


@pytest.mark.parametrize("rates", [{}, {"another": 5.0}, {"cpu": 5.0, "another": 5.0}, {"cpu": 0}, {"cpu": "fast"}])
def test_rates_of_other_providers_or_none_are_measured_again(counting: Counting, tmp_path: Path, rates: dict[str, Any]) -> None:
    """The facts of the note fit, its figures do not."""
    kept = tmp_path / KEPT_FILE
    measure([candidate("a.onnx")], SHA256, kept)
    note = json.loads(kept.read_text())
    note["measured"][0]["images_per_s"] = rates
    write_sealed(kept, note)
    assert measure([candidate("a.onnx")], SHA256, kept) == {"cpu": 20.0}


def test_a_folder_in_the_place_of_the_note(counting: Counting, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / KEPT_FILE).mkdir()
    assert measure([candidate("a.onnx")], SHA256, tmp_path / KEPT_FILE) == {"cpu": 10.0}
    assert "is not written (Is a directory)" in capsys.readouterr().err


def test_the_note_does_not_grow_for_ever(counting: Counting, tmp_path: Path) -> None:
    kept = tmp_path / KEPT_FILE
    for number in range(60):
        measure([candidate("a.onnx")], f"{number:064d}", kept)
    assert len(json.loads(kept.read_text())["measured"]) == 50


def test_a_probe_ends_with_the_launcher(graph: str, tmp_path: Path) -> None:
    """Killed while it measures: nobody is left, and no file."""
    code = (
        "from pathlib import Path; from bulkinfer.launch.auto import device_trial as probe; "
        "from bulkinfer.runtime.providers import SessionSpec\n"
        f"trial = probe.Trial(SessionSpec({graph!r}, 'cpu', 'fp32', 1, 1), ['x'], ['logits'], [0])\n"
        "print('ready', flush=True)\n"
        "probe.measure([trial], 'ab' * 32, Path('nowhere'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 60
        while not (child := children(launcher.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        launcher.kill()
        launcher.wait()
    wait_until_gone(child)
