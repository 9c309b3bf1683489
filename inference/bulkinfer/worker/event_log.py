"""The event log of a worker: JSON lines beside its text log."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any


class EventLog:
    """Appends one JSON object a line, each with the time. A line is handed to the system before the call returns."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("a", buffering=1)

    def write(self, event: Any) -> None:
        """Append one event: a frozen dataclass, its class as the kind."""
        self.note(type(event).__name__, **asdict(event))

    def note(self, kind: str, **facts: Any) -> None:
        """Append a line of any kind. Raises OSError that names the file."""
        try:
            self._file.write(json.dumps({"time": round(time.time(), 3), "kind": kind, **facts}) + "\n")
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()
