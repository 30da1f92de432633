"""Entries of the timer log that no slot leads to: which of them a start brings back (spec 04, 4.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.store import Store
from mqstore.store.verify.catalogue import Severity
from mqstore.store.verify.finding import Finding
from mqstore.store.verify.run import verify
from mqstore.store.verify.scene import Scope

from .mutations import NOW_MS, copied, original
from .mutations.timer import Timer

_NAME = "5.3.3-timer-clean"


@pytest.fixture
def timer(tmp_path: Path) -> Timer:
    """A store that was stopped in order."""
    return Timer(copied(original(_NAME, tmp_path), tmp_path))


def _longest(timer: Timer) -> tuple[int, list[int]]:
    """Row of the slot with the longest chain, and the rows of its entries, newest first."""
    chains = {row: timer.chain(row) for row in timer.in_use()}
    return max(chains.items(), key=lambda item: len(item[1]))


def _told(timer: Timer) -> list[Finding]:
    with Store(timer.store) as store:
        found = verify(store, Scope(groups=frozenset({"timer"})), now_ms=NOW_MS).findings
    return [f for f in found if f.code == "I-123" and Path(f.path).parent.name == "timerlog"]


def _position(timer: Timer, row: int) -> int:
    return int(timer.entries.position[row])


def test_what_a_start_links_again_is_no_damage(timer: Timer) -> None:
    """The slot does not lead to the newest entry yet, which timercheck does not count either."""
    slot, rows = _longest(timer)
    timer.set_slot(slot, "last_pos", _position(timer, rows[1]))
    timer.set_check("last_timer_log_flush_pos", _position(timer, rows[0]))
    for crashed in (False, True):
        if crashed:
            (timer.store / "abort").touch()
        (finding,) = _told(timer)
        assert (finding.severity, finding.unclean) == (Severity.WARNING, crashed)
        assert "a start links it" in finding.message


def test_what_no_start_links_is_damage(timer: Timer) -> None:
    """The newest entry links past the one before it."""
    _, rows = _longest(timer)
    timer.set_entry(rows[0], "prev_pos", _position(timer, rows[2]))
    timer.set_check("last_timer_log_flush_pos", _position(timer, rows[2]))
    (timer.store / "abort").touch()
    (finding,) = _told(timer)
    assert (finding.severity, finding.unclean, finding.count) == (Severity.ERROR, False, 1)
    assert str(_position(timer, rows[1])) in finding.message
