"""Rows of messages become a store, or more of one, as a broker would append them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..broker.write_profile import writer_profile
from ..disk.broker_conf import BrokerConfig
from ..errors import InvalidInput, LimitExceeded
from ..output.publishing import publish_made
from ..put.bulk import STEP_ROWS, append_ahead
from ..put.keys import UniqueKeys
from ..put.message_columns import columns_of
from ..put.message_json import MessageReader, is_message
from ..put.new_message import NewMessage
from ..put.on_damage import CorruptedBodies, OnDamage
from ..put.options import WriterOptions
from ..put.writer import StoreWriter
from .ask import BODY, BODY_CRC_OK, parse_object
from .messages import columns_of_rows, corrupted_rows, record_of
from .sorted_rows import sorted_batches

NEEDED = ("topic", BODY)
OPTIONS = frozenset({"as_broker", "keep_times", "on_damage", "broker_config"})


@dataclass(frozen=True)
class NewStore:
    """How a store is made of rows.

    config: of its broker, as in broker.conf. as_broker: its generation, None for the newest.
    keep_times: take `store_timestamp`. on_damage: of bodies that failed their checksum.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    as_broker: str | None = None
    keep_times: bool = False
    on_damage: OnDamage = OnDamage.FAIL

    @classmethod
    def of(cls, given: Mapping[str, str]) -> NewStore:
        """From the options of a writer. Raises InvalidInput."""
        if unknown := sorted(given.keys() - OPTIONS):
            raise InvalidInput(f"no option {unknown[0]!r} here")
        on_damage = given.get("on_damage", OnDamage.FAIL.value).lower()
        if on_damage not in list(OnDamage):
            raise InvalidInput(f"option on_damage: not one of {', '.join(OnDamage)}: {on_damage!r}")
        if (version := given.get("as_broker")) is not None:
            writer_profile(version)
        return cls(
            parse_object(given, "broker_config"),
            version,
            given.get("keep_times", "false").lower() == "true",
            OnDamage(on_damage),
        )


@dataclass
class Made:
    """What has become of some rows. left_out: those without a topic, which stand for damage."""

    corrupted: CorruptedBodies
    messages: int = 0
    left_out: int = 0

    def counts(self) -> dict[str, int]:
        """For a manifest."""
        return {
            "messages": self.messages,
            "left_out": self.left_out,
            "skipped": self.corrupted.skipped,
            "marked": self.corrupted.marked,
        }


def make_store(folder: Path, how: NewStore, batches: Iterable[pa.RecordBatch]) -> Made:
    """Append rows, in their order, to a store in a folder; on disk when this returns.

    Raises InvalidInput, LimitExceeded, Corrupted with the number of the row, from 1 on; what the
    writer raises.
    """
    made = Made(CorruptedBodies(how.on_damage))
    reader = MessageReader(UniqueKeys(NewMessage.born_host[0]), keep_times=how.keep_times)
    options = WriterOptions(as_broker=how.as_broker)
    with StoreWriter.open(folder, BrokerConfig(dict(how.config)), options) as writer:
        reader.final_separator = writer.profile.final_separator
        first = 1
        for batch in batches:
            for begin in range(0, batch.num_rows, STEP_ROWS):
                _append(writer, reader, batch.slice(begin, STEP_ROWS), first + begin, made)
            first += batch.num_rows
        writer.sync()
    return made


def import_store(
    files: Sequence[Path], target: Path, how: NewStore, note: Callable[[int], None]
) -> dict[str, Any]:
    """Make a store of the messages in files at `target`, a new or empty directory: the manifest.

    Their order is that of `sorted_batches`, which is told `note`, too. Raises as that, `make_store`,
    `publish_job`.
    """
    same = {"files": [str(path.absolute()) for path in files], "how": asdict(how)}
    return publish_made(
        target, same, lambda tree: make_store(tree, how, sorted_batches(files, note)).counts()
    )


def _append(
    writer: StoreWriter, reader: MessageReader, rows: pa.RecordBatch, first: int, made: Made
) -> None:
    if missing := [name for name in NEEDED if name not in rows.schema.names and name != BODY]:
        raise InvalidInput(f"no column {missing[0]!r}", hint=f"needed: {', '.join(NEEDED)}")
    numbers = pa.array(range(first, first + rows.num_rows))
    there = rows.column("topic").is_valid()
    made.left_out += rows.num_rows - there.true_count
    rows, numbers = rows.filter(there), numbers.filter(there)
    if BODY_CRC_OK in rows.schema.names:
        bad = corrupted_rows(rows.column(BODY_CRC_OK))
        where = f"row {numbers[int(bad[0])]}" if len(bad) else ""
        if not made.corrupted.take(len(bad), where) and len(bad):
            sound = rows.column(BODY_CRC_OK).fill_null(True)
            rows, numbers = rows.filter(sound), numbers.filter(sound)
    if not rows.num_rows:
        return
    columns = columns_of_rows(rows, reader)
    if columns is None:
        messages = []
        for number, row in zip(numbers.to_pylist(), rows.to_pylist(), strict=True):
            record = record_of(row, number)
            if is_message(record):
                messages.append(_message(reader, record, number))
        columns = columns_of(messages)
    made.messages += len(columns[BODY])
    try:
        append_ahead(writer, columns)
    except (InvalidInput, LimitExceeded) as error:
        raise type(error)(f"rows {numbers[0]} to {numbers[-1]}: {error}") from None


def _message(reader: MessageReader, record: Mapping[str, object], number: int) -> NewMessage:
    try:
        return reader.message(record)
    except InvalidInput as error:
        raise InvalidInput(f"row {number}: {error}") from None
