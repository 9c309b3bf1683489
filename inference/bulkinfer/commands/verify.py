"""bulkinfer verify DIR...: check results folders."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.launch.options import VerifyConfig

if TYPE_CHECKING:
    from pathlib import Path

    from bulkinfer.results.verify import Verdict


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 sound and complete, no picture ok twice in outputs of one kind; 1 not.

    Error rows are rows.
    """
    return run_command("bulkinfer verify", VerifyConfig, _run, argv, positional="output", uses_arrow=True)


def _run(config: VerifyConfig) -> int:
    from bulkinfer.errors import UsageError
    from bulkinfer.files.user_path import real_path
    from bulkinfer.results.compare_outputs import compare_outputs
    from bulkinfer.results.verify import verify

    outputs = [_output_of(word, config.log_path) for word in config.output or ("",)]
    if len({real_path(output) for output in outputs}) < len(outputs):
        raise UsageError("one results folder is given twice: name each once")
    verdicts = []
    for output in outputs:
        verdicts.append(verify(output, with_ok_rows=len(outputs) > 1))
        _print_verdict(output, verdicts[-1], _commands(output, verdicts[-1]))
    faults = [fault for verdict in verdicts for fault in verdict.faults]
    if len(outputs) > 1:
        together = compare_outputs(outputs, verdicts)
        say(f"together: {together.num_pictures} different pictures are ok in at least one of {len(outputs)} folders")
        for note in together.notes:
            say(note)
        for fault in together.faults:
            say(f"bulkinfer verify: {fault}", is_error=True)
        faults += together.faults
    return 1 if faults else 0


def _output_of(word: str, log_path: str) -> Path:
    """The results folder of a job, or the folder of its shards."""
    from bulkinfer.files.addresses import place_path
    from bulkinfer.results.control_files import control_exists
    from bulkinfer.results.job_place import place_and_output
    from bulkinfer.results.output_store import require_bucket
    from bulkinfer.results.shard import SHARDS_FILE

    folder = place_path(word)
    require_bucket(folder, "")
    return folder if word and control_exists(folder / SHARDS_FILE) else place_and_output(word, log_path)[1]


def _commands(output: Path, verdict: Verdict) -> list[str]:
    """The commands that run again what has to be; options in _job.json that cannot be read are another fault of the verdict."""
    from bulkinfer.errors import RunError
    from bulkinfer.launch.jobs.begun_config import begun_config, continuing

    try:
        return [continuing(begun_config(job, output)) for job in verdict.to_run]
    except RunError as error:
        verdict.add_faults(str(error))
        return []


def _print_verdict(output: Path, verdict: Verdict, commands: list[str]) -> None:
    errors = verdict.errors_by_stage
    stages = ", ".join(f"{count} at {stage}" for stage, count in sorted(errors.items()))
    say(f"{output}: fingerprint {verdict.job.fingerprint}")
    counts = f"{verdict.num_ok} ok + {errors.total()} errors{f' ({stages})' if stages else ''}"
    say(f"records: {verdict.job.num_records}, rows: {counts} in {len(verdict.parts)} parts")
    for note in verdict.notes:
        say(note)
    for fault in verdict.faults:
        say(f"bulkinfer verify: {fault}", is_error=True)
    for command in commands:
        say(f"to run the job again: {command}")
    if not verdict.faults:
        say("sound: every record has one row, keys and order are the manifest's, every file is as it was published")


if __name__ == "__main__":
    sys.exit(main())
