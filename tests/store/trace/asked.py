"""Traces of stores: of real ones, and of small ones that our own writer has made."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.next_commands import Given
from mqstore.store.search.store import StoreReader
from mqstore.store.trace.answer import By, DeliveryVerdict, EventKind, GroupVerdict, Trace
from mqstore.store.trace.groups import Subscription
from mqstore.store.trace.locate import TraceTarget
from mqstore.store.trace.trace import TraceQuestion, trace

from ...cli.datadriven import run_here

SHOWS_NO_RECORD = {
    *(EventKind.BORN, EventKind.DECIDED, EventKind.POPPED, EventKind.SUPERSEDED, EventKind.DUE, EventKind.NAMED),
    *(EventKind.NOT_NAMED, EventKind.INDEXED, EventKind.COMPACTED, EventKind.TIERED),
}
"""Events that tell more of a record that has an event of its own, or of another message's."""


SIZES = (
    *("mappedFileSizeCommitLog=16384", "mappedFileSizeConsumeQueue=2000"),
    *("maxHashSlotNum=31", "maxIndexNum=100"),
)


def asked(
    store: StoreReader,
    text: str,
    by: By | None = None,
    *,
    now_ms: int | None = None,
    group: str | None = None,
    subscription: Subscription | None = None,
    start: bool | str = False,
    notes: list[str] | None = None,
) -> list[Trace]:
    """The traces of a key, an id or a place. start: play it, perhaps that of a version."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    told: list[str] = [] if notes is None else notes
    given = Given(version=start if isinstance(start, str) else "")
    store.layout.version_named = given.version
    question = TraceQuestion(TraceTarget(text, by), now_ms, group, subscription, bool(start), given)
    return list(trace(store, question, told.append))


def one(root: Path, text: str, config: dict[str, str] | None = None, **more: Any) -> Trace:
    """The only trace of what is asked for."""
    with StoreReader(root, BrokerConfig(config or {})) as store:
        [found] = asked(store, text, **more)
    return found


def records_of(found: list[Trace]) -> list[int]:
    """Positions of all records that events show."""
    events = [event for each in found for event in each.events]
    shown = {e.position for e in events if e.event not in SHOWS_NO_RECORD}
    return sorted(position for position in shown if position is not None)


def verdict(found: Trace, group: str) -> DeliveryVerdict:
    """The verdict on a group."""
    return whole(found, group).judgement.verdict


def whole(found: Trace, group: str) -> GroupVerdict:
    """All that is said of a group."""
    [row] = [row for row in found.groups if row.group == group]
    return row


def put(root: Path, topic: str, *options: str) -> dict[str, Any]:
    """A message of a producer in a store of ours, with small files; the answer."""
    sizes = [word for each in SIZES for word in ("--set", each)]
    result = run_here(["put", str(root), topic, "body", *options, *sizes, "--format", "ndjson"])
    assert result.code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def offsets(root: Path, name: str = "consumerOffset.json", **groups: dict[str, Any]) -> None:
    """Write offsets: topic → {queue: offset} of each group."""
    table = {
        f"{topic}@{group}": {str(queue): offset for queue, offset in queues.items()}
        for group, topics in groups.items()
        for topic, queues in topics.items()
    }
    config(root, name, {"offsetTable": table})


def config(root: Path, name: str, content: object) -> None:
    """Write a file of config/."""
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(json.dumps(content))


def k1(root: Path, **more: Any) -> Trace:
    """The trace of the second message."""
    return one(root, "k1", **more)


def of_g(root: Path, **more: Any) -> tuple[DeliveryVerdict, str]:
    """Verdict and reason for the group g."""
    judged = whole(k1(root, group="g", **more), "g").judgement
    return judged.verdict, judged.reason


def without_unit(root: Path) -> None:
    """The unit of the second message is zeros."""
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))


def elsewhere(root: Path) -> None:
    """The unit of the second message names the first one."""
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(data[:20])


def other_size(root: Path, size: int = 60) -> None:
    """The unit of the second message names its record with so many bytes."""
    write_unit(root, 8, size.to_bytes(4, "big"))


def other_tag(root: Path, code: int) -> None:
    """The unit of the second message has this tags code; its tag has 2,112."""
    write_unit(root, 12, code.to_bytes(8, "big"))


def write_unit(root: Path, at: int, data: bytes) -> None:
    """Write bytes of the unit of the second message."""
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20 + at)
        file.write(data)


def behind(root: Path) -> None:
    """The queue ends before the second message."""
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(40))


def lost(root: Path, number: int) -> None:
    """The record of a message, with number 0 to 2, is damaged; recover writes a tombstone in its place."""
    [units] = (root / "consumequeue" / "orders" / "0").iterdir()
    position = int.from_bytes(units.read_bytes()[20 * number :][:8], "big")
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(position)
        file.write(bytes(50))
    done = run_here(["recover", str(root), "--apply", "--yes"])
    assert done.stdout.startswith("Done: recovered, 1 message lost."), done.stderr


def without_queue(root: Path) -> None:
    """The queue is gone."""
    shutil.rmtree(root / "consumequeue" / "orders")


def end_transaction(root: Path, how: str, half: str) -> None:
    """Commit it, or roll it back."""
    assert run_here(["put", str(root), "--transaction", how, "--half", half]).code == 0
