"""State dicts: what loads, what is refused in which words, and random weights."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer.errors import RunError
from bulkinfer.zoo.state_dict import load, randomise, state_sha256


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 5),
    ).eval()  # fmt: skip


def saved(state: object, tmp_path: Path) -> Path:
    torch.save(state, tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_loads_every_tensor(tmp_path: Path) -> None:
    state = {name: torch.full_like(tensor, 3) for name, tensor in network().state_dict().items()}
    filled = network()
    load(filled, saved(state, tmp_path))
    assert all(bool((tensor == 3).all()) for tensor in filled.state_dict().values())


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_names_of_a_network_trained_in_parallel_or_compiled(prefix: str, tmp_path: Path) -> None:
    filled, source = network(), network()
    randomise(source, torch.rand(2, 3, 8, 8))
    load(filled, saved({prefix + name: tensor for name, tensor in source.state_dict().items()}, tmp_path))
    assert state_sha256(filled) == state_sha256(source)


@pytest.mark.parametrize(("change", "told"), [
    (lambda state: {}, "holds no tensors"),
    (lambda state: {**state, "0.bias": state["0.bias"].long()}, r"1 tensors of another number type \(0\.bias\)"),
    (lambda state: {**state, "0.bias": state["0.bias"].to(torch.complex64)}, "of another number type"),
    (lambda state: {**state, "0.bias": state["0.bias"].to("meta")}, r"holds sparse or empty tensors \(0\.bias\)"),
    (lambda state: {**state, "5.weight": state["5.weight"].to_sparse()}, r"holds sparse or empty tensors \(5\.weight\)"),
    (lambda state: {"state_dict": state, "ema": state, "epoch": 3}, r"\(those .* may be under state_dict, ema\)"),
])  # fmt: skip
def test_states_that_would_load_as_something_else(change: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=told):
        load(network(), saved(change(network().state_dict()), tmp_path))


def test_files_without_step_counters_load(tmp_path: Path) -> None:
    state = OrderedDict((k, torch.full_like(v, 3)) for k, v in network().state_dict().items() if "num_batches" not in k)
    filled = network()
    load(filled, saved(state, tmp_path))
    assert float(filled.state_dict()["5.bias"][0]) == 3


def test_what_does_not_fit_is_counted_and_named_in_one_sentence(tmp_path: Path) -> None:
    state = dict(network().state_dict())
    del state["0.weight"], state["5.bias"]
    state["extra.weight"] = torch.zeros(1)
    state["1.bias"] = torch.zeros(9)
    with pytest.raises(RunError) as error:
        load(network(), saved(state, tmp_path))
    text = str(error.value)
    assert "2 tensors missing (0.weight, 5.bias)" in text
    assert "1 tensors unexpected (extra.weight)" in text
    assert "1 tensors of another shape (1.bias)" in text
    assert "\n" not in text


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    with pytest.raises(RunError, match="weights_only"):
        load(network(), saved({"0.weight": Bomb()}, tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": {}}, {"epoch": 3}])
def test_other_objects_are_refused(content: object, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="more than tensors by name"):
        load(network(), saved(content, tmp_path))


@pytest.mark.parametrize("content", [b"", b"\x80\x02garbage", b"PK\x03\x04garbage"])
def test_garbage_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(RunError, match=r"weights\.pth is not a torch state dict"):
        load(network(), tmp_path / "weights.pth")


def test_random_weights_repeat_and_keep_activations_alive() -> None:
    inputs = torch.rand(4, 3, 16, 16)
    deep = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.ReLU()) for _ in range(60))
    ).eval()
    randomise(deep, inputs)
    first = state_sha256(deep)
    with torch.inference_mode():
        outputs = deep(inputs)
    assert torch.isfinite(outputs).all()
    assert 0.01 < float(outputs.std()) < 100
    assert not any(module.training for module in deep.modules())
    for tensor in deep.state_dict().values():
        tensor.zero_()
    randomise(deep, inputs)
    assert state_sha256(deep) == first


def test_random_weights_reach_gains_and_embeddings_but_not_temperatures() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.full((4,), 1e-6))
            self.position = torch.nn.Parameter(torch.zeros(1, 4))
            self.temperature = torch.nn.Parameter(torch.full((1, 1), 2.3))
            self.norm = torch.nn.LayerNorm(4)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(images_NCHW.mean((2, 3)) * self.gain + self.position) * self.temperature)

    block = Block()
    randomise(block, torch.rand(2, 4, 3, 3))
    assert len(set(block.gain.tolist())) == 4
    assert 0.001 < float(block.gain.detach().abs().max()) <= 0.1
    assert len(set(block.position.flatten().tolist())) == 4
    assert (block.temperature.tolist(), block.norm.weight.tolist()) == ([[pytest.approx(2.3)]], [1.0] * 4)
    assert block.head.weight.dtype == torch.float32


def test_the_hash_of_a_state_covers_values_and_names() -> None:
    one, other = network(), network()
    assert state_sha256(one) == state_sha256(other)
    with torch.no_grad():
        other.state_dict()["5.bias"][0] += 1
    assert state_sha256(one) != state_sha256(other)
    assert state_sha256(torch.nn.ModuleDict({"a": torch.nn.Identity()})) == state_sha256(torch.nn.Identity())
