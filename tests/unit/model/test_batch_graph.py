"""batch_graph.py, by the launch that needs a graph: made once, checked, whole, whoever else makes it at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.launch.plan import plan_launch
from bulkinfer.model.card import read_card, read_sidecar, write_card
from bulkinfer.model.graph_checks import read_golden, write_golden
from bulkinfer.model.lookup import find_model

from tests.commands import UNPRIVILEGED
from tests.logged import logged
from tests.models import write_tiny_model
from tests.networks import Convolutions, published


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = published(Convolutions(), tmp_path_factory.mktemp("models") / "net")
    write_card(folder / "card.json", replace(read_card(folder / "card.json"), labels=()))
    return folder


@pytest.fixture
def models(network: Path, tmp_path: Path) -> Path:
    shutil.copytree(network, tmp_path / "models" / "net")
    return tmp_path / "models"


def config_of(models: Path, **changes: object) -> LaunchConfig:
    return LaunchConfig(**{"model_path": str(models), "model_name": "net", "batch_size": 7, **changes})  # type: ignore[arg-type]


def test_a_missing_graph_is_made_and_checked_once(models: Path) -> None:
    said: list[str] = []
    found = logged(said, find_model, config_of(models), ["cpu"])
    assert found.graph == (models / "net" / "model_7.onnx").resolve()
    assert found.sidecar.inputs == {"images": [7, 8, 8, 3]}
    assert set(found.sidecar.parity) == set(found.card.outputs)  # it was compared with the golden outputs
    assert said == [f"model: {models}/net/model_7.onnx does not exist: it is made from model.onnx and checked, once"]
    stamp = found.graph.stat().st_mtime_ns
    assert logged(said, find_model, config_of(models), ["cpu"]) == found
    assert (len(said), found.graph.stat().st_mtime_ns) == (1, stamp)


def test_several_processes_make_it_at_once(models: Path) -> None:
    code = (
        "from bulkinfer.config import LaunchConfig; from bulkinfer.model.lookup import find_model; "
        f"print(find_model(LaunchConfig(model_path={str(models)!r}, model_name='net', batch_size=3), ['cpu']).sidecar.sha256)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate(timeout=300)[0].strip() for process in processes} == {
        read_sidecar(models / "net" / "model_3.onnx").sha256
    }
    assert not [name for name in os.listdir(models / "net") if name.startswith(("_tmp-", ".lock"))]


def test_a_graph_that_differs_from_the_network_is_not_kept(models: Path) -> None:
    golden = read_golden(models / "net" / "golden.npz")
    wrong = replace(golden, outputs={name: values + np.float32(1) for name, values in golden.outputs.items()})
    write_golden(models / "net" / "golden.npz", wrong)
    with pytest.raises(UsageError, match=r"model_7\.onnx does not exist, and making it failed \(.* differs from the source"):
        find_model(config_of(models), ["cpu"])
    assert not (models / "net" / "model_7.onnx").exists()


@pytest.mark.parametrize("name", ["model.onnx", "golden.npz", "weights"])
def test_a_damaged_network_makes_no_graph(models: Path, name: str) -> None:
    path = next((models / "net").glob(f"{name}*"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"making it failed \(.*\): "):
        find_model(config_of(models), ["cpu"])


def test_a_network_of_one_batch_size(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "models", "net")
    write_card(folder / "card.json", replace(read_card(folder / "card.json"), fixed_batch=6))
    with pytest.raises(UsageError, match=r"--batch_size 7: net runs at batch 6 only, .*: use --batch_size 6$"):
        find_model(config_of(tmp_path / "models"), ["cpu"])


def test_a_network_of_one_batch_size_without_its_graph(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "models", "net")
    write_card(folder / "card.json", replace(read_card(folder / "card.json"), fixed_batch=6))
    (folder / "model_6.onnx").unlink()
    with pytest.raises(UsageError, match=r"model_6\.onnx does not exist: run get_model ") as raised:
        find_model(config_of(tmp_path / "models", batch_size=6), ["cpu"])
    assert "use --batch_size" not in str(raised.value)


def test_a_dry_run_writes_nothing_and_knows_the_graph(models: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(models.rglob("*"))}
    said: list[str] = []
    planned = logged(said, find_model, config_of(models, dry_run=True), ["cpu"])
    assert {path: path.stat().st_mtime_ns for path in sorted(models.rglob("*"))} == before
    assert said == [f"model: {models}/net/model_7.onnx does not exist: a launch makes it from model.onnx and checks it, once"]
    made = find_model(config_of(models), ["cpu"])
    assert replace(planned, sidecar=replace(planned.sidecar, parity=made.sidecar.parity)) == made


def test_a_wrong_data_dir_is_refused_before_a_graph_is_made(models: Path, tmp_path: Path) -> None:
    config = config_of(models, data_dir=str(tmp_path / "absent"), device="cpu", precision="fp32")
    with pytest.raises(UsageError, match="absent does not exist"):
        plan_launch(config)
    assert not (models / "net" / "model_7.onnx").exists()


def test_a_folder_that_cannot_be_written_to(models: Path) -> None:
    (models / "net").chmod(0o555)
    code = (
        "from bulkinfer.config import LaunchConfig; from bulkinfer.model.lookup import find_model\n"
        f"find_model(LaunchConfig(model_path={str(models)!r}, model_name='net', batch_size=7), ['cpu'])"
    )
    done = subprocess.run([*UNPRIVILEGED, sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    (models / "net").chmod(0o755)
    sentence = f"{models}/net/model_7.onnx does not exist, and cannot be made, because {models}/net cannot be written to"
    assert f"{sentence}: use --batch_size 6" in done.stderr


def test_it_waits_for_a_get_model_at_work(models: Path) -> None:
    from bulkinfer.files.file_lock import exclusive

    with exclusive(models / "net" / ".lock", lambda: None):
        waiting = threading.Thread(target=find_model, args=(config_of(models), ["cpu"]))
        waiting.start()
        waiting.join(1.0)
        assert waiting.is_alive()
    waiting.join(300)
    assert (models / "net" / "model_7.onnx").exists()
