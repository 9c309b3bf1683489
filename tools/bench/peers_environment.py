"""The environment of the peers: a virtual environment outside of the checkout, made once and kept while it fits.

    python tools/bench/peers_environment.py

makes it beforehand, in the folder that peers.py uses.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS, CONSTRAINTS = Path(__file__).with_name("peers_requirements.txt"), ROOT / "tools" / "constraints.txt"
DEFAULT = Path("~/.cache/bulkinfer/peers-venv").expanduser()


def make(folder: Path) -> Path:
    """Install what the requirements say, if that was not done yet; returns the Python of the environment."""
    python, made_for = folder / "bin" / "python", folder / "made-for"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + CONSTRAINTS.read_bytes()).hexdigest()
    if python.exists() and made_for.exists() and made_for.read_text() == wanted:
        return python
    print(f"installing the peers into {folder}; the first time takes some minutes and 7 GB", flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    words = ["--disable-pip-version-check", "--quiet", "-r", str(REQUIREMENTS), "-c", str(CONSTRAINTS)]
    subprocess.run([str(python), "-m", "pip", "install", *words], check=True)
    made_for.write_text(wanted)
    return python


def versions(python: Path) -> dict[str, str]:
    """Versions of what the requirements name, and of Python."""
    lines = (line.partition("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines())
    names = [re.split(r"[\[=<>]", line)[0] for line in lines if line]
    code = (
        "import importlib.metadata, json, platform, sys\n"
        "found = {name: importlib.metadata.version(name) for name in sys.argv[1:]}\n"
        "print(json.dumps({'python': platform.python_version(), **found}))"
    )
    done = subprocess.run([str(python), "-c", code, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    make(DEFAULT)
