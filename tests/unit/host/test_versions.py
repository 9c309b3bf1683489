"""versions.py: the packages that are installed, and the processor."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from bulkinfer.host.versions import processor, processor_features, processor_vendor, versions


def test_versions_are_those_of_installed_packages() -> None:
    import numpy
    import PIL

    found = versions()
    assert (found["numpy"], found["Pillow"]) == (numpy.__version__, PIL.__version__)
    assert {"bulkinfer", "python", "pyarrow", "onnxruntime"} <= set(found)
    assert "onnxruntime-gpu" not in found, "a package that is not there is left out"


@pytest.mark.parametrize(
    ("text", "name", "features"),
    [
        (
            "processor\t: 0\nmodel name\t: Big 9000\nflags\t\t: fpu amx_bf16\nmodel name\t: other\n",
            "Big 9000",
            {"fpu", "amx_bf16"},
        ),
        ("processor\t: 0\nFeatures\t: fp asimd\n", platform.machine(), {"fp", "asimd"}),
        ("", platform.machine(), set()),
    ],
)
def test_the_processor(text: str, name: str, features: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    assert (processor(), processor_features()) == (name, features)


def test_c33_the_vendor_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, vendor in (("vendor_id\t: AuthenticAMD\n" * 2, "AuthenticAMD"), ("Features\t: fp\n", platform.machine())):
        monkeypatch.setattr(Path, "read_text", lambda _, text=text: text)
        assert processor_vendor() == vendor


def test_a_system_without_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert (processor(), processor_features()) == (platform.machine(), frozenset())
