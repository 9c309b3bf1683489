"""--engine ray on clusters of two nodes: rows are those of --engine local, bit for bit, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import jobs_over_http
from tests.commands import command, records, rows, run
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.object_store import BUCKET, reached_from_here, s3_server
from tests.ray_nodes import RayNodes, held, ray_nodes
from tests.serving import serving

COUNT = 160
POISONED = "121-red.png"
LAUNCH = (
    "photos",
    "--model_name",
    "tiny",
    "--batch_size",
    4,
    "--device",
    "cpu",
    "--precision",
    "fp32",
    "--batches_per_step",
    2,
)
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, one of which kills whoever decodes it, and the rows of a launch without Ray in out_local."""
    folder = tmp_path_factory.mktemp("ray")
    write_tiny_model(folder / "models", batch_sizes=(4,))
    write_photos(folder / "photos", COUNT)
    with (folder / "photos" / POISONED).open("ab") as file:
        file.write(b"KILLS")
    return folder


@pytest.fixture(scope="module")
def nodes(made: Path) -> Any:
    with ray_nodes(made, 1, 1) as found:
        done = run("infer_launch", *LAUNCH, "--output", "out_local", cwd=made, env={"PYTHONPATH": str(made / "site")})
        assert done.returncode == 3, done.stderr
        yield found


@contextlib.contextmanager
def begun(made: Path, nodes: RayNodes, output: str) -> Iterator[subprocess.Popen[str]]:
    """A launch on the cluster that has published three parts, and cannot end inside; what it says goes to OUTPUT.txt."""
    before = count_parts(made / output)
    words = (*LAUNCH, "--engine", "ray", "--ray_address", nodes.address, "--output", output, "--log_path", f"logs_{output}")
    with held(made), (made / f"{output}.txt").open("w") as said:
        process = subprocess.Popen(command("infer_launch", *words), cwd=made, stdout=said, stderr=said, text=True)
        wait_for(process, lambda: count_parts(made / output) >= before + 3 and launcher_of(made, output) == process.pid)
        yield process


def launcher_of(made: Path, output: str) -> int:
    """The process that has the job in hand; 0 if none has begun it."""
    status = made / f"logs_{output}" / "latest" / "status.json"
    return int(json.loads(status.read_text())["pid"]) if status.exists() else 0


def said_by(process: subprocess.Popen[str], made: Path, output: str) -> str:
    """What a launch has said at its end."""
    process.wait(timeout=PATIENCE_S)
    return (made / f"{output}.txt").read_text()


def wait_for(process: subprocess.Popen[str], is_met: Callable[[], bool]) -> None:
    """Until something holds that the launch does before it ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_met():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def count_parts(output: Path) -> int:
    return len(list(output.glob("part-*")))


def assert_same_rows(made: Path, output: str) -> None:
    """Nothing lost, nothing twice, and every bit as without Ray, but for the name of the process that died last."""
    verified = run("bulkinfer", "verify", output, cwd=made)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    found, expected = rows(made / output), rows(made / "out_local")
    assert found.num_rows == COUNT
    assert found.drop_columns(["error"]).equals(expected.drop_columns(["error"]))
    errors = {key: row["error"] for key, row in records(made / output).items() if row["status"] == "error"}
    assert list(errors) == [POISONED]
    assert "ended by signal 9 (SIGKILL) on node " in errors[POISONED]


def steps_of(made: Path, output: str) -> dict[str, int]:
    """By the log of a worker, how many steps it has done."""
    logs = (made / f"logs_{output}" / "latest").glob("worker-*.jsonl")
    return {path.stem: path.read_text().count('"kind": "StepDone"') for path in logs}


@long
def test_a_launcher_that_is_killed_and_a_signal_are_survived(made: Path, nodes: RayNodes) -> None:
    """The same command goes on each time; the third one finds the poisoned record."""
    with begun(made, nodes, "out_killed") as killed:
        killed.kill()
    killed.wait()
    with begun(made, nodes, "out_killed") as stopped:
        stopped.send_signal(signal.SIGINT)
    said = said_by(stopped, made, "out_killed")
    assert stopped.returncode == 130, said
    assert "to continue: infer_launch" in said
    with begun(made, nodes, "out_killed") as last:
        pass
    said = said_by(last, made, "out_killed")
    assert last.returncode == 3, said
    assert_same_rows(made, "out_killed")
    assert not list((made / "logs_out_killed" / "latest").glob("node-*")), "no file of a node is left"


@long
def test_an_actor_that_is_killed_and_a_retry_on_the_cluster(made: Path, nodes: RayNodes) -> None:
    """The steps of the actor run again on its node; a retry finds the poisoned record once more."""
    with begun(made, nodes, "out_actor") as process:
        before = worker_processes(made / "logs_out_actor")
        os.kill(min(before.values()), signal.SIGKILL)
        wait_for(process, lambda: bool(worker_processes(made / "logs_out_actor").keys() - before.keys()))
    said = said_by(process, made, "out_actor")
    assert process.returncode == 3, said
    assert "ended with its Ray actor on node " in said
    assert_same_rows(made, "out_actor")
    again = ("out_actor", "--log_path", "logs_out_actor", "--engine", "ray", "--ray_address", nodes.address)
    retried = run("bulkinfer", "retry", *again, cwd=made)
    assert retried.returncode == 3, retried.stderr
    assert "retry: 0 error rows are ok now, 1 failed again" in retried.stdout
    assert_same_rows(made, "out_actor")


def worker_processes(logs: Path) -> dict[int, int]:
    """The worker processes of a launch, each with the process that started it, the actor in its place."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            words = stat.with_name("cmdline").read_bytes().split(b"\0")
            if b"bulkinfer.worker.process" in words and any(word.startswith(os.fsencode(logs)) for word in words):
                found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


@long
def test_a_node_that_dies_and_one_that_joins(made: Path, nodes: RayNodes) -> None:
    """Leaves the head of the cluster, and the node that has joined. The node dies with pictures in its hands."""
    gone = "is gone or cannot be reached: what its workers held runs again"
    with begun(made, nodes, "out_lost") as process:
        wait_for(process, lambda: all(steps_of(made, "out_lost").get(f"worker-{index}") for index in range(2)))
        nodes.kill(1)
        nodes.add(1)
        wait_for(process, lambda: bool(steps_of(made, "out_lost").get("worker-2")))
        wait_for(process, lambda: gone in (made / "out_lost.txt").read_text())
    said = said_by(process, made, "out_lost")
    assert process.returncode == 3, said
    assert "(raylet)" not in said, "Ray itself prints nothing"
    assert_same_rows(made, "out_lost")
    done = steps_of(made, "out_lost")
    assert set(done) >= {"worker-0", "worker-1", "worker-2"}
    assert all(done.values()), f"the node that joined got steps: {done}"


@long
def test_nodes_that_differ_are_refused_and_named(made: Path, nodes: RayNodes) -> None:
    """The last test of the cluster: each node that is added and refused is killed again."""
    network = made / "models" / "tiny"
    shutil.copytree(network, made / "other")
    (weights,) = (made / "other").glob("*.bin")
    weights.write_bytes(bytes(weights.stat().st_size))
    for variables, expected in (
        ({"OTHER_PILLOW": "1"}, "has Pillow 1.0, and the launcher's host Pillow "),
        ({"OTHER_FILES": f"{network}:/nowhere"}, f"does not have {network / 'model_4.onnx'}: "),
        ({"OTHER_FILES": f"{network}:{made / 'other'}"}, f"has a damaged {network / weights.name}"),
    ):
        nodes.add(1, **variables)
        refused = run("infer_launch", *LAUNCH, "--engine", "ray", "--ray_address", nodes.address, "--output", "out_no",
                      "--log_path", "logs_no", cwd=made)  # fmt: skip
        assert refused.returncode == 2, refused.stderr
        (sentence,) = refused.stderr.splitlines()
        assert re.fullmatch(rf"infer_launch: node \S+ \(\w{{8}}\) {re.escape(expected)}.*", sentence), sentence
        assert not list((made / "out_no").glob("part-*"))
        nodes.kill(-1)
        nodes.settle()


@long
def test_a_cluster_of_this_host_for_one_launch_between_buckets(made: Path) -> None:
    """--ray_address local needs no ray start. Workers read pictures from a store and publish to it."""
    with s3_server() as server, reached_from_here(server):
        server.put_folder(made / "photos", "photos")
        there = (
            f"s3://{BUCKET}/photos",
            *LAUNCH[1:],
            "--limit",
            24,
            "--output",
            f"s3://{BUCKET}/out",
            "--log_path",
            "logs_here",
        )
        done = run("infer_launch", *there, "--engine", "ray", "--ray_address", "local", cwd=made)
        assert (done.returncode, done.stderr) == (0, "")
        (made / "out_here").mkdir()
        for key in server.all_keys():
            if key.startswith("out/part-"):
                (made / "out_here" / Path(key).name).write_bytes(
                    server.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
                )
    expected = run("infer_launch", *LAUNCH, "--limit", 24, "--output", "out_first", cwd=made)
    assert expected.returncode == 0, expected.stderr
    assert rows(made / "out_here").equals(rows(made / "out_first"))


@long
def test_a_job_over_http(made: Path, nodes: RayNodes) -> None:
    (made / "queue").mkdir()
    token = hashlib.sha256(jobs_over_http.token("ann").encode()).hexdigest()
    (made / "queue" / "jobs.toml").write_text(
        f'data = ["../photos"]\nmodels = "../models"\nray_address = "{nodes.address}"\n[users]\nann = "{token}"\n'
    )
    options = {**jobs_over_http.NETWORK, "data_dir": f"{made}/photos", "batches_per_step": 2, "engine": "ray"}
    with serving(made, "--jobs", "queue") as server:
        job = jobs_over_http.submit(server, "ann", options)[1]
        found = jobs_over_http.ended(server, "ann", job["id"])
        assert (found["state"], found["exit_code"], found["progress"]["done"]) == ("done", 3, COUNT), found
        assert server.stop() == 0
    assert_same_rows(made, f"queue/jobs/{job['id']}/results")
