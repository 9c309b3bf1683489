"""train/tracking/tracker.py: the rows of a run go to Weights & Biases as well, and what fails there does not end the run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.json_file import write_json

from tests.forms import long
from tests.training import checkpoints, command, config_of, cut_back, table, trained

OPTIONS: dict[str, Any] = {"steps": 10, "validation": "during", "keep_last": 0, "logs_per_epoch": 1.0}  # two epochs


class Tracker:
    """Keeps what it is given."""

    url = "https://example.org/run"
    disabled = offline = False

    def __init__(self, **given: Any) -> None:
        self.given, self.id, self.rows, self.finished = given, given["id"], [], 0

    def define_metric(self, name: str, step_metric: str) -> None:
        assert (name, step_metric) == ("*", "step")

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def finish(self) -> None:
        self.finished += 1


class Unreachable(Tracker):
    """Fails at the second row."""

    def log(self, row: dict[str, Any]) -> None:
        super().log(row)
        if len(self.rows) == 2:
            raise ConnectionError("the server is gone\nand more")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs of a stand-in for the package; its class is that of the first item, if there is one."""
    found: list[Any] = []

    def init(**given: Any) -> Any:
        found.append(found.pop()(**given) if found and isinstance(found[-1], type) else Tracker(**given))
        return found[-1]

    package = SimpleNamespace(init=init, Settings=lambda **given: given, __spec__=importlib.util.find_spec("logging"))
    monkeypatch.setitem(sys.modules, "wandb", package)
    return found


def test_options_and_rows_are_sent(tmp_path: Path, made: list[Any]) -> None:
    run = trained(tmp_path, wandb=True, wandb_tags=("a", "b"), ema=0.5, **OPTIONS)
    (tracker,) = made
    assert tracker.given["project"] == "bulkinfer"
    assert tracker.given["name"] == run.name
    assert tracker.given["tags"] == ["a", "b"]
    assert tracker.given["dir"] == str(run)
    assert tracker.given["config"]["model"] == "cifar_resnet8"
    assert tracker.finished == 1
    assert f"wandb: run {tracker.id}, https://example.org/run" in (run / "log.txt").read_text()
    by_kind: dict[str, list[Any]] = {}
    for row in tracker.rows:
        kind = next(name for name in row if "/" in name).partition("/")[0]
        by_kind.setdefault(kind, []).append([row["step"], row[f"{kind}/loss"]])
    assert by_kind.keys() == {"training", "validation", "validation-ema"}
    rows = [[int(step), float(loss)] for step, loss in table(run, "training.csv", "step", "loss")]
    assert by_kind["training"] == [[step, pytest.approx(loss, rel=1e-8)] for step, loss in rows]
    scores = table(run, "validation.csv", "weights", "step", "loss")
    for weights, kind in (("raw", "validation"), ("ema", "validation-ema")):
        rows = [[int(step), float(loss)] for which, step, loss in scores if which == weights]
        assert by_kind[kind] == [[step, pytest.approx(loss, rel=1e-8)] for step, loss in rows]


def test_a_run_that_is_continued_keeps_its_id(tmp_path: Path, made: list[Any]) -> None:
    run = trained(tmp_path, wandb=True, **OPTIONS)
    cut = cut_back(run, 5)
    assert command("--resume", cut) == 0
    assert command("--resume", run, "--steps", 15, "--nowandb") == 0
    assert [tracker.id for tracker in made] == [made[0].id] * 2
    assert made[1].given["resume"] == "allow"
    assert [row["step"] for row in made[1].rows] == [10, 10]
    other = trained(tmp_path, wandb=True, wandb_run_name="mine", **OPTIONS)
    assert other != run
    assert made[2].id != made[0].id
    assert made[2].given["name"] == "mine"


def test_a_tracker_that_fails_warns_once_and_the_run_goes_on(
    tmp_path: Path, made: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    plain = trained(tmp_path / "plain", **OPTIONS)
    made.append(Unreachable)
    run = trained(tmp_path / "tracked", wandb=True, **OPTIONS)
    (tracker,) = made
    assert (len(tracker.rows), tracker.finished) == (2, 0)
    said = f"warning: --wandb: the server is gone: the run goes on without it; wandb sync {run / 'wandb'}/*run-* sends what it "
    lines = (run / "log.txt").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines if "warning" in line] == [f"{said}has written"]
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line for line in logged if "note: " not in line] == [f"{said}has written"]
    assert checkpoints(run) == checkpoints(plain)
    assert table(run, "training.csv", "step", "loss") == table(plain, "training.csv", "step", "loss")


@pytest.mark.parametrize("failing", ["init", "Settings"])
def test_a_tracker_that_does_not_begin_warns_once(
    failing: str, tmp_path: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("no API key")

    monkeypatch.setattr(sys.modules["wandb"], failing, fail)
    run = trained(tmp_path, wandb=True, **OPTIONS)
    lines = (run / "log.txt").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines if "wandb" in line] == [
        "warning: --wandb: no API key: the run goes on without it; with WANDB_MODE=offline it keeps the rows here, to be sent "
        "later"
    ]


def test_a_file_without_an_id_ends_the_start(tmp_path: Path, made: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Rows would go to another run of wandb; nothing is locked or changed then."""
    run = trained(tmp_path, wandb=True, **OPTIONS)
    path = run / "wandb.json"
    write_json(path, {"id": ""})
    before = {each: each.read_bytes() for each in run.rglob("*") if each.is_file()}
    assert command("--resume", run, "--steps", 15) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"bulkinfer train: {path} has no id of a run: remove it, and a new one is begun"
    )
    assert {each: each.read_bytes() for each in run.rglob("*") if each.is_file()} == before
    path.unlink()
    assert command("--resume", run, "--steps", 15) == 0
    assert made[1].id != made[0].id


def test_nothing_is_imported_without_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # an import would raise ImportError
    run = trained(tmp_path, **OPTIONS)
    assert not (run / "wandb.json").exists()


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"^--wandb needs the package wandb: pip install .*\[wandb\]'?$"):
        trained(tmp_path, wandb=True, **OPTIONS)
    assert not (tmp_path / "logs").exists()


def test_its_options_belong_to_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--wandb_tags belongs to --wandb: leave it out, or give that$"):
        config_of(tmp_path, wandb_tags=("a",))


@long
def test_offline_the_file_of_the_run_has_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself, which writes to the folder of the run and sends nothing."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    import wandb

    run = trained(tmp_path, wandb=True, **OPTIONS)
    wandb.teardown()  # its process would stay until the tests end
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    (line,) = [line for line in (run / "log.txt").read_text().splitlines() if "wandb" in line]
    assert line.endswith(f"not sent; wandb sync {run / 'wandb'}/*run-* sends it")
    written = path.read_bytes()
    assert written.count(b"training/loss") >= 2
    for name in ("training.csv", "validation.csv"):
        (*_, (loss,)) = table(run, name, "loss")
        assert loss[:8].encode() in written, "the last row"
