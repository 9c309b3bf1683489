"""bench.py: from config to bench.json, with made-up measurements in place of workers; and how a signal ends it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference import bench as module
from inference import bench_runs
from inference.bench import bench, ending_on_signals
from inference.commands import bench as command
from inference.config import BenchConfig
from inference.cores import ThreadPlan
from inference.errors import RunError, UsageError
from inference.measurement import Measurement, StoppedError
from inference.messages import Ready, RunSpec
from tests.launches import write_photos
from tests.models import write_tiny_model

RATES = {"decode": 400.0, "synthetic": 200.0, "pictures": 100.0}  # by the input of a worker
PROOF = {"nodes": {"CPUExecutionProvider": 7}, "device": "CPU", "precision": "fp32", "onnxruntime": "1.99"}


def config_in(folder: Path, **changes: Any) -> BenchConfig:
    write_tiny_model(folder / "models", batch_sizes=(4,), weights=changes.pop("weights", "tiny-weights"))
    write_photos(folder / "photos", 5)
    places = {"data_dir": str(folder / "photos"), "model_path": str(folder / "models"), "log_path": str(folder / "logs")}
    return BenchConfig(
        **{"model_name": "tiny", "device": "cpu", "batch_size": 4, "rounds": 2, "seconds": 1, **places, **changes}
    )


class Workers:
    """In place of bench_runs.measure: each input has its rate; notes what was asked."""

    def __init__(self, bad: int = 0, then: Callable[[], None] = lambda: None) -> None:
        self.asked: list[tuple[str, float | None]] = []
        self._bad, self._then = bad, then

    def __call__(self, run_file: Path, plan: ThreadPlan, *, rate: float | None, **options: Any) -> tuple[Measurement, Ready]:
        spec = RunSpec.read(run_file)
        self.asked.append((spec.input, rate))
        self._then()
        found = RATES[spec.input]
        bad = self._bad if spec.input == "pictures" else 0
        stages = {"read": 0.1, "decode": 0.5, "infer": 0.8, "write": 0.01}
        return Measurement(100, bad, 100 / found, found, 1.0, stages, 0), Ready(PROOF, 0.25, 9.0, {}, 1)


def use(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> Workers:
    monkeypatch.setattr(bench_runs, "measure", workers)
    return workers


def kept(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "logs").glob("bench-tiny-*/bench.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_rounds_become_figures_and_bench_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = use(monkeypatch, Workers())
    config = config_in(tmp_path)
    assert bench(config) == 0
    lines, errors = capsys.readouterr()
    assert errors == ""
    found = kept(tmp_path)
    devices, loaders = found["plan"]["num_devices"], found["plan"]["num_workers"]
    first_guess = 100.0 * loaders
    expected = [("decode", first_guess), ("synthetic", None), ("pictures", 200.0 / devices)]
    expected += [(input, rate / devices) for input, rate in RATES.items()]
    assert workers.asked == expected
    assert "measuring: 2 round(s) of decode ceiling, inference ceiling, end to end; 1 s each" in lines
    assert "round 2: decode ceiling 400.0, inference ceiling 200.0, end to end 100.0 images/sec" in lines
    assert lines.count("worker 0: 7 nodes on CPUExecutionProvider (CPU), fp32, onnxruntime 1.99") == 1
    assert {kind: rate["median"] for kind, rate in found["images_per_s"].items()} == {
        "decode": 400.0, "inference": 200.0, "end_to_end": 100.0,
    }  # fmt: skip
    assert found["ideal_images_per_s"] == pytest.approx(found["hardware"]["usable_cores"] / 0.02)
    assert (found["num_runs"], found["load_s"], found["ran"]) == (6, 0.25, PROOF)
    assert found["pictures"] == {"source": f"pictures in {tmp_path / 'photos'}", "different": 5, "page_cache": "warm"}
    assert (found["config"]["seconds"], found["model"]["name"], found["device"]["precision"]) == (1, "tiny", "fp32")
    assert len(found["load_averages"]) == 2


def test_random_weights_and_bad_pictures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Workers(bad=25))
    assert bench(config_in(tmp_path, weights="random", rounds=1)) == 0
    told = capsys.readouterr()
    assert "weights: random; the speed is that of real ones" in told.out
    assert told.err == "bulkinfer bench: warning: 25.0 % of the pictures end as error rows and count as pictures\n"


def test_without_a_good_picture_there_is_nothing_to_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Workers(bad=100))
    with pytest.raises(RunError, match="none of the 100 pictures that were tried can be used"):
        bench(config_in(tmp_path))


def test_a_tuning_keeps_its_runs_and_the_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = use(monkeypatch, Workers(bad=1))
    assert bench(config_in(tmp_path, tune=True, precision="fp32")) == 0
    found = kept(tmp_path)["tune"]
    assert {input for input, _ in workers.asked} == {"pictures"}
    assert found["num_runs"] == len(found["runs"]) == len(workers.asked) == 3 * len(found["plans"])
    flag_file = Path(found["flag_file"])
    assert flag_file.name == "tuned.flags"
    assert "--precision=fp32" in flag_file.read_text().splitlines()
    assert capsys.readouterr().err.startswith("bulkinfer bench: warning: 1.0 % of the pictures")


def test_a_flag_file_goes_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Workers())
    assert bench(config_in(tmp_path, tune=True, write_flags=str(tmp_path / "mine.flags"))) == 0
    assert "--tuned_for=" in (tmp_path / "mine.flags").read_text()


def test_flags_that_could_not_be_written_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = use(monkeypatch, Workers())
    with pytest.raises(UsageError, match="there is no folder"):
        bench(config_in(tmp_path, tune=True, write_flags=str(tmp_path / "none" / "t.flags")))
    assert (workers.asked, (tmp_path / "logs").exists()) == ([], False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    use(monkeypatch, Workers(then=lambda: os.kill(os.getpid(), number)))
    with pytest.raises(StoppedError, match="nothing is kept") as caught:
        bench(config_in(tmp_path))
    assert caught.value.exit_code == code
    assert list((tmp_path / "logs").iterdir()) == []
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_what_an_engine_was_stopped_by_leaves_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> None:
        raise module.stopped_by(signal.SIGTERM)

    use(monkeypatch, Workers(then=stopped))
    with pytest.raises(StoppedError):
        bench(config_in(tmp_path))
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_second_signal_does_not_disturb_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = module.shutil.rmtree

    def remove(folder: Path, **options: Any) -> None:
        if folder.name.startswith("bench-"):
            os.kill(os.getpid(), signal.SIGTERM)
        plain(folder, **options)

    use(monkeypatch, Workers(then=lambda: os.kill(os.getpid(), signal.SIGINT)))
    monkeypatch.setattr(module.shutil, "rmtree", remove)
    with pytest.raises(StoppedError) as caught:
        bench(config_in(tmp_path))
    assert caught.value.exit_code == 130
    assert list((tmp_path / "logs").iterdir()) == []


def test_who_goes_on_after_an_error_does_not_go_on_after_a_signal() -> None:
    def go_on_whatever_happens() -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError) as caught, ending_on_signals():
        go_on_whatever_happens()
    assert caught.value.exit_code == 143


def test_an_ignored_signal_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_command_answers_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--model_path", str(tmp_path), "--write_flags", "t.flags"]) == 2
    assert capsys.readouterr().err == "bulkinfer bench: --write_flags belongs to --tune\n"
