"""status.json of a launch: written beside each of its locks while it runs, and once more at its end."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import replace

from bulkinfer.errors import RunError, os_error_sentence
from bulkinfer.files.addresses import AddressPath
from bulkinfer.host.process_identity import process_start_ticks
from bulkinfer.host.status import FAILED, FINISHED, STOPPED, Status
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.totals import Outcome
from bulkinfer.results.status_file import Launcher, utc_text, write_status

log = logging.getLogger("bulkinfer")


_BUCKET_S = 10.0  # between two status.json in a bucket


class StatusWriter:
    """Writes the status.json files of one launch. `started` is when the command began, by time.perf_counter()."""

    def __init__(self, launch: Launch, started: float) -> None:
        self._leases, self._has_warned = launch.leases, False
        self._bucket_due = 0.0
        log_dir = launch.leases[0].path.parent if launch.leases else launch.log_dir
        self._launcher = Launcher(
            job=log_dir.name,
            command=launch.job.command,
            host=socket.gethostname(),
            pid=os.getpid(),
            start_ticks=process_start_ticks(os.getpid()),
            started=utc_text(time.time() - (time.perf_counter() - started)),
            log_dir=str(log_dir.absolute()),
            output=None if launch.output is None else str(launch.output.absolute()),
        )

    def write(self, status: Status, exit_code: int | None = None) -> None:
        """Publish `status` beside each lock that is still held. If that fails, one warning is logged: the job goes on."""
        for lease in self._leases:
            if lease.refusal is not None:
                continue  # another launcher writes there now
            if isinstance(lease.path, AddressPath) and exit_code is None and not self._is_bucket_due():
                continue
            try:
                write_status(lease.path.parent, self._launcher, status, exit_code)
            except (OSError, RunError) as error:
                if not self._has_warned:
                    self._has_warned = True
                    what = os_error_sentence(error) if isinstance(error, OSError) else error
                    log.warning(f"warning: {what}; bulkinfer watch may show old numbers")

    def _is_bucket_due(self) -> bool:
        """True every few seconds: each object that is put has its price."""
        if is_due := time.monotonic() >= self._bucket_due:
            self._bucket_due = time.monotonic() + _BUCKET_S
        return is_due


def write_last_status(launch: Launch, outcome: Outcome, exit_code: int, *, reaches_output: bool = True) -> None:
    """Write how the job stands after the launch: its rate is that of the whole run now.

    Where the output is not reached, the status.json in its bucket stays as it is.
    """
    progress = outcome.progress or Progress(launch)  # nothing was to do
    state = FINISHED
    if outcome.refusal is not None:
        state = FAILED
    elif outcome.engine is not None and outcome.engine.signal is not None:
        state = STOPPED
    status = replace(progress.last_status(state), images_per_s=outcome.aggregate.images_per_s)
    if launch.job_file is not None:  # it has all parts by now, and after a retry those of the whole job
        rows = launch.job_file.count_rows()
        status = replace(status, done=rows.ok + rows.errors, total=launch.job.num_records, errors=rows.errors_by_stage)
    leases = tuple(lease for lease in launch.leases if reaches_output or not isinstance(lease.path, AddressPath))
    StatusWriter(replace(launch, leases=leases), outcome.aggregate.started).write(status, exit_code)
