"""Control files with another content, written as bulkinfer writes them: valid JSON with its checksum, whatever it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bulkinfer.files.json_file import write_json


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write the content of a control file, which may have been read as JSON from one, with its own checksum."""
    write_json(path, {name: value for name, value in content.items() if name not in ("format", "checksum")})
