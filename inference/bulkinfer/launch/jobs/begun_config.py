"""The options that a job began with, and a command with options as a user types it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from bulkinfer.config import LaunchConfig, RunConfig
from bulkinfer.errors import RunError
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.user_path import unused_beside
from bulkinfer.records.sources.labels import is_annotations
from bulkinfer.results.job_file import JobFile, job_path
from bulkinfer.types import shell_word


def begun_config(begun: JobFile, output: Path) -> LaunchConfig:
    """The options of infer_launch that the job in `output` began with; an option that did not exist then has its default.

    Annotations are left out: only bulkinfer run takes them, and the rows do not depend on them.
    """
    kinds, stored = get_type_hints(LaunchConfig), begun.config
    values = {option.name: stored[option.name] for option in fields(LaunchConfig) if option.name in stored}
    for name, value in values.items():
        if fault := mismatch(value, kinds[name], f"config.{name}"):
            raise RunError(f"{job_path(output)} is damaged ({fault}): run the job with --overwrite, or into another --output")
    again: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    if is_annotations(again.get("labels", "")):
        del again["labels"]
    return LaunchConfig(**again)


def command_with(config: LaunchConfig, **changes: Any) -> str:
    """The command of `config`, with options changed: only those that are not the defaults."""
    config = replace(config, dry_run=False, **changes)
    words, left_out = [config.command], set[str]()
    if isinstance(config, RunConfig) and config.data_dir and not config.data_dir.startswith("-"):
        words.append(shell_word(config.data_dir))
        left_out.add("data_dir")
    for known in fields(config):
        value = getattr(config, known.name)
        if value == known.default or known.name in left_out:
            continue
        if isinstance(value, bool):
            words.append(f"--{known.name}" if value else f"--no{known.name}")
        else:
            items = value if isinstance(value, tuple) else (value,)
            words += [f"--{known.name}", *(shell_word(str(item)) for item in items)]
    return " ".join(words)


def continuing(config: LaunchConfig) -> str:
    """The command that continues the job of `config`."""
    return command_with(config, overwrite=False)


def leaving_out(config: LaunchConfig, output: Path) -> str:
    """The command of `config` for the pictures without an ok row in `output`; where --output is given, into a new folder."""
    new = {"output": str(unused_beside(output))} if config.output else {}
    return command_with(config, overwrite=False, skip_done=(*config.skip_done, str(output)), **new)
