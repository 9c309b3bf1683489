"""What `auto` becomes for a network: its provider and its precision, decided once, before any worker starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bulkinfer import zoo
from bulkinfer.config import EXACT, LaunchConfig
from bulkinfer.errors import BulkinferError
from bulkinfer.host.cores import core_budget
from bulkinfer.launch.auto import device_trial as probe
from bulkinfer.launch.auto import precision
from bulkinfer.model.graph_checks import GOLDEN_FILE
from bulkinfer.model.lookup import Model, find_model
from bulkinfer.runtime.devices import (
    AS_ASKED,
    AUTO,
    Candidates,
    Choice,
    Request,
    as_begun,
    choose,
    find_candidates,
    parse_device,
    plan_workers,
)
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec
from bulkinfer.types import Record
from bulkinfer.worker.protocol import session_spec

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True)
class Unsettled:
    """A network that a config asks for, and the devices that could run it. Their precision may still be `auto`."""

    config: LaunchConfig
    request: Request
    candidates: Candidates
    model: Model


@dataclass(frozen=True)
class Settled:
    """The graph that runs, which may be a variant of the network; on which devices, and in which precision."""

    model: Model
    choice: Choice


def find_network(config: LaunchConfig, before_making: Callable[[], object] = lambda: None) -> Unsettled:
    """The network of `config`, its files checked, and the devices that could run it; nothing is loaded or measured.

    `before_making` is called before a missing graph is made.
    Raises UsageError if no device can serve `config`, or a file of the network is missing or damaged.
    """
    request = parse_device(config.device, config.precision)
    candidates = find_candidates(request)
    providers = [choice.provider for choice in candidates.choices]
    return Unsettled(config, request, candidates, find_model(config, providers, zoo.is_published, before_making))


def settle(asked: Unsettled, records: Callable[[], Iterable[Record]] = tuple) -> Settled:
    """Choose the device and the precision of `asked`; measured once for a network, and kept in its folder.

    `records` gives the pictures by which a cheaper precision is judged; without any, the golden pictures of the network are
    taken. With `dry_run` in the config nothing is measured. Raises UsageError if no device can run the network.
    """
    options = {choice.provider: _with_precision(asked, choice, records) for choice in asked.candidates.choices}
    choices = tuple(option.choice for option in options.values())
    measured: dict[str, float | str] = {}

    def measure(several: Sequence[Choice]) -> dict[str, float | str]:
        measured.update(_measured(asked, [options[choice.provider] for choice in several]))
        return measured

    chosen = choose(replace(asked.candidates, choices=choices), measure)
    for option in options.values():
        was_measured = isinstance(measured.get(option.choice.provider), float)
        if was_measured and option.choice.provider != chosen.provider and _is_held_back(option.choice):
            log.info(f"device: {option.choice.provider} was measured in {EXACT} ({option.choice.precision_reason})")
    return replace(options[chosen.provider], choice=chosen)


def _is_held_back(choice: Choice) -> bool:
    """True if `auto` kept the precision of a device above its native one."""
    native, _ = choice.entry.native(choice.numbers)
    return choice.precision == EXACT != native and choice.precision_reason != AS_ASKED


def settle_as_begun(asked: Unsettled, provider: str, ran: str, where: str, backend: str = "") -> Settled:
    """The device and the precision `ran` that a job began with, by its file `where`; see as_begun.

    Raises UsageError or RunError if this machine cannot run it, or the variant is missing or does not fit the network.
    """
    choice = as_begun(provider, ran, asked.request, where, backend)
    return Settled(_graph_for(asked, choice), choice)


def _graph_for(asked: Unsettled, choice: Choice) -> Model:
    """The graph that runs on a settled choice: the network's, or a variant that `auto` led to.

    Raises UsageError or RunError if that variant is missing or does not fit the network.
    """
    if asked.config.precision == AUTO and choice.precision in PROVIDERS[choice.provider].variants:
        return find_model(replace(asked.config, precision=choice.precision), [choice.provider], zoo.is_published)
    return asked.model


def _with_precision(asked: Unsettled, choice: Choice, records: Callable[[], Iterable[Record]]) -> Settled:
    """A candidate with its precision settled; see precision.judge."""
    if choice.precision != AUTO:
        return Settled(asked.model, choice)

    def become(settled: str, why: str, model: Model = asked.model) -> Settled:
        return Settled(model, replace(choice, precision=settled, precision_reason=f"auto: {why}"))

    provider, card = choice.entry, asked.model.card
    native, why = provider.native(choice.numbers)
    if card.precision != EXACT:  # of an adopted graph
        own = card.precision if card.precision in provider.precisions else provider.precisions[0]
        return become(own, f"the graph itself computes in {card.precision}")
    if EXACT not in provider.precisions:
        return become(provider.precisions[0], f"{choice.provider} computes in nothing else")
    if native == EXACT:
        return become(EXACT, why)
    if native in provider.variants and not card.classified:
        return become(EXACT, f"{native} needs a graph of its own, which only networks that classify can get")
    cheap = replace(choice, precision=native)
    try:
        cheaper = Settled(_graph_for(asked, cheap), cheap)
    except BulkinferError as error:  # nobody asked for it: the network itself runs
        return become(EXACT, f"{native} needs a graph of its own: {error}")
    verdict = _judged(asked, cheaper, records)
    if verdict is None:
        return become(EXACT, f"a launch would first judge {native}")
    return become(native, verdict.reason, cheaper.model) if verdict.passes else become(EXACT, verdict.reason)


def _trial_session(config: LaunchConfig, settled: Settled) -> tuple[SessionSpec, list[int]]:
    """The session and the cores of a single worker that has the whole host.

    So the answer is the same for any number of workers, and for any columns.
    """
    single = replace(config, num_devices=1, processes_per_device=0, streams=0, num_workers=0, threads_per_stream=0)
    plan = plan_workers(single, settled.choice, core_budget())
    return session_spec(config, settled.model.graph, settled.choice, plan), list(plan.affinity[0])


def _measured(asked: Unsettled, options: list[Settled]) -> dict[str, float | str]:
    """Pictures per second of each option, or why it does not run."""
    trials = []
    for option in options:
        session, cores = _trial_session(asked.config, option)
        trials.append(probe.Trial(session, option.choice.models, list(asked.model.card.outputs), cores))
    kept = asked.model.graph.parent / probe.KEPT_FILE
    return probe.measure(trials, asked.model.sidecar.sha256, kept, only_kept=asked.config.dry_run)


def _judged(asked: Unsettled, cheaper: Settled, records: Callable[[], Iterable[Record]]) -> precision.Verdict | None:
    """Whether the network gives the same answers as `cheaper`; None if that is not known and may not be measured."""
    config, card, folder = asked.config, asked.model.card, asked.model.graph.parent
    session, cores = _trial_session(config, Settled(asked.model, replace(cheaper.choice, precision=EXACT)))
    exact = replace(session, streams=1, threads_per_stream=session.streams * session.threads_per_stream)
    question = precision.Question(
        exact=exact,
        cheaper=replace(exact, graph=str(cheaper.model.graph), precision=cheaper.choice.precision),
        cheaper_sha256=cheaper.model.sidecar.sha256,
        recipe=card.recipe,
        classified=card.classified,
        are_logits=bool(card.classified) and card.outputs[card.classified] == "logits",
        outputs=list(card.outputs),
        golden=str(folder / GOLDEN_FILE),
        max_pixels=config.max_pixels,
        max_file_bytes=config.max_file_bytes,
        reduce_to=card.recipe.reduce_to(config.decode),
        devices=cheaper.choice.models,
        cores=cores,
    )
    return precision.judge(
        question, records(), asked.model.sidecar.sha256, folder / precision.KEPT_FILE, only_kept=config.dry_run
    )
