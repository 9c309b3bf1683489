"""bulkinfer serve as clients see it: answers, refusals, limits, signals. test_serve_clients.py has clients of others."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from bulkinfer.launch.launcher import launch
from bulkinfer.serve.client.server_facts import ServerError
from bulkinfer.serve.messages import Request
from bulkinfer.serve.rpc.schema import SERVICE
from bulkinfer.serve.rpc.tensors import request_message
from bulkinfer.serve.tensors import tensor_of
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests import pictures
from tests.commands import records, run_here, run_installed
from tests.forms import long
from tests.launches import config_of
from tests.models import SIZE, write_tiny_model
from tests.serving import ON_CPU, Server, free_port, infer, leave, raw_connection, received, serving

PROTOCOLS = ("rest", "grpc")
BATCH = ("--batch_size", 4)
INFER = "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network tiny, photographs and other files, and the rows that infer_launch makes of them."""
    folder = tmp_path_factory.mktemp("serve")
    config = config_of(folder, photos=0, engine="inline", save=("topk", "logits", "embedding"), top_k=3)
    files = {f"{n:03d}.jpg": pictures.jpeg(90 + n, 70, n) for n in range(40)}
    pictures.write_files(Path(config.data_dir), files | {f"bad-{n}": data for n, data in pictures.NOT_PICTURES.items()})
    assert launch(config).exit_code == 3
    return folder


LIMITS = ("--max_request_mb", 1, "--max_queue", 64, "--top_k", 3)
SHORT_S = 10  # in which requests must come, where some do not: good ones have to be faster on a busy machine as well


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    """A server with low limits."""
    with serving(home, "tiny", *ON_CPU, *BATCH, *LIMITS) as running:
        yield running
        assert running.stop() == 0
        assert running.errors == ""


@pytest.fixture
def impatient(home: Path) -> Iterator[Server]:
    """The same, and requests have little time."""
    with serving(home, "tiny", *ON_CPU, *BATCH, *LIMITS, "--timeout_s", SHORT_S) as running:
        yield running
        assert running.stop() == 0
        assert running.errors == ""


def files_of(home: Path) -> dict[str, bytes]:
    """The pictures by key."""
    return {path.name: path.read_bytes() for path in sorted((home / "photos").iterdir())}


def images(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, SIZE, SIZE, 3), np.uint8)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_are_the_rows_of_a_run_bit_for_bit(home: Path, server: Server, protocol: str) -> None:
    rows, files = records(home / "out"), files_of(home)
    assert {row["status"] for row in rows.values()} == {"ok", "error"}
    names = sorted(rows)
    outputs = ("logits", "embedding", "class_ids", "scores", "class_names", "errors")
    found = infer(server.client(protocol), [files[name] for name in names], *outputs)
    for index, name in enumerate(names):
        row = rows[name]
        if row["status"] == "error":
            assert found["errors"][index] == f"{row['stage']}: {row['error']}"
            assert np.isnan(found["logits"][index]).all()
            assert np.isnan(found["scores"][index]).all()
            assert found["class_ids"][index].tolist() == [-1] * 3
            assert found["class_names"][index] == [""] * 3
        else:
            assert found["errors"][index] == ""
            for column in ("logits", "embedding", "scores"):
                assert found[column][index].tolist() == row[column], column
            assert found["class_ids"][index].tolist() == row["class_ids"]
            assert found["class_names"][index] == row["class_names"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_of_any_size_shares_batches(server: Server, protocol: str) -> None:
    client = server.client(protocol)
    alone = infer(client, images(64))
    for count in (1, 3, 4, 5, 12, 13):
        assert {name: values[:count] for name, values in alone.items() if name != "class_names"}.keys() == {
            "logits", "embedding", "class_ids", "scores",
        }  # fmt: skip
        found = infer(client, images(64)[:count])
        for name, values in found.items():
            assert np.array_equal(values, alone[name][:count]), name


def test_what_it_says_of_itself(server: Server) -> None:
    assert server.ask("GET", "/v2/health/live")[:2] == (200, {"live": True})
    assert server.ask("GET", "/v2/health/ready")[:2] == (200, {"ready": True})
    assert server.ask("GET", "/v2/models/tiny/ready")[:2] == (200, {"name": "tiny", "ready": True})
    status, about, _ = server.ask("GET", "/v2/models/tiny/versions/1")
    assert status == 200
    assert (about["name"], about["versions"], about["platform"]) == ("tiny", ["1"], "onnx_bulkinfer")
    assert about["inputs"] == [
        {"name": "images", "datatype": "UINT8", "shape": [-1, SIZE, SIZE, 3]},
        {"name": "pictures", "datatype": "BYTES", "shape": [-1]},
    ]
    assert [each["name"] for each in about["outputs"]] == ["logits", "embedding", "class_ids", "scores", "class_names"]
    assert about["parameters"]["licence"] == "none"
    assert about["parameters"]["recipe"]["height"] == SIZE
    facts = server.client("grpc").facts("tiny")
    assert [(each.name, each.datatype, list(each.shape)) for each in facts.inputs] == [
        (each["name"], each["datatype"], each["shape"]) for each in about["inputs"]
    ]
    assert [(each.name, each.datatype, list(each.shape)) for each in facts.outputs] == [
        (each["name"], each["datatype"], each["shape"]) for each in about["outputs"]
    ]


def test_numbers_may_come_and_go_as_json(server: Server) -> None:
    given = images(2)
    content = {"id": "7", "inputs": [{"name": "images", "datatype": "UINT8", "shape": [2, SIZE, SIZE, 3]}]}
    content["inputs"][0]["data"] = given.tolist()  # type: ignore[index]
    status, answer, _ = server.ask("POST", INFER, json.dumps(content).encode())
    assert (status, answer["id"], answer["model_name"], answer["model_version"]) == (200, "7", "tiny", "1")
    outputs = {each["name"]: each for each in answer["outputs"]}
    expected = infer(server.client("rest"), given)
    for name in ("logits", "embedding", "scores"):
        assert np.array(outputs[name]["data"], np.float32).reshape(outputs[name]["shape"]).tolist() == expected[name].tolist()
    assert outputs["class_names"]["data"] == [name for row in expected["class_names"] for name in row]


def test_pictures_may_come_as_base64(home: Path, server: Server) -> None:
    data = [base64.b64encode(files_of(home)["000.jpg"]).decode()]
    content = {
        "inputs": [{"name": "pictures", "datatype": "BYTES", "shape": [1, 1], "data": data}],
        "outputs": [{"name": "class_ids"}],
    }
    status, answer, _ = server.ask("POST", INFER, json.dumps(content).encode())
    assert status == 200
    assert answer["outputs"][0]["data"] == records(home / "out")["000.jpg"]["class_ids"]


def metric(server: Server, name: str, **labels: str) -> float:
    """The value of a metric."""
    shown = "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}" if labels else ""
    lines = server.ask("GET", "/metrics")[1].splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name}{shown} ")), 0.0)


def test_metrics_count(server: Server) -> None:
    labels = {"model": "tiny", "protocol": "grpc", "status": "200"}
    before = metric(server, "bulkinfer_requests_total", **labels)
    pictures_before = metric(server, "bulkinfer_pictures_total", model="tiny")
    infer(server.client("grpc"), images(3))
    assert metric(server, "bulkinfer_requests_total", **labels) == before + 1
    assert metric(server, "bulkinfer_pictures_total", model="tiny") == pictures_before + 3
    assert metric(server, "bulkinfer_run_pictures_sum", model="tiny") >= 3


WRONG = {  # the change of a right request -> HTTP status, and a part of the message
    "name": ({"name": "nothing"}, 400, "no input 'nothing'"),
    "type": ({"datatype": "FP32"}, 400, "is UINT8, not FP32"),
    "unknown type": ({"datatype": "FLOAT"}, 400, "is unknown"),
    "shape": ({"shape": [1, SIZE, 3, SIZE]}, 400, "has the shape [N, 32, 32, 3]"),
    "fewer values": ({"data": [1, 2]}, 400, "3072 values, 2 came"),
    "range": ({"data": [256] * SIZE * SIZE * 3}, 400, "no UINT8 is"),
    "fractions": ({"data": [0.5] * SIZE * SIZE * 3}, 400, "other values than UINT8"),
    "negative shape": ({"shape": [-1, SIZE, SIZE, 3]}, 400, "no list of whole numbers"),
    "no pictures": ({"shape": [0, SIZE, SIZE, 3], "data": []}, 400, "no pictures"),
    "too many": ({"shape": [65, SIZE, SIZE, 3], "data": [0] * (65 * SIZE * SIZE * 3)}, 413, "at most 64 pictures"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_request_is_refused_with_a_reason(server: Server, wrong: str) -> None:
    change, status, reason = WRONG[wrong]
    right = {"name": "images", "datatype": "UINT8", "shape": [1, SIZE, SIZE, 3], "data": [0] * (SIZE * SIZE * 3)}
    answer = server.ask("POST", INFER, json.dumps({"inputs": [right | change]}).encode())
    assert answer[0] == status, answer
    assert reason in answer[1]["error"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v2/models/other/infer", b"{}", 404),
        ("/v2/models/tiny/versions/2/infer", b"{}", 404),
        ("/v2/models/tiny", b"", 404),
        ("/v3", b"", 404),
        (INFER, b"{}", 400),
        (INFER, b"[", 400),
        (INFER, b"[" * 100_000, 400),
        (INFER, b'{"inputs": [], "outputs": [{"name": "other"}]}', 400),
        (INFER, b"0" * 1_000_001, 413),
    ],
)
def test_other_wrong_requests(server: Server, path: str, body: bytes, status: int) -> None:
    assert server.ask("POST", path, body)[0] == status


def test_compressed_requests_are_refused(server: Server) -> None:
    """A few bytes may become any number of them."""
    assert server.ask("POST", INFER, b"x", Content_Encoding="gzip")[0] == 415
    address, given = f"127.0.0.1:{server.grpc}", Request("tiny", "", "", (tensor_of("images", images(1)),), ())
    with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer", lambda sent: sent.SerializeToString(), bytes)
        with pytest.raises(grpc.RpcError) as failure:
            call(request_message(given), timeout=60)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_a_bad_picture_fails_its_own_request_alone(home: Path, server: Server) -> None:
    good, bad = files_of(home)["000.jpg"], b"no picture"
    for protocol in PROTOCOLS:
        with pytest.raises(ServerError, match=r"pictures\[1\]: decode: not a picture") as failure:
            infer(server.client(protocol), [good, bad])
        assert failure.value.status in (400, "INVALID_ARGUMENT")
    assert infer(server.client("grpc"), [bad], "errors")["errors"][0].startswith("decode: ")


def test_bad_clients_cost_the_others_nothing(impatient: Server) -> None:
    """Wrong, oversized, half-sent and slow requests, while eight clients send good ones over both protocols."""
    server, given = impatient, images(3)
    expected = infer(server.client("rest"), given)
    stop = threading.Event()

    def good(number: int) -> int:
        client, count = server.client(PROTOCOLS[number % 2]), 0
        while not stop.is_set():
            found = infer(client, given)
            assert all(np.array_equal(found[name], values) for name, values in expected.items())
            count += 1
        return count

    def half_sent() -> bytes:
        with raw_connection(server.rest) as connection:
            connection.sendall(b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            connection.shutdown(socket.SHUT_WR)
            return received(connection)

    def slow_body() -> bytes:
        with raw_connection(server.rest) as connection:
            connection.sendall(b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            return received(connection)

    def slow_head() -> bytes:
        with raw_connection(server.rest) as connection:
            connection.sendall(b"POST " + INFER.encode() + b" HTTP/1.1\r\nHo")
            return received(connection)

    def endless_head() -> bytes:
        with raw_connection(server.rest) as connection:
            with contextlib.suppress(ConnectionError):  # the answer may come before all is sent
                connection.sendall(b"GET /v2 HTTP/1.1\r\n" + b"x: y\r\n" * 12_000)
            return received(connection)

    def no_http() -> bytes:
        with raw_connection(server.rest) as connection:
            connection.sendall(bytes(range(256)) * 10)
            return received(connection)

    def no_grpc() -> bytes:
        with raw_connection(server.grpc) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\n\r\n" * 10)
            return received(connection)

    def half_a_call() -> bytes:
        """HTTP/2 by hand: a call of ModelInfer whose message of 1000 bytes ends after 10. The answer is a frame for it."""
        path = b"/inference.GRPCInferenceService/ModelInfer"
        headers = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"x", b"te": b"trailers"}
        headers[b"content-type"] = b"application/grpc"
        block = b"".join(
            b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in headers.items()
        )  # literals without an index

        def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
            return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content

        with raw_connection(server.grpc) as connection, connection.makefile("rb") as reader:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
            connection.sendall(frame(1, 4, 1, block) + frame(0, 0, 1, b"\0\0\0\x03\xe8" + bytes(10)))
            while True:
                head = reader.read(9)
                assert len(head) == 9, "the connection has ended"
                content = reader.read(int.from_bytes(head[:3], "big"))
                if int.from_bytes(head[5:], "big") == 1 and head[3] in (1, 3):
                    return content

    def oversized(protocol: str) -> int | str:
        """Over HTTP no more than the server reads before it ends the connection: the answer could be lost with the rest."""
        with pytest.raises(ServerError) as failure:
            infer(server.client(protocol), images({"rest": 326, "grpc": 500}[protocol]))
        return failure.value.status

    def announced() -> bytes:
        """Many of these would fill the server's memory, if what they announce counted."""
        with raw_connection(server.rest) as connection:
            connection.sendall(b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n{")
            return received(connection)

    with ThreadPoolExecutor(48) as pool:
        announcing = [pool.submit(announced) for _ in range(24)]
        well_behaved = [pool.submit(good, number) for number in range(8)]
        silent = raw_connection(server.grpc)
        odd = (half_sent, slow_body, slow_head, endless_head, no_http, no_grpc, half_a_call)
        bad = {each.__name__: pool.submit(each) for each in odd}
        sizes = [pool.submit(oversized, protocol).result() for protocol in PROTOCOLS]
        answers = {name: each.result() for name, each in bad.items()}
        stop.set()
        counts = [each.result() for each in well_behaved]
        silent.close()
    assert {each.result()[:13] for each in announcing} == {b"HTTP/1.1 408 "}
    assert sizes == [413, "RESOURCE_EXHAUSTED"]
    assert b"the request did not come within %d s" % SHORT_S in answers["half_a_call"]
    assert answers["slow_body"].startswith(b"HTTP/1.1 408 ")
    assert answers["slow_head"].startswith(b"HTTP/1.1 408 ")
    assert answers["endless_head"].startswith(b"HTTP/1.1 431 ")
    assert answers["no_http"].startswith(b"HTTP/1.1 400 ")
    assert min(counts) > 10


def test_a_signal_loses_nothing_that_was_accepted(home: Path) -> None:
    """Every request has its answer, or is refused; and the server has answered exactly those that clients have answers to."""
    answered, refused = [], []
    with serving(home, "tiny", *ON_CPU, *BATCH, "--max_wait_ms", 20) as server:
        clients = [server.client(PROTOCOLS[number % 2]) for number in range(8)]
        begun = threading.Barrier(9)

        def send(number: int) -> None:
            begun.wait()
            for seed in itertools.count():
                try:
                    answered.append(len(infer(clients[number], images(2, seed))["logits"]))
                except ServerError as error:
                    refused.append(error.status)
                    return

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        begun.wait()
        while len(answered) < 100:
            time.sleep(0.001)
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
        for thread in threads:
            thread.join()
        clients.clear()
    assert len(refused) == 8, "each client has been refused, and stopped"
    # or not connected any more; gRPC cancels calls that come in the moment in which it closes
    assert set(refused) <= {503, "UNAVAILABLE", "CANCELLED", ""}
    assert set(answered) == {2}
    assert f"{len(answered)} requests accepted: {len(answered)} answered, 0 given up by clients, 0 lost" in server.said
    assert server.errors == ""


@long
def test_a_full_queue_refuses_and_what_nobody_waits_for_leaves_it(home: Path) -> None:
    """Batches of 4 that wait for ever, and a queue of 4: three pictures fill it but for one."""
    limits = ("--max_queue", 4, "--max_wait_ms", 1_000_000, "--drain_s", 0, "--port", 0)
    with serving(home, "tiny", *ON_CPU, *BATCH, *limits) as server, ThreadPoolExecutor(2) as pool:
        for protocol in PROTOCOLS:
            client = server.client(protocol)
            waiting = pool.submit(infer, client, images(3))
            while metric(server, "bulkinfer_pictures_on_the_way", model="tiny") != 3:
                time.sleep(0.001)
            for other in PROTOCOLS:
                with pytest.raises(ServerError, match="3 pictures are on their way, of 4") as failure:
                    infer(server.client(other), images(2))
                assert failure.value.status in (429, "RESOURCE_EXHAUSTED")
            leave(client)
            with pytest.raises(ServerError):
                waiting.result()
            while metric(server, "bulkinfer_pictures_on_the_way", model="tiny"):
                time.sleep(0.001)
        full = infer(server.client("grpc"), images(4))
        assert len(full["logits"]) == 4
        last = pool.submit(infer, server.client("rest"), images(1))
        while metric(server, "bulkinfer_pictures_on_the_way", model="tiny") != 1:
            time.sleep(0.001)
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 1, "what was accepted is not answered in time"
        assert "4 requests accepted: 1 answered, 2 given up by clients, 1 lost" in server.said
        with pytest.raises(ServerError):
            last.result()


@long
def test_memory_does_not_grow_with_requests(home: Path) -> None:
    """Four thousand requests of both protocols, after a thousand, take less than 2 kB each."""
    with serving(home, "tiny", *ON_CPU, *BATCH, "--max_wait_ms", 1) as server:

        def send(images: int) -> float:
            for protocol, port in (("rest", server.rest), ("grpc", server.grpc)):
                words = ("tiny", "--protocol", protocol, "--port", port, "--num_threads", 4, "--num_images", images)
                assert run_installed("bulkinfer", "request", *words, cwd=home).returncode == 0
            return metric(server, "process_resident_memory_bytes")

        before = send(125)
        assert send(500) < before + 4000 * 2000
        assert server.stop() == 0
        assert server.errors == ""


@long
def test_tls_and_a_token_protect_both_protocols(home: Path) -> None:
    certificate(home)
    files = ("--tls_cert", "cert.pem", "--tls_key", "key.pem")
    with serving(home, "tiny", *ON_CPU, *BATCH, *files, env={**os.environ, "BULKINFER_TOKEN": "secret"}) as server:
        for protocol in PROTOCOLS:
            port = {"rest": server.rest, "grpc": server.grpc}[protocol]
            words = ("tiny", "--protocol", protocol, "--host", "localhost", "--port", port, "--num_images", 5)
            (home / "token").write_text("secret")
            done = run_installed("bulkinfer", "request", *words, "--tls_ca", "cert.pem", "--token_file", "token", cwd=home)
            assert (done.returncode, done.stderr) == (0, ""), done
            lacking = {
                ("--token_file", "token"): "--tls_ca if it has TLS",
                ("--tls_ca", "cert.pem"): "wants a token: give it by --token_file or $BULKINFER_TOKEN",
            }
            for wrong, said in lacking.items():
                done = run_installed("bulkinfer", "request", *words, *wrong, cwd=home)
                assert done.returncode == 1, done.stdout
                assert said in done.stderr


def certificate(folder: Path) -> None:
    """cert.pem and key.pem: a certificate of localhost that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


def test_a_token_is_needed_where_one_is_set(home: Path) -> None:
    (home / "token").write_text("secret-1\n")
    with serving(home, "tiny", *ON_CPU, *BATCH, "--token_file", "token") as server:
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        for path in ("/v2", "/v2/models/tiny", "/metrics"):
            status, _, headers = server.ask("GET", path)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert server.ask("GET", path, Authorization="Bearer secret-2")[0] == 401
            assert server.ask("GET", path, Authorization="Bearer secret-1")[0] == 200
        for protocol in PROTOCOLS:
            with pytest.raises(ServerError) as failure:
                infer(server.client(protocol), images(1))
            assert failure.value.status in (401, "UNAUTHENTICATED")
            assert len(infer(server.client(protocol, token="secret-1"), images(1))["logits"]) == 1


def test_what_cannot_be_served_is_refused_at_once(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, reason in (
            (["tiny", "--port", port], "cannot listen on 127.0.0.1 (Address already in use)"),
            (["tiny", "--port", 0, "--grpc_port", port], "--grpc_port"),
            (["nothing"], "models/nothing/card.json does not exist"),
            ([], "no network named"),
            (["tiny", "tiny"], "names a network twice"),
            (["tiny", "--tls_cert", "x"], "--tls_cert and --tls_key belong together"),
            (["tiny", "--port", -1, "--grpc_port", -1], "leaves nothing to serve"),
            (["tiny", "--token_file", "none"], "--token_file none: No such file"),
        ):
            done = run_here("bulkinfer", "serve", "--port", 0, "--grpc_port", 0, *words, *ON_CPU, cwd=home)
            assert done.returncode == 2, (words, done.stdout, done.stderr)
            assert reason in done.stderr, (words, done.stderr)
            assert done.stderr.count("\n") == 1


def test_two_networks_of_one_server(home: Path) -> None:
    write_tiny_model(home / "models", "other", batch_sizes=(4,), input="float32")
    with serving(home, "tiny", "other", *ON_CPU, *BATCH) as server:
        photo = files_of(home)["001.jpg"]
        for protocol in PROTOCOLS:
            client = server.client(protocol)
            found = [infer(client, [photo], "class_ids", model=name)["class_ids"].tolist() for name in ("tiny", "other")]
            assert found[0] == found[1]
        assert server.ask("GET", "/v2/models/other")[1]["inputs"][0] == {
            "name": "images", "datatype": "FP32", "shape": [-1, 3, SIZE, SIZE],
        }  # fmt: skip


def test_request_measures_with_a_server_of_its_own(home: Path) -> None:
    port = free_port()
    words = (
        "tiny",
        *ON_CPU,
        "--model_batch_size",
        4,
        "--port",
        port,
        "--num_images",
        21,
        "--batch_size",
        4,
        "--to",
        "figures.json",
        "--overwrite",
    )
    done = run_installed("bulkinfer", "request", *words, cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads((home / "figures.json").read_text())
    assert (figures["requests"], figures["pictures"], figures["failed"]) == (12, 42, 0)
    assert 0 < figures["min_ms"] <= figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert f"average throughput: {figures['images_per_s']:.1f} images/sec" in done.stdout
    with pytest.raises(ConnectionRefusedError):
        raw_connection(port)
