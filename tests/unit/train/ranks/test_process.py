"""ranks/process.py: what a rank says of its end."""

from __future__ import annotations

import signal

from bulkinfer.errors import RankLostError
from bulkinfer.host.stop_signals import Stopped
from bulkinfer.train.ranks.process import lost_rank


def ended_by(signal_comes: bool) -> BaseException:
    """The exception that ends a rank which has lost another, while it tidies up."""
    try:
        try:
            raise RankLostError(": go on")
        finally:
            if signal_comes:
                raise Stopped(signal.SIGTERM)
    except BaseException as error:
        return error


def test_advice_is_kept_if_a_signal_comes_while_a_loss_is_reported() -> None:
    for signal_comes in (False, True):
        lost = lost_rank(ended_by(signal_comes))
        assert lost is not None
        assert lost.advice == ": go on"
    assert lost_rank(Stopped(signal.SIGTERM)) is None
