"""The story of every message of a real broker's store against what the Java classes say of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.search.store import StoreReader
from mqstore.store.trace.answer import By, DeliveryVerdict, EventKind, Judgement, Trace

from ... import stores
from .asked import asked, records_of, verdict, whole

pytestmark = pytest.mark.long

MOST = 10
"""Messages of a store that a fast test asks for: those with most records first."""
FEW = ("5.3.3-clean", "4.9.7-clean", "5.3.3-timer-roll", "5.5.0-pop", "5.3.3-compaction")
OTHERS = tuple(
    name for name in (*stores.ALL, *stores.OF_TODAY) if name not in FEW and "large" not in name and "poison" not in name
)
NOT_OWN = (
    *("RMQ_SYS_TRANS_HALF", "RMQ_SYS_ROCKSDB_TRANS_HALF", "TRANS_CHECK_MAX", "SCHEDULE_TOPIC"),
    *("rmq_sys_wheel", "%RETRY%", "%DLQ%"),
)
"""Op records of a RocksDB, and check points, are messages of their own: they have keys."""


def by_key(name: str) -> dict[str, list[dict[str, Any]]]:
    """The records of each unique key, as `MessageDecoder` reads them."""
    found = defaultdict(list)
    for message in stores.messages(name):
        if key := message["properties"].get("UNIQ_KEY"):
            found[key].append(message)
    return found


def last_ms(name: str) -> int:
    """When the last message was stored."""
    return int(max(message["store_timestamp"] for message in stores.messages(name)))


def traced(name: str, root: Path, keys: list[str], by: By | None = By.UNIQUE_KEY) -> Iterator[tuple[str, list[Trace]]]:
    """What is told of each key."""
    now_ms = last_ms(name)
    with StoreReader(root) as store:
        for key in keys:
            yield key, asked(store, key, by, now_ms=now_ms)


def check(name: str, root: Path, keys: list[str]) -> None:
    """Each record of each key is told, and whether one of them is in its topic."""
    known = by_key(name)
    for key, found in traced(name, root, keys):
        positions = sorted(message["physical_offset"] for message in known[key])
        assert records_of(found) == positions, key
        in_topic = any(not m["topic"].startswith(NOT_OWN) for m in known[key])
        absent = all(trace.for_all is not None and not is_there(trace.for_all) for trace in found)
        assert in_topic or absent, key
        check_transaction(key, known[key], found)


def is_there(judged: Judgement) -> bool:
    """The verdict is on a record in the topic itself, not on one that waits and that no delay queue names."""
    waits = any(SCHEDULE_TOPIC in one.fact for one in judged.evidence)
    return not waits and judged.verdict in (DeliveryVerdict.NOT_DISPATCHED, DeliveryVerdict.NOT_SERVED)


def check_transaction(key: str, known: list[dict[str, Any]], found: list[Trace]) -> None:
    """A half message is committed where a record of its topic names it, and only then."""
    halves = {m["physical_offset"] for m in known if "TRANS_HALF" in m["topic"]}
    if not halves:
        return
    committed = {m["physical_offset"] for m in known if m["prepared_transaction_offset"] in halves}
    committed = {at for at in committed if at not in halves}
    events = [event for trace in found for event in trace.events]
    told = {e.position for e in events if e.event is EventKind.COMMITTED}
    assert committed == told, key
    if not told:
        verdicts = {trace.for_all.verdict for trace in found if trace.for_all is not None}
        assert verdicts == {DeliveryVerdict.TRANSACTION}, key


@pytest.mark.parametrize("name", FEW)
def test_some_messages(name: str, tmp_path: Path) -> None:
    known = by_key(name)
    most = sorted(known, key=lambda key: (-len(known[key]), key))
    check(name, stores.unpack(name, tmp_path), [*most[: MOST // 2], *most[-MOST // 2 :]])


@pytest.mark.slow
@pytest.mark.parametrize("name", (*FEW, *OTHERS))
def test_messages_of_every_store(name: str, tmp_path: Path) -> None:
    truth = stores.truth(name)
    if not truth.get("messages") or "damage" in truth:
        return
    keys = list(by_key(name))
    check(name, stores.unpack(name, tmp_path), keys[:: 1 if name in FEW else len(keys) // 50 + 1])


REFUSED = ("4.3.1-clean", "4.9.7-clean", "5.1.4-clean", "5.3.3-clean", "5.5.0-clean")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", REFUSED)
def test_what_consumers_refused(name: str, tmp_path: Path) -> None:
    """A message that a consumer took is passed; one that it refused last is a retry or a dead letter.

    A consumer names one without a unique key by its message id.
    """
    root = stores.unpack(name, tmp_path)
    for group, keys in stores.received(name).items():
        odd = [key for key, oks in keys.items() if not all(oks)]
        plain = [key for key, oks in keys.items() if all(oks)][:5]
        for key, found in traced(name, root, [*odd, *plain], by=None):
            verdicts = {verdict(trace, group) for trace in found}
            assert verdicts == {DeliveryVerdict.PASSED if keys[key][-1] else DeliveryVerdict.RETRY}, (group, key)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.5.0-pop", "5.3.3-pop"])
def test_what_consumers_acknowledged(name: str, tmp_path: Path) -> None:
    """Of POP: what was acknowledged is passed, what was not came back."""
    root = stores.unpack(name, tmp_path)
    oks = stores.received(name)["pop_a"]
    odd = [key for key, every in oks.items() if not all(every)]
    for key, found in traced(name, root, [*odd[:8], *list(oks)[-4:]]):
        wanted = DeliveryVerdict.PASSED if oks[key][-1] else DeliveryVerdict.RETRY
        assert {verdict(trace, "pop_a") for trace in found} == {wanted}, key
        kinds = {event.event for trace in found for event in trace.events}
        assert EventKind.POPPED in kinds


def test_what_filters_selected(tmp_path: Path) -> None:
    """A message that a real broker's filter let through is passed, any other one filtered."""
    name = "5.3.3-cqext"
    root = stores.unpack(name, tmp_path)
    filters = stores.truth(name)["filters"]
    keys = [m["properties"]["UNIQ_KEY"] for m in stores.messages(name) if m["topic"] == "sql"]
    for key, found in traced(name, root, keys[::6]):
        for which in ("region", "price", "in", "null"):
            selected = key in filters[which]["selected"]
            wanted = DeliveryVerdict.PASSED if selected else DeliveryVerdict.FILTERED
            assert {verdict(trace, f"sql_{which}") for trace in found} == {wanted}, (which, key)
            [row] = [whole(trace, f"sql_{which}") for trace in found]
            facts = " ".join(fact.fact for fact in row.judgement.evidence)
            assert ("are not set" in facts) <= (not selected)


@pytest.mark.parametrize("name", ["5.3.3-timer-clean", "5.3.3-timer-roll"])
def test_what_timers_delivered(name: str, tmp_path: Path) -> None:
    """Timer messages: delivered, cancelled, or not due yet, as the truth has it."""
    truth = stores.truth(name)["timer"]
    cancelled = {*truth["cancelled"], *truth["recalled"]}
    root = stores.unpack(name, tmp_path)
    every = [row["msg_id"] for row in truth["requested"]][::4]
    for key, found in traced(name, root, every):
        [trace] = found
        if key in truth["delivered_to_consumer"]:
            assert verdict(trace, "timer-group") is DeliveryVerdict.PASSED
        elif key in cancelled:
            assert trace.for_all is not None and trace.for_all.verdict is DeliveryVerdict.NEVER_FIRES
        elif trace.for_all is not None:
            assert trace.for_all.verdict is DeliveryVerdict.NOT_DUE, key
            assert trace.for_all.until_timestamp is not None
        else:
            assert EventKind.DELIVERED in {event.event for event in trace.events}


def test_messages_inside_of_batch_records(tmp_path: Path) -> None:
    """The key of a batch record leads to all messages inside of it, each with its own offset."""
    name = "5.3.3-batchcq"
    root = stores.unpack(name, tmp_path)
    for row in [row for row in stores.sent(name) if row.get("batch")][:3]:
        found = traces(root, row["msg_id"])
        assert [t.queue_offset for t in found] == [row["queue_offset"] + n for n in range(row["batch"])]
        for trace in found:
            assert verdict(trace, "bg") is DeliveryVerdict.PASSED
            assert any(" of a batch" in event.text for event in trace.events)


def traces(root: Path, key: str) -> list[Trace]:
    """What is told of a key."""
    with StoreReader(root) as store:
        return asked(store, key)
