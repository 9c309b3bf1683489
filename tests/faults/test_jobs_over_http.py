"""Kills of the service and of launchers at random moments: no job is lost, none runs twice, and rows are those of a launch."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import time
from pathlib import Path

from tests.commands import rows, run_installed
from tests.forms import long
from tests.jobs_over_http import NETWORK, USERS, ask, ended, launchers, submit, wait_for_launcher, write_home
from tests.serving import Server, serving

KILLS = 30
JOBS = 10
PICTURES = 24  # six parts in each job


def submit_until_accepted(home: Path, server: Server, number: int) -> None:
    """As a client does that gets no answer: the same request again, to this service or the next one."""
    options = {"data_dir": f"{home}/photos", **NETWORK, "batches_per_step": 1, "top_k": 1 + number % 5}
    submit(server, USERS[number % 2], options, Idempotency_Key=f"job-{number}")


def kill_something(server: Server, chance: random.Random, longest_s: float) -> str:
    """Kill the service or its launcher at a moment within the time of a job; returns which."""
    kind = chance.choice(("service", "launcher"))
    if kind == "launcher":
        wait_for_launcher(server)
    time.sleep(chance.uniform(0, longest_s))
    pids = [server.process.pid] if kind == "service" else launchers(server)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
    return kind if pids else ""


@long
def test_thirty_kills_at_random_moments(tmp_path: Path) -> None:
    home, chance = write_home(tmp_path, photos=PICTURES), random.Random(18)
    began = time.monotonic()
    for top_k in range(1, 6):
        words = [f"--{name}={value}" for name, value in NETWORK.items()]
        done = run_installed("infer_launch", "photos", *words, "--top_k", top_k, "--output", f"out-{top_k}", cwd=home)
        assert done.returncode == 0, done.stderr
    longest_s = (time.monotonic() - began) / 5
    kills, said, submitted = 0, "", 0
    while kills < KILLS:
        with serving(home, "--jobs", "queue") as server:
            kind = ""
            while kind != "service" and kills < KILLS:
                with contextlib.suppress(ConnectionError, http.client.HTTPException):
                    for number in range(max(0, submitted - 2), min(JOBS, submitted + 1)):
                        submit_until_accepted(home, server, number)
                    submitted = min(JOBS, submitted + 1)
                is_over = submitted == JOBS and not waiting(server)
                assert not is_over, f"the jobs ended after {kills} kills"
                kind = kill_something(server, chance, longest_s)
                kills += bool(kind)
            if kind != "service":
                os.kill(server.process.pid, signal.SIGKILL)
            server.end()
            said += server.said
            assert "Traceback" not in server.errors
    with serving(home, "--jobs", "queue") as server:
        for number in range(JOBS):
            submit_until_accepted(home, server, number)
        check(home, server, said)
        assert server.stop() == 0


def waiting(server: Server) -> int:
    """How many jobs have not ended."""
    return sum(not job["has_ended"] for user in USERS for job in ask(server, user, "GET", "/jobs")[1]["jobs"])


def check(home: Path, server: Server, said: str) -> None:
    """Every job was done, once, with the rows of a launch that nothing has disturbed."""
    found = {user: ask(server, user, "GET", "/jobs")[1]["jobs"] for user in USERS}
    assert {user: len(jobs) for user, jobs in found.items()} == dict.fromkeys(USERS, JOBS // 2)
    for user, jobs in found.items():
        for job in jobs:
            last = ended(server, user, job["id"])
            assert (last["state"], last["exit_code"], last["reason"]) == ("done", 0, "")
            assert said.count(f"job {job['id']} of {user}: done\n") <= 1
            folder = home / "queue" / "jobs" / job["id"]
            assert rows(folder / "results").equals(rows(home / f"out-{job['options'].get('top_k', 5)}"))
            verified = run_installed("bulkinfer", "verify", folder / "results", cwd=home)
            assert verified.returncode == 0, verified.stdout
    assert len(list((home / "queue" / "jobs").iterdir())) == JOBS
