"""A folder in which the tests of stores run commands, and how these find a store."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.commands import children, command, rows, wait_until_gone
from tests.object_store import SECRET, Gate, Proxy, Server, without_own_credentials

EVER = 1 << 40  # as many requests as there may be
LAUNCH = ("infer_launch", "--model_name", "tiny", "--device", "cpu", "--save", "topk,logits", "--num_devices", 1)


class Place:
    """A folder with pictures and a tiny network, the same in a bucket, and a proxy before the server, to run commands in."""

    def __init__(self, folder: Path, server: Server, proxy: Proxy) -> None:
        self.folder, self.server, self.proxy = folder, server, proxy
        self.environment = server.environment(proxy.url)

    def start(self, *words: object, **variables: str) -> subprocess.Popen[str]:
        environment = {
            **without_own_credentials(),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            **self.environment,
            **variables,
        }
        name, *rest = map(str, words)
        return subprocess.Popen(
            command(name, *rest), cwd=self.folder, env={key: value for key, value in environment.items() if value},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: object, code: int = 0, **variables: str) -> str:
        """Run a command, which must end with `code`; returns what it printed. Nothing of the secret is in it."""
        process = self.start(*words, **variables)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == code, stdout + stderr
        assert SECRET not in stdout + stderr
        return stdout + stderr

    def sentence(self, *words: object, code: int, **variables: str) -> str:
        """The one sentence of a command that is refused."""
        process = self.start(*words, **variables)
        stdout, stderr = process.communicate(timeout=300)
        assert (process.returncode, stderr.count("\n")) == (code, 1), stdout + stderr
        assert "hidden" not in stderr
        return stderr

    def is_as_local(self, output: str, *words: object, code: int = 3) -> None:
        """The rows of an output are those of the folder; `words` are further options of that launch, which ends with `code`."""
        if not (self.folder / "local").exists():
            self.run(*LAUNCH, "--data_dir", "photos", "--output", "local", *words, code=code)
        assert rows(self.folder / output).equals(rows(self.folder / "local"))
        self.run("bulkinfer", "verify", output)


def kill_worker_and_launcher(process: subprocess.Popen[str], gate: Gate, most: int) -> None:
    """Kill the worker of a launch when as many requests have passed as the gate lets, and the launch after `most`."""
    gate.wait()
    (worker,) = (pid for pid in children(process.pid) if b"bulkinfer.worker.process" in _command_line(pid))
    os.kill(worker, signal.SIGKILL)
    gate.let(most)
    gate.wait()
    workers = children(process.pid)
    process.kill()
    process.communicate()
    gate.let(EVER)
    wait_until_gone(workers)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""
