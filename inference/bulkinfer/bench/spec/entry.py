"""What an entry of a file of benchmarks is, after its keys have been checked."""

from __future__ import annotations

from dataclasses import dataclass, field

REDUCTIONS = ("median", "mean", "final", "min", "max", "value")
BUILT_IN = ("run_dir", "rounds")  # names in braces that every command may hold


@dataclass(frozen=True)
class Metric:
    """A figure of an entry: where its samples come from, and how they become one value.

    One of `regexp` (of what the command prints), `file` with `path` (of a JSON file below the folder of the run) and `expr`
    (of other metrics) is set. The first `skip` samples of a run, in order of time, are dropped.
    """

    name: str
    label: str = ""
    regexp: str = ""
    file: str = ""
    path: str = ""
    expr: str = ""
    skip: int = 0
    reduction: str = "median"
    is_ratio: bool = False
    is_lower_better: bool = False
    digits: int | None = None
    position: int = -1  # in the tables; -1: it is not shown


@dataclass(frozen=True)
class Variant:
    """A command of an entry: its name, and the values of the names in braces."""

    name: str
    values: dict[str, str]


@dataclass(frozen=True)
class Needs:
    """What a machine must have for an entry. `memory_gib` and `cores` are at least so many."""

    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    processor: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    other: tuple[str, ...] = ()  # what only a person can bring, in words
    cores: int = 0
    memory_gib: int = 0


@dataclass(frozen=True)
class Entry:
    """One entry. `notes` says in a line each what its file asks for and is left out. `timeout_s` of 0 is none."""

    name: str
    cmd: str
    variants: tuple[Variant, ...]
    metrics: tuple[Metric, ...]
    description: str = ""
    table: str = ""
    env: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    location: str = ""
    timeout_s: float = 0.0
    rounds: int = 1
    ratios: tuple[tuple[str, str], ...] = ()
    needs: Needs = Needs()
    notes: tuple[str, ...] = ()

    @property
    def num_runs(self) -> int:
        """How often each variant runs: once, if the command takes the number of rounds and makes them itself."""
        return 1 if "{rounds}" in self.cmd else self.rounds

    @property
    def has_ratios(self) -> bool:
        return bool(self.ratios) or any(metric.is_ratio for metric in self.metrics)

    @property
    def shown(self) -> list[Metric]:
        """The metrics of the tables, in their order."""
        return sorted((metric for metric in self.metrics if metric.position >= 0), key=lambda metric: metric.position)
