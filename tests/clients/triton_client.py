"""Triton's own client against a server, in an environment that has it: `python triton_client.py WHAT FOLDER REST GRPC`.

Reads pictures (files in FOLDER/photos), writes what it got to FOLDER/got.npz, and prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

MODEL = "tiny"
SIZE = 32
OUTPUTS = ("logits", "embedding", "class_ids", "scores", "class_names")
ADDRESSES = dict(zip(("rest", "grpc"), sys.argv[3:5], strict=True))
MODULES: dict[str, Any] = {"rest": tritonclient.http, "grpc": tritonclient.grpc}


def client_of(protocol: str) -> Any:
    """A client, as users make one."""
    return MODULES[protocol].InferenceServerClient(f"127.0.0.1:{ADDRESSES[protocol]}")


def tensor_input(protocol: str, images: Any) -> Any:
    """Tensors as the graph takes them."""
    given = MODULES[protocol].InferInput("images", images.shape, "UINT8")
    given.set_data_from_numpy(images)
    return given


def picture_input(protocol: str, files: list[bytes]) -> Any:
    """Encoded pictures."""
    given = MODULES[protocol].InferInput("pictures", [len(files)], "BYTES")
    given.set_data_from_numpy(np.array([*files, b""], dtype=object)[:-1])
    return given


def facts(_folder: Path) -> Any:
    """What the server says of itself, over both protocols."""
    found = {}
    for protocol in MODULES:
        client = client_of(protocol)
        about = client.get_model_metadata(MODEL, **({"as_json": True} if protocol == "grpc" else {}))
        found[protocol] = {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model_ready": [client.is_model_ready(MODEL), client.is_model_ready(MODEL, "1"), client.is_model_ready("other")],
            "name": client.get_server_metadata(**({"as_json": True} if protocol == "grpc" else {}))["name"],
            "inputs": [each["name"] for each in about["inputs"]],
            "outputs": [[each["name"], each["datatype"]] for each in about["outputs"]],
        }
    return found


def batches(folder: Path) -> Any:
    """Tensors and pictures, 1 to 18 of them in a request, with outputs by name and without."""
    files = [path.read_bytes() for path in sorted((folder / "photos").glob("*.jpg"))]
    images = np.random.default_rng(0).integers(0, 256, (18, SIZE, SIZE, 3), np.uint8)
    got = {"images": images}
    for protocol, module in MODULES.items():
        client = client_of(protocol)
        for count in (1, 5, 6, 7, 12, 18):
            for kind, given in (("t", tensor_input(protocol, images[:count])), ("p", picture_input(protocol, files[:count]))):
                wanted = [module.InferRequestedOutput(name) for name in OUTPUTS]
                whole, by_name = client.infer(MODEL, [given]), client.infer(MODEL, [given], outputs=wanted)
                for name in OUTPUTS:
                    assert np.array_equal(whole.as_numpy(name), by_name.as_numpy(name)), name
                    values = whole.as_numpy(name)
                    got[f"{protocol} {kind} {count} {name}"] = values.astype(str) if values.dtype == object else values
        as_json = module.InferInput("images", [1, SIZE, SIZE, 3], "UINT8")
        if protocol == "rest":
            as_json.set_data_from_numpy(images[:1], binary_data=False)
            plain = client.infer(MODEL, [as_json], outputs=[module.InferRequestedOutput("logits", binary_data=False)])
            assert np.array_equal(plain.as_numpy("logits").astype(np.float32), got["rest t 1 logits"])
        refused = []
        for name, shape, dtype in (("images", (1, 3, SIZE, SIZE), "UINT8"), ("other", (1, SIZE, SIZE, 3), "UINT8")):
            given = module.InferInput(name, shape, dtype)
            given.set_data_from_numpy(np.zeros(shape, np.uint8))
            try:
                client.infer(MODEL, [given])
            except InferenceServerException as error:
                refused.append(str(error.status()))
        assert refused == [{"rest": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}[protocol]] * 2, refused
    np.savez(folder / "got.npz", **got)
    return sorted(got)


def many(folder: Path) -> Any:
    """A thousand requests; ends early when the server refuses."""
    return _sent(folder, 1000)


def endless(folder: Path) -> Any:
    """Requests until the server refuses."""
    return _sent(folder, math.inf)


def _sent(folder: Path, requests: float, clients: int = 8) -> Any:
    """So many requests from so many clients, of both protocols and inputs; ends early when the server refuses.

    The two hundredth answer is told.
    """
    files = [path.read_bytes() for path in sorted((folder / "photos").glob("*.jpg"))]
    answers: dict[str, Any] = {}
    refused: list[str] = []
    lock = threading.Lock()

    def send(number: int) -> None:
        protocol = ("rest", "grpc")[number % 2]
        client = client_of(protocol)
        for index in itertools.takewhile(lambda index: index < requests, itertools.count(number, clients)):
            first, count = index % (len(files) - 5), 1 + index % 5
            try:
                found = client.infer(MODEL, [picture_input(protocol, files[first : first + count])])
            except Exception as error:
                refused.append(f"{type(error).__name__}: {error}")
                return
            with lock:
                for name in ("logits", "scores", "class_ids"):
                    answers[f"{first} {count} {index} {name}"] = found.as_numpy(name)
                if len(answers) == 3 * 200:
                    print("half way", flush=True)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.savez(folder / "got.npz", **answers)
    return {"answered": len(answers) // 3, "refused": refused}


def schema(_folder: Path) -> Any:
    """The fields of its messages, by name: number, type, whether they repeat."""
    from tritonclient.grpc import service_pb2

    found = {}
    pending = list(service_pb2.DESCRIPTOR.message_types_by_name.values())
    while pending:
        message = pending.pop()
        pending += message.nested_types
        found[message.full_name] = {field.name: [field.number, field.type, field.is_repeated] for field in message.fields}
    return found


WHAT = {"facts": facts, "batches": batches, "many": many, "endless": endless, "schema": schema}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](Path(sys.argv[2]))))
