"""One launch, from its config to its result: plan, claim, run, close."""

from __future__ import annotations

import time

from bulkinfer.config import LaunchConfig
from bulkinfer.launch.claim import claim, preview
from bulkinfer.launch.close import close
from bulkinfer.launch.plan import announce, plan_launch
from bulkinfer.launch.reporting.summary import LaunchResult, planned_result
from bulkinfer.launch.run import run

__all__ = ["LaunchResult", "launch"]


def launch(config: LaunchConfig, *, shows_progress: bool = False) -> LaunchResult:
    """Run a network over every picture of `config`, one row per picture, going on with what an earlier launch has done.

    Blocks until all is done, and logs to `logging.getLogger("bulkinfer")`. While workers run, SIGINT, SIGTERM and SIGHUP end
    the launch: what is finished is published, and the result has the exit code 130, 143 or 129; called in
    another thread than the main one, it leaves signals alone. With `dry_run` nothing is written, and the result counts what is
    there.

    Raises UsageError if the config, or what it names, is wrong, before anything is started; RunError if the job cannot be done
    or finished, LockedError if another launch owns its folders.
    """
    started = time.perf_counter()
    plan = plan_launch(config)
    announce(plan)
    if config.dry_run:
        preview(plan)
        return planned_result(plan)
    with claim(plan) as claimed:
        outcome = run(claimed, started, shows_progress=shows_progress)
        return close(claimed, outcome)
