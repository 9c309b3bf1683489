"""What `auto` becomes in a job: its provider and its precision, decided once, before any worker starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bulkinfer.config import EXACT
from bulkinfer.errors import BulkinferError
from bulkinfer.host.cores import core_budget
from bulkinfer.launch.auto import device_trial as probe
from bulkinfer.launch.auto import precision
from bulkinfer.launch.job import Job
from bulkinfer.launch.resume import begun_with
from bulkinfer.model.graph_checks import GOLDEN_FILE
from bulkinfer.model.lookup import find_model
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.runtime.devices import AUTO, Candidates, Choice, as_begun, choose, plan_workers
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec
from bulkinfer.types import Record


def settle(job: Job, found: Candidates, output: Path | None) -> Job:
    """The job on the device and in the precision that it began with in `output`, or else on those to take here."""
    if output is not None and (before := begun_with(job, output)):
        ran = before.get("precision", job.config.precision)
        return _on(job, as_begun(before["provider"], ran, job.request, str(output / JOB_FILE)))
    jobs = {choice.provider: _with_precision(job, choice) for choice in found.choices}
    choices = tuple(one.choice for one in jobs.values())
    choice = choose(
        replace(found, choices=choices), lambda several: _measured(job, [jobs[choice.provider] for choice in several])
    )
    return replace(jobs[choice.provider], choice=choice)


def _on(job: Job, choice: Choice) -> Job:
    """The job with a settled choice, and the graph that runs there: the network's, or a variant that `auto` led to.

    Raises UsageError or RunError where that variant is missing or does not fit the network.
    """
    model = job.model
    if job.config.precision == AUTO and choice.precision in PROVIDERS[choice.provider].variants:
        model = find_model(replace(job.config, precision=choice.precision), [choice.provider])
    return replace(job, choice=choice, model=model)


def _with_precision(job: Job, choice: Choice) -> Job:
    """The job on a choice with its precision settled; see precision.judge."""
    if choice.precision != AUTO:
        return replace(job, choice=choice)
    provider, card = PROVIDERS[choice.provider], job.model.card
    native, why = provider.native(choice.numbers)
    if card.precision != EXACT:  # of an adopted graph
        own = card.precision if card.precision in provider.precisions else provider.precisions[0]
        return _in(job, choice, own, f"the graph itself computes in {card.precision}")
    if EXACT not in provider.precisions:
        return _in(job, choice, provider.precisions[0], f"{choice.provider} computes in nothing else")
    if native == EXACT:
        return _in(job, choice, EXACT, why)
    if native in provider.variants and not card.classified:
        return _in(job, choice, EXACT, f"{native} needs a graph of its own, which only networks that classify can get")
    try:
        cheaper = _on(job, replace(choice, precision=native))
    except BulkinferError as error:  # nobody asked for it: the network itself runs
        return _in(job, choice, EXACT, f"{native} needs a graph of its own: {error}")
    verdict = _judged(job, cheaper)
    if verdict is None:
        return _in(job, choice, EXACT, f"a launch would first judge {native}")
    return _in(cheaper if verdict.passes else job, choice, native if verdict.passes else EXACT, verdict.told)


def _in(job: Job, choice: Choice, settled: str, why: str) -> Job:
    """The job, with the graph that it has, on a choice whose precision is settled."""
    return replace(job, choice=replace(choice, precision=settled, precision_reason=f"auto: {why}"))


def _alone(job: Job) -> tuple[SessionSpec, list[int]]:
    """The session and the cores of one worker that has the host to itself.

    So the answer is the same for any number of workers, and for any columns.
    """
    alone = replace(job.config, num_devices=1, processes_per_device=0, streams=0, num_workers=0, threads_per_stream=0)
    plan = plan_workers(alone, job.choice, core_budget())
    return job.session_spec(plan), list(plan.affinity[0])


def _measured(job: Job, candidates: list[Job]) -> dict[str, float | str]:
    """Pictures per second of each candidate for the job."""
    trials = []
    for candidate in candidates:
        session, cores = _alone(candidate)
        trials.append(probe.Trial(session, candidate.choice.models, list(job.model.card.outputs), cores))
    kept = job.model.graph.parent / probe.KEPT_FILE
    return probe.measure(trials, job.model.sidecar.sha256, kept, only_kept=job.config.dry_run)


def _judged(job: Job, cheaper: Job) -> precision.Verdict | None:
    """Whether the network's answers stay in the job as `cheaper` has it."""
    card, folder = job.model.card, job.model.graph.parent
    session, cores = _alone(replace(job, choice=replace(cheaper.choice, precision=EXACT)))
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
        max_pixels=job.config.max_pixels,
        max_file_bytes=job.config.max_file_bytes,
        reduce_to=job.reduce_to,
        devices=cheaper.choice.models,
        cores=cores,
    )
    kept = folder / precision.KEPT_FILE
    return precision.judge(question, _records(job), job.model.sidecar.sha256, kept, only_kept=job.config.dry_run)


def _records(job: Job) -> Iterator[Record]:
    """The first ones of the job, in their order; none in a run without pictures."""
    for partition in job.dataset.partitions if job.dataset else ():
        yield from partition.manifest.records(0, min(precision.OFFERED, job.counts[partition.index]))
