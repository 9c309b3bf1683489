"""Two sets of options of infer_launch on the same pictures, in turn: which is faster, and by how much?

    python tools/bench/pairs.py --a=--decode=fast --b=--decode=exact --num_pictures 1200 --data_dir PHOTOS \\
        -- --model_name efficientnet_lite0 --device openvino --precision fp32

Words behind `--` go to both. With `--baseline` the second one runs the package of another checkout. Pictures per second are
those between the first and the last published step of one worker; with `--synthetic` among the words no pictures are needed.
Prints each pair, and medians with quartiles.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bulkinfer.bench.report import Quartiles
from comparison import batches_per_step, spread, together
from conditions import conditions, heading
from ours import infer_launch
from picture_folder import fill, usable_jpegs


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", default="", help="options of the first")
    parser.add_argument("--b", default="", help="options of the second")
    parser.add_argument("--baseline", type=Path, help="folder of another checkout, which the second one runs")
    parser.add_argument("--data_dir", type=Path, help="folder of JPEGs")
    parser.add_argument("--num_pictures", type=int, default=600, help="in a run")
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graphs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="file of the figures; default logs/pairs-<time>.json")
    parser.add_argument("words", nargs="*", help="options of both, behind --")
    return parser.parse_args()


def run(given: argparse.Namespace, name: str, pictures: Path | None, folder: Path) -> tuple[float, float]:
    """Pictures per second, and CPU seconds a picture, of one launch of `name`, a or b."""
    options, checkout = (given.a, None) if name == "a" else (given.b, given.baseline)
    words: list[object] = [*given.words, *shlex.split(options), "--batch_size", given.batch_size, "--num_devices", 1]
    words += ["--batches_per_step", batches_per_step(given.num_pictures, given.batch_size)]
    words += ["--data_dir", pictures] if pictures else ["--iterations", 16]
    launched = infer_launch(words, folder, checkout=checkout)
    steps = launched.steps(0)
    return together([steps]), launched.cpu_s / sum(step.count for step in steps[1:])


def main() -> None:
    """Measure, tell, write."""
    given = arguments()
    output = given.output or Path("logs") / f"pairs-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    jpegs, left_out = usable_jpegs(given.data_dir) if given.data_dir else ([], 0)
    found = conditions(is_quick=False, different_pictures=len(jpegs), left_out=left_out)
    print("\n".join(heading(found)), flush=True)
    runs: list[dict[str, Any]] = []
    scratch = Path(tempfile.mkdtemp(prefix="pairs-"))
    try:
        pictures = fill(scratch / "pictures", jpegs, given.num_pictures) if jpegs else None
        for number in range(given.rounds + 1):  # the first one only warms up
            pair: dict[str, Any] = {}
            for name in ("a", "b"):
                pair[name], pair[f"{name}_cpu_s"] = run(given, name, pictures, scratch / f"{number}-{name}")
            if number:
                runs.append({**pair, "ratio": pair["a"] / pair["b"]})
                print(f"  {number}: {pair['a']:.1f} and {pair['b']:.1f} images/s, ratio {runs[-1]['ratio']:.2f}", flush=True)
    finally:
        shutil.rmtree(scratch)
    quartiles = {name: asdict(Quartiles.of([one[name] for one in runs])) for name in runs[0]}
    print("| | images/s (quartiles) | CPU ms a picture |", "|---|---|---|", sep="\n")
    for name, options in (("a", given.a), ("b", f"{given.b} {given.baseline or ''}".strip())):
        print(f"| {options or 'default'} | {spread(quartiles[name], 1)} | {1000 * quartiles[f'{name}_cpu_s']['median']:.2f} |")
    print(f"ratio: {spread(quartiles['ratio'], 2)} over {given.rounds} pairs")
    output.parent.mkdir(parents=True, exist_ok=True)
    asked = {"words": given.words, "a": given.a, "b": given.b, "baseline": str(given.baseline or "")}
    output.write_text(json.dumps({**found, **asked, **quartiles, "runs": runs}, indent=1) + "\n")
    print(f"written: {output}")


if __name__ == "__main__":
    main()
