"""What an entry needs and this machine lacks, in words."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.commands import environment_of, expanded, unset_variables, words_of
from bulkinfer.bench.spec.entry import BUILT_IN, Entry
from bulkinfer.errors import BulkinferError
from bulkinfer.host.cores import core_budget
from bulkinfer.host.memory import usable_memory
from bulkinfer.host.versions import processor_features
from bulkinfer.runtime.devices import AUTO, find_candidates, parse_device
from bulkinfer.types import printable

WITHOUT = "no "  # before a feature that the processor must lack
_GIB = 1 << 30


def missing(entry: Entry, folder: Path) -> list[str]:
    """What is not here, such as "the package torch"; `folder` is where the commands run."""
    unset = unset_variables(entry)
    environment = environment_of(entry)
    wanted = [name for name in entry.needs.environment if name not in environment]
    found = [f"the environment variable {name}" for name in dict.fromkeys((*wanted, *unset))]
    found += _of_the_machine(entry)
    for file in entry.needs.files:
        if unset or not (folder / expanded(file, environment)).exists():
            found.append(f"the file or folder {file}")
    for program in () if unset else _programs(entry, environment):
        place = program if "/" not in program else str(folder / program)
        if shutil.which(place, path=environment["PATH"]) is None:
            found.append(f"the program {printable(program.encode())}")
    return found


def _of_the_machine(entry: Entry) -> Iterator[str]:
    needs = entry.needs
    for package in needs.packages:
        if not package.isidentifier() or importlib.util.find_spec(package) is None:
            yield f"the package {package}"
    for device in needs.devices:
        try:
            find_candidates(parse_device(device, AUTO))
        except (BulkinferError, ImportError, OSError):
            yield f"--device {device}"
    features = processor_features()
    for feature in needs.processor:
        name = feature.removeprefix(WITHOUT)
        if not features or (name in features) != (name == feature):  # no features: they are not known
            yield f"a processor {'with' if name == feature else 'without'} {name}"
    if needs.cores > core_budget().usable:
        yield f"{needs.cores} cores"
    memory = usable_memory()
    if memory is not None and needs.memory_gib * _GIB > memory:
        yield f"{needs.memory_gib} GiB of memory"
    yield from needs.other


def _programs(entry: Entry, environment: dict[str, str]) -> list[str]:
    """The programs that the commands start, and those that they name as needed."""
    found = list(entry.needs.programs)
    built_in = dict.fromkeys(BUILT_IN, "1")
    for command in filter(None, (*entry.before, entry.cmd)):
        for variant in entry.variants:
            found.append(expanded(words_of(command, variant.values, built_in, Place(entry.name))[0], environment))
    return list(dict.fromkeys(found))
