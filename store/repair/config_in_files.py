"""Topics, groups and positions of groups that go from RocksDBs of `config/` into its files of JSON (spec 05, 5.4).

A broker with storeType=default does not read these databases, and begins with nothing where there are no files.
The other way needs nothing: a broker with storeType=defaultRocksDB takes the files over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..broker.system_topics import LMQ_PREFIX
from ..disk.broker_conf import BrokerConfig
from ..disk.files import Edit
from ..disk.layout import Layout
from ..errors import Unreadable
from ..queues.rocksdb_write import database_files
from ..settings.rocksdb import Form, InForce, in_force, table_of
from ..start.config_rules import LIGHT_OFFSETS, OFFSETS
from .config import text_of

_TOLD = frozenset({"storeType", "rocksdbCQDoubleWriteEnable"})
"""Options that say where queues are to be from now on, not where they were."""
_CODES = ("I-140",)


def config_in_files(layout: Layout, made_ms: int) -> Iterator[Edit]:
    """Writes the files, and moves the databases to the session's folder. layout: as `as_kind` gives it.

    A database that cannot be read stays where it is. made_ms: the time of a dataVersion that no
    database has.
    """
    found = _stands_for_files(layout)
    written: dict[str, Any] = {}
    for name, path in found.databases.items():
        try:
            written[name] = table_of(path, name)
        except Unreadable:
            continue
    left = {path for name, path in found.databases.items() if name not in written}
    for name, content in written.items():
        path = found.databases[name]
        if name == OFFSETS:
            name, content = _positions(layout, content)
            yield from _other_positions(layout, name)
        content.setdefault("dataVersion", {"counter": 0, "stateVersion": 0, "timestamp": made_ms})
        data = text_of(dict(sorted(content.items())))
        reason = (
            f"what the RocksDB {path.name} has, which a broker with queues in files does not read"
        )
        target, pieces = str(layout.config / name), ((0, data),)
        yield Edit("create", target, reason, _CODES, length=len(data), pieces=pieces)
    for path in sorted(set(found.databases.values()) - left):
        for file in database_files(path):
            yield Edit("move", str(file), "a RocksDB of what is in files now", _CODES)


def _stands_for_files(layout: Layout) -> InForce:
    """The databases that were in force as long as the queues were in a RocksDB."""
    nothing = InForce(Form.FILES, True, {})
    options = {name: text for name, text in layout.broker_config.items() if name not in _TOLD}
    found = in_force(layout.config, options)
    if found.form not in (Form.SEPARATE, Form.SINGLE):
        return nothing
    beside = any((layout.config / name).is_file() for name in found.databases)
    alone = Layout.open(layout.root, BrokerConfig(options)).rocksdb_queues
    return found if alone or not beside else nothing


def _other_positions(layout: Layout, name: str) -> Iterator[Edit]:
    """A broker reads one file of positions: an older one of the other kind goes."""
    other = layout.config / (OFFSETS if name == LIGHT_OFFSETS else LIGHT_OFFSETS)
    if other.is_file():
        yield Edit("move", str(other), f"older than what {name} has now", _CODES)


def _positions(layout: Layout, content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and content of the file that a broker reads: one of its own where it has light queues."""
    table, topics = content["offsetTable"], dict[str, list[str]]()
    for key in sorted(table):
        topic, _, group = key.rpartition("@")
        topics.setdefault(group, []).append(topic)
    content = {**content, "groupTopicMap": topics}
    if not layout.broker_config.get_bool("enableLmq"):
        return OFFSETS, content
    light = {
        key: row for key, row in table.items() if key.rpartition("@")[2].startswith(LMQ_PREFIX)
    }
    rest = {key: row for key, row in table.items() if key not in light}
    light = {key: row[0] for key, row in light.items() if 0 in row}
    return LIGHT_OFFSETS, {**content, "offsetTable": rest, "lmqOffsetTable": light}
