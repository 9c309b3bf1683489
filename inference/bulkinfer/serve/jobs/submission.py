"""What a user submits: options of infer_launch, as JSON or as the text of a flag file; checked, and as words of a command."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.model.card import CARD
from bulkinfer.model.names import named_folder, network_names
from bulkinfer.serve.jobs.folders import LOGS, RESULTS
from bulkinfer.serve.jobs.places import require_listed
from bulkinfer.serve.jobs.settings import JobSettings
from bulkinfer.serve.refusals import InvalidError

MOST_BYTES = 1_000_000  # of a submission
Parse: TypeAlias = Callable[[list[str]], LaunchConfig]  # words of infer_launch -> its config; raises UsageError
ResultsOf: TypeAlias = Callable[[str], Path | None]  # id of a job of the user -> its results; None: there is no such job

_OF_SERVICE = ("output", "log_path", "model_path", "overwrite", "dry_run", "shard", "ray_address")
_WITHOUT_ROWS = ("synthetic", "generated", "iterations")
_LABEL_WORDS = ("folders", "annotations")
_FLAG_FILE = re.compile(r"--?flag[-_]?file\b")
_COMMENTS = ("#", "//")


def options_of(body: bytes, is_json: bool, parse: Parse, settings: JobSettings, results_of: ResultsOf) -> dict[str, Any]:
    """The network of a job, and its options that differ from the defaults of infer_launch, with real paths.

    Raises InvalidError for what is no such options, for options that the service sets itself, and for places that jobs may not
    read.
    """
    try:
        config = _from_json(body) if is_json else parse(_lines(body))
        options = _given(config)
        check_options(config, options, settings)
        _require_network(config.model_name, settings.models)
    except UsageError as error:
        raise InvalidError(f"the job: {error}") from None
    options |= _listed_places(options, settings)
    for place in options.get("skip_done", ()):
        _require_done(place, settings, results_of)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _given(config: LaunchConfig) -> dict[str, Any]:
    """The options with other values than their defaults, and the network."""
    values = {field.name: (getattr(config, field.name), field.default) for field in dataclasses.fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default or name == "model_name"}


def _listed_places(options: Mapping[str, Any], settings: JobSettings) -> dict[str, str]:
    """The options that name a place to read, with its real path or address. Raises InvalidError if a job may not read it."""
    names = ["data_dir"] + (["labels"] if options.get("labels", _LABEL_WORDS[0]) not in _LABEL_WORDS else [])
    return {name: require_listed(options[name], name, settings.data) for name in names}


def check_options(config: LaunchConfig, options: Mapping[str, Any], settings: JobSettings) -> None:
    """Raises InvalidError for options that a job may not have here, or lacks."""
    if taken := [name for name in _OF_SERVICE if name in options]:
        raise InvalidError(f"{taken[0]} is set by the service: leave it out")
    if empty := [name for name in _WITHOUT_ROWS if name in options]:
        raise InvalidError(f"{empty[0]} gives no rows: jobs here are of pictures: leave it out")
    if not config.data_dir:
        raise InvalidError("data_dir is missing: give the folder or store with the pictures")
    if config.engine == "inline":
        raise InvalidError("engine inline runs in the process of the launcher: give local, or ray")
    if config.engine == "ray" and not settings.ray_address:
        raise InvalidError("engine ray: this service has no Ray cluster: leave it out")
    if odd := [item for name in ("save", "skip_done") for item in getattr(config, name) if "," in item or item[:1] == "-"]:
        raise InvalidError(f"{odd[0]!r} in a list has a comma, or begins with -: give another name")


def _require_network(name: str, models: str) -> None:
    """Raises InvalidError for a network that is not there, UsageError for what is no name of one."""
    if "/" in name or name in ("", ".", ".."):
        raise InvalidError(f"model_name {name!r} is no name of a network: give one, such as resnet18")
    if address_of(models):
        return
    folder, _ = named_folder(models, name)
    if not (folder / CARD).is_file():
        there = ", ".join(network_names(Path(models))) or "none yet"
        raise InvalidError(f"model_name {name} is no network in the models of this service: give one of {there}")


def _require_done(place: str, settings: JobSettings, results_of: ResultsOf) -> None:
    """Raises InvalidError unless `place` of skip_done is a job of the user, or lies in the listed places."""
    if "/" not in place:
        if results_of(place) is None:
            raise InvalidError(
                f"skip_done {place!r} is no job of yours with results: give the id of another, or an absolute path"
            )
    elif require_listed(place, "skip_done", settings.data) != place.rstrip("/"):
        raise InvalidError(f"skip_done {place!r} is a path with links: give the path without them")


def _done_place(item: str, results_of: ResultsOf) -> str:
    """The place of skip_done of a job that begins. Raises InvalidError if it is a job whose results are gone."""
    if "/" not in item and results_of(item) is None:
        raise InvalidError(f"skip_done: the job {item} has no results any more: leave it out, and submit this job again")
    return str(results_of(item) or item)


def _from_json(body: bytes) -> LaunchConfig:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidError(f"the job is no JSON ({error}): send options of infer_launch as an object") from None
    if not isinstance(found, dict):
        raise InvalidError('the job is no JSON object: send options of infer_launch, such as {"data_dir": "/data/photos"}')
    known = {field.name for field in dataclasses.fields(LaunchConfig)}
    if unknown := [name for name in found if name not in known]:
        raise InvalidError(f"{unknown[0]!r} is no option of infer_launch: see infer_launch --help")
    return LaunchConfig(**found)


def _lines(body: bytes) -> list[str]:
    """The flags of a flag file, one a line."""
    try:
        lines = [line.strip() for line in body.decode().splitlines()]
    except UnicodeDecodeError:
        raise InvalidError("the job is no UTF-8 text: send the lines of a flag file, or JSON") from None
    if body.lstrip()[:1] == b"{":
        raise InvalidError("this looks like JSON: send it with the header Content-Type: application/json")
    words = [line for line in lines if line and not line.startswith(_COMMENTS)]
    if any(_FLAG_FILE.match(word) for word in words):
        raise InvalidError("--flagfile names a file of the service: send its lines instead")
    return words


def words_of(options: Mapping[str, Any], folder: Path, settings: JobSettings, results_of: ResultsOf) -> list[str]:
    """The words of infer_launch for a job whose files lie in `folder`.

    Raises InvalidError if it may not read its places any more: settings and links may have changed since it was submitted.
    """
    options = {**options, **_listed_places(options, settings)}
    words = [f"--output={folder / RESULTS}", f"--log_path={folder / LOGS}", f"--model_path={settings.models}"]
    if options.get("engine") == "ray":
        words.append(f"--ray_address={settings.ray_address}")
    for name, value in options.items():
        if isinstance(value, list):
            words += [f"--{name}", *(_done_place(item, results_of) if name == "skip_done" else item for item in value)]
        else:
            words.append(f"--{name}={value}")
    return words
