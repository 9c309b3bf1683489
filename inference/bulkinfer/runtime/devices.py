"""`--device`: parses it, finds the providers and devices of this host that satisfy it, and gives each worker its device."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bulkinfer.config import EXACT, LaunchConfig
from bulkinfer.errors import AbsentError, UsageError
from bulkinfer.host.cores import THREADS_ONLY, CoreBudget, ThreadPlan, plan_threads, workers_for
from bulkinfer.host.install_hint import install_command
from bulkinfer.host.number_text import rate_text
from bulkinfer.host.versions import versions
from bulkinfer.runtime.device_words import DEVICE_WORDS
from bulkinfer.runtime.providers import PROVIDERS, Provider, entry_of

AUTO = "auto"
AS_ASKED = "as asked"
_COUNTED_STREAMS = 2  # streams of a worker that owns a GPU: one copies while the other computes
_CLEARLY_FASTER = 1.1  # a smaller ratio is noise on a shared host, and the choice would change from job to job


@dataclass(frozen=True, slots=True)
class Request:
    """`--device` and `--precision` as given: a key of PROVIDERS or `auto`, device numbers (empty: all), and the precision."""

    provider: str
    numbers: tuple[int, ...]
    precision: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The provider, devices and precision chosen for a request.

    `provider` is a key of PROVIDERS, `reason` says why it was chosen. `numbers` and `names` are the devices to use, in the same
    order. `precision` is `auto` until the launch has settled it. `backend` is that of the provider's entry that runs them.
    """

    provider: str
    reason: str
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    precision: str = EXACT
    precision_reason: str = AS_ASKED
    backend: str = ""

    @property
    def entry(self) -> Provider:
        """The entry of the provider that runs the devices."""
        return entry_of(self.provider, self.backend)

    @property
    def is_alternative(self) -> bool:
        """True if another backend than the preferred one runs the devices."""
        return self.entry is not PROVIDERS[self.provider]

    @property
    def is_counted(self) -> bool:
        """True if its devices have numbers and get one worker each."""
        return PROVIDERS[self.provider].is_counted

    @property
    def models(self) -> list[str]:
        """Names of the devices without their positions on the bus, each once."""
        return sorted({name.partition(" at ")[0] for name in self.names})

    def only(self, numbers: Collection[int]) -> Choice:
        """The same choice, limited to the devices with these numbers."""
        used = [(number, name) for number, name in zip(self.numbers, self.names, strict=True) if number in numbers]
        return replace(self, numbers=tuple(number for number, _ in used), names=tuple(name for _, name in used))

    def __str__(self) -> str:
        devices = ", ".join(f"{number}: {name}" for number, name in zip(self.numbers, self.names, strict=True))
        by = f" by {self.entry.backend_version}" if self.is_alternative else ""
        return f"{self.provider}{by} ({self.reason})" + (f"; {devices}" if self.is_counted else "")


def parse_device(text: str, precision: str) -> Request:
    """Parse PROVIDER or PROVIDER:NUMBER,... Raises UsageError that names the legal values."""
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    known = [name for name in (AUTO, *PROVIDERS) if f"{text.lower()}:".startswith(f"{name}:")]
    if not known:
        meant = DEVICE_WORDS.get(text.lower().partition(":")[0])
        did_you = f"; did you mean {meant}?" if meant else ""
        raise UsageError(f"--device {shown}: known are {', '.join((AUTO, *PROVIDERS))}; cuda:1,3 picks by number{did_you}")
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
    """Choices that satisfy a request on this host, in order of preference, and why partly installed providers do not."""

    choices: tuple[Choice, ...]
    passed_over: tuple[str, ...] = ()


def find_candidates(request: Request) -> Candidates:
    """The choices that satisfy the request; for `auto` all of them. No graph is loaded yet.

    Raises UsageError that says what is missing if there is none.
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
                    passed_over.append(_describe(name, str(error)))
    if found:
        return Candidates(tuple(found), tuple(passed_over))
    raise UsageError(_explain_absence(request, reasons))


def _explain_absence(request: Request, reasons: list[str]) -> str:
    """Why `auto` finds no provider for a precision, and which `--device` would work on this host."""
    able = [name for name, entry in PROVIDERS.items() if request.precision in (AUTO, *entry.precisions)]
    why = reasons[-1] if reasons else f"--precision {request.precision} runs on {', '.join(able)}"
    if here := [name for name in able if not PROVIDERS[name].is_automatic and _is_available(name, request)]:
        return f"{why}; or ask for what auto does not take: --device {', '.join(here)}"
    return why if reasons else f"{why}, and none of them is here: use --precision {AUTO} or {EXACT}"


def _is_available(name: str, request: Request) -> bool:
    try:
        _available(name, request, "")
    except UsageError:
        return False
    return True


def _available(name: str, request: Request, reason: str, backend: str = "") -> Choice:
    """The choice of provider `name`, run by `backend` (empty: by the first one that is here).

    Raises UsageError if it lacks the precision, a package, a driver or a device.
    """
    provider = PROVIDERS[name]
    if request.precision not in (AUTO, *provider.precisions):
        able = ", ".join(other for other, entry in PROVIDERS.items() if request.precision in entry.precisions)
        has = " or ".join(provider.precisions)
        raise UsageError(f"--device {name} runs {has}, not --precision {request.precision}, which runs on {able}")
    provider, names = _find_backend(name, [entry for entry in provider.backends if backend in ("", entry.backend)])
    for number in request.numbers:
        if number >= len(names):
            here = ", ".join(f"{index}: {device}" for index, device in enumerate(names))
            raise UsageError(f"--device {name}:{number} is not here; there are {here}{_hidden(provider.hidden_by)}")
    numbers = request.numbers or tuple(range(len(names)))
    if request.precision in provider.only_native:
        native, why = provider.native(numbers)
        if native != request.precision:
            way_out = f"--precision {EXACT}" if EXACT in provider.precisions else "another --device"
            raise UsageError(f"--precision {request.precision}: --device {name} does not emulate it, and {why}: use {way_out}")
    found = tuple(names[number] for number in numbers)
    return Choice(name, reason, numbers, found, request.precision, backend=provider.backend)


def _find_backend(name: str, entries: Sequence[Provider]) -> tuple[Provider, list[str]]:
    """The first of `entries` that is here, and the names of its devices.

    Raises UsageError of the first one if none is; AbsentError means that the next one may be.
    """
    refusals = []
    for entry in entries:
        try:
            _require_modules(name, entry)
            return entry, entry.find_devices()
        except AbsentError as error:
            refusals.append(error)
    raise refusals[0]


def _require_modules(name: str, entry: Provider) -> None:
    for module in entry.modules:
        if importlib.util.find_spec(module) is None:
            how = f"{_beside_gpu(entry.modules)}: {install_command(entry.extra)}"
            raise AbsentError(f"--device {name} needs the package {module}{how}")


def _beside_gpu(modules: tuple[str, ...]) -> str:
    """A warning for the message: the missing package would overwrite onnxruntime-gpu with its own onnxruntime."""
    if len(modules) == 1 or "onnxruntime-gpu" not in versions():
        return ""
    return ", which brings an onnxruntime that overwrites the onnxruntime-gpu here; in an environment of its own"


def _hidden(variable: str) -> str:
    """For the message: the environment variable that hides devices of the host, if it is set."""
    visible = os.environ.get(variable)
    return "" if visible is None else f" ({variable} is {visible!r})"


def as_begun(name: str, precision: str, request: Request, where: str, backend: str = "") -> Choice:
    """The choice with which the job in `where` began; `backend` has its version, and is empty if none is recorded.

    Raises UsageError if this machine cannot run it.
    """
    numbers = request.numbers if name == request.provider else ()
    reason = f"as the job began, in {where}"
    asked = Request(name, numbers, precision)
    package = backend.partition(" ")[0] or PROVIDERS[name].backend
    begun = f"{where} was begun on {name} in {precision}{backend and f' by {backend}'}"
    try:
        choice = _available(name, asked, AS_ASKED if name == request.provider else reason, package)
    except UsageError as error:
        here = f", and here runs {_available(name, asked, '').entry.backend_version}" if _is_available(name, asked) else ""
        raise UsageError(f"{error}; {begun}{here}: give another --output to start a new job") from None
    if backend and choice.is_alternative and choice.entry.backend_version != backend:
        raise UsageError(f"{begun}, and here runs {choice.entry.backend_version}: install the former, or give another --output")
    return replace(choice, precision_reason=AS_ASKED if precision == request.precision else reason)


def choose(found: Candidates, measure: Callable[[tuple[Choice, ...]], Mapping[str, float | str]]) -> Choice:
    """The candidate to run on: the only one, or the first unless a later one is measured to be clearly faster.

    `measure` returns pictures per second of one worker by provider, or a sentence that says why the provider does not run; it
    returns nothing if it may not measure. The rate of a GPU is multiplied by their number. Raises UsageError if none runs.
    """
    first, *others = found.choices
    if first.reason:
        return first
    if not others:
        return replace(first, reason=f"auto: {'; '.join(['no other provider is available', *found.passed_over])}")
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
    results = [_describe(choice.provider, rates.get(choice.provider, measured[choice.provider])) for choice in found.choices]
    return replace(best, reason=f"auto: {'; '.join([*results, *found.passed_over])}")


def _describe(name: str, rate: float | str) -> str:
    if isinstance(rate, str):
        return f"{name} does not run: {rate.removeprefix(f'--device {name}: ')}"
    return f"{name} {rate_text(rate)}"


def asked_threads(config: LaunchConfig) -> dict[str, int]:
    """The options that say how many threads and loader processes a worker has; 0 where they leave it open."""
    names = ("num_workers", "loader_processes", "streams", "threads_per_stream")
    return {name: getattr(config, name) for name in names}


def plan_workers(config: LaunchConfig, choice: Choice, budget: CoreBudget) -> ThreadPlan:
    """The number of workers, their devices and threads. Raises UsageError if the flags ask for more workers than fit."""
    per_device = config.processes_per_device or 1
    num_devices = 0 if config.engine == "ray" else config.num_devices  # there it is that of all hosts together
    if config.processes_per_device and num_devices and not choice.is_counted:
        raise UsageError(f"--processes_per_device beside --num_devices is for GPUs: {choice.provider} takes one of them")
    room = len(choice.numbers) * per_device
    several = room if choice.is_counted or config.processes_per_device else workers_for(budget)
    if choice.is_counted and num_devices > room:
        each = f", {per_device} processes each" if per_device > 1 else ""
        raise UsageError(
            f"--num_devices {num_devices}: {choice.provider} has {len(choice.numbers)} here{each}; "
            "--processes_per_device N runs several workers on each"
        )
    has_loaders = config.engine != "inline" and config.input == "pictures"
    plan = plan_threads(
        budget,
        num_devices=num_devices or (1 if config.engine == "inline" else several),
        streams=config.streams or (_COUNTED_STREAMS if choice.is_counted else 0),
        num_workers=config.num_workers,
        threads_per_stream=config.threads_per_stream,
        loader_processes=config.loader_processes if has_loaders else THREADS_ONLY,
    )
    return plan.with_devices([choice.numbers[index % len(choice.numbers)] for index in range(plan.num_devices)])
