"""bench.py from config to bench.json with made-up measurements, and what signals leave of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.bench import bench as bench_module
from bulkinfer.bench.bench import bench, ending_on_signals
from bulkinfer.bench.measurement import Measurement, StoppedError, ignore_stop_signals
from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.runs import Bench
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import write_owner_file
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.worker.protocol import Ready

from tests.forms import long
from tests.launches import config_of
from tests.sealed import write_sealed
from tests.temporaries import temporary_name

RATES = {"decode": 400.0, "inference": 200.0, "end_to_end": 100.0}
READY = Ready(
    {"nodes": {"CPUExecutionProvider": 7}, "device": "CPU", "precision": "fp32", "onnxruntime": "1"}, 0.25, 5.0, {}, 1
)


def config(folder: Path, **changes: Any) -> BenchConfig:
    """A bench on a tiny network and 10 pictures in `folder`."""
    launch = config_of(folder)
    shared = {field.name for field in fields(BenchConfig)} & {field.name for field in fields(launch)}
    return BenchConfig(**{**{name: getattr(launch, name) for name in shared}, "precision": "fp32", "rounds": 2, **changes})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float | None]]:
    """Measurements that take no time; notes each with the rate that was expected."""
    notes: list[tuple[str, float | None]] = []

    def run(place: Bench, kind: str, plan: ThreadPlan, rate: float | None, name: str = "") -> tuple[Measurement, Ready]:
        notes.append((kind, rate))
        stages = dict.fromkeys(("decode", "infer", "write"), 0.5)
        return Measurement(100, 25, 1.0, RATES[kind], 1.0, stages, 0), READY

    monkeypatch.setattr(Bench, "run", run)
    return notes


def kept(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "logs").glob("bench-tiny-*/bench.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_rounds_alternate_and_each_expects_what_the_last_one_found(tmp_path: Path, asked: list[Any]) -> None:
    assert bench(config(tmp_path, num_workers=3, streams=1)) == 0
    first = [("decode", 300.0), ("inference", None), ("end_to_end", 200.0)]
    assert asked == [*first, *RATES.items()]


def test_what_is_kept(tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(config(tmp_path)) == 0
    found = kept(tmp_path)
    assert {kind: found["images_per_s"][kind]["median"] for kind in RATES} == RATES
    assert (found["num_runs"], len(found["rounds"])) == (6, 2)
    assert found["rounds"][0]["decode"]["cpu_s_per_picture"] == 0.01
    assert (found["ran"], found["load_s"]) == (READY.proof, 0.25)
    assert found["cpu_s_over_parts"] == 0.5
    assert found["config"]["rounds"] == 2
    assert found["hardware"]["usable_cores"] == len(os.sched_getaffinity(0))
    captured = capsys.readouterr()
    assert "round 2: decode ceiling 400.0, inference ceiling 200.0, end to end 100.0 images/sec" in captured.out
    assert captured.err == "warning: 25.0 % of the pictures end as error rows and count as pictures\n"


@long
def test_random_weights_are_told(tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    settings = config(tmp_path)
    path = tmp_path / "models" / "tiny" / "card.json"
    card = json.loads(path.read_text())
    card["weights"]["source"] = "random"
    write_sealed(path, card)
    assert bench(settings) == 0
    assert "weights: random; the speed is that of real ones" in capsys.readouterr().out


def test_tuning_writes_the_flag_file_beside_bench_json(tmp_path: Path, asked: list[Any]) -> None:
    assert bench(config(tmp_path, tune=True)) == 0
    found = kept(tmp_path)["tune"]
    lines = Path(found["flag_file"]).read_text().splitlines()
    assert Path(found["flag_file"]).parent.parent == tmp_path / "logs"
    assert f"--streams={found['plans'][found['winner']]['streams']}" in lines
    assert any(line.startswith("# winner: ") for line in lines)


def test_tuning_writes_where_it_is_told_to(tmp_path: Path, asked: list[Any]) -> None:
    assert bench(config(tmp_path, tune=True, write_flags=str(tmp_path / "t.flags"))) == 0
    assert kept(tmp_path)["tune"]["flag_file"] == str(tmp_path / "t.flags")
    assert (tmp_path / "t.flags").is_file()


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_measured(tmp_path: Path, asked: list[Any]) -> None:
    with pytest.raises(UsageError, match="--write_flags"):
        bench(config(tmp_path, tune=True, write_flags=str(tmp_path / "nowhere" / "t.flags")))
    assert not asked
    assert not (tmp_path / "logs").exists()


@long
def test_what_a_killed_bench_left_is_removed_and_what_ended_stays(
    tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, file in (("bench-tiny-killed", "x"), ("bench-tiny-done", "bench.json")):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / file).touch()
        write_owner_file(tmp_path / "logs" / name).rename(tmp_path / "logs" / name / temporary_name("00aa"))
    assert bench(config(tmp_path)) == 0
    left = tmp_path / "logs" / "bench-tiny-killed"
    assert f"removed {left}, which a bench that was killed left behind" in capsys.readouterr().out.splitlines()
    assert not left.exists()
    assert (tmp_path / "logs" / "bench-tiny-done").is_dir()
    (ours,) = (tmp_path / "logs").glob("bench-tiny-2*")
    assert not list(ours.glob("_tmp-*"))


def test_a_bench_that_fails_keeps_its_logs_and_is_no_longer_marked(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[int] = []

    def fail(place: Bench, *_: Any, **__: Any) -> Any:
        marked.append(len(list(place.log_dir.glob("_tmp-*"))))
        raise RunError("no worker starts")

    monkeypatch.setattr(Bench, "run", fail)
    with pytest.raises(RunError):
        bench(config(tmp_path))
    (ours,) = (tmp_path / "logs").glob("bench-tiny-*")
    assert (marked, list(ours.glob("_tmp-*"))) == ([1], [])


def signalling(call: Callable[..., Any], *numbers: signal.Signals) -> Callable[..., Any]:
    """`call` with signals before it."""

    def wrapped(*words: Any, **options: Any) -> Any:
        for number in numbers:
            signal.raise_signal(number)
        return call(*words, **options)

    return wrapped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["open_job", "repeated", "tune"])
def test_a_signal_takes_everything_away(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch, moment: str, number: signal.Signals
) -> None:
    settings = config(tmp_path, tune=True, write_flags=str(tmp_path / "t.flags"))
    before = [signal.getsignal(each) for each in STOP_SIGNALS]
    monkeypatch.setattr(bench_module, moment, signalling(getattr(bench_module, moment), number))
    monkeypatch.setattr(shutil, "rmtree", signalling(shutil.rmtree, number))  # a second one, on the way out
    with pytest.raises(StoppedError) as stopped:
        bench(settings)
    assert stopped.value.exit_code == 128 + number
    assert not (tmp_path / "t.flags").exists()
    assert not list((tmp_path / "logs").glob("*"))
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before


def test_a_signal_after_the_last_measurement_changes_nothing(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("write_json", "write_flag_file"):
        monkeypatch.setattr(bench_module, name, signalling(getattr(bench_module, name), signal.SIGTERM, signal.SIGINT))
    assert bench(config(tmp_path, tune=True)) == 0
    assert Path(kept(tmp_path)["tune"]["flag_file"]).is_file()


def test_a_signal_that_was_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            signal.raise_signal(signal.SIGHUP)
            ignore_stop_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_who_goes_on_after_an_error_does_not_go_on_after_a_signal() -> None:
    def go_on() -> str:
        try:
            signal.raise_signal(signal.SIGTERM)
        except (OSError, RuntimeError, ValueError, StoppedError):
            return "it went on"
        return "nothing came"

    with pytest.raises(StoppedError) as stopped, ending_on_signals():
        pytest.fail(go_on())
    assert stopped.value.exit_code == 143
