"""From the command to the first finished batch: how long one worker takes until it works.

    python tools/bench/startup.py --data_dir PHOTOS [--other CHECKOUT]

Time counts from right before the exec of infer_launch to the moment at which the worker has published its first step, which
is one batch unless --batches_per_step says otherwise. So it holds the launcher, the scan of the folder, start and imports of
the worker, loading, decoding, the network and the writing of rows. Networks are launched in turn. A first launch of each is not
counted: after it, all files come from the page cache and `--device auto` has its measurement.

With --other, the package of another checkout is launched too, in pairs whose order alternates; the differences are its time
less ours.
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
    parser.add_argument("--other", type=Path, help="checkout of another version, to be launched in pairs with this one")
    parser.add_argument("--batches_per_step", type=int, default=1, help="as infer_launch takes it")
    parser.add_argument("--batches", type=int, default=1, help="in a launch; the folder holds at least ten")
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/startup-<time>.json")
    return parser.parse_args()


def launch(
    given: argparse.Namespace, network: str, pictures: Path, folder: Path, checkout: Path | None = None
) -> dict[str, float]:
    """Seconds from the exec to the worker's readiness and to its first published step."""
    words: list[object] = ["--model_name", network, "--model_path", given.model_path, "--data_dir", pictures]
    words += ["--batch_size", given.batch_size, "--limit", given.batches * given.batch_size, "--num_devices", 1]
    words += ["--batches_per_step", given.batches_per_step, "--device", given.device, "--precision", given.precision]
    launched = infer_launch(words, folder, checkout=checkout)
    ready, done = (launched.events(0, kind)[0]["time"] for kind in ("Ready", "StepDone"))
    return {"ready_s": ready - launched.started_s, "first_batch_s": done - launched.started_s}


def launch_pair(given: argparse.Namespace, network: str, pictures: Path, folder: Path, number: int) -> dict[str, float]:
    """The figures of a launch; with --other those of the pair as well, and how much earlier our first step came."""
    if given.other is None:
        return launch(given, network, pictures, folder)
    checkouts = {"other": given.other, "ours": Path(__file__).parents[2]}
    order = list(checkouts)[:: 1 if number % 2 else -1]
    found = {name: launch(given, network, pictures, folder / name, checkouts[name]) for name in order}
    others = {f"other_{name}": seconds for name, seconds in found["other"].items()}
    earlier_s = found["other"]["first_batch_s"] - found["ours"]["first_batch_s"]
    return {**found["ours"], **others, "earlier_s": earlier_s}


def main() -> None:
    """Measure, tell, write."""
    given = arguments()
    output = given.output or Path("logs") / f"startup-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    found = conditions(is_quick=False)
    print("\n".join(heading(found)), flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="startup-"))
    runs: dict[str, list[dict[str, float]]] = {network: [] for network in given.model_name}
    try:
        pictures = fill(
            scratch / "pictures", usable_jpegs(given.data_dir)[0], max(given.batches, _BATCHES_IN_FOLDER) * given.batch_size
        )
        for number in range(given.rounds + 1):
            for network in given.model_name:
                run = launch_pair(given, network, pictures, scratch / f"logs-{network}-{number}", number)
                if number:
                    runs[network].append(run)
                    print(
                        f"  {number}: {network}",
                        ", ".join(f"{name} {seconds:.2f}" for name, seconds in run.items()),
                        flush=True,
                    )
    finally:
        shutil.rmtree(scratch)
    figures: dict[str, Any] = {}
    names = list(next(iter(runs.values()))[0])
    print(f"| network, seconds (quartiles) | precision | runs | {' | '.join(names)} |")
    print(f"|---|---|---|{'---|' * len(names)}")
    for network, several in runs.items():
        quartiles = {name: asdict(Quartiles.of([run[name] for run in several])) for name in names}
        figures[network] = {**quartiles, "runs": several}
        shown = " | ".join(spread(quartiles[name], 2) for name in names)
        print(f"| {network} | {given.precision} | {len(several)} | {shown} |")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, "networks": figures}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
