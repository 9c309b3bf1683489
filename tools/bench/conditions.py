"""The conditions of a measurement: what its figures depend on, for the file and in words."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bulkinfer.host.cores import core_budget
from bulkinfer.host.versions import processor, versions

_NATIVE_BF16 = ("amx_bf16", "avx512_bf16")  # flags of a processor


def conditions(*, is_quick: bool, peers: dict[str, str] | None = None, **facts: Any) -> dict[str, Any]:
    """Command, time, hardware, versions and load; `peers` are the versions in their environment."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    return {
        "format": 1,
        "command": shlex.join(["python", *sys.argv]),
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "hardware": {
            "processor": processor(),
            "cores": str(core_budget()),
            "native_bf16": not flags.isdisjoint(_NATIVE_BF16),
        },
        "system": platform.platform(),
        "versions": {"ours": versions(), "peers": peers or {}},
        "is_quick": is_quick,
        "load_average_before": os.getloadavg()[0],
        **facts,
    }


def heading(found: dict[str, Any]) -> list[str]:
    """The conditions in words, as Markdown."""
    hardware = found["hardware"]
    bf16 = "with bf16" if hardware["native_bf16"] else "without bf16"
    told = [f"{found['time']}", f"{hardware['processor']}, {bf16}", f"cores: {hardware['cores']}", f"system: {found['system']}"]
    for whose, packages in found["versions"].items():
        if packages:
            told.append(f"versions, {whose}: " + ", ".join(f"{name} {version}" for name, version in packages.items()))
    told.append(f"load average before: {found['load_average_before']:.2f}")
    if found["is_quick"]:
        told.append("quick: shows that all works, no figures to quote")
    return [f"`{found['command']}`", "", *(f"- {line}" for line in told)]
