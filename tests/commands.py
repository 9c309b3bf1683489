"""Run the installed commands as a user does, and read what they leave."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.in_process import run_in_process

SCRIPTS = Path(sys.executable).parent
# root may read everything; without these two capabilities the modes of its own files hold for it as well
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []


def command(name: str, *words: object) -> list[str]:
    """The command line of an installed script."""
    return [str(SCRIPTS / name), *map(str, words)]


def run(name: str, *words: object, cwd: Path, timeout_s: float = 600, env: dict[str, str] | None = None) -> Any:
    """Run a command to its end; the result has returncode, stdout and stderr as text.

    get_model runs in this process unless `env` says what only a new one can take: a start with torch lasts longer than most of
    what tests ask of it.
    """
    if name == "get_model" and env is None:
        return run_here(name, *words, cwd=cwd)
    return run_installed(name, *words, cwd=cwd, timeout_s=timeout_s, env=env)


def run_here(name: str, *words: object, cwd: Path) -> Any:
    """The same in this process: for commands that start something heavy, and for refusals, where many differ in a flag."""
    return run_in_process(name, list(map(str, words)), cwd, _environment({}))


def run_installed(name: str, *words: object, cwd: Path, timeout_s: float = 600, env: dict[str, str] | None = None) -> Any:
    """Run the installed script to its end; the result has returncode, stdout and stderr as text."""
    return subprocess.run(
        command(name, *words),
        cwd=cwd,
        env=_environment(env or {}),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _environment(more: dict[str, str]) -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key != "DATA_DIR"} | more
    if "PYTHONPATH" in more:
        environment["PYTHONPATH"] = python_path(more["PYTHONPATH"])
    return environment


def python_path(*folders: object) -> str:
    """PYTHONPATH with these folders before those that it has."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def get_model(home: Path, *words: object, code: int = 0, env: dict[str, str] | None = None) -> Any:
    """Run get_model in `home`; it must end with `code`, and with one sentence on stderr or none."""
    done = run("get_model", *words, cwd=home, env=env)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == (1 if code else 0), done.stderr
    return done


def rows(output: Path) -> pa.Table:
    """All rows of a results folder, sorted by key, without the partition (which depends on the split)."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(output.glob("part-*.parquet"))])
    return table.replace_schema_metadata(None).sort_by("key").drop_columns(["partition"])


def records(output: Path) -> dict[str, dict[str, Any]]:
    """Rows by key."""
    return {row["key"]: row for row in rows(output).to_pylist()}


def summary(log_path: Path) -> dict[str, Any]:
    """summary.json of the newest job."""
    loaded: dict[str, Any] = json.loads((log_path / "latest" / "summary.json").read_text())
    return loaded


def living(pids: list[int]) -> list[int]:
    """Those of the processes that still run (zombies do not)."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(pid)
    return found


def wait_until_gone(pids: list[int]) -> None:
    """For processes that end by themselves after their parent. Raises AssertionError if one still runs after a minute."""
    deadline = time.monotonic() + 60
    while left := living(pids):
        assert time.monotonic() < deadline, f"processes {left} are left"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """Process ids of the direct children."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def cpu_seconds_of_children() -> float:
    """Processor time of the processes that were started here and have ended: it does not depend on what else runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
