"""The seam between a launch and what runs its workers."""

from __future__ import annotations

from typing import Protocol

from inference.errors import RunError


class Engine(Protocol):
    """Starts workers and gets every step published. Its constructor takes what makes the steps and who hears of events."""

    signal: int | None  # the signal that ended the run early
    replaced: list[str]  # sentences about workers that died

    def run(self) -> None:
        """Return when every step is published, or after a stop. Raises what a worker refused with."""

    def busy_workers(self) -> list[int]:
        """Workers that still have something to finish, or are about to get something."""

    def refuse(self, error: RunError) -> None:
        """Stop, publish what is finished, and end the launch with `error`."""
