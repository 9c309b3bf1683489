"""first_weights.py: --init_checkpoint of a run of other classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.checkpoints.first_weights import load_first_weights
from bulkinfer.train.network.networks import NetworkOptions, build

from tests.training import command, trained, weights
from tests.unit.train.test_bad_pictures import class_folders, only_run, words


def test_c46_another_number_of_classes_keeps_the_trunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = trained(tmp_path)
    home = class_folders(tmp_path / "data2")
    capsys.readouterr()
    assert command(*words(home, epochs=1, lr=1e-30, init_checkpoint=first)) == 0
    told = capsys.readouterr().out
    assert "but for a new classifier (fc.weight, fc.bias): 10 classes there, 2 here" in told
    before, after = weights(first), weights(only_run(home))
    assert torch.equal(before["layer1.0.conv1.weight"], after["layer1.0.conv1.weight"])
    assert after["fc.weight"].shape == (2, 64)


def test_c46_what_is_no_classifier_must_fit(tmp_path: Path) -> None:
    first = trained(tmp_path, steps=1)
    with pytest.raises(UsageError, match=r"does not fit this network: stem\.0\.weight is 16x3x3x3 there and 16x4x3x3 here"):
        load_first_weights(build(NetworkOptions("cifar_resnet8", 10, input_channels=4)).network, first, 10)  # type: ignore[arg-type]
