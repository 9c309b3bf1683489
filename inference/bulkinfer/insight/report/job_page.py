"""The page about a job: its records, one pass over its rows, the logs of its workers, and sample pictures."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.host.number_text import duration_text, percent_text, rate_text
from bulkinfer.insight.class_names import classes_of
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.insight.options import ReportConfig
from bulkinfer.insight.picture_file import picture_columns, picture_folder
from bulkinfer.insight.report.charts import Chart, column_chart, line_chart
from bulkinfer.insight.report.class_names import names_of_classes
from bulkinfer.insight.report.job_facts import command_of, facts_of, read_records
from bulkinfer.insight.report.near_duplicates import (
    LEAST_COSINE,
    NearDuplicates,
    embedding_column,
    find_near_duplicates,
)
from bulkinfer.insight.report.page import render
from bulkinfer.insight.report.row_scan import NUM_BINS, RowScan, Sample, scan_rows
from bulkinfer.insight.report.stages import stage_times
from bulkinfer.insight.report.throughput import Curve, throughput_curve
from bulkinfer.insight.report.thumbnails import Thumbnail, Thumbnails
from bulkinfer.insight.saving import again_with
from bulkinfer.records.archives.archive_dataset import is_archive_file
from bulkinfer.records.sources.folder import counted
from bulkinfer.results.reader import Results, read_results
from bulkinfer.types import printable_path, shell_word

if TYPE_CHECKING:
    from bulkinfer.insight.accuracy.figures import Figures

log = logging.getLogger("bulkinfer")

_WHERE = "say with --data_dir where the pictures are now"
_CLASSES = 15  # rows of the table of classes
_ANSWERS = 3  # of a sample
_KEYS = 3  # of error rows that are named for each stage
_WORST = 10  # classes in the table of accuracies
_PAIRS = 6  # of near duplicates
_FEWEST_POINTS = 3  # of a chart; a sentence says more than a line of two


@dataclass(frozen=True)
class Card:
    """A sample row on the page: its picture, and its answers as (class, score)."""

    sample: Sample
    thumbnail: Thumbnail
    answers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class ClassRow:
    """A class in the table of answers; `length` is that of its bar, from 0 to 1."""

    name: str
    rows: int
    share: float
    length: float


def job_page(found: FoundJob, config: ReportConfig) -> str:
    """The HTML page of a job. Reads every part once, and some again. Raises the errors of Results.tables."""
    results = read_results(found.output)
    summary, status, notes = read_records(found.log_dir)
    scan = scan_rows(results, config.pictures)
    curve = throughput_curve(found.log_dir) if found.log_dir else None
    column = embedding_column(found.job.identity)
    could_have = "embedding" in found.job.identity.get("outputs", {}).values()
    near = find_near_duplicates(results, column, min(_PAIRS, config.pictures)) if column else None
    figures, no_figures = _accuracy(found, results, config) if config.labels or scan.labelled else (None, "")
    return render(
        "job.html",
        title=found.name,
        found=found,
        facts=facts_of(found, summary, status),
        command=command_of(found),
        retry_command=f"bulkinfer retry {shell_word(found.output)}",
        notes=notes,
        measured=summary if summary.get("images_per_s") else None,
        num_missing=found.job.num_records - len(results),
        scan=scan,
        keys_shown=_KEYS,
        throughput=_throughput_chart(curve),
        curve=curve,
        stages=stage_times(summary.get("stage_thread_seconds", {})),
        scores=_score_chart(scan),
        mean_score=scan.score_sum / scan.num_scored if scan.num_scored else 0.0,
        figures=figures,
        no_figures=no_figures,
        worst=figures.worst(_WORST) if figures else [],
        near=near,
        to_save_embeddings=again_with(results, "embedding") if could_have else "",
        least_cosine=LEAST_COSINE,
        **_with_pictures(found, results, scan, near, config),
    )


def _accuracy(found: FoundJob, results: Results, config: ReportConfig) -> tuple[Figures | None, str]:
    """The figures by --labels, else by the labels in the rows; or None, and why the latter say nothing of this network."""
    from bulkinfer.insight.accuracy.labels import open_labels
    from bulkinfer.insight.accuracy.score import score

    names = classes_of(found.job, config.model_path)
    try:
        return score(results, open_labels(config.labels, results, names), names), ""
    except UsageError as error:
        if config.labels:
            raise
        return None, str(error)


def _with_pictures(
    found: FoundJob, results: Results, scan: RowScan, near: NearDuplicates | None, config: ReportConfig
) -> dict[str, Any]:
    """The content with names of classes and pictures: the table of classes, the samples, and the pairs."""
    shown, pairs = scan.classes.most_common(_CLASSES), near.pairs if near else ()
    samples = [*scan.sure.samples, *scan.unsure.samples]
    wanted = {number for number, _ in shown} | {number for each in samples for number in each.class_ids[:_ANSWERS]}
    names = names_of_classes(found, results, wanted, config.model_path) if wanted else {}
    thumbnails, why_none = _thumbnails(found, [*samples, *(each for pair in pairs for each in (pair.one, pair.other))], config)

    def card(sample: Sample) -> Card:
        answers = zip(sample.class_ids[:_ANSWERS], sample.scores[:_ANSWERS], strict=True)
        picture = thumbnails.get(sample, Thumbnail(reason="its folder was not found"))
        return Card(sample, picture, tuple((names[number], value) for number, value in answers))

    largest = shown[0][1] if shown else 1
    return {
        "classes": [ClassRow(names[number], rows, rows / scan.num_ok, rows / largest) for number, rows in shown],
        "no_pictures": why_none,
        "sure": [card(sample) for sample in scan.sure.samples],
        "unsure": [card(sample) for sample in scan.unsure.samples],
        "failed": _failed(scan, config.pictures),
        "pairs": [(card(pair.one), card(pair.other), pair.cosine) for pair in pairs],
    }


def _thumbnails(found: FoundJob, samples: Sequence[Sample], config: ReportConfig) -> tuple[dict[Sample, Thumbnail], str]:
    """The thumbnails of these rows; or none, and why the page has no pictures."""
    folder = picture_folder(found.job.config, config.data_dir)
    if not (folder.is_dir() or is_archive_file(folder) or address_of(folder)):
        if samples:
            log.warning(f"warning: the page has no pictures, since {printable_path(folder)} does not exist: {_WHERE}")
        return {}, f"The pictures are not in {printable_path(folder)} any more: --data_dir says where they are now."
    thumbnails = Thumbnails(folder, found.job.identity, picture_columns(found.job.config)).of_all(samples)
    if absent := [each for each in thumbnails.values() if not each.source]:
        many = f"{len(absent)} of {counted(len(thumbnails), 'picture')}"
        log.warning(f"warning: {many} could not be read in {printable_path(folder)} ({absent[0].reason}): {_WHERE}")
    return thumbnails, ""


def _failed(scan: RowScan, most: int) -> list[Sample]:
    """Error rows of all stages in turn. They are not decoded again: a picture may have ended the processes that tried."""
    in_turn = chain.from_iterable(zip_longest(*scan.errors.values()))
    return [sample for sample in in_turn if sample is not None][:most]


def _throughput_chart(curve: Curve | None) -> Chart | None:
    if curve is None or len(curve.images_per_s) < _FEWEST_POINTS:
        return None
    points = [((index + 0.5) * curve.point_s, value) for index, value in enumerate(curve.images_per_s)]
    slowest, fastest = min(curve.images_per_s), max(curve.images_per_s)
    text = f"Throughput over {duration_text(curve.seconds)}: between {rate_text(slowest)} and {rate_text(fastest)}."
    series, unit = [("throughput", points)], "images/sec"
    return line_chart(text, series, x_name="seconds of running time", y_name=unit, x_end=curve.seconds)


def _score_chart(scan: RowScan) -> Chart | None:
    if not scan.num_scored:
        return None
    counts = [int(number) for number in scan.score_bins]
    low, high = (sum(part) / scan.num_scored for part in (counts[: NUM_BINS // 2], counts[-NUM_BINS // 10 :]))
    text = f"Best scores of {scan.num_scored:,} rows: {percent_text(low)} below 0.5, {percent_text(high)} of at least 0.9."
    return column_chart(text, counts, x_name="score of the best class", y_name="rows")
