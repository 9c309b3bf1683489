"""Control files with another content, written as bulkinfer writes them: valid JSON with its checksum, whatever it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bulkinfer.files.json_file import write_json


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write the content of a control file, which may have been read as JSON from one, with its own checksum."""
    write_json(path, {name: value for name, value in content.items() if name not in ("format", "checksum")})


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the content of a control file in place, and its checksum with it."""
    content = json.loads(path.read_text())
    change(content)
    write_sealed(path, content)
