"""What processors do: `bulkinfer bench` in each precision, in turn; the rows of a processor join docs/processors.md.

    python tools/bench/processors.py --model_name resnet50 efficientnet_lite0 --data_dir PHOTOS

Makes a row for each network and precision: fp32 on the providers cpu and openvino, bf16 where the processor has it, int8 where
the network has the folder int8 (get_model --precision int8). Each round runs every row's bench once, so rows take turns. They
replace those of the same processor, cores, network, provider and precision in docs/processors.json; others stay. The page is
made of that file.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bulkinfer.host.versions import processor_features
from picture_folder import of_one_size, usable_jpegs
from processor_rows import HEAD, PAGE, ROWS, Way, page, rows, table_row, together, ways

BULKINFER = Path(sys.executable).parent / "bulkinfer"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", nargs="+", required=True)
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--model_path", type=Path, default=Path("models"))
    parser.add_argument("--batch_size", type=int, default=16, help="that of the graphs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="length of each of the three measurements of a bench")
    return parser.parse_args()


def bench(way: Way, given: argparse.Namespace, pictures: Path, folder: Path) -> dict[str, Any]:
    """One round of bulkinfer bench; the content of its bench.json."""
    words = ["--model_name", way.model, "--device", way.device, "--precision", way.precision, "--rounds", 1]
    words += ["--seconds", given.seconds, "--batch_size", given.batch_size, "--data_dir", pictures]
    words += ["--model_path", given.model_path, "--log_path", folder]
    done = subprocess.run([BULKINFER, "bench", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bulkinfer bench {shlex.join(map(str, words))} ended with {done.returncode}: {done.stderr.strip()}")
    (path,) = folder.glob("bench-*/bench.json")
    found: dict[str, Any] = json.loads(path.read_text())
    shutil.rmtree(path.parent)
    return found


def measure(name: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a network: all its ways in turn, round by round."""
    todo = ways(name, given.model_path, processor_features())
    found: dict[str, list[dict[str, Any]]] = {way.key: [] for way in todo}
    with tempfile.TemporaryDirectory(prefix="processors-") as scratch:
        pictures = of_one_size(Path(scratch) / "pictures", usable_jpegs(given.data_dir)[0])
        for number in range(1, given.rounds + 1):
            for way in todo:
                found[way.key].append(bench(way, given, pictures, Path(scratch) / "logs"))
                rates = {kind: value["median"] for kind, value in found[way.key][-1]["images_per_s"].items()}
                told = ", ".join(f"{kind} {rate:.1f}" for kind, rate in rates.items())
                print(f"  {name} {way.key}, round {number}: {told}", flush=True)
    return rows(todo, found, given.batch_size)


def main() -> None:
    """Measure, and write both files."""
    given = arguments()
    for name in given.model_name:
        new = measure(name, given)
        kept = json.loads(ROWS.read_text()) if ROWS.exists() else []
        ROWS.write_text(json.dumps(together(kept, new), indent=1) + "\n")
        PAGE.write_text(page(json.loads(ROWS.read_text())))
        print("\n".join([HEAD, *map(table_row, new)]), flush=True)


if __name__ == "__main__":
    main()
