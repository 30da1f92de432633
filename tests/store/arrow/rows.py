"""Rows of messages and damage, read as jobs read them, and one walk over the whole log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from mqstore.formats.sys_flag import SysFlag
from mqstore.store.arrow.log_columns import COLUMNS
from mqstore.store.arrow.log_rows import Damage, LogSplit, damage_of, fields_of, parts_of, rows_of
from mqstore.store.arrow.stores import ReadOptions, open_log
from mqstore.store.disk.byte_reader import noting
from mqstore.store.disk.layout import Layout
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch, Extent, ExtentKind
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of

EVERYTHING = ",".join(COLUMNS)
DAMAGED = ("4.9.7-killed-page", "4.9.7-killed-bit", "4.9.7-killed-torn", "4.9.7-killed-hole")
FAST = (*DAMAGED, "4.9.7-multipath", "5.3.3-dledger", "5.3.3-v2", "5.3.3-killed-page-restarted")
Row = dict[str, Any]
ASSIGNED = {
    *("store", "position", "total_size", "magic_code", "body_crc", "physical_offset"),
    *("store_host", "body_length", "message_id", "queue_offset", "prepared_transaction_offset"),
}
"""What the new store gives a message."""
CHECKSUM = "__CRC32#"


def ask_of(root: Path, **options: str) -> ReadOptions:
    """What the options of a read ask, with the columns made out as Spark hands them back."""
    ask = ReadOptions.of({"path": str(root), "fields": EVERYTHING, **options})
    return replace(ask, fields=fields_of(ask))


def rows(ask: ReadOptions, parts: list[LogSplit] | None = None) -> list[dict[str, Any]]:
    """All rows in log order, as far as they have positions."""
    found = [
        row
        for part in parts or parts_of(ask)
        for batch in rows_of(ask, part, lambda damage: None)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: int(row.get("position", 0)))


def damage(ask: ReadOptions, parts: list[LogSplit] | None = None) -> list[Damage]:
    """All that cannot be read, in log order; a read of messages is told the same but of what lies behind the end."""
    found, told = list[Damage](), list[Damage]()
    for part in parts or parts_of(ask):
        found += damage_of(ask, part)
        for _ in rows_of(ask, part, told.append):
            pass
    log = open_log(ask.stores[0], ask.broker_config)
    with noting(), log.queue:
        end = log.end().position
    lost = ("missing: ", "unreadable: ")
    assert [one for one in found if (one.position or 0) < end or one.reason.startswith(lost)] == told
    return sorted(found, key=lambda one: one.position or 0)


def walk(root: Path) -> tuple[list[dict[str, Any]], list[Extent]]:
    """The messages as JSON, and the damage, of one walk over the whole log."""
    found, damage = [], []
    log = commit_log_of(Layout.open(root))
    end = log.end().position
    with log.queue:
        for item in log.scan():
            if isinstance(item, Batch):
                if item.mark <= Mark.AFTER_DAMAGE:
                    for message in messages(item):
                        row = message.to_json() | {"position": message.position}
                        found += [row] if message.position < end else []
            elif item.kind in (ExtentKind.DAMAGE, ExtentKind.MISSING, ExtentKind.TORN_TAIL):
                damage.append(item)
    return found, damage


def table_of(root: Path, **options: str) -> pa.Table:
    """The messages of a store as rows, in the order of the log, with what an export has of them."""
    ask = ReadOptions.of({"path": str(root), **options})
    batches = [r for part in parts_of(ask) for r in rows_of(ask, part, lambda damage: None)]
    if not batches:
        return pa.table({name: [] for name in fields_of(ask)})
    return pa.Table.from_batches(batches)


def given(table: pa.Table) -> list[Row]:
    """The rows without what the store assigns."""
    found = []
    for row in table.to_pylist():
        kept = {name: value for name, value in row.items() if name not in ASSIGNED}
        kept["sys_flag"] &= ~int(SysFlag.STORE_V6)
        kept["properties"] = {k: v for k, v in row["properties"] if k != CHECKSUM}
        if "properties_raw" in kept:
            kept["properties_raw"] = (row["properties_raw"] or b"").partition(CHECKSUM.encode())[0]
        found.append(kept)
    return found
