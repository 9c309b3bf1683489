"""`--device`: what it asks for, what that becomes on this host, and which worker gets which device."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from bulkinfer.config import EXACT, LaunchConfig
from bulkinfer.errors import AbsentError, UsageError
from bulkinfer.host.cores import CoreBudget, ThreadPlan, plan_threads, workers_for
from bulkinfer.host.versions import versions
from bulkinfer.runtime.providers import PROVIDERS

AUTO = "auto"
AS_ASKED = "as asked"
_COUNTED_STREAMS = 2  # of a worker that owns a GPU: one copies while the other computes
_CLEARLY_FASTER = 1.1  # less is noise on a shared host, and the choice would change from job to job


@dataclass(frozen=True, slots=True)
class Request:
    """`--device` and `--precision`: a key of PROVIDERS or auto, numbers of its devices (empty: all), the precision."""

    provider: str
    numbers: tuple[int, ...]
    precision: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What a request became: a key of PROVIDERS, why, and the devices to use, by number and by name; the precision, and why.

    The precision is `auto` until the launch has settled it.
    """

    provider: str
    reason: str
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    precision: str = EXACT
    precision_reason: str = AS_ASKED

    @property
    def is_counted(self) -> bool:
        """Its devices are told apart and get one worker each."""
        return PROVIDERS[self.provider].is_counted

    @property
    def models(self) -> list[str]:
        """Which kinds of device these are, without their places."""
        return sorted({name.partition(" at ")[0] for name in self.names})

    def only(self, numbers: Collection[int]) -> Choice:
        """The same without the devices that no worker gets."""
        used = [(number, name) for number, name in zip(self.numbers, self.names, strict=True) if number in numbers]
        return replace(self, numbers=tuple(number for number, _ in used), names=tuple(name for _, name in used))

    def __str__(self) -> str:
        devices = ", ".join(f"{number}: {name}" for number, name in zip(self.numbers, self.names, strict=True))
        return f"{self.provider} ({self.reason})" + (f"; {devices}" if self.is_counted else "")


def parse_device(text: str, precision: str) -> Request:
    """PROVIDER or PROVIDER:NUMBER,... as a request. Raises UsageError with the legal values."""
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    known = [name for name in (AUTO, *PROVIDERS) if f"{text.lower()}:".startswith(f"{name}:")]
    if not known:
        raise UsageError(f"--device {shown}: known are {', '.join((AUTO, *PROVIDERS))}; cuda:1,3 picks by number")
    name = max(known, key=len)
    if len(text) == len(name):
        return Request(name, (), precision)
    if name == AUTO or not PROVIDERS[name].is_counted:
        raise UsageError(f"--device {shown}: {name} has no devices to pick by number: use --device {name}")
    numbers = text[len(name) + 1 :]
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers, re.ASCII):
        raise UsageError(f"--device {shown}: devices are picked by number, as in {name}:1,3")
    picked = tuple(map(int, numbers.split(",")))
    if len(set(picked)) != len(picked):
        raise UsageError(f"--device {shown}: a device is named twice; --processes_per_device runs several workers on each")
    return Request(name, picked, precision)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What could serve a request here, in the order of preference; and why providers that are partly here cannot."""

    choices: tuple[Choice, ...]
    passed_over: tuple[str, ...] = ()


def find_candidates(request: Request) -> Candidates:
    """What could serve the request, as far as it can be told without loading anything; for auto, all that could.

    Raises UsageError if nothing can, saying what is missing.
    """
    if request.provider != AUTO:
        return Candidates((_available(request.provider, request, AS_ASKED),))
    found, passed_over, reasons = [], [], []
    for name, provider in PROVIDERS.items():
        if provider.is_automatic and request.precision in (AUTO, *provider.precisions):
            try:
                found.append(_available(name, request, ""))
            except UsageError as error:
                is_absent = isinstance(error, AbsentError)
                if not (is_absent and provider.is_counted):  # who has no GPU is not helped by packages for it
                    reasons.append(str(error))
                if not is_absent:
                    passed_over.append(_told(name, str(error)))
    if found:
        return Candidates(tuple(found), tuple(passed_over))
    raise UsageError(_nothing_for(request, reasons))


def _nothing_for(request: Request, reasons: list[str]) -> str:
    """Why `auto` finds nothing for a precision, and what else could be asked for here."""
    able = [name for name, entry in PROVIDERS.items() if request.precision in (AUTO, *entry.precisions)]
    told = reasons[-1] if reasons else f"--precision {request.precision} runs on {', '.join(able)}"
    if here := [name for name in able if not PROVIDERS[name].is_automatic and _is_here(name, request)]:
        return f"{told}; or ask for what auto does not take: --device {', '.join(here)}"
    return told if reasons else f"{told}, and none of them is here: use --precision {AUTO} or {EXACT}"


def _is_here(name: str, request: Request) -> bool:
    try:
        _available(name, request, "")
    except UsageError:
        return False
    return True


def _available(name: str, request: Request, reason: str) -> Choice:
    """Provider `name` for the request. Raises UsageError where it lacks the precision, a package, a driver or a device."""
    provider = PROVIDERS[name]
    if request.precision not in (AUTO, *provider.precisions):
        able = ", ".join(other for other, entry in PROVIDERS.items() if request.precision in entry.precisions)
        has = " or ".join(provider.precisions)
        raise UsageError(f"--device {name} runs {has}, not --precision {request.precision}, which runs on {able}")
    for module in provider.modules:
        if importlib.util.find_spec(module) is None:
            raise AbsentError(f"--device {name} needs the package {module}{_beside_gpu(provider.modules)}: {provider.install}")
    names = provider.find_devices()
    for number in request.numbers:
        if number >= len(names):
            here = ", ".join(f"{index}: {device}" for index, device in enumerate(names))
            raise UsageError(f"--device {name}:{number} is not here; there are {here}{_hidden(name)}")
    numbers = request.numbers or tuple(range(len(names)))
    if request.precision in provider.only_native:
        native, why = provider.native(numbers)
        if native != request.precision:
            way_out = f"--precision {EXACT}" if EXACT in provider.precisions else "another --device"
            raise UsageError(f"--precision {request.precision}: --device {name} does not emulate it, and {why}: use {way_out}")
    return Choice(name, reason, numbers, tuple(names[number] for number in numbers), request.precision)


def _beside_gpu(modules: tuple[str, ...]) -> str:
    """What to know before a package that brings its own onnxruntime is installed where the one for GPUs is."""
    if len(modules) == 1 or "onnxruntime-gpu" not in versions():
        return ""
    return ", which brings an onnxruntime that overwrites the onnxruntime-gpu here; in an environment of its own"


def _hidden(name: str) -> str:
    """What hides devices of the host, if anything does."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f" (CUDA_VISIBLE_DEVICES is {visible!r})" if visible is not None and name in ("cuda", "tensorrt") else ""


def as_begun(name: str, precision: str, request: Request, where: str) -> Choice:
    """The provider and the precision that the job in `where` began with. Raises UsageError where this machine cannot run it."""
    numbers = request.numbers if name == request.provider else ()
    reason = f"as the job began, in {where}"
    try:
        choice = _available(name, Request(name, numbers, precision), AS_ASKED if name == request.provider else reason)
    except UsageError as error:
        raise UsageError(f"{error}; {where} was begun on {name} in {precision}: give another --output to begin anew") from None
    return replace(choice, precision_reason=AS_ASKED if precision == request.precision else reason)


def choose(found: Candidates, measure: Callable[[tuple[Choice, ...]], Mapping[str, float | str]]) -> Choice:
    """The candidate to take: the only one, or what `measure` finds clearly faster than those that stand before it.

    `measure` gives pictures per second of one worker by provider, or the sentence of why it does not run, or nothing at all
    where it may not measure; each of several GPUs adds as much again. Raises UsageError where none runs.
    """
    first, *others = found.choices
    if first.reason:
        return first
    if not others:
        told = ["nothing else is here that could", *found.passed_over]
        return replace(first, reason=f"auto: {'; '.join(told)}")
    measured = measure(found.choices)
    if not measured:
        names = ", ".join(choice.provider for choice in found.choices)
        return replace(first, reason=f"auto: a launch would first measure {names}")
    rates = {
        choice.provider: rate * (len(choice.numbers) if choice.is_counted else 1)
        for choice in found.choices
        if not isinstance(rate := measured[choice.provider], str)
    }
    if not rates:
        raise UsageError(f"--device auto: none can run the network; {measured[found.choices[-1].provider]}")
    best = next(choice for choice in found.choices if choice.provider in rates)
    for choice in found.choices:
        if rates.get(choice.provider, 0.0) > _CLEARLY_FASTER * rates[best.provider]:
            best = choice
    told = [_told(choice.provider, rates.get(choice.provider, measured[choice.provider])) for choice in found.choices]
    return replace(best, reason=f"auto: {'; '.join([*told, *found.passed_over])}")


def _told(name: str, rate: float | str) -> str:
    if isinstance(rate, str):
        return f"{name} does not run: {rate.removeprefix(f'--device {name}: ')}"
    return f"{name} {rate:.1f} images/sec"


def plan_workers(config: LaunchConfig, choice: Choice, budget: CoreBudget) -> ThreadPlan:
    """Workers, their devices and threads. Raises UsageError for more workers than the devices take."""
    per_device = config.processes_per_device or 1
    if config.processes_per_device and config.num_devices and not choice.is_counted:
        raise UsageError(f"--processes_per_device beside --num_devices is for GPUs: {choice.provider} takes one of them")
    room = len(choice.numbers) * per_device
    several = room if choice.is_counted or config.processes_per_device else workers_for(budget)
    if choice.is_counted and config.num_devices > room:
        each = f", {per_device} processes each" if per_device > 1 else ""
        raise UsageError(
            f"--num_devices {config.num_devices}: {choice.provider} has {len(choice.numbers)} here{each}; "
            "--processes_per_device N runs several workers on each"
        )
    plan = plan_threads(
        budget,
        num_devices=config.num_devices or (1 if config.engine == "inline" else several),
        streams=config.streams or (_COUNTED_STREAMS if choice.is_counted else 0),
        num_workers=config.num_workers,
        threads_per_stream=config.threads_per_stream,
    )
    return plan.with_devices([choice.numbers[index % len(choice.numbers)] for index in range(plan.num_devices)])
