"""What an earlier version made stays usable: outputs, model folders, data sets and checkpoints whose files carry no checksum.

tests/data/format-1.tar.xz was made by commit f6aa8a8: ten pictures, one of them broken, partitions with copies of them, a job
over the folder in two parts, the network of the job, an adopted graph with its model folder, and the state of a checkpoint.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bulkinfer import __version__
from bulkinfer.files import json_file
from bulkinfer.files.atomic import file_sha256

from tests import training
from tests.commands import records, rows, run_here
from tests.forms import long
from tests.launches import write_photos

MADE = Path(__file__).parents[1] / "data" / "format-1.tar.xz"
WARNING = "was written by an earlier version, without a checksum"
PLACES = ("--model_path", "models", "--log_path", "logs")
NETWORK = ("--batch_size", 4, "--device", "cpu", "--precision", "fp32", "--engine", "inline", *PLACES)
LAUNCH = ("--model_name", "tiny", *NETWORK, "--data_dir", "photos", "--output", "out", "--batches_per_step", 2)
ADOPT = ("--onnx", "graph.onnx", "--name", "adopted", "--recipe", "recipe.json", "--scores", "logits", "--model_path", "models")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder in which that commit worked."""
    with tarfile.open(MADE) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture(autouse=True)
def _not_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "_has_warned", False)


def ran(home: Path, name: str, *words: object, code: int = 0) -> str:
    """What a command prints; as a process would, it warns once."""
    json_file._has_warned = False
    done = run_here(name, *words, cwd=home)
    text = str(done.stdout + done.stderr)
    assert done.returncode == code, text
    assert text.count(WARNING) == 1, text
    return text


def assert_same_rows(one: pa.Table, other: pa.Table) -> None:
    """The same keys, classes and stages; scores as near as other processors give them."""
    assert one.drop_columns(["scores"]).equals(other.drop_columns(["scores"]))
    for before, after in zip(one["scores"].to_pylist(), other["scores"].to_pylist(), strict=True):
        assert (before is None) == (after is None)
        assert before is None or np.allclose(before, after, atol=1e-6)


def test_an_output_is_verified_and_read(home: Path) -> None:
    assert "records: 10, rows: 9 ok + 1 errors (1 at decode) in 2 parts" in ran(home, "verify", "out")
    assert len(records(home / "out")) == 10


def test_a_job_is_resumed(home: Path) -> None:
    before = rows(home / "out")
    assert "nothing left to do" in ran(home, "infer_launch", *LAUNCH, code=3)
    assert_same_rows(rows(home / "out"), before)


def test_a_job_that_was_ended_early_is_completed(home: Path) -> None:
    before = rows(home / "out")
    (home / "out" / "part-00000-0000000008-0000000010.parquet").unlink()
    assert "records: 10 = 9 ok + 1 errors" in ran(home, "infer_launch", *LAUNCH, code=3)
    assert_same_rows(rows(home / "out"), before)
    json_file._has_warned = False
    done = run_here("verify", "out", cwd=home)
    assert (done.returncode, WARNING in done.stdout + done.stderr) == (0, False), "its job file has a checksum by now"


def test_a_job_is_retried(home: Path) -> None:
    write_photos(home / "photos", 10)
    ran(home, "retry", "out", "--data_dir", "photos", *PLACES)
    assert records(home / "out")["001-red.png"]["class_names"][0] == "red"
    assert "rows: 10 ok + 0 errors" in run_here("verify", "out", cwd=home).stdout


def test_done_pictures_are_skipped(home: Path) -> None:
    write_photos(home / "photos", 12)
    ran(home, "infer_launch", *LAUNCH, "--output", "more", "--skip_done", "out")
    assert sorted(records(home / "more")) == ["001-red.png", "010-lime.png", "011-blue.png"]


def test_partitions_are_read_and_made_again(home: Path) -> None:
    words = ("--model_name", "tiny", *NETWORK, "--data_dir", "datasets", "--output", "again", "--batches_per_step", 2)
    ran(home, "infer_launch", *words, code=3)
    with_checksum = run_here("partition_dataset", "--data_dir", "photos", "--output", "datasets", "--partitions", 2, cwd=home)
    assert with_checksum.returncode == 0
    assert set(records(home / "again")) == {path.name for path in (home / "photos").iterdir()}


def test_a_model_folder_is_kept_and_gets_another_batch_size(home: Path) -> None:
    card = home / "models" / "adopted" / "card.json"  # every release makes networks again, with the same answers
    card.write_text(card.read_text().replace('"bulkinfer": "0.1.0"', f'"bulkinfer": "{__version__}"'))
    files = {path.name: file_sha256(path) for path in (home / "models" / "adopted").iterdir()}
    assert "its files are as recorded" in ran(home, "get_model", *ADOPT, "--batch_size", 4)
    assert {path.name: file_sha256(path) for path in (home / "models" / "adopted").iterdir()} == files
    ran(home, "get_model", *ADOPT, "--batch_size", 2)
    assert json.loads((home / "models" / "adopted" / "model_2.json").read_text())["format"] == 2
    words = ("--model_name", "adopted", *NETWORK, "--data_dir", "photos", "--output", "adopted-rows", "--batches_per_step", 1)
    ran(home, "infer_launch", *words, code=3)


@long
def test_a_checkpoint_is_resumed_validated_and_exported(home: Path) -> None:
    """The state is that of the earlier version; its hashes are those of weights trained here, which depend on the processor."""
    straight = training.trained(home, checkpoints_per_epoch=1, keep_last=0)
    cut = training.cut_back(straight, 10)
    checkpoint = cut / "checkpoints" / "step-00000010"
    state = json.loads((home / "run" / "state.json").read_text())
    state["sha256"] = {name: file_sha256(checkpoint / name) for name in state["sha256"]}
    state["config"]["data_dir"] = str(home / "data")
    (checkpoint / "state.json").write_text(json.dumps(state))
    shutil.rmtree(cut / "checkpoints" / "step-00000005")
    shutil.copy(home / "run" / "arguments.json", cut)
    with training.one_thread():
        ran(home, "validate", cut, "--again")
        assert "adopted" not in ran(home, "get_model", "--checkpoint", cut, "--name", "trained", "--model_path", "models")
        ran(home, "train", "--resume", cut)
    training.assert_same_weights(straight, cut)
