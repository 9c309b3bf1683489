"""Options of the commands that show what came of a job, and what this machine can do."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import option


@dataclass(frozen=True)
class DoctorConfig:
    """Say what this machine can do, what is missing, and the command that brings it. Always ends with exit code 0."""

    model_path: str = option("models", "folder of model folders, whose disk is looked at", group="input")
    log_path: str = option("logs", "folder of job logs, whose disk is looked at")
