"""training_input.py: what bench --data_only measures of a training's input, and its figures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.bench import training_input
from bulkinfer.bench.options import BenchConfig
from bulkinfer.bench.training_input import Part, in_json, measure, report
from bulkinfer.commands import bench
from bulkinfer.errors import PictureError, UsageError
from bulkinfer.train import setup
from bulkinfer.train.data.input_parts import BATCH, DECODE, TOGETHER, parts_of
from bulkinfer.train.loop import updates
from bulkinfer.train.network.networks import NetworkOptions
from bulkinfer.train.update.step import never
from torch import Tensor, nn

from tests.forms import long
from tests.training import one_thread
from tests.training_inputs import class_folders, of_folder, training_of


def test_the_warm_up_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that each batch moves on by 2 s, its processor time by 1 s; 8 batches warm up."""
    now = [100.0]

    def counts() -> Iterator[int]:
        try:
            while True:
                now[0] += 2.0
                yield 5
        finally:
            now.append(0.0)

    monkeypatch.setattr(training_input.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(training_input.time, "process_time", lambda: now[0] / 2)
    part = measure(counts(), 7.0)
    assert part == Part(pictures=20, seconds=8.0, cpu_s=4.0, warm_up_s=16.0)
    assert (part.images_per_s, part.cpu_s_per_picture, part.cores) == (2.5, 0.2, 0.5)
    assert len(now) == 2, "its threads have ended"


def test_figures_are_medians_with_every_measurement_behind_them() -> None:
    rounds = [
        {DECODE: Part(100, 1.0, cpu_s, 0.1), BATCH: Part(400, 1.0, 0.4, 0.1), TOGETHER: Part(count, 1.0, 1.0, 0.2)}
        for cpu_s, count in ((0.3, 70), (0.2, 90), (0.25, 80))
    ]
    lines = [" ".join(line.split()) for line in report(rounds)]
    assert lines[1] == "decode and crop 100.0 100.0 .. 100.0 2.500 0.25"
    assert lines[3] == "together 80.0 75.0 .. 85.0 12.500 1.00"
    assert lines[4] == "a training gets 80.0 images/sec at most; 71 % of the CPU time goes to: decode and crop"  # 2.5 of 3.5 ms
    kept = in_json(rounds)
    assert kept["num_runs"] == 9
    assert kept["images_per_s"][TOGETHER] == {"median": 80.0, "lower": 75.0, "upper": 85.0}
    assert [found[TOGETHER]["images_per_s"] for found in kept["rounds"]] == [70.0, 90.0, 80.0]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    home = class_folders(tmp_path / "data")
    monkeypatch.setattr(training_input, "measure", lambda counts, seconds: Part(next(counts), 1.0, 0.5, 0.25))
    words = ["--data_only", "--rounds", "2", "--model", "cifar_resnet8", "--num_workers", "1", f"--log_path={tmp_path}/logs"]
    with one_thread():
        assert bench.main([str(home), *words, "--batch_size", "6"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "data: folder: 24 pictures, 2 classes; validation: none" in shown
    assert "round 2: read 6.0, decode and crop 6.0, batch 6.0, together 6.0 images/sec" in shown
    (folder,) = (path for path in (tmp_path / "logs").iterdir() if not path.is_symlink())
    assert folder.name.startswith("bench-data-folder-")
    kept = json.loads((folder / "bench.json").read_text())
    assert {"command", "hardware", "versions", "plan", "open_s", "rounds"} <= kept.keys()
    assert kept["config"]["data_only"] is True
    with one_thread():
        assert bench.main([str(home), *words]) == 0
    assert "batches: micro batch 128 x accumulation 1 x replicas 1 = global batch 128" in capsys.readouterr().out, (
        "as in training"
    )


def test_a_picture_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    home = class_folders(tmp_path / "data")
    (home / "train" / "cat" / "3.jpg").write_bytes(b"no picture")
    config = of_folder(home, log_path=str(tmp_path / "logs"), rounds=1, seconds=1)
    with pytest.raises(PictureError, match=r"3\.jpg cannot be used .*: repair it, or leave it out with --on_bad_picture skip"):
        training_input.bench_training_input(config)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"augment": "none"}, "--augment belongs to --data_only: leave it out"),
        ({"data_only": True, "tune": True}, "--tune does not go with --data_only: leave one of them out"),
        ({"data_only": True, "decode": "fast"}, "--decode does not go with --data_only"),
    ],
)
def test_options_of_the_other_measurement_are_refused(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        BenchConfig(**words)


class _FreeNetwork(nn.Module):
    """A network that takes a pixel of each picture, so that it costs nothing."""

    def __init__(self, options: NetworkOptions) -> None:
        super().__init__()
        self.fc = nn.Linear(3, options.num_classes)

    def forward(self, images_NCHW: Tensor) -> Any:
        return self.fc(images_NCHW[:, :, 0, 0])


@long
def test_the_figure_is_that_of_a_training_whose_network_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 10 %, of processor time. In turns, the least of five each: other work on the machine makes caches cold."""
    monkeypatch.setattr(setup, "build", _FreeNetwork)
    home = class_folders(tmp_path / "data", count=40, side=300)
    training = training_of(of_folder(home, image_size=224, batch_size=32))

    def trained() -> float:
        steps = updates(training, never)
        for _ in range(8):
            next(steps)
        begin, pictures = time.process_time(), 0
        for outcome, _, _ in islice(steps, 8):
            pictures += outcome.count
        spent = time.process_time() - begin
        steps.close()  # type: ignore[attr-defined]
        return spent / pictures

    with one_thread():
        training.model.network.train()
        pairs = [(measure(parts_of(training)[TOGETHER](), 1.0).cpu_s_per_picture, trained()) for _ in range(5)]
    ratio = min(alone for alone, _ in pairs) / min(whole for _, whole in pairs)
    assert 0.9 <= ratio <= 1.1, pairs
