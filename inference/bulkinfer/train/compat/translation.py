"""Flags of other trainers -> options of ours, by the table in references.yml, with the defaults of the trainer of --like.

Layers of flags, the strongest first: the command line, --config, --like. What a stronger layer sets, a weaker one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.conversion_context import Context
from bulkinfer.train.compat.conversions import CONVERSIONS
from bulkinfer.train.compat.like import Facts, flags_of
from bulkinfer.train.compat.reference_flags import LEFT_OUT, REFUSED, Row, rows, rows_by_flag
from bulkinfer.types import Given

# Options that set the same thing: if a stronger layer gives one of them, a weaker one does not set the others.
_RIVALS = (
    ("epochs", "steps"),
    ("lr", "base_learning_rate"),
    ("norm_groups", "norm_channels_per_group"),
    ("lr_decay", "lr_multipliers"),
    ("lr_drops", "lr_multipliers"),
    ("lr_end", "lr_end_rate"),
    ("logs_per_epoch", "log_updates"),
    ("cutmix_alpha", "cutmix_share"),
)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A value that a conversion makes options of, when all other options are known."""

    place: int
    row: Row
    text: str
    word: str


@dataclass(slots=True)
class Translation:
    """The options that are given, as texts by name, and notes to print."""

    options: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _pending: list[_Pending] = field(default_factory=list)
    _left_out: dict[str, list[str]] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The options as words of a command line."""
        return [f"--{name}={value}" for name, value in self.options.items()]


def translate(
    layers: Sequence[Sequence[Given]],
    *,
    like: str = "",
    data_kind: Callable[[Mapping[str, str]], str] = lambda _options: "small",
    of_the_run: Callable[[], Mapping[str, Any]] = dict,
) -> Translation:
    """What the flags of the layers set, with the defaults of the trainer `like` below them.

    `data_kind(options)` says whether the pictures are small or large, `of_the_run()` gives the options of a run that is
    continued. Raises UsageError for a flag that is refused, and for a value that cannot be converted.
    """
    made, table = Translation(), rows_by_flag(like)
    for layer in layers:
        _take_layer(made, layer, table)
    if like:
        facts = Facts({**_pending_texts(made), **made.options}, data_kind)
        _take_layer(made, flags_of(like, facts, table), table)
    _convert(made, Context(made.options, of_the_run))
    made.notes += [f"note: {', '.join(dict.fromkeys(words))}: {why}" for why, words in made._left_out.items()]
    return made


def rivals(names: Iterable[str]) -> set[str]:
    """The options that the others of the same group as one of `names` would contradict, with these."""
    given = set(names)
    return given.union(*(group for group in _RIVALS if given.intersection(group)))


def _take_layer(made: Translation, layer: Iterable[Given], table: Mapping[str, Row]) -> None:
    """Add a layer: within it the last flag counts, and none sets what a stronger layer sets."""
    blocked = rivals([*made.options, *(name for pending in made._pending for name in pending.row.ours)])
    found, implied = dict[str, str](), dict[str, str]()
    for each in layer:
        row = table.get(each.name, Row(each.name, (), "", "", (each.name,)))
        if blocked.intersection(row.ours) and row.kind not in (LEFT_OUT, REFUSED):
            continue
        text = _text(made, row, each)
        if text is None:
            continue
        implied |= row.implies
        if row.by:
            made._pending.append(_Pending(_place(row), row, text, each.word))
        else:
            found[row.ours[0]] = text
    for name, text in {**implied, **found}.items():
        if name in found or name not in blocked:
            made.options[name] = text


def _text(made: Translation, row: Row, given: Given) -> str | None:
    """The value in our form; None if the flag sets nothing. Raises UsageError for a flag that is refused."""
    if row.kind == LEFT_OUT:
        made._left_out.setdefault(row.why, []).append(given.word.partition("=")[0])
        return None
    if given.value in row.map:
        return row.map[given.value] or None
    if row.kind == REFUSED:
        raise UsageError(f"{given.word.partition('=')[0]}: {row.why}")
    return given.value


def _place(row: Row) -> int:
    """The place of a row in the table, which is the order of the conversions."""
    return rows().index(row)


def _pending_texts(made: Translation) -> dict[str, str]:
    return {pending.row.ours[0]: pending.text for pending in made._pending if pending.row.ours}


def _convert(made: Translation, context: Context) -> None:
    for pending in sorted(made._pending, key=lambda pending: pending.place):
        context.word, context.target = pending.word.partition("=")[0], next(iter(pending.row.ours), "")
        made.options.update(CONVERSIONS[pending.row.by](pending.text, context))
    made.notes += context.notes
