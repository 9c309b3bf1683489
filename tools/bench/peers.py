"""The same pictures through ours and through what people use otherwise, in turn: pictures per second and CPU time.

    python tools/bench/peers.py --model_name resnext101_32x4d efficientnet_lite0 --data_dir PHOTOS

The peers: `loop`, a torch DataLoader that feeds onnxruntime; `timm`, the way of its inference.py, in torch; `loop_no_spin` and
`timm_no_spin`, the same where threads that wait do not spin; `ray`, Ray Data with onnxruntime in actors; `openvino`, its
benchmark_app on random input, which is compared to `infer_launch --synthetic`. They run in an environment of their own, which
the first run makes. Ours is the infer_launch beside the Python that runs this. docs/benchmarks.md tells what is measured, and
how.

Every peer must find the best class that ours finds on 98 % of the pictures; one that does not is refused and left out, and
then this ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import peers_environment
from bulkinfer.host.cores import core_budget
from bulkinfer.model.card import check_graph_files
from comparison import (
    DEVICE_ONLY,
    OURS,
    RefusedError,
    Run,
    agreement,
    enough_pictures,
    figures,
    judged,
    table,
)
from conditions import conditions, heading
from contestants import IN_TORCH, PEERS, SCRIPTS, VARIANTS, Answers, Place, run_openvino, run_ours, run_script
from picture_folder import fill, usable_jpegs
from weights_for_torch import save_state


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", nargs="+", default=["resnext101_32x4d", "efficientnet_lite0"], help="networks")
    parser.add_argument("--model_path", default="models", help="folder of model folders")
    parser.add_argument("--batch_size", type=int, default=6, help="that of the graph")
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--num_pictures", type=int, default=0, help="in a run; 0: about --seconds of the slowest contestant")
    parser.add_argument("--seconds", type=float, default=10, help="of a run of the slowest contestant")
    parser.add_argument("--rounds", type=int, default=0, help="0: 9, with --quick 1")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="default: all")
    parser.add_argument("--device", default="auto", help="of ours")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of ours, and of peers that have it")
    parser.add_argument("--defaults", action="store_true", help="everybody with the options that they have by default")
    parser.add_argument("--quick", action="store_true", help="one round of few pictures: shows that all works, no figures")
    parser.add_argument("--peers_venv", type=Path, default=peers_environment.DEFAULT, help="environment of the peers")
    parser.add_argument("--output", type=Path, help="folder of peers.json and peers.md; default logs/peers-<time>")
    given = parser.parse_args()
    if given.defaults and (given.precision != "fp32" or given.device != "auto" or given.batch_size != 6):
        parser.error(
            "--defaults means the device, the precision and the batch size that everybody takes by default: leave them out"
        )
    if given.num_pictures % given.batch_size:
        parser.error("--num_pictures must be whole batches")
    if given.defaults:
        given.peers = [peer for peer in given.peers if peer not in VARIANTS]
    given.rounds = given.rounds or (1 if given.quick else 9)
    return given


class Contest:
    """The contestants on one network: each in turn, their answers judged, the refused ones left out."""

    def __init__(self, place: Place, peers: list[str], pictures: list[Path]) -> None:
        self.place, self._pictures = place, pictures
        self.in_turn = [OURS, *(name for name in peers if name in SCRIPTS)]
        self.in_turn += [DEVICE_ONLY, "openvino"] if "openvino" in peers else []
        self.refused: dict[str, str] = {}
        self._expected: Answers = {}
        self._folder, self._count = Path(), 0

    def prepare(self, count: int) -> None:
        """Run on `count` pictures from now on; what fp32 finds on them decides about peers."""
        self._folder, self._count = fill(self.place.scratch / f"pictures-{count}", self._pictures, count), count
        if self._is_fp32:
            return  # ours in the first round will tell
        self._expected = self._ours(replace(self.place, precision="fp32", device="cpu", defaults=False), 0)[1]
        for name in self.alive:
            if name in SCRIPTS and self.place.precision_of(name) != "fp32":
                self._attempt(name, lambda name=name: self._script(name, 0, "fp32"))

    @property
    def _is_fp32(self) -> bool:
        """True if ours computes in fp32; with default options it takes what the processor does best."""
        return self.place.precision == "fp32" and not self.place.defaults

    @property
    def alive(self) -> list[str]:
        return [name for name in self.in_turn if name not in self.refused]

    def round(self, number: int) -> list[Run]:
        """Every contestant once."""
        found = []
        for name in self.alive:
            run = self._attempt(name, lambda name=name: self._one(name, number))
            if run is not None:
                load = os.getloadavg()[0]
                found.append(replace(run, facts={**run.facts, "load_average": load}))
                print(
                    f"  {number}: {name:<20}{run.images_per_s:8.1f} images/s  {run.cpu_ms_per_picture:7.1f} CPU ms a picture",
                    flush=True,
                )
        return found

    def _attempt(self, name: str, run: Any) -> Run | None:
        try:
            done: Run = run()
        except RefusedError as error:
            if name == OURS:
                raise SystemExit(f"ours: {error}") from error
            self.refused[name] = str(error)
            print(f"  {name} is refused: {error}", flush=True)
            return None
        return done

    def _one(self, name: str, number: int) -> Run:
        if name == OURS:
            run, answers = self._ours(self.place, number)
            if self._is_fp32:
                self._expected = answers
                return run
            return replace(run, agreement=agreement(self._expected, answers))
        if name == DEVICE_ONLY:
            return run_ours(self.place, self._folder, self._count, number, is_synthetic=True)[0]
        if name == "openvino":
            return run_openvino(self.place, self._count, number)
        return self._script(name, number)

    def _ours(self, place: Place, number: int) -> tuple[Run, Answers]:
        run, answers = run_ours(place, self._folder, self._count, number)
        assert answers is not None, "a run on pictures has answers"
        return run, answers

    def _script(self, name: str, number: int, precision: str = "") -> Run:
        run, answers = run_script(self.place, name, self._folder, number, precision)
        judge = judged if run.facts["precision"] == "fp32" else agreement  # in bf16 near-ties fall either way
        return replace(run, agreement=judge(self._expected, answers))


def compare(given: argparse.Namespace, name: str, pictures: list[Path], python: Path, scratch: Path) -> dict[str, Any]:
    """All rounds on one network; returns what goes into peers.json."""
    scratch = scratch / name
    scratch.mkdir()
    folder = Path(given.model_path) / name
    card, _, graph = check_graph_files(folder, given.batch_size)
    state, peers, network = scratch / "state.pt", list(given.peers), ("", "")
    if set(IN_TORCH) & set(peers):
        try:
            network = save_state(card, Path(given.model_path), state)
        except LookupError as error:
            print(f"{name}: timm is left out, since {error}")
            peers = [peer for peer in peers if peer not in IN_TORCH]
    place = Place(
        card, graph, network, state, given.model_path, given.batch_size, given.device, given.precision, given.defaults,
        core_budget().usable, python, scratch,
    )  # fmt: skip
    contest = Contest(place, peers, pictures)
    count = given.num_pictures or enough_pictures(1, 1, given.batch_size)
    if not given.num_pictures and not given.quick:
        contest.prepare(count)
        print(f"{name}: how fast, on {count} pictures")
        slowest = min(run.images_per_s for run in contest.round(0))
        count = max(count, enough_pictures(slowest, given.seconds, given.batch_size))
    if not (scratch / f"pictures-{count}").exists():
        contest.prepare(count)
    print(f"{name}: {given.rounds} round(s) of {', '.join(contest.alive)}; {count} pictures each")
    runs = [run for number in range(1, given.rounds + 1) for run in contest.round(number)]
    kept = [run for run in runs if run.contestant not in contest.refused]
    rows = table(kept)
    rows += [f"\nRefused: {peer}: {reason}" for peer, reason in contest.refused.items()]
    print("\n".join(rows))
    return {
        "network": name,
        "weights": card.weights.source,
        "pictures": count,
        "figures": figures(kept),
        "refused": contest.refused,
        "table": rows,
        "runs": [run.as_json() for run in runs],
    }


def main() -> int:
    """Measure, tell, and write both files; 1 if a peer was refused."""
    given = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the run at hand ends too, and nothing stays behind
    output = given.output or Path("logs") / f"peers-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    pictures, left_out = usable_jpegs(given.data_dir)
    python = peers_environment.make(given.peers_venv)
    found = conditions(
        is_quick=given.quick, peers=peers_environment.versions(python), different_pictures=len(pictures), left_out=left_out
    )
    print("\n".join(heading(found)), flush=True)
    networks = []
    scratch = Path(tempfile.mkdtemp(prefix="peers-"))
    try:
        for name in given.model_name:
            networks.append(compare(given, name, pictures, python, scratch))
            output.mkdir(parents=True, exist_ok=True)
            (output / "peers.json").write_text(json.dumps({**found, "networks": networks}, indent=1) + "\n")
            told = heading(found)
            for network in networks:
                told += [
                    "",
                    f"### {network['network']}, {network['pictures']} pictures a run, weights {network['weights']}",
                    "",
                ]
                told += network["table"]
            (output / "peers.md").write_text("\n".join(told) + "\n")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"written: {output / 'peers.json'}, {output / 'peers.md'}")
    return 1 if any(network["refused"] for network in networks) else 0


if __name__ == "__main__":
    sys.exit(main())
