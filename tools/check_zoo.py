"""The long check of the zoo: every network is exported in a process of its own; see tools/check_zoo.

For each: exported with random weights, which compares the graphs of free batch and of batch 1 with the source network and shows
that rows do not depend on each other; batch 3 added with the same checks; then both CPU providers run the graph of batch 3.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DONE = ROOT / ".check_zoo.jsonl"
PROVIDER_BOUND = 1e-3  # of the largest absolute value of an output: two libraries, two orders of addition
TIMM = (  # one small network of each of 49 families, which are files of timm; the cheapest first
    "mobilenetv3_small_050.lamb_in1k", "mobilevit_xxs.cvnets_in1k", "edgenext_xx_small.in1k", "mobilenetv2_050.lamb_in1k",
    "repghostnet_050.in1k", "efficientvit_m0.r224_in1k", "regnetx_002.pycls_in1k", "cspnext_tiny.rsb_a1_in1k",
    "starnet_s1.in1k", "iformer_t.in1k", "xcit_nano_12_p8_224.fb_in1k", "resnet10t.c3_in1k", "efficientvit_b0.r224_in1k",
    "efficientformerv2_s0.snap_dist_in1k", "pvt_v2_b0.in1k", "convnext_atto.d2_in1k", "fasternet_t0.in1k",
    "lcnetv2_small.paddle_in1k", "inception_next_atto.sail_in1k", "cs3darknet_focus_s.ra4_e3600_r256_in1k",
    "rexnet_100.nav_in1k", "mobileone_s1.apple_in1k", "pit_ti_224.in1k", "hardcorenas_b.miil_green_in1k",
    "ghostnet_100.in1k", "fastvit_t8.apple_in1k", "repvit_m0_9.dist_300e_in1k", "coat_tiny.in1k", "convit_tiny.fb_in1k",
    "deit_tiny_patch16_224.fb_in1k", "vit_tiny_patch16_224.augreg_in21k_ft_in1k", "hgnetv2_b0.ssld_stage2_ft_in1k",
    "swiftformer_s.dist_in1k", "shvit_s1.in1k", "vit_tiny_r_s16_p8_224.augreg_in21k_ft_in1k", "cpubone_nano.r224_in1k",
    "ese_vovnet19b_dw.ra_in1k", "efficientvim_m1.e300_in1k", "mambaout_femto.in1k", "levit_128s.fb_dist_in1k",
    "densenet121.ra_in1k", "crossvit_tiny_240.in1k", "visformer_tiny.in1k", "resnest14d.gluon_in1k",
    "resnetv2_18.ra4_e3600_r224_in1k", "legacy_seresnet18.in1k", "poolformerv2_s12.sail_in1k", "resmlp_12_224.fb_in1k",
    "swin_tiny_patch4_window7_224.ms_in1k",
)  # fmt: skip


def main() -> int:
    """Check what is asked for and not done yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these networks instead of all")
    parser.add_argument("--table", action="store_true", help="check nothing, print the table")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--limit_s", type=int, default=1200, help="seconds that one network may take")
    parser.add_argument("--memory_gb", type=int, default=10, help="memory that one network may take, in GB")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(check(options.one)))
        return 0
    names = options.only or in_order()
    if not options.table:
        for name in names:
            if name not in done():
                result = in_a_process(name, options.limit_s, options.memory_gb)
                with DONE.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(f"{name}: {result.get('failure') or 'ok'} ({result['seconds']:.0f} s)", file=sys.stderr, flush=True)
    print(table(names))
    return 0


def in_order() -> list[str]:
    """All names: the zoo by cost (parameters, and more for large pictures), with timm's after the small ones."""
    from bulkinfer.zoo import NETWORKS

    cost = {name: spec.num_parameters * (spec.recipe.width / 224) ** 2 for name, spec in NETWORKS.items()}
    zoo = sorted(cost, key=cost.__getitem__)
    small = [name for name in zoo if cost[name] < 30e6]
    return small + [f"timm:{name}" for name in TIMM] + zoo[len(small) :]


def done() -> dict[str, dict[str, Any]]:
    """Results so far by name; the last one counts."""
    lines = DONE.read_text().splitlines() if DONE.exists() else []
    return {result["name"]: result for result in map(json.loads, lines)}


def in_a_process(name: str, limit_s: int, memory_gb: int) -> dict[str, Any]:
    """The result for one network, or how its process ended."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_gb << 30, memory_gb << 30))

    start = time.monotonic()
    words = [sys.executable, __file__, "--one", name]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, preexec_fn=limit, check=False)
        failure = ""
        if ended.returncode:
            failure = (ended.stderr.strip().splitlines() or [f"its process ended with {ended.returncode}"])[-1]
        result = {"failure": failure} if failure else json.loads(ended.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        result = {"failure": f"took more than {limit_s} s"}
    return {"name": name, "seconds": round(time.monotonic() - start, 1), **result}


def check(name: str) -> dict[str, Any]:
    """Export one network at batch 1 and 3 and run it on both providers."""
    from bulkinfer.config import GetModelConfig
    from bulkinfer.errors import BulkinferError
    from bulkinfer.export.get_model import make_network

    with tempfile.TemporaryDirectory() as models:
        try:
            first, third = (make_network(GetModelConfig(batch, name, models, weights="random")) for batch in (1, 3))
        except BulkinferError as error:
            return {"failure": str(error)}
        card = third.card
        parity = [
            values["max_abs_difference"] / values["max_abs_value"]
            for provided in (first, third)
            for values in provided.sidecar.parity.values()
        ]
        result = {
            "side": card.recipe.width,
            "num_parameters": card.num_parameters,
            "outputs": {output: shape[1] for output, shape in third.sidecar.outputs.items()},
            "export_s": round(first.seconds, 1),
            "parity": max(parity),
            "is_batch_independent": True,  # make_network() refuses what is not
            "providers": providers_differ(third.folder),
        }
    too_far = result["providers"] > PROVIDER_BOUND
    return result | ({"failure": f"the providers differ by {result['providers']:.1e}"} if too_far else {})


def providers_differ(folder: Path) -> float:
    """Largest difference between the outputs of both providers on golden pictures, as a share of the largest value."""
    from bulkinfer.model.graph_checks import read_golden
    from bulkinfer.runtime.providers import SessionSpec
    from bulkinfer.runtime.session import Session

    golden = read_golden(folder / "golden.npz")
    found = []
    for provider in ("cpu", "openvino"):
        session = Session(SessionSpec(str(folder / "model_3.onnx"), provider, "fp32", 1, 2), list(golden.outputs))
        found.append(session.run(golden.images_NHWC[:3]))
    return max(float(np.abs(found[0][name] - found[1][name]).max() / np.abs(found[0][name]).max()) for name in golden.outputs)


def table(names: list[str]) -> str:
    """The results as a Markdown table, with what they were measured on."""
    from bulkinfer.host.versions import processor

    results = done()
    lines = [
        "| network | source | input | parameters | embedding | export s | parity | independent | cpu and openvino | result |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        source = "timm" if name.startswith("timm:") else "lite" if "_lite" in name else "pretrainedmodels"
        one = results.get(name, {"failure": "not run"})
        if "parity" in one:
            facts = [str(one["side"]), f"{one['num_parameters'] / 1e6:.1f} M", str(one["outputs"].get("embedding", "none"))]
            facts += [f"{one['export_s']:.0f}", f"{one['parity']:.0e}", "yes", f"{one['providers']:.0e}"]
        else:
            facts = [""] * 7
        lines.append(f"| {' | '.join([name, source, *facts, one.get('failure') or 'ok'])} |")
    passed = sum(name in results and not results[name].get("failure") for name in names)
    versions = ", ".join(
        f"{p} {metadata.version(p)}" for p in ("torch", "timm", "onnx", "onnxruntime", "onnxruntime-ep-openvino")
    )
    return "\n".join(
        [*lines, "", f"{passed} of {len(names)} ok. {processor()}; Python {platform.python_version()}, {versions}."]
    )


if __name__ == "__main__":
    sys.exit(main())
