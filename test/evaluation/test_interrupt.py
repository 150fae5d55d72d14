"""Ctrl-C asks once, whoever is listening at that moment."""

from __future__ import annotations

import signal

import pytest
from rich.console import Console

from rsd_planner.evaluation.interrupt import on_interrupt

QUIET = Console(quiet=True)


def test_the_second_one_stops_at_once() -> None:
    with on_interrupt(QUIET) as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_echo_is_not_a_second_one() -> None:
    with on_interrupt(QUIET, echo_s=60.0) as interrupt:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested


def test_what_begins_after_it_within_the_same_work_knows_it() -> None:
    with on_interrupt(QUIET) as outer:
        signal.raise_signal(signal.SIGINT)
        with on_interrupt(QUIET) as inner:
            assert inner.requested
    assert outer.requested
    with on_interrupt(QUIET) as next_work:
        assert not next_work.requested


def test_what_goes_on_after_it_knows_it_too() -> None:
    with on_interrupt(QUIET, echo_s=60.0) as outer:
        with on_interrupt(QUIET, echo_s=60.0):
            signal.raise_signal(signal.SIGINT)
        assert outer.requested
        signal.raise_signal(signal.SIGINT)  # still an echo
