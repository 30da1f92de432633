"""Recovering what kill -9 left gives what the real broker had after its own recovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout

from ... import stores
from .recovered import changes_of_starts, planned, recover, started, units_of

# RocksDB queues are not known yet
KILLED = tuple(n for n in stores.ALL if "-killed" in n and n.removesuffix("-restarted") == n)
KNOWN = tuple(name for name in KILLED if "rocksdb" not in name)


def _cases() -> list[Any]:
    slow = pytest.mark.slow
    return [pytest.param(n, marks=() if n in stores.NAMES else slow, id=n) for n in KNOWN]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", _cases())
def test_a_killed_store(name: str, tmp_path: Path) -> None:
    truth = stores.truth(name)
    version = str(truth["broker_version"])
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    plan, applied = recover(root, config, version)
    assert applied.steps
    assert not Layout.open(root, config).abort.exists()
    _compare_with_truth(root, config, plan.log_end, truth)
    assert not changes_of_starts(root, config, plan)
    assert not planned(root, config, version).edits, "a second recovery finds something to do"
    _compare_units(name, root, config, plan.log_end, tmp_path)
    _compare_sent(name, root, config, plan.log_end)


def _compare_with_truth(root: Path, config: BrokerConfig, log_end: int, truth: dict[str, Any]) -> None:
    after_load = truth["load"].get("after_load")
    if after_load:
        assert log_end == after_load["max_phy_offset"]
    if truth.get("queues"):
        outcome = started(root, config, str(truth["broker_version"]))
        mine = {str(n): (q.min_offset, q.max_offset) for n, q in outcome.queues.items()}
        # a broker that meets an unreadable record knows a queue of topic "" from then on
        really = {
            name: (queue["min_offset"], queue["max_offset"])
            for name, queue in truth["queues"].items()
            if not name.startswith("/")
        }
        assert mine == really


def _compare_units(name: str, root: Path, config: BrokerConfig, log_end: int, work: Path) -> None:
    """Every unit that the real broker had, as far as it is from before its start."""
    restarted = name + "-restarted"
    if restarted not in stores.ALL or not stores.truth(restarted).get("broker_started"):
        return
    other = stores.unpack(restarted, work)
    really = units_of(other, BrokerConfig(stores.config(restarted, other)))
    mine = units_of(root, config)
    compared = 0
    for queue, units in really.items():
        end = max(mine.get(queue, {}), default=-1)
        for offset, unit in units.items():
            if unit[0] + unit[1] <= log_end and offset <= end:
                assert mine[queue][offset] == unit, (queue, offset)
                compared += 1
    assert compared


def _compare_sent(name: str, root: Path, config: BrokerConfig, log_end: int) -> None:
    """No acknowledged message is missing below the log end."""
    units = {queue: {u[0] for u in found.values()} for queue, found in units_of(root, config).items()}
    known = {position for positions in units.values() for position in positions}
    damaged = "damage" in stores.truth(name)
    readable = {m.get("position", m["physical_offset"]) for m in stores.messages(name)}
    for sent in stores.sent(name):
        for message_id in str(sent.get("offset_msg_id") or "").split(","):
            if not message_id:
                continue
            position = int(message_id[-16:], 16)
            if not damaged or (position < log_end and position in readable):
                assert position in known, sent
