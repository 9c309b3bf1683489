"""install_hint.py: hints name what was installed, extras that exist, and that hold the missing package."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import bulkinfer
import pytest
from bulkinfer.host.install_hint import EXTRAS, install_command, missing_package, unusable_package
from bulkinfer.runtime.providers import PROVIDERS

from tests.rules.source import PACKAGE, ROOT

_NAMES = {"grpc": "grpcio", "google": "protobuf", "yaml": "pyyaml"}  # of a module on the package index, where it differs
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]


def packages(extra: str) -> set[str]:
    """The packages of an extra, with those of the extras that it names."""
    found = set()
    for requirement in OPTIONAL[extra]:
        name, others = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
        found |= set().union(*map(packages, others.split(","))) if name == "bulkinfer" else {plain(name)}
    return found


def plain(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.parametrize("module", EXTRAS)
def test_an_extra_holds_the_package_that_it_is_named_for(module: str) -> None:
    for extra in [EXTRAS[module]] if EXTRAS[module] else ["train", "zoo"]:
        assert plain(_NAMES.get(module, module)) in packages(extra)


def test_extras_of_providers_hold_their_runtime() -> None:
    for provider in PROVIDERS.values():
        assert {"onnxruntime", "onnxruntime-gpu"} & packages(provider.extra)
        for backend in provider.backends:
            assert {plain(module) for module in backend.modules if module != "onnxruntime"} <= packages(backend.extra)


def test_the_base_install_decodes_sound_jpegs_once() -> None:
    """Before 11.3 Pillow cannot take what simplejpeg decodes, and each JPEG is decoded twice, to find lost pixels."""
    assert {"Pillow>=11.3", "simplejpeg>=1.8"} <= set(PROJECT["dependencies"])
    assert OPTIONAL["fast"] == []


def test_every_extra_that_the_source_names_exists() -> None:
    source = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"install_command\(['\"](\w+)['\"]", source))
    assert named == {"heic", "http", "openvino", "ray", "s3", "targz", "tensorboard", "tfrecord", "wandb", "zoo"}
    assert named <= set(OPTIONAL)
    assert "pip install 'bulkinfer" not in source
    assert "pip install bulkinfer" not in source.replace("`pip install bulkinfer` might install", "")


def test_in_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("zoo") == "pip install '.[zoo]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("zoo", "--upgrade") == f"pip install --upgrade '{ROOT}[zoo]'"


class Distribution:
    def __init__(self, recorded: str | None) -> None:
        self._recorded = recorded

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._recorded


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, recorded: str | None) -> None:
    """bulkinfer in a site-packages folder, with what pip recorded about where it came from."""
    monkeypatch.setattr(bulkinfer, "__file__", str(folder / "lib" / "site-packages" / "bulkinfer" / "__init__.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution(recorded))


def test_from_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "my wheels" / "bulkinfer-0.1.0-py3-none-any.whl"
    recorded = json.dumps({"url": wheel.as_uri(), "archive_info": {}})
    installed(monkeypatch, tmp_path, recorded)
    assert install_command("zoo") == "pip install 'PATH/OF/bulkinfer-WHEEL.whl[zoo]'"  # it is not there any more
    wheel.parent.mkdir()
    wheel.touch()
    assert install_command("zoo") == f"pip install '{wheel}[zoo]'"


def test_from_a_folder_and_from_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, tmp_path, json.dumps({"url": ROOT.as_uri(), "dir_info": {}}))
    monkeypatch.chdir(ROOT)
    assert install_command("zoo") == "pip install '.[zoo]'"
    installed(monkeypatch, tmp_path, None)
    assert install_command("zoo") == "pip install 'PATH/OF/bulkinfer-WHEEL.whl[zoo]'"


def test_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    absent = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    assert unusable_package("bulkinfer train", absent) == (
        "the package torch is needed, which is not installed: pip install '.[train]'"
    )
    assert unusable_package("get_model", absent).endswith("pip install '.[zoo]'")
    broken = ImportError("libcudart.so.13: cannot open shared object file", name="onnxruntime")
    assert unusable_package("infer_launch", broken) == (
        "the package onnxruntime is installed, but it does not load (libcudart.so.13: cannot open shared object file): "
        "pip install --force-reinstall '.[cpu]'"
    )
    assert unusable_package("infer_launch", ModuleNotFoundError("x", name="pyarrow")).endswith(": pip install .")
    for ours in (
        ModuleNotFoundError("x", name="bulkinfer.files"),
        ImportError("x"),
        ModuleNotFoundError("x", name="json.tool"),
    ):
        assert unusable_package("infer_launch", ours) == ""
        assert missing_package("infer_launch", ours) is ours
