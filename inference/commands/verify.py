"""bulkinfer verify DIR: check an output directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from inference.commands.flags import run_command
from inference.config import VerifyConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 sound and complete (error rows are rows), 1 not."""
    return run_command("bulkinfer verify", VerifyConfig, _run, argv, positional="output")


def _run(config: VerifyConfig) -> int:
    from pathlib import Path

    from inference.errors import UsageError
    from inference.verify import verify

    if not config.output:
        raise UsageError("no output directory given, as in: bulkinfer verify logs/latest/results")
    output = Path(config.output)
    verdict = verify(output)
    errors = verdict.errors_by_stage
    stages = ", ".join(f"{count} at {stage}" for stage, count in sorted(errors.items()))
    print(f"{output}: fingerprint {verdict.job['fingerprint']}")
    told = f"{verdict.num_ok} ok + {errors.total()} errors{f' ({stages})' if stages else ''}"
    print(f"records: {verdict.job['num_records']}, rows: {told} in {len(verdict.parts)} parts")
    for fault in verdict.faults:
        print(f"bulkinfer verify: {fault}", file=sys.stderr)
    if not verdict.faults:
        print("sound: every record has one row, keys and order are the manifest's, every file is as it was published")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
