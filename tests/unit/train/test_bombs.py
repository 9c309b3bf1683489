"""Files in a run that wait for ever, never end, or claim more than there is: named at once, an older checkpoint is taken."""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bulkinfer.commands import get_model, validate
from bulkinfer.errors import RunError
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.zoo import state_dict
from torch import nn

from tests.forms import long, only_first
from tests.training import command, one_thread, trained

MOST_S = 60.0  # a terabyte takes minutes, and a pipe or a device for ever; a machine may be busy
HEADER = json.dumps({"x": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def claims(path: Path) -> None:
    """A header of safetensors with a tensor of a terabyte, and no tensor."""
    path.write_bytes(struct.pack("<Q", len(HEADER)) + HEADER)


def sparse_tensors(path: Path) -> None:
    """The same with a terabyte of holes behind it, which fits the header."""
    claims(path)
    os.truncate(path, 8 + len(HEADER) + (1 << 40))


BOMBS = (pipe, device, sparse, claims, sparse_tensors)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of its updates 1 to 3."""
    return trained(tmp_path_factory.mktemp("run"), checkpoints_per_epoch=5, keep_last=0, steps=3)


@pytest.mark.parametrize("name", ["state.json", "weights.safetensors", "optimiser.safetensors"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_c48_a_bomb_in_a_checkpoint(
    bomb: Callable[[Path], None], name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "checkpoints" / "step-00000003" / name
    path.unlink()
    bomb(path)
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert checkpoint.find(copy).step == 2
    with pytest.raises(RunError, match=str(path)):
        checkpoint.read(path.parent)
    assert time.monotonic() - start < MOST_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"


@long
def test_c48_commands_name_the_bomb(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "checkpoints" / "step-00000003" / "weights.safetensors"
    path.unlink()
    sparse_tensors(path)
    capsys.readouterr()
    with one_thread():
        assert validate.main([str(copy)]) == 1
    told = capsys.readouterr()
    assert f"{path} is damaged (it has 1,099,511,627" in told.err
    assert "step-00000002: top-1 " in told.out
    assert command("--resume", copy) == 0


@pytest.mark.parametrize("bomb", only_first(BOMBS))
@pytest.mark.parametrize("name", ["training.csv", "validation.csv", "log.txt", "_lock.json"])
def test_c48_a_bomb_beside_the_checkpoints(
    name: str, bomb: Callable[[Path], None], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    if name == "log.txt" and bomb not in (pipe, device):
        bomb = pipe  # it is only written to
    (copy / name).unlink(missing_ok=True)
    bomb(copy / name)
    start = time.monotonic()
    assert command("--resume", copy, "--steps", 4) in (1, 2)
    assert f"{copy / name} " in capsys.readouterr().err
    assert time.monotonic() - start < MOST_S


@pytest.mark.parametrize("bomb", BOMBS)
def test_c48_a_bomb_as_weights(bomb: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pth"
    bomb(path)
    start = time.monotonic()
    words = ["--model_name", "efficientnet_lite0", "--weights", str(path), "--model_path", str(tmp_path / "models")]
    assert get_model.main(words) in (1, 2)
    assert str(path) in capsys.readouterr().err
    assert time.monotonic() - start < MOST_S


def test_c48_compressed_tensors_are_refused(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.pth", tmp_path / "packed.pth"
    torch.save(nn.Linear(300, 300).state_dict(), plain)
    assert set(state_dict.read(plain)) == {"weight", "bias"}
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
    with pytest.raises(RunError, match="has compressed members, which torch does not write"):
        state_dict.read(packed)
