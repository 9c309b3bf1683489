"""Rows of docs/processors.json from what `bulkinfer bench` wrote, and docs/processors.md from these rows. Measures nothing.

After the file has changed by hand, as in a merge, this makes the page again:

    python -m tools.bench.processor_rows
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bulkinfer.bench.report import Quartiles
from bulkinfer.host.versions import NATIVE_HALVES, processor_features

ROOT = Path(__file__).resolve().parents[2]
ROWS, PAGE = ROOT / "docs" / "processors.json", ROOT / "docs" / "processors.md"
INTRODUCTION = """# Processors

What processors reach: one row for each processor, network, provider and precision that was measured. This page is made from
[processors.json](processors.json), which `tools/bench/processors.py` writes; that file also has versions and times.

```sh
python tools/demo_photos.py photos
python tools/bench/processors.py --model_name resnet50 efficientnet_lite0 --data_dir photos
```

Each figure is a median over rounds, in which all rows of a network take turns. Runs on different machines cannot be compared to
the last percent: other programs may have shared the machine.

- *Network alone*: synthetic input, no pictures.
- *End to end*: JPEGs in, rows of Parquet out. The JPEGs are the photographs of the folder, made 640 x 480.
- *Of the ideal*: end to end, as a share of the cores over the CPU time that a picture takes in decoding alone and in the
  network alone.
- *Times fp32*: the network alone, over the fastest row in fp32 of the same network on that processor, round by round.
"""
COLUMNS = (
    "network, batch",
    "provider",
    "precision",
    "network alone, images/s (quartiles)",
    "end to end, images/s (quartiles)",
    "of the ideal",
    "times fp32",
    "rounds",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
SETS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")  # instruction sets that decide how fast it is


@dataclass(frozen=True)
class Way:
    """One row to be measured: a network on a provider in a precision."""

    model: str
    device: str
    precision: str

    @property
    def key(self) -> str:
        return f"{self.device} {self.precision}"


def ways(name: str, model_path: Path, features: frozenset[str]) -> list[Way]:
    """The rows of a network on a processor with these instruction sets."""
    found = [Way(name, "cpu", "fp32"), Way(name, "openvino", "fp32")]
    if features & NATIVE_HALVES["bfloat16"]:
        found.append(Way(name, "openvino", "bf16"))
    if (model_path / name / "int8").is_dir():
        found += [Way(name, "cpu", "int8"), Way(name, "openvino", "int8")]
    return found


def rows(todo: Sequence[Way], found: dict[str, list[dict[str, Any]]], batch_size: int) -> list[dict[str, Any]]:
    """A row for each way, from the bench.json of its rounds."""
    alone = {key: [one["images_per_s"]["inference"]["median"] for one in several] for key, several in found.items()}
    fp32 = max((way.key for way in todo if way.precision == "fp32"), key=lambda key: statistics.median(alone[key]))
    return [
        {
            **conditions(found[way.key][-1]),
            "network": way.model,
            "batch_size": batch_size,
            "device": way.device,
            "precision": way.precision,
            "rounds": len(found[way.key]),
            "alone": asdict(Quartiles.of(alone[way.key])),
            "end_to_end": asdict(Quartiles.of([one["images_per_s"]["end_to_end"]["median"] for one in found[way.key]])),
            "share_of_ideal": asdict(Quartiles.of([one["share_of_ideal"] for one in found[way.key]])),
            "times_fp32": asdict(Quartiles.of([a / b for a, b in zip(alone[way.key], alone[fp32], strict=True)])),
        }
        for way in todo
    ]


def conditions(one: dict[str, Any]) -> dict[str, Any]:
    """What the figures of a bench depend on, apart from its options."""
    features = processor_features()
    return {
        "processor": f"{one['hardware']['processor']}{generation()}",
        "instruction_sets": [name for name in SETS if name in features],
        "cores": one["hardware"]["usable_cores"],
        "time": one["time"],
        "backend": one["device"].get("backend", ""),
        "versions": one["versions"],
    }


def generation() -> str:
    """Family and model of the processor: what a virtual machine calls AMD EPYC may be one of many."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    return f" (family {values['cpu family']}, model {values['model']})" if {"cpu family", "model"} <= values.keys() else ""


def together(kept: Iterable[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the file, with those that are measured again replaced."""
    again = {identity(row) for row in new}
    return sorted([*(row for row in kept if identity(row) not in again), *new], key=identity)


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is about."""
    return tuple(row[name] for name in ("processor", "cores", "network", "batch_size", "device", "precision"))


def page(kept: Sequence[dict[str, Any]]) -> str:
    """docs/processors.md: a table for each processor."""
    lines = [INTRODUCTION]
    for processor, cores in sorted({(row["processor"], row["cores"]) for row in kept}):
        own = [row for row in kept if (row["processor"], row["cores"]) == (processor, cores)]
        lines += [f"## {processor}, {cores} cores", "", f"With {', '.join(own[0]['instruction_sets'])}.", "", HEAD]
        lines += [*map(table_row, own), ""]
    return "\n".join(lines)


def table_row(row: dict[str, Any]) -> str:
    """One line of a table."""
    provider = row["device"] + (" (its own runtime)" if row["backend"] == "openvino" else "")
    alone, whole = (
        f"{value['median']:.1f} ({value['lower']:.1f} - {value['upper']:.1f})" for value in (row["alone"], row["end_to_end"])
    )
    share, times = row["share_of_ideal"]["median"], row["times_fp32"]["median"]
    cells = [
        f"{row['network']}, {row['batch_size']}",
        provider,
        row["precision"],
        alone,
        whole,
        f"{100 * share:.0f} %",
        f"{times:.2f}",
    ]
    return f"| {' | '.join([*cells, str(row['rounds'])])} |"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(ROWS.read_text())))
