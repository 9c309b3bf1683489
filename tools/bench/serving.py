"""bulkinfer serve beside bulkinfer bench, in turn: what the protocol, batches of many clients and these clients cost.

    python tools/bench/serving.py --model_name resnet50 --precision fp32 --device cpu --clients 32

In each round: the network alone and files to rows, by `bulkinfer bench`; tensors and JPEGs from clients that wait for their
answers; tensors at random times at half that rate. Clients are threads of one process on the same cores: their processor time
is printed. The pictures are random JPEGs of 640 x 480. Prints each round, and medians with quartiles.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from bulkinfer.bench.report import Quartiles
from bulkinfer.serve.client.payloads import random_jpeg
from comparison import spread
from conditions import conditions, heading

_COMMAND = [sys.executable, "-P", "-m", "bulkinfer"]
_PICTURES = 16
_ANSWERED = "bulkinfer_pictures_total"
_WARM_UP = 2  # requests of each client
_EVERY_S = 1.0  # what the server has counted is read
_FEWEST = 5  # readings that a rate is made of


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", default="resnet50")
    parser.add_argument("--model_path", type=Path, default=Path("models"))
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graph")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--protocol", default="grpc", choices=("grpc", "rest"))
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--images", type=int, default=30, help="of each client in a measurement")
    parser.add_argument("--half_images", type=int, default=20, help="the same at half the rate")
    parser.add_argument("--half_only", action="store_true", help="measure tensors and half their rate alone")
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement of bulkinfer bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/serving-<time>.json")
    return parser.parse_args()


def network_options(given: argparse.Namespace) -> list[str]:
    """What the options of bench and serve have in common."""
    names = ("model_name", "batch_size", "device", "precision")
    return [f"--model_path={given.model_path.absolute()}", *(f"--{name}={getattr(given, name)}" for name in names)]


def bench(given: argparse.Namespace, pictures: Path, folder: Path) -> dict[str, float]:
    """Pictures per second, and CPU ms a picture, of the network alone and from files to rows."""
    words = [*_COMMAND, "bench", str(pictures), *network_options(given), f"--seconds={given.seconds}", "--rounds=1"]
    subprocess.run([*words, f"--log_path={folder}"], check=True, stdout=subprocess.DEVNULL)
    found = json.loads((folder / "latest" / "bench.json").read_text())
    rates, cpu_s = found["images_per_s"], found["cpu_s_per_picture"]
    return {
        "network alone": rates["inference"]["median"],
        "files to rows": rates["end_to_end"]["median"],
        "network alone, CPU ms": 1000 * cpu_s["inference"]["median"],
        "files to rows, CPU ms": 1000 * cpu_s["end_to_end"]["median"],
    }


class Server:
    """A server at free ports during a block."""

    def __init__(self, given: argparse.Namespace) -> None:
        words = [*_COMMAND, "serve", *network_options(given), "--port=0", "--grpc_port=0"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = next(line for line in self._process.stdout if line.startswith("ready: "))
        self.ports = dict(zip(("rest", "grpc"), re.findall(r":(\d+)", ready), strict=True))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def counts(self) -> Counter[str]:
        """Runs of the network, their seconds and pictures, and CPU seconds, from the start of the server on; and the time."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['rest']}/metrics", timeout=60) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines() if line[0] != "#"]
        found = Counter({re.sub(r"\{.*", "", name): float(value) for name, value in lines})
        found["seconds"] = time.perf_counter()
        return found


def measure(given: argparse.Namespace, server: Server, folder: Path, images: int, *words: str) -> dict[str, Any]:
    """The figures of bulkinfer request, and under `counts` what the server has counted while all clients had a request open.

    `counts` begin when each client has had its first answers, and end before the first client has sent its last request: a
    rate of the whole would hold the batches of the beginning and the end, which are not full.
    """
    path, samples = folder / "figures.json", [server.counts()]
    load = [f"--num_threads={given.clients}", f"--num_images={images}", f"--protocol={given.protocol}", f"--warm_up={_WARM_UP}"]
    options = [f"--model_name={given.model_name}", f"--port={server.ports[given.protocol]}", f"--to={path}", "--overwrite"]
    with subprocess.Popen([*_COMMAND, "request", *options, *load, *words], stdout=subprocess.DEVNULL) as client:
        while client.poll() is None:
            time.sleep(_EVERY_S)
            samples.append(server.counts())
    assert client.returncode == 0, client.returncode
    first = samples[0][_ANSWERED] + (_WARM_UP + 2) * given.clients
    inside = [each for each in samples if first <= each[_ANSWERED] <= samples[-1][_ANSWERED] - 2 * given.clients]
    if len(inside) < _FEWEST:
        sys.exit(f"{images} pictures of each client end too soon to be measured: give more --images and --half_images")
    figures: dict[str, Any] = json.loads(path.read_text())
    return figures | {"counts": {name: value - inside[0][name] for name, value in inside[-1].items()}}


def parts(name: str, figures: dict[str, Any]) -> dict[str, float]:
    """What a measurement gives: rate, CPU of server and clients a picture, and how full and how long batches were."""
    counts = figures["counts"]
    runs, pictures = counts["bulkinfer_run_pictures_count"], counts["bulkinfer_run_pictures_sum"]
    return {
        name: counts[_ANSWERED] / counts["seconds"],
        f"{name}, CPU ms": 1000 * counts["process_cpu_seconds_total"] / pictures,
        f"{name}, CPU ms of clients": 1000 * figures["client_cpu_s"] / figures["pictures"],
        f"{name}, pictures in a batch": pictures / runs,
        f"{name}, ms of a batch": 1000 * counts["bulkinfer_run_seconds_sum"] / runs,
    }


def measure_round(given: argparse.Namespace, pictures: Path, folder: Path) -> dict[str, float]:
    """All figures of one round."""
    found = {} if given.half_only else bench(given, pictures, folder)
    with Server(given) as server:
        found |= parts("tensors", measure(given, server, folder, given.images))
        if not given.half_only:
            found |= parts("JPEGs", measure(given, server, folder, given.images, f"--data_dir={pictures}"))
        half = measure(given, server, folder, given.half_images, f"--rate={found['tensors'] / 2}")
    found |= parts("half the rate", half) | {"p50 at half the rate": half["p50_ms"], "p99 at half the rate": half["p99_ms"]}
    found["p99 at half the rate / ms of a batch"] = half["p99_ms"] / found["tensors, ms of a batch"]
    for served, alone in () if given.half_only else (("tensors", "network alone"), ("JPEGs", "files to rows")):
        found[f"{served} / {alone}"] = found[served] / found[alone]
        found[f"CPU of {alone} / {served} without clients"] = found[f"{alone}, CPU ms"] / found[f"{served}, CPU ms"]
    return found


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    output = given.output or Path("logs") / f"serving-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="serving-") as name:
        pictures = Path(name) / "pictures"
        pictures.mkdir()
        random = np.random.default_rng(0)
        for number in range(_PICTURES):
            (pictures / f"{number}.jpg").write_bytes(random_jpeg(random, 640, 480))
        for number in range(given.rounds):
            rounds.append(measure_round(given, pictures, Path(name)))
            print(f"  {number}: " + ", ".join(f"{what} {value:.2f}" for what, value in rounds[-1].items()), flush=True)
    quartiles = {what: asdict(Quartiles.of([one[what] for one in rounds])) for what in rounds[0]}
    print("| | median (quartiles) |", "|---|---|", sep="\n")
    for what, values in quartiles.items():
        print(f"| {what} | {spread(values, 2)} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "quartiles": quartiles, "rounds": rounds}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
