"""From the command to the first finished batch: how long one worker takes until it works.

    python tools/bench/startup.py --data_dir PHOTOS

Time counts from right before the exec of infer_launch to the moment at which the worker has published its first step, which
is one batch. So it holds the launcher, the scan of a folder of ten batches, start and imports of the worker, loading, warm-up,
decoding, the network and the writing of rows. Networks are launched in turn. A first launch of each is not counted: after it,
all files come from the page cache and `--device auto` has its measurement.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bulkinfer.bench.report import Quartiles
from comparison import spread
from conditions import conditions, heading
from ours import infer_launch
from picture_folder import fill, usable_jpegs

_BATCHES_IN_FOLDER = 10


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", nargs="+", default=["resnext101_32x4d", "efficientnet_lite0"], help="networks")
    parser.add_argument("--model_path", default="models", help="folder of model folders")
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graph")
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="auto", help="as infer_launch takes it")
    parser.add_argument("--precision", default="fp32", help="the same")
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/startup-<time>.json")
    return parser.parse_args()


def launch(given: argparse.Namespace, network: str, pictures: Path, folder: Path) -> dict[str, float]:
    """Seconds from the exec to the worker's readiness and to its first batch."""
    words: list[object] = ["--model_name", network, "--model_path", given.model_path, "--data_dir", pictures]
    words += ["--batch_size", given.batch_size, "--limit", given.batch_size, "--batches_per_step", 1, "--num_devices", 1]
    launched = infer_launch([*words, "--device", given.device, "--precision", given.precision], folder)
    ready, done = (launched.events(0, kind)[0]["time"] for kind in ("Ready", "StepDone"))
    return {"ready_s": ready - launched.started_s, "first_batch_s": done - launched.started_s}


def main() -> None:
    """Measure, tell, write."""
    given = arguments()
    output = given.output or Path("logs") / f"startup-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="startup-"))
    runs: dict[str, list[dict[str, float]]] = {network: [] for network in given.model_name}
    try:
        pictures = fill(scratch / "pictures", usable_jpegs(given.data_dir)[0], _BATCHES_IN_FOLDER * given.batch_size)
        for number in range(given.rounds + 1):
            for network in given.model_name:
                run = launch(given, network, pictures, scratch / f"logs-{network}-{number}")
                if number:
                    runs[network].append(run)
                    print(f"  {number}: {network} ready after {run['ready_s']:.2f} s, first batch {run['first_batch_s']:.2f} s")
    finally:
        shutil.rmtree(scratch)
    figures: dict[str, Any] = {}
    print("| network | precision | runs | until ready, s (quartiles) | until the first batch, s (quartiles) |")
    print("|---|---|---|---|---|")
    for network, several in runs.items():
        quartiles = {name: asdict(Quartiles.of([run[name] for run in several])) for name in ("ready_s", "first_batch_s")}
        figures[network] = {**quartiles, "runs": several}
        ready, done = (spread(quartiles[name], 2) for name in ("ready_s", "first_batch_s"))
        print(f"| {network} | {given.precision} | {len(several)} | {ready} | {done} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "networks": figures}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
