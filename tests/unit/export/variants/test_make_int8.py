"""make.py, int8: which candidate is chosen, by which judges, and what refuses all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from bulkinfer.errors import RunError
from bulkinfer.export.variants import make
from bulkinfer.export.variants.evaluate import Judge
from bulkinfer.host.versions import processor_vendor

from tests.foreign_graphs import deep_graph
from tests.variants import Home, listing


@pytest.fixture
def home(tmp_path: Path, int8_photos: Path, cpu_judges: None) -> Home:
    return Home(tmp_path, int8_photos, "int8")


def test_what_int8_cannot_hold_is_refused_with_its_figures_and_nothing_is_left(home: Home) -> None:
    home.adopt(deep_graph(giant=3e4))
    before = listing(home.variant.parent)
    with pytest.raises(
        RunError, match=r"no variant was made: of 9 candidates the best, .* top-1 agrees on .* \(99% must agree\)"
    ):
        home.make()
    assert sum(line.endswith("99% must agree") for line in home.said) == 9
    assert not home.variant.exists()
    assert listing(home.variant.parent) == before


def test_every_provider_that_is_here_must_agree(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Judge.figures

    def objecting(judge: Any, model: onnx.ModelProto, provider: str, what: str, _backend: str = "") -> Any:
        found, why = figures(judge, model, "cpu", what)
        return found, "too far" if provider == "openvino" else why

    monkeypatch.setattr(make, "_other_judges", lambda: iter([("openvino", "")]))
    monkeypatch.setattr(Judge, "figures", objecting)
    home.adopt(deep_graph())
    with pytest.raises(RunError, match=r"the best, .* on openvino has top-1 agrees on 100\.0% .* \(too far\)"):
        home.make()
    assert not home.variant.exists()


@pytest.mark.usefixtures("without_openvino")
def test_c33_a_plugin_that_does_not_serve_this_processor_is_no_judge(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_JUDGES", ("cpu", "openvino"))
    home.adopt(deep_graph())
    assert list((home.make().card.calibration or {})["judged"]) == ["cpu"]
    why = f"--device openvino: its plugin does not serve this processor ({processor_vendor()}): use --device cpu"
    assert f"int8: not judged on openvino, which is not available here ({why})" in home.said


def test_a_provider_that_is_not_here_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_JUDGES", ("cpu", "openvino"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    home.adopt(deep_graph())
    assert list(home.make().card.calibration or {}) != []
    why = "--device openvino needs the package onnxruntime: pip install '.[openvino]'"
    assert f"int8: not judged on openvino, which is not available here ({why})" in home.said
