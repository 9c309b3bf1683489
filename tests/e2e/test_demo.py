"""tools/demo, with the packages of the environment that runs the tests: real photographs, real weights, the table's count."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.forms import long

pytestmark = long

ROOT = Path(__file__).parents[2]
SCRIPT = """#!{python}
import sys
from {module} import main
sys.exit(main())
"""
COMMANDS = {
    "get_model": "bulkinfer.commands.get_model",
    "partition_dataset": "bulkinfer.commands.partition_dataset",
    "infer_launch": "bulkinfer.commands.infer_launch",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that git knows, in a folder of their own, and beside them an environment in which they are installed."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    clone = tmp_path / "clone"
    for name in filter(None, tracked.split("\0")):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name)
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{clone / 'inference'}\n{sysconfig.get_path('purelib')}\n")
    for name, module in COMMANDS.items():
        script = venv / "bin" / name
        script.write_text(SCRIPT.format(python=venv / "bin" / "python", module=module))
        script.chmod(0o755)
    wanted = subprocess.run("cat pyproject.toml tools/constraints.txt | cksum", shell=True, cwd=clone, capture_output=True,
                            text=True, check=True).stdout.strip()  # fmt: skip
    (venv / "made-for").write_text(f"{clone} {wanted}\n")  # as tools/venv.sh leaves it: nothing is installed again
    return clone


def run_demo(clone: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    environment["BULKINFER_VENV"] = str(clone.parent / "venv")
    words = [clone / "tools" / "demo"]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600, check=False, cwd="/")
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_demo_twice(clone: Path) -> None:
    first = run_demo(clone)
    counted = re.search(r"(\d+) of (?:the )?20", first)
    assert counted is not None, first
    assert int(counted[1]) >= 18
    assert "69 ok + 0 errors" in first
    assert "installing" not in first
    assert "nothing left to do" in run_demo(clone)
