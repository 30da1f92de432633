"""A clock that was set back, and a hole right there: what lies behind looks as old as a dead tail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log.batch import Batch
from mqstore.store.log.message import Mark, Message
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.put.new_message import NewMessage
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ..put.test_producer_transaction import log_of
from ..put.writing import NOW, TINY, writer
from .narrow import overwrite

LOG_FILE = 4096
COUNT = 60
HOUR_MS = 3_600_000


def made(root: Path, version: str, back_at: int) -> list[Message]:
    """A store in which the clock went back by an hour before the message `back_at`."""
    with writer(root, version) as store:
        for number in range(COUNT):
            time = NOW + number * 1000 - (HOUR_MS if number >= back_at else 0)
            topic, keys = b"t%d" % (number % 3), b"KEYS\1k%d\2" % number
            new = NewMessage(topic, b"body", properties=keys, store_timestamp=time)
            store.append(new)
    return list(log_of(root, TINY))


def damaged(root: Path, version: str, lost: range, noise: bytes) -> list[Message]:
    """The same after a crash, with noise in place of messages; the clock went back behind them."""
    log = made(root, version, lost.stop)
    for message in log[lost.start : lost.stop]:
        place = message.position
        overwrite(root / "commitlog", LOG_FILE, place, noise * message.total_size)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    return log


def planned(root: Path, version: str) -> Plan:
    plan = look(root, version, Policy.KEEP).plan
    assert plan is not None
    return plan


def look(root: Path, version: str, policy: Policy) -> Recovery:
    return analyze(Layout.open(root, TINY), version, options=RecoveryOptions(policy))


@pytest.mark.few(3)
@pytest.mark.parametrize("version", ["4.9", "5.5"])
@pytest.mark.parametrize("noise", [b"\0", b"\xa5"])
@pytest.mark.parametrize("lost", [range(19, 20), range(19, 24), range(3)])
def test_queues_tell_that_the_rest_is_no_dead_tail(version: str, noise: bytes, lost: range, tmp_path: Path) -> None:
    log = damaged(tmp_path, version, lost, noise)
    found = look(tmp_path, version, Policy.KEEP)
    assert found.messages == COUNT - len(lost)
    assert found.plan is not None and found.plan.lost.messages == len(lost)
    assert found.plan.log_end == log[-1].position + log[-1].total_size
    assert found.dead == 0
    apply(Layout.open(tmp_path, TINY), found.plan, lambda: planned(tmp_path, version), Files())
    assert planned(tmp_path, version).edits == ()
    with StoreReader(tmp_path, TINY) as store:
        findings = verify(store, Scope(groups=frozenset({"index"})), now_ms=NOW).findings
    assert {finding.severity for finding in findings if finding.code == "I-092"} <= {Severity.INFO}


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_between_two_index_files_nothing_is_to_be_mended(version: str, tmp_path: Path) -> None:
    """A file that is made anew has the times of its records again: a repair would never end."""
    made(tmp_path, version, back_at=29)
    with StoreReader(tmp_path, TINY) as store:
        findings = verify(store, Scope(groups=frozenset({"index"})), now_ms=NOW).findings
    told = [(finding.code, finding.severity) for finding in findings if "clock was set back" in finding.message]
    assert told == [("I-104", Severity.INFO)]
    assert planned(tmp_path, version).edits == ()


@pytest.mark.parametrize("lost", [range(19, 24), range(3)])
def test_other_readers_tell_the_same(lost: range, tmp_path: Path) -> None:
    """A scan, a look-up by queue or by position, the end of the log, `verify`."""
    log = damaged(tmp_path, "5.3", lost, b"\xa5")
    good = [*log[: lost.start], *log[lost.stop :]]
    with StoreReader(tmp_path, TINY) as store:
        assert store.log_end.position == log[-1].position + log[-1].total_size
        read = [store.marked(store.message_at(m.position)).mark for m in good]
        assert set(read) == {Mark.NONE}
        batches = [item for item in store.log.scan() if isinstance(item, Batch)]
        assert sum(map(len, batches)) == len(good)
        assert {batch.mark for batch in batches} <= {Mark.NONE, Mark.AFTER_DAMAGE}
        found = verify(store, Scope(groups=frozenset({"commit_log"})), now_ms=NOW)
    assert found.facts.newest_dead == 0
    assert not any("gave up" in finding.message for finding in found.findings)


def test_a_reader_without_queues_gives_nothing_up(tmp_path: Path) -> None:
    log = damaged(tmp_path, "5.3", range(19, 20), b"\xa5")
    shutil.rmtree(tmp_path / "consumequeue")
    with StoreReader(tmp_path, TINY) as store:
        assert store.log_end.position == log[-1].position + log[-1].total_size


@pytest.mark.parametrize("version", ["4.9", "5.5"])
@pytest.mark.parametrize("lost", [range(19, 20), range(3)])
def test_a_start_cuts_it_all(version: str, lost: range, tmp_path: Path) -> None:
    log = damaged(tmp_path, version, lost, b"\xa5")
    broker = look(tmp_path, version, Policy.BROKER)
    assert broker.prediction.lost.messages == sum(m.position > log[lost[-1]].position for m in log)
    assert broker.prediction.case.label == "damage-cuts"


def test_without_any_queue_nothing_is_given_up(tmp_path: Path) -> None:
    log = damaged(tmp_path, "5.3", range(19, 20), b"\xa5")
    shutil.rmtree(tmp_path / "consumequeue")
    found = look(tmp_path, "5.3", Policy.KEEP)
    assert (found.messages, found.dead) == (COUNT - 1, 0)
    assert found.plan is not None
    assert found.plan.lost.messages == 1  # too small for a tombstone, as its unit is not there
    assert found.plan.log_end == log[-1].position + log[-1].total_size


def test_what_no_queue_names_is_told_as_dead(tmp_path: Path) -> None:
    """Nothing tells it from what an earlier start has cut off: nobody loses it, but it is said."""
    log = damaged(tmp_path, "5.3", range(19, 20), b"\xa5")
    shutil.rmtree(tmp_path / "consumequeue" / log[19].topic)
    found = look(tmp_path, "5.3", Policy.BROKER)
    assert found.dead == COUNT - 20
    assert found.to_json()["summary"]["dead"] == found.dead
    assert found.prediction.case.label == "dead-tail"
