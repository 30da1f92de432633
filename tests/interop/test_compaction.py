"""Pulls of compaction topics: `find` answers as the real store does, from every queue offset."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NotFound
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.search.find import find
from mqstore.store.search.queue_search import compaction_queues
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply

from .. import stores
from ..store.repair.test_repair import repaired
from .oracle import Oracle

pytestmark = pytest.mark.interop

TOPIC = "state"
MOST = 5


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [name for name in stores.NAMES if "-compaction" in name])
def test_pulls_from_every_offset(name: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    """Also from those that compaction has dropped, and behind the end."""
    root = stores.unpack(name, tmp_path)
    with StoreReader(root) as store:
        asked = [
            (queue.queue_id, offset)
            for queue in compaction_queues(store, TOPIC)
            for offset in range(0, 300, 7 if queue.queue_id else 1)
        ]
        ours = [_pull(store, *place) for place in asked]
    steps = [
        {"do": "get_message", "topic": TOPIC, "queue_id": queue_id, "offset": offset, "max": MOST}
        for queue_id, offset in asked
    ]
    version = stores.truth(name)["broker_version"]
    answer = oracle(version).run(
        root, config=stores.config(name, root), topics={TOPIC: {"cleanup.policy": "COMPACTION"}}, steps=steps
    )
    assert answer["loaded"]
    theirs = [
        [(m["queue_offset"], m["physical_offset"], m["message_id"]) for m in step["messages"]]
        for step in answer["steps"]
    ]
    assert len(ours) == len(theirs) > 300
    for place, mine, real in zip(asked, ours, theirs, strict=True):
        # a pull ends where a file of the queue does, ours does not
        assert mine[: len(real)] == real and bool(mine) == bool(real), place


@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_a_log_that_is_made_of_the_commit_log_is_served(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """All that the commit log has, what compaction had left out included."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    config = stores.config(name, root)
    shutil.rmtree(root / "compaction")
    repaired(root, BrokerConfig(config), chosen([RepairPart.COMPACTION], ()))
    wanted = sorted((m["queue_id"], m["queue_offset"]) for m in stores.messages(name) if m["topic"] == TOPIC)
    steps = [{"do": "get_message", "topic": TOPIC, "queue_id": q, "offset": at, "max": 1} for q, at in wanted]
    topics = {TOPIC: {"cleanup.policy": "COMPACTION"}}
    answer = oracle(version).run(root, config=config, topics=topics, steps=steps)
    assert answer["loaded"]
    assert [[m["queue_offset"] for m in step["messages"]] for step in answer["steps"]] == [[at] for _, at in wanted]


def test_new_messages_are_served_where_the_log_started_over(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    """What compaction has kept of the log that is gone would hide them."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    config = stores.config(name, root)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    layout = Layout.open(root, BrokerConfig(config))
    plan = analyze(layout, "5.3", options=RecoveryOptions(Policy.KEEP, force_empty_log=True)).plan
    assert plan is not None
    apply(layout, plan, lambda: plan, Files())
    new = [{"topic": TOPIC, "queue_id": 0, "body": f"new {n}", "properties": {"KEYS": f"k{n}"}} for n in range(3)]
    steps = [
        {"do": "put", "messages": new},
        {"do": "wait", "ms": 3000},
        {"do": "get_message", "topic": TOPIC, "queue_id": 0, "offset": 0, "max": 32},
    ]
    topics = {TOPIC: {"cleanup.policy": "COMPACTION"}}
    answer = oracle("5.3.3").run(root, config=config, topics=topics, files="none", steps=steps)
    assert answer["loaded"]
    assert [m["queue_offset"] for m in answer["steps"][2]["messages"]] == [0, 1, 2]


def _pull(store: StoreReader, queue_id: int, offset: int) -> list[tuple[int, int, str]]:
    selection = Selection(topic=TOPIC, queue_id=queue_id)
    try:
        found = [each.message for each in find(store, selection, offset=offset, count=MOST)]
    except NotFound:
        return []
    return [(m.queue_offset, m.physical_offset, m.message_id) for m in found]
