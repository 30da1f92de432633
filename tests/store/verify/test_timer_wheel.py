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


def _all_told(timer: Timer) -> list[Finding]:
    with Store(timer.store) as store:
        return verify(store, Scope(groups=frozenset({"timer"})), now_ms=NOW_MS).findings


def _told(timer: Timer) -> list[Finding]:
    found = _all_told(timer)
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
        found = _all_told(timer)
        assert {f.code: (f.severity, f.unclean) for f in found} == {
            "I-123": (Severity.WARNING, crashed),
            "I-125": (Severity.WARNING, False),
            "I-133": (Severity.WARNING, crashed),
        }
        assert "a start links it" in _told(timer)[0].message


def test_a_slot_that_every_start_makes_again_is_no_damage(timer: Timer) -> None:
    """Its newest entry is read once more; the older ones, in front of that, hang on its chain."""
    slot, rows = _longest(timer)
    for name in ("time", "first_pos", "last_pos", "num"):
        timer.set_slot(slot, name, 0)
    (finding,) = _all_told(timer)
    assert (finding.code, finding.severity) == ("I-133", Severity.WARNING)
    assert finding.count == len(rows)
    assert "a start finds its entry" in finding.message


def test_a_slot_that_no_start_makes_again_is_damage(timer: Timer) -> None:
    """All entries of its tick lie in front of the file that a start begins to read in."""
    newest = {row: timer.place(timer.chain(row)[0])[0] for row in timer.in_use()}
    slot = next(row for row, path in newest.items() if path == timer.log_files[0])
    for name in ("time", "first_pos", "last_pos", "num"):
        timer.set_slot(slot, name, 0)
    found = [f for f in _all_told(timer) if f.code == "I-133"]
    assert [f.severity for f in found] == [Severity.ERROR]


def test_what_no_start_links_is_damage(timer: Timer) -> None:
    """The newest entry links past the one before it."""
    _, rows = _longest(timer)
    timer.set_entry(rows[0], "prev_pos", _position(timer, rows[2]))
    timer.set_check("last_timer_log_flush_pos", _position(timer, rows[2]))
    (timer.store / "abort").touch()
    (finding,) = _told(timer)
    assert (finding.severity, finding.unclean, finding.count) == (Severity.ERROR, False, 1)
    assert str(_position(timer, rows[1])) in finding.message
