"""Stores with bytes in the log that no record owns, too few for a record."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MESSAGE
from mqstore.formats.message_properties import CRC_ITEM_BYTES, crc_item, ends_with_crc
from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout

from ..recover.recovered import record_bytes, units_of

NOISE = 0xA5


def lengthened(record: bytes, count: int) -> bytes:
    """A record as large, whose body is so many bytes shorter, and noise behind it."""
    values = MESSAGE.parse(record)
    body = values.body[: len(values.body) - count]
    made: bytes = MESSAGE.build({**values, "body": body, "body_crc": crc31(body)})
    if ends_with_crc(values.properties):
        made = made[:-CRC_ITEM_BYTES] + crc_item(made[:-CRC_ITEM_BYTES])
    return made + bytes([NOISE]) * count


def narrow(root: Path, config: BrokerConfig, count: int, *, lost: bool) -> tuple[QueueId, int]:
    """Shorten a record in the middle of the log, and its unit; lost: and break its body.

    Returns the queue and the queue offset of the message.
    """
    size = Snapshot.of(Layout.open(root, config)).log_file_bytes
    units = [
        (position, length, queue, offset)
        for queue, found in units_of(root, config).items()
        for offset, (position, length, _) in found.items()
        if length < size
    ]
    units.sort()
    position, length, queue, offset = next(
        unit for unit in units[len(units) // 2 :] if unit[0] % size and _has_body(root, size, unit[0], unit[1], count)
    )
    path = root / "commitlog" / f"{position // size * size:020d}"
    with path.open("r+b") as file:
        file.seek(position % size)
        record = lengthened(file.read(length), count)
        file.seek(position % size)
        if lost:
            record = record.replace(MESSAGE.parse(record).body, b"\0" * (_body(record) or 1), 1)
        file.write(record)
    _set_size(root, config, queue, offset, length - count)
    return queue, offset


def _body(record: bytes) -> int:
    return len(MESSAGE.parse(record).body)


def _has_body(root: Path, file_bytes: int, position: int, length: int, count: int) -> bool:
    """More than `count` bytes that are not compressed."""
    values = MESSAGE.parse(record_bytes(root, file_bytes, position, length))
    return not values.sys_flag and len(values.body) > count


def _set_size(root: Path, config: BrokerConfig, queue: QueueId, offset: int, size: int) -> None:
    snapshot = Snapshot.of(Layout.open(root, config))
    first = offset * UNIT_BYTES // snapshot.queue_file_bytes * snapshot.queue_file_bytes
    path = root / "consumequeue" / queue.topic / str(queue.queue_id) / f"{first:020d}"
    with path.open("r+b") as file:
        file.seek(offset * UNIT_BYTES - first)
        unit = UNIT.parse(file.read(UNIT_BYTES))
        file.seek(offset * UNIT_BYTES - first)
        file.write(UNIT.build({**unit, "size": size}))


def overwrite(directory: Path, file_bytes: int, position: int, data: bytes) -> None:
    """Write over bytes of a file of a log or a queue."""
    with (directory / f"{position // file_bytes * file_bytes:020d}").open("r+b") as file:
        file.seek(position % file_bytes)
        file.write(data)
