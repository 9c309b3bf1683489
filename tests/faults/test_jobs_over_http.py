"""Kills of the service and of launchers at random moments: no job is lost, none runs twice, and rows are those of a launch."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.commands import rows, run_installed
from tests.forms import long
from tests.jobs_over_http import NETWORK, USERS, ask, ended, launchers, submit, wait_for_launcher, write_home
from tests.serving import TIMEOUT_S, Server, serving

KILLS = 30
PICTURES = 24  # six parts in each job
LARGEST_TOP_K = 4
MOST_IN_A_ROW = 6  # of kills without a further row; the service takes ten for a fault of the job
GONE = (ConnectionError, http.client.HTTPException)  # the service was killed before it had answered


class Kills:
    """Kills one service after another, and their launchers. `submitted` jobs have been accepted; the next one may have been."""

    def __init__(self, home: Path, longest_s: float) -> None:
        self.home, self._longest_s, self._chance = home, longest_s, random.Random(18)
        self.submitted = self.kills = 0
        self._parts = self._in_a_row = 0
        self.said = ""

    def submit(self, server: Server, number: int) -> None:
        """As a client does that may have got no answer before: the same request again."""
        options = {"data_dir": f"{self.home}/photos", **NETWORK, "batches_per_step": 1, "top_k": 1 + number % LARGEST_TOP_K}
        assert submit(server, USERS[number % 2], options, Idempotency_Key=f"job-{number}")[0] in (200, 201)

    def in_one_service(self) -> None:
        """Kill launchers, and at last the service, perhaps while a job is being submitted."""
        with serving(self.home, "--jobs", "queue") as server:
            self._keep_busy(server)
            while self._chance.random() < 0.5 and self.kills < KILLS - 1:
                self._keep_busy(server)
                wait_for_launcher(server)
                self._let_it_come_on()
                self._wait()
                for launcher in launchers(server):  # it may have just ended
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(launcher, signal.SIGKILL)
                        self.kills += 1
            with ThreadPoolExecutor(1) as thread:
                sent = thread.submit(self.submit, server, self.submitted)
                self._wait()
                server.process.kill()
                self.kills += 1
                with contextlib.suppress(*GONE):
                    sent.result()
                    self.submitted += 1
            server.end()
            self.said += server.said
            assert "Traceback" not in server.errors

    def _keep_busy(self, server: Server) -> None:
        """Two jobs wait or run: one may end at any moment."""
        while waiting(server) < 2:
            self.submit(server, self.submitted)
            self.submitted += 1

    def _let_it_come_on(self) -> None:
        """After so many kills without a further row, wait for one."""
        is_stuck = self._in_a_row == MOST_IN_A_ROW
        deadline = time.monotonic() + TIMEOUT_S
        while (parts := len(list(self.home.glob("queue/jobs/*/results/part-*")))) == self._parts and is_stuck:
            assert time.monotonic() < deadline, "no further part was published"
            time.sleep(0.01)
        self._in_a_row = self._in_a_row + 1 if parts == self._parts else 1
        self._parts = parts

    def _wait(self) -> None:
        """Until a moment in the time of a job, often right at its beginning."""
        time.sleep(self._chance.random() * self._chance.choice((self._longest_s, self._longest_s, 0.02)))


@long
def test_thirty_kills_at_random_moments(tmp_path: Path) -> None:
    home = write_home(tmp_path, photos=PICTURES)
    began = time.monotonic()
    for top_k in range(1, LARGEST_TOP_K + 1):
        words = [f"--{name}={value}" for name, value in NETWORK.items()]
        done = run_installed("infer_launch", "photos", *words, "--top_k", top_k, "--output", f"out-{top_k}", cwd=home)
        assert done.returncode == 0, done.stderr
    kills = Kills(home, (time.monotonic() - began) / LARGEST_TOP_K)
    while kills.kills < KILLS:
        kills.in_one_service()
    with serving(home, "--jobs", "queue") as server:
        for number in range(kills.submitted + 1):
            kills.submit(server, number)
        check(home, server, kills.said, kills.submitted + 1)
        assert server.stop() == 0


def waiting(server: Server) -> int:
    """How many jobs have not ended."""
    return sum(not job["has_ended"] for user in USERS for job in ask(server, user, "GET", "/jobs")[1]["jobs"])


def check(home: Path, server: Server, said: str, submitted: int) -> None:
    """Every job was done, once, with the rows of a launch that nothing has disturbed."""
    found = {user: ask(server, user, "GET", "/jobs")[1]["jobs"] for user in USERS}
    assert sum(map(len, found.values())) == submitted
    for user, jobs in found.items():
        for job in jobs:
            last = ended(server, user, job["id"])
            assert (last["state"], last["exit_code"], last["reason"]) == ("done", 0, "")
            assert said.count(f"job {job['id']} of {user}: done\n") <= 1
            results = home / "queue" / "jobs" / job["id"] / "results"
            assert rows(results).equals(rows(home / f"out-{job['options'].get('top_k', 5)}"))
    folders = [home / "queue" / "jobs" / job["id"] / "results" for jobs in found.values() for job in jobs]
    assert len(list((home / "queue" / "jobs").iterdir())) == len(folders)
    verified = run_installed("bulkinfer", "verify", *folders, cwd=home)
    assert "damaged" not in verified.stdout + verified.stderr
