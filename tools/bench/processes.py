"""Eight worker processes against one, on the same pictures, in turn: does sharing a host cost anything?

    python tools/bench/processes.py --model_name resnext101_32x4d --data_dir PHOTOS

The rate of several workers is the sum of theirs while all of them work: from when the last one has finished its first step to
when the first one has finished its last. Start-up and the end, where some are idle, are outside. Prints each worker's cores.
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
from comparison import enough_pictures, spread, together
from conditions import conditions, heading
from ours import Launched, infer_launch
from picture_folder import fill, usable_jpegs

_STEPS_OF_A_WORKER = 12


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", default="resnext101_32x4d", help="network")
    parser.add_argument("--model_path", default="models", help="folder of model folders")
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graph")
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--num_devices", type=int, default=8, help="workers that are compared to one")
    parser.add_argument("--num_pictures", type=int, default=0, help="in a run; 0: about --seconds of one worker, or more")
    parser.add_argument("--seconds", type=float, default=20, help="of a run of one worker")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="auto", help="as infer_launch takes it")
    parser.add_argument("--precision", default="fp32", help="the same")
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/processes-<time>.json")
    return parser.parse_args()


def launch(given: argparse.Namespace, pictures: Path, count: int, num_devices: int, folder: Path) -> Launched:
    """One run of so many workers; steps are of the same size for any number of them."""
    per_step = max(1, count // given.batch_size // (_STEPS_OF_A_WORKER * given.num_devices))
    words: list[object] = ["--model_name", given.model_name, "--model_path", given.model_path, "--data_dir", pictures]
    words += ["--batch_size", given.batch_size, "--device", given.device, "--precision", given.precision]
    return infer_launch([*words, "--num_devices", num_devices, "--batches_per_step", per_step], folder)


def measure(given: argparse.Namespace, pictures: list[Path], scratch: Path) -> dict[str, Any]:
    """All rounds; the figures with every run behind them."""
    count = given.num_pictures
    if not count:
        few = enough_pictures(1, 1, given.batch_size)
        rate = together([launch(given, fill(scratch / "few", pictures, few), few, 1, scratch / "few-logs").steps(0)])
        at_least = _STEPS_OF_A_WORKER * given.num_devices * given.batch_size
        count = max(enough_pictures(rate, given.seconds, given.batch_size), at_least)
    folder = fill(scratch / "pictures", pictures, count)
    print(f"{given.model_name}: {given.rounds} round(s) of {given.num_devices} workers and of one; {count} pictures each")
    runs: list[dict[str, Any]] = []
    for number in range(1, given.rounds + 1):
        both: dict[str, Any] = {"round": number}
        for workers, name in ((given.num_devices, "several"), (1, "one")):
            launched = launch(given, folder, count, workers, scratch / f"logs-{number}-{workers}")
            both[name] = together(launched.steps(worker) for worker in range(workers))
            both[f"{name}_whole_run"] = launched.summary["images_per_s"]
            cores = [launched.affinity(worker) for worker in range(workers)]
            if number == 1:
                print(*(f"  worker {worker} of {workers}: cores {its}" for worker, its in enumerate(cores)), sep="\n")
                both[f"{name}_cores"], both[f"{name}_plan"] = cores, launched.summary["plan"]
        both["ratio"] = both["several"] / both["one"]
        print(f"  {number}: {both['several']:.1f} and {both['one']:.1f} images/s, ratio {both['ratio']:.2f}", flush=True)
        runs.append(both)
    quartiles = {name: asdict(Quartiles.of([run[name] for run in runs])) for name in ("several", "one", "ratio")}
    return {"network": given.model_name, "num_devices": given.num_devices, "pictures": count, **quartiles, "runs": runs}


def main() -> None:
    """Measure, tell, write."""
    given = arguments()
    output = given.output or Path("logs") / f"processes-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    pictures, left_out = usable_jpegs(given.data_dir)
    found = conditions(is_quick=False, different_pictures=len(pictures), left_out=left_out)
    print("\n".join(heading(found)), flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="processes-"))
    try:
        figures = measure(given, pictures, scratch)
    finally:
        shutil.rmtree(scratch)
    print(
        f"| network | precision | runs | {given.num_devices} workers, images/s (quartiles) | 1 worker | ratio |",
        "|---|---|---|---|---|---|",
        f"| {given.model_name} | {given.precision} | {given.rounds} | {spread(figures['several'], 1)} | "
        f"{spread(figures['one'], 1)} | {spread(figures['ratio'], 2)} |",
        sep="\n",
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**found, **figures}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
