"""bulkinfer serve --jobs as its users see it: submit, watch, rows, report, cancel; what is refused; restarts."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import pictures
from tests.commands import records, run_here, run_installed, wait_until_gone
from tests.forms import long
from tests.jobs_over_http import (
    NETWORK,
    ask,
    ended,
    events,
    launchers,
    submit,
    token,
    wait_for_launcher,
    wait_for_part,
    write_home,
)
from tests.models import write_tiny_model
from tests.object_store import BUCKET, s3_server, without_own_credentials
from tests.pages import blocks
from tests.rules.source import ROOT
from tests.runtime_in_front import held_after, runtime_in_front
from tests.serving import TIMEOUT_S, Server, serving

JOBS = ("--jobs", "queue")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty pictures, one that is none, and the rows that infer_launch makes of them."""
    folder = write_home(tmp_path_factory.mktemp("jobs"), max_queued=4)
    (folder / "photos" / "broken.jpg").write_bytes(b"no picture")
    done = run_installed("infer_launch", "photos", *flags(NETWORK), "--output", "out", cwd=folder)
    assert done.returncode == 3, done.stderr
    return folder


def flags(options: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with serving(home, *JOBS) as running:
        yield running
        assert running.stop() == 0
        assert running.errors == ""


def options_in(home: Path, **more: object) -> dict[str, object]:
    return {"data_dir": f"{home}/photos", **NETWORK, **more}


@pytest.fixture(scope="module")
def job(home: Path, server: Server) -> dict[str, Any]:
    """A job of ann that is done."""
    status, submitted = submit(server, "ann", options_in(home))
    assert (status, submitted["state"], submitted["progress"]) == (201, "queued", None)
    return ended(server, "ann", submitted["id"])


def test_rows_are_those_of_infer_launch(home: Path, server: Server, job: dict[str, Any]) -> None:
    assert (job["state"], job["exit_code"], job["progress"]["done"], job["progress"]["errors"]) == (
        "done",
        3,
        21,
        {"decode": 1},
    )
    parts = ask(server, "ann", "GET", f"/jobs/{job['id']}/parts")[1]["parts"]
    tables = []
    for name in parts:
        (home / "part").mkdir(exist_ok=True)
        _, content, headers = raw(server, f"/jobs/{job['id']}/parts/{name}")
        assert headers["content-type"] == "application/vnd.apache.parquet"
        tables.append(pq.read_table(io.BytesIO(content)))
    found = {row["key"]: row for row in pa.concat_tables(tables).drop_columns(["partition"]).to_pylist()}
    assert found == records(home / "out")


def raw(server: Server, path: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, bytes and headers of an answer to ann."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest, timeout=TIMEOUT_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token('ann')}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, {name.lower(): value for name, value in answer.getheaders()}


def test_rows_come_as_json_lines_and_csv(home: Path, server: Server, job: dict[str, Any]) -> None:
    for form, media_type in (("jsonl", "application/x-ndjson"), ("csv", "text/csv; charset=utf-8")):
        done = run_here("bulkinfer", "rows", "out", "--to", f"rows.{form}", "--overwrite", cwd=home)
        assert done.returncode == 0, done.stderr
        status, content, headers = raw(server, f"/jobs/{job['id']}/rows?format={form}")
        assert (status, headers["content-type"]) == (200, media_type)
        assert content == (home / f"rows.{form}").read_bytes()


def test_the_report_is_a_page_without_scripts(server: Server, job: dict[str, Any]) -> None:
    status, content, headers = raw(server, f"/jobs/{job['id']}/report")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "sandbox" in headers["content-security-policy"]
    assert b"broken.jpg" in content
    status, found = ask(server, "ann", "POST", f"/jobs/{job['id']}/report")
    assert status == 201
    assert raw(server, found["address"])[1][:15] == content[:15]
    assert raw(server, found["address"])[0] == 404, "it opens once"


def test_a_user_sees_no_others(server: Server, job: dict[str, Any]) -> None:
    assert [each["id"] for each in ask(server, "ann", "GET", "/jobs")[1]["jobs"]][-1] == job["id"]
    assert ask(server, "bob", "GET", "/jobs") == (200, {"user": "bob", "jobs": []})
    of_a_job = [("GET", path) for path in ("", "/events", "/rows", "/parts", "/report")]
    for method, path in (*of_a_job, ("POST", "/report"), ("POST", "/cancel")):
        of_ann = ask(server, "bob", method, f"/jobs/{job['id']}{path}")
        assert of_ann == (404, {"error": f"there is no job '{job['id']}' of yours"}), path
        assert ask(server, "bob", method, f"/jobs/none{path}")[0] == 404
    for path in ("/jobs", f"/jobs/{job['id']}", f"/jobs/{job['id']}/rows"):
        assert server.ask("GET", path)[0] == 401
        assert server.ask("GET", path, Authorization="Bearer wrong")[0] == 401


def test_what_is_refused(home: Path, server: Server, job: dict[str, Any]) -> None:
    before = ask(server, "ann", "GET", "/jobs")
    (home / "photos" / "link").symlink_to("/etc")
    for options, reason in (
        ({"data_dir": "/etc"}, "data_dir /etc is not in a folder or store that jobs may read"),
        ({"data_dir": f"{home}/photos/../models"}, "is not in a folder or store that jobs may read"),
        ({"data_dir": f"{home}/photos/link"}, "is not in a folder or store that jobs may read"),
        ({"data_dir": "s3://bucket"}, "is not in a folder or store that jobs may read"),
        ({"output": "/tmp/x"}, "output is set by the service"),
        ({"model_name": "none"}, "model_name none is no network in the models of this service: give one of tiny"),
    ):  # fmt: skip
        status, answer = submit(server, "ann", options_in(home, **options))
        assert status == 400
        assert reason in answer["error"]
    (home / "photos" / "link").unlink()
    assert ask(server, "ann", "POST", "/jobs", b"x" * 1_000_001)[0] == 413
    assert submit(server, "ann", options_in(home), Idempotency_Key="two words")[0] == 400
    assert raw(server, f"/jobs/{job['id']}/rows?format=npy")[0] == 400
    assert raw(server, "/jobs?limit=x")[0] == 400
    for name in ("none", "..%2f..%2fjobs.toml", "_job.json"):
        assert raw(server, f"/jobs/{job['id']}/parts/{name}")[0] == 404
    assert ask(server, "ann", "GET", "/jobs") == before, "nothing was submitted"


def test_a_failed_job_says_why(home: Path, server: Server) -> None:
    (home / "photos" / "empty").mkdir(exist_ok=True)
    _, job = submit(server, "bob", options_in(home, data_dir=f"{home}/photos/empty"))
    found = ended(server, "bob", job["id"])
    assert (found["state"], found["exit_code"]) == ("failed", 2)
    assert "empty" in found["reason"]
    status, answer = ask(server, "bob", "GET", f"/jobs/{job['id']}/rows")
    assert (status, answer["error"]) == (404, f"job {job['id']} is failed, and has no rows")


@pytest.fixture
def many(home: Path) -> dict[str, object]:
    """A job that takes long: a picture under many names."""
    folder = home / "many"
    folder.mkdir(exist_ok=True)
    (folder / "0.jpg").write_bytes(pictures.jpeg(1500, 1500, 0))
    for number in range(1, 2000):
        if not (folder / f"{number}.jpg").exists():
            os.link(folder / "0.jpg", folder / f"{number}.jpg")
    return options_in(home, data_dir=str(folder), batches_per_step=1)


def running(server: Server, user: str, job_id: str) -> dict[str, Any]:
    """The job, once some of its pictures are done and not all."""
    return next(job for job in events(server, user, job_id) if 0 < (job["progress"] or {}).get("done", 0) < 2000)


def held(home: Path, name: str) -> dict[str, str]:
    """The environment of the service of a folder whose jobs stand still after two batches."""
    return {**os.environ, **runtime_in_front(home / f"{name}-front", after=held_after(2, home / "never"))}


@long
def test_cancelling_and_the_limit_of_the_queue(home: Path, many: dict[str, object]) -> None:
    with serving(home, *other_queue(home, "full"), env=held(home, "full")) as server:
        cancel_all(server, many)
        assert server.stop() == 0
        assert server.errors == ""


def cancel_all(server: Server, many: dict[str, object]) -> None:
    """Fill the queue of ann, and cancel the jobs, the running one last."""
    jobs = [submit(server, "ann", many)[1] for _ in range(4)]
    status, answer = submit(server, "ann", many)
    assert (status, answer["error"]) == (429, "4 jobs of yours have not ended (max_queued): submit it again later")
    running(server, "ann", jobs[0]["id"])
    (launcher,) = launchers(server)
    for job in reversed(jobs):
        status, found = ask(server, "ann", "POST", f"/jobs/{job['id']}/cancel")
        assert (status, found["is_cancel_asked"]) == (202 if job is jobs[0] else 200, True)
    found = ended(server, "ann", jobs[0]["id"])
    assert (found["state"], found["exit_code"]) == ("cancelled", 128 + signal.SIGTERM)
    assert {ended(server, "ann", job["id"])["started"] for job in jobs[1:]} == {None}
    wait_until_gone([launcher])
    again = ask(server, "ann", "POST", f"/jobs/{jobs[0]['id']}/cancel")
    assert again == (200, found), "it has ended"


def other_queue(home: Path, name: str) -> tuple[str, str]:
    """The words for another folder of jobs."""
    (home / name).mkdir()
    shutil.copy(home / "queue" / "jobs.toml", home / name)
    return "--jobs", name


@long
def test_a_signal_stops_a_job_and_the_next_service_continues_it(home: Path, many: dict[str, object]) -> None:
    words, many = other_queue(home, "continued"), {**many, "limit": 80}
    with serving(home, *words, env=held(home, "continued")) as server:
        job = submit(server, "ann", many, Idempotency_Key="many")[1]
        launcher = wait_for_launcher(server)
        wait_for_part(home / "continued" / "jobs" / job["id"] / "results")
        assert server.stop() == 0
        assert server.said.endswith("ended: 1 job(s) go on with the next service\n")
        wait_until_gone([launcher])
    with serving(home, *words) as server:
        assert "jobs: 2 user(s), 1 job(s) queued\n" in server.lines
        assert submit(server, "ann", many, Idempotency_Key="many")[1]["id"] == job["id"], "the request was sent twice"
        found = ended(server, "ann", job["id"])
        assert (found["state"], found["progress"]["done"]) == ("done", 80)
        assert server.stop() == 0
        assert f"job {job['id']} of ann: continues\n" in server.said
    summary = json.loads(next((home / "continued" / "jobs" / job["id"] / "logs").glob("*/summary.json")).read_text())
    assert summary["pictures"] < 80, "rows of the first launch were kept"
    assert len(records(home / "continued" / "jobs" / job["id"] / "results")) == 80


@long
def test_a_job_that_is_cancelled_and_killed_at_once_tells_its_rows(home: Path, many: dict[str, object]) -> None:
    words = other_queue(home, "cut")
    with serving(home, *words, env=held(home, "cut")) as server:
        job = submit(server, "ann", many)[1]
        running(server, "ann", job["id"])
        launcher = wait_for_launcher(server)
        wait_for_part(home / "cut" / "jobs" / job["id"] / "results")
        ask(server, "ann", "POST", f"/jobs/{job['id']}/cancel")
        server.process.kill()
        server.end()
        wait_until_gone([launcher])
    with serving(home, *words) as server:
        found = ended(server, "ann", job["id"])
        assert server.stop() == 0
    assert found["state"] == "cancelled"
    assert found["progress"]["done"] == len(records(home / "cut" / "jobs" / job["id"] / "results"))


@long
def test_pictures_of_a_store(home: Path) -> None:
    words = other_queue(home, "stored")
    settings = home / "stored" / "jobs.toml"
    settings.write_text(settings.read_text().replace("data = [", f'data = ["s3://{BUCKET}/photos", '))
    with s3_server() as store:
        store.put_folder(home / "photos", "photos")
        store.put_folder(home / "photos", "photos-of-others")
        environment = {**without_own_credentials(), "XDG_CACHE_HOME": str(home / "cache"), **store.environment()}
        with serving(home, *words, env=environment) as server:
            status, answer = submit(server, "ann", {**NETWORK, "data_dir": f"s3://{BUCKET}/photos-of-others"})
            assert (status, "is not in a folder or store that jobs may read here" in answer["error"]) == (400, True)
            job = submit(server, "ann", {**NETWORK, "data_dir": f"s3://{BUCKET}/photos"})[1]
            found = ended(server, "ann", job["id"])
            assert (found["state"], found["exit_code"]) == ("done", 3), found
            assert server.stop() == 0
    output = home / "stored" / "jobs" / job["id"] / "results"
    assert scores(output) == scores(home / "out")


def scores(output: Path) -> list[tuple[str, list[float] | None]]:
    """The name and the scores of each picture."""
    return sorted((key.rpartition("/")[2], row["scores"]) for key, row in records(output).items())


@long
def test_what_is_said_of_settings_that_lead_nowhere(home: Path) -> None:
    words = other_queue(home, "nowhere")
    settings = home / "nowhere" / "jobs.toml"
    settings.write_text(settings.read_text().replace("../photos", "../absent"))
    (home / "token").write_text("word")
    with serving(home, *words, "--host", "0.0.0.0", "--token_file", "token") as server:
        assert server.stop() == 0
    assert server.errors.replace("bulkinfer serve: warning: ", "").splitlines() == [
        f"--jobs: data {home}/absent is not there: jobs that need it fail until it is",
        "--host 0.0.0.0: other hosts can reach this server without TLS: see --tls_cert and --tls_key",
        "--token_file is for networks, and none is served: users of jobs have their own tokens",
    ]
    assert server.said.splitlines()[-1] == "ended: no job is left"


def test_two_services_of_one_folder_and_wrong_folders(home: Path, server: Server) -> None:
    (home / "nothing").mkdir(exist_ok=True)
    for words, reason, code in (
        (("--jobs", "queue"), "queue is in use by a service on", 1),
        (("--jobs", "nothing"), "nothing/jobs.toml does not exist", 2),
        (("--jobs", "none"), "none is no folder", 2),
        (("--jobs", "queue", "--port", "-1"), "--jobs needs the port of REST", 2),
    ):
        done = run_here("bulkinfer", "serve", "--port", 0, "--grpc_port", 0, *words, cwd=home)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert reason in done.stderr


@long
def test_networks_and_jobs_of_one_server(home: Path) -> None:
    with serving(
        home, "tiny", "--batch_size", 4, "--device", "cpu", "--precision", "fp32", *other_queue(home, "both")
    ) as server:
        assert server.ask("GET", "/v2/models/tiny")[0] == 200
        job = submit(server, "bob", options_in(home))[1]
        assert ended(server, "bob", job["id"])["state"] == "done"
        assert server.grpc
        assert server.stop() == 0


@long
def test_the_page_of_the_documents_says_what_works(tmp_path: Path) -> None:
    """All blocks with curl, typed one after another; the service is that of the page, at another port."""
    page = ROOT / "docs" / "how-to" / "jobs-over-http.md"
    blocks_of = [block.text for block in blocks(page) if block.language == "text"]
    assert len(blocks_of) == 5
    home = write_home(tmp_path)
    shutil.rmtree(home / "queue")
    write_tiny_model(home / "models", "efficientnet_lite0", batch_sizes=(6,))
    type_in(blocks_of[0], home)
    with serving(home, *JOBS) as server:
        for block in blocks_of[1:3]:
            type_in(block.replace(":8000", f":{server.rest}"), home)
        header = (home / "ann.header").read_text().partition(": ")[2].strip()
        jobs = server.ask("GET", "/jobs", Authorization=header)[1]["jobs"]
        assert [job["options"].get("limit") for job in jobs] == [3, None]
        for text in blocks_of[3:]:
            said = type_in(text.replace(":8000", f":{server.rest}").replace("/JOB", f"/{jobs[0]['id']}"), home)
    assert (home / "rows.jsonl").read_text().count("\n") == 3
    assert (home / "rows.csv").read_text().count("\n") == 4
    assert (home / "report.html").read_text().startswith("<!doctype html>")
    assert said.startswith('{"parts":["part-00000-')


def type_in(text: str, home: Path) -> str:
    """What the lines of a block print; each must succeed. A job is not cancelled here."""
    lines = "\n".join(line for line in text.splitlines() if not line.endswith("/cancel"))
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", lines], cwd=home, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert '"error"' not in done.stdout, done.stdout
    return done.stdout
