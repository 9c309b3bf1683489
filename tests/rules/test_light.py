"""--help is fast because it loads nothing heavy; other tests check its text."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bulkinfer.__main__ import COMMANDS

HEAVY = {"numpy", "pyarrow", "PIL", "onnxruntime", "onnx", "torch", "timm", "rich"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_loads_nothing_heavy(name: str) -> None:
    code = f"""
import sys
from bulkinfer.__main__ import main
assert main([{name!r}, "--help"]) == 0
print("loaded:", *{HEAVY} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].strip() == "loaded:"
