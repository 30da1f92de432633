"""What all ways of `put` share: the open store, the reader of messages, the answers."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..store.counted import counted
from .options import Common

if TYPE_CHECKING:
    from ..store.put.message_json import MessageReader
    from ..store.put.writer import Stored, StoreWriter, WriterOptions


class Target(NamedTuple):
    store: Path
    options: WriterOptions
    common: Common

    @contextmanager
    def writer(self, reader: MessageReader) -> Iterator[StoreWriter]:
        """Open the store for writing; it is closed properly, whatever ends the block.

        Sets up `reader` to make messages as the store's broker does. An error gets a note if the store is left unclean.
        """
        from ..store.put.writer import StoreWriter

        writer = StoreWriter.open(self.store, self.common.config(), self.options)
        reader.final_separator = writer.profile.final_separator
        reader.is_batch_topic = writer.is_batch_topic
        try:
            try:
                yield writer
            finally:
                with held_interrupts():
                    writer.close()
        except BaseException as error:
            if writer.left_unclean:
                from ..store.findings.next_commands import proposed

                mending = proposed(writer.layout, "recover", "--apply")
                error.add_note(f"the store is left unclean: fix the problem, then run: {mending}")
            raise
        for topic, queue_id, count in writer.unserved:
            self.common.warn(
                f"{topic} has {counted(count, 'queue')} in topics.json: a broker does not serve queue {queue_id}"
            )
        if writer.lmq_switched_off:
            sets = " ".join(f"--set {option}=true" for option in writer.lmq_switched_off)
            self.common.warn(f"the message is in none of the LMQs that it names; it would be with {sets}")


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of the block, so that no record is left half written."""
    held: list[int] = []

    def note(number: int, frame: object) -> None:
        held.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def new_reader(keep_times: bool = False, *, new_keys: bool = True) -> MessageReader:
    """A reader that makes messages from JSON objects; a message without a unique key gets one of this process.

    new_keys: False: refuse a message without a key.
    """
    from ..store.put.message_json import MessageReader
    from ..store.put.new_message import NewMessage, NoKeys, UniqueKeys

    keys = UniqueKeys(NewMessage.born_host[0]) if new_keys else NoKeys()
    return MessageReader(keys, keep_times=keep_times)


def answers_of(stored: Iterable[Stored], properties: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The records that say where messages with these properties are stored."""
    from ..formats.message_properties import UNIQ_KEY, parse
    from ..formats.quick import message_id

    for at, text in zip(stored, properties, strict=True):
        yield {
            "type": "stored",
            "physical_offset": at.physical_offset,
            "total_size": at.total_size,
            "topic": at.topic,
            "queue_id": at.queue_id,
            "queue_offset": at.queue_offset,
            "message_id": message_id(*at.store_host, at.physical_offset),
            "unique_key": parse(text).get(UNIQ_KEY),
        }
