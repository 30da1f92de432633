"""What the tests of recovery share: planning, applying, and looking at a store's queues."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mqstore.formats.consume_queue import PRE_FILL
from mqstore.store.broker.profiles import VERSIONS, profile_of
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.plan import Plan, make_plan
from mqstore.store.queues.units import read_units
from mqstore.store.session.apply import Applied, apply
from mqstore.store.start.log import Switches
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import simulate

Unit = tuple[int, int, int]
Content = dict[str, str]


def content(root: Path) -> Content:
    """Hash, times and mode of every file but the journal; index files by their order."""
    found: Content = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = str(path.relative_to(root))
        if name.startswith(".mqstore"):
            continue
        if name.startswith("index/"):
            name = f"index/{sum(known.startswith('index/') for known in found)}"
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def times(root: Path) -> dict[str, tuple[int, int]]:
    """Modification time and mode of every file of log and queues."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_mode)
        for part in ("commitlog", "consumequeue")
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


VERSION = "5.3.3"
"""Of the store that `root` gives."""


def started(root: Path, config: BrokerConfig, version: str) -> Outcome:
    """What a start of that version would do."""
    layout = Layout.open(root, config)
    return simulate(Snapshot.of(layout), profile_of(version), Switches.of(config))


def planned(root: Path, config: BrokerConfig, version: str) -> Plan:
    """The plan for that version."""
    snapshot = Snapshot.of(Layout.open(root, config))
    profile = profile_of(version)
    return make_plan(snapshot, profile, simulate(snapshot, profile, Switches.of(config)))


def recover(root: Path, config: BrokerConfig, version: str, files: Files | None = None) -> tuple[Plan, Applied]:
    """Plan and apply."""
    plan = planned(root, config, version)
    layout = Layout.open(root, config)
    applied = apply(layout, plan, lambda: planned(root, config, version), files or Files())
    return plan, applied


def changes_of_starts(root: Path, config: BrokerConfig, plan: Plan, versions: Sequence[str] = VERSIONS) -> list[str]:
    """What a start of any version would change in a store that `plan` was applied to."""
    found = []
    wanted = {row.queue: row.max_offset for row in plan.queues if row.max_offset}
    for version in versions:
        outcome = started(root, config, version)
        if outcome.refusal or outcome.hangs:
            found.append(f"{version}: {outcome.refusal or outcome.hangs}")
            continue
        if outcome.log_end != plan.log_end:
            found.append(f"{version}: the log ends at {outcome.log_end}, not {plan.log_end}")
        # a queue that has no files is none: a record names it whose topic cannot be a directory
        empty = {row.queue for row in plan.queues if not row.max_offset}
        there = {n: q for n, q in outcome.queues.items() if q.files and n not in empty}
        ends = {name: queue.max_offset for name, queue in there.items()}
        if ends != wanted:
            found.append(f"{version}: queues end at {ends}, not {wanted}")
        removed = [f for queue in outcome.queues.values() for f in queue.removed]
        if outcome.log_removed or removed or outcome.index.deleted:
            found.append(f"{version}: files are removed")
    return found


def units_of(root: Path, config: BrokerConfig) -> Mapping[QueueId, dict[int, Unit]]:
    """All units on disk that are not empty, by queue and queue offset."""
    snapshot = Snapshot.of(Layout.open(root, config))
    count = snapshot.queue_file_bytes // 20
    found: dict[QueueId, dict[int, Unit]] = {}
    for name, entries in snapshot.queues.items():
        units = found.setdefault(name, {})
        for entry in entries:
            if entry.size == snapshot.queue_file_bytes and entry.name.isdigit():
                rows = read_units(entry, 0, count).tolist()
                first = int(entry.name) // 20
                units.update({first + i: row for i, row in enumerate(rows) if row[1] > 0})
    return found


def unharmed(base: Path, root: Path, config: BrokerConfig) -> set[tuple[str, int]]:
    """Queue and queue offset of the messages of `base` whose records are the same in `root`."""
    size = config.get_int("mappedFileSizeCommitLog") or 0
    return {
        (f"{queue.topic}/{queue.queue_id}", offset)
        for queue, units in units_of(base, config).items()
        for offset, (position, length, _) in units.items()
        if length < PRE_FILL["size"]
        and record_bytes(base, size, position, length) == record_bytes(root, size, position, length)
    }


def record_bytes(root: Path, file_bytes: int, position: int, size: int) -> bytes:
    """A range of a store's commit log; none where no file is."""
    path = root / "commitlog" / f"{position // file_bytes * file_bytes:020d}"
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(position % file_bytes)
        return file.read(size)
