"""`mqstore put`: append messages exactly as a broker would."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import warn_of_nearest_version
from .declared import Argument, Exit, bad_parameter
from .exit_codes import ExitCode
from .options import Common, shared, stdin_descriptor
from .put_options import Flush, PutMessageOptions, PutSourceOptions, PutWritingOptions, TransactionStep
from .put_target import Target, answers_of, held_interrupts, new_reader
from .record_types import columns_of
from .terminal import escape

if TYPE_CHECKING:
    from ..store.put.producer import ProducerOptions
    from .output import Output


_COLUMNS = columns_of("stored")
_LARGEST_BODY = 1 << 30
"""Bytes of a body that are read at most; no broker takes a larger one."""


@shared()
def put(
    store: Annotated[Path, Argument(metavar="STORE", help="A store; created if there is none.")],
    topic: Annotated[str | None, Argument(metavar="TOPIC", help="Topic of the message.")] = None,
    body: Annotated[str | None, Argument(metavar="BODY", help="Body; without BODY it is read from stdin.")] = None,
    *,
    source: PutSourceOptions,
    message: PutMessageOptions,
    writing: PutWritingOptions,
    common: Common,
) -> None:
    """Append messages exactly as a broker would.

    The log, consume queues, index, checkpoint and config/ (topics.json, delayOffset.json, timercheck) are written
    as the broker of the store would write them. When put answers, the message is on disk. A store that is in use
    (exit 4) or was not shut down cleanly (exit 3) is not changed. A message with a delay level or a delivery time
    is stored as the broker stores it; only a running broker delivers it.

    --from takes many messages. Each is stored in the topic that its line names: in an ordinary topic a line with
    DELAY or TIMER_DELIVER_MS is not delayed, consumers get it at once. A line with "batch": [messages] is what a
    client sends together: the messages are stored in one file of the log, or as one record if the topic has batch
    queues. Topic, queue and born time stand beside "batch"; a message inside has a body, properties, keys, tags and
    a flag. A line that is not valid, whose topic no broker accepts, or at which a broker would end its log or stop
    delivering delayed messages, is reported and ends the command (exit 2); the messages before it are stored. From
    a directory, Parquet and Arrow files are taken in the order of store_timestamp; folders COLUMN=VALUE are read as
    columns.

    Copies get new positions and queue offsets. A record that decides a transaction points to the new place of its half
    message; without that half message it is left out, and stderr says so. POP check points and acknowledgements that
    point to other places are left out, too, and so are tombstones, which recover wrote in place of lost messages. The
    delivery progress of delay levels and timers is not copied: their messages are delivered once more. If a timed
    message is due already and the store has no files of the timer, stderr says so: verify names the repair, if one is
    needed. A topic that the store lacks is made as a broker makes one for a producer, without attributes such as
    message.type=LITE: no message has them.

    \b
    Examples:
      mqstore put /data/store orders 'hello' --keys 4711 --tag new
      mqstore put /data/store orders 'later' --delay-level 3
      mqstore put /data/store orders 'at nine' --deliver-at 2026-11-22T09:00:00Z
      mqstore put /data/store orders 'maybe' --transaction half --property PGROUP=shop
      mqstore put /data/store --transaction commit --half 7F0000011A2B00000000000000000000
      mqstore put /data/new-store orders --body-file order.json --as-broker 4.9
      mqstore dump /data/old --format ndjson | mqstore put /data/new --from - --keep-times
      mqstore put /data/new --from orders.parquet --no-answers --resume
    """
    from ..store.errors import InvalidInput
    from ..store.put.on_damage import CorruptedBodies

    if source.path is None and (options_of_from := source.said()):
        raise bad_parameter(f"{options_of_from[0]} needs --from")
    if message.compress is None and "compress_over" in message.changed_names():
        raise bad_parameter("--compress-over needs --compress")
    options = writing.options()
    warn_of_nearest_version(writing.as_broker, common)
    target = Target(store, options, common)
    corrupted = CorruptedBodies(source.on_damage)
    is_message_given = topic is not None or message.is_given
    with common.open_output(growing=True) as out:
        out.check(_COLUMNS)
        if source.path is not None:
            if is_message_given or message.transaction is not None or message.half is not None:
                raise InvalidInput(
                    "--from takes its messages from FILE: give no TOPIC, BODY or message option beside it"
                )
            from .put_many import put_many

            at_once = writing.flush is Flush.SYNC
            answers: Iterator[Any] = put_many(target, source, corrupted, out, at_once=at_once)
        elif message.ends_transaction:
            if is_message_given:
                raise InvalidInput(
                    "commit and rollback decide a stored half message: give STORE only, no TOPIC or BODY"
                )
            answers = _decide(target, message.transaction, message.half, out)
        else:
            record = message.record(topic or "")
            if topic is None:
                raise InvalidInput("TOPIC is missing", hint="name it, or take messages from a file with --from FILE")
            asked = message.producer_options()
            answers = _put_one(target, record, _body(body, message.body_file), asked, out)
        if out.is_lines:
            from .json_text import line_of

            out.lines(one if isinstance(one, memoryview) else line_of(one) for one in answers)
        else:
            out.records(answers, text=_text, columns=_COLUMNS)
    if corrupted.met:
        raise Exit(ExitCode.NO)


def _put_one(
    target: Target, record: dict[str, Any], body: bytes, asked: ProducerOptions, out: Output
) -> Iterator[dict[str, Any]]:
    from ..store.put.producer import as_stored, check_producer_topic

    reader = new_reader()
    # an invalid message is refused before anything is changed
    check_producer_topic(reader.with_body(record, body).topic)
    with target.writer(reader) as writer:
        message = as_stored(reader.with_body(record, body), asked, writer)
        writer.take_light_queues(message)
        with held_interrupts():
            stored = writer.append(message)
            writer.sync()
        out.note_done("the message is stored")
        yield from answers_of([stored], [message.properties])
        out.flush()


def _decide(
    target: Target, transaction: TransactionStep | None, name: str | None, out: Output
) -> Iterator[dict[str, Any]]:
    """End a transaction: append the real message for a commit, and the op record. Yields their answers."""
    from ..store.disk.layout import Layout
    from ..store.errors import InvalidInput
    from ..store.put.producer import committed, decided, open_half

    if name is None or transaction not in (TransactionStep.COMMIT, TransactionStep.ROLLBACK):
        raise InvalidInput("--transaction commit or rollback needs --half KEY, and --half needs one of them")
    Layout.open(target.store, target.common.config())  # refuses a path that is not a store: none is created
    with target.writer(new_reader()) as writer:
        prepared = open_half(writer.layout, name)
        found = [decided(prepared, writer.profile, writer.rules.store_host, writer.clock())]
        if transaction is TransactionStep.COMMIT:
            found.insert(0, committed(prepared, writer.profile))
            writer.take_light_queues(found[0])
        with held_interrupts():
            stored = [writer.append(message) for message in found]
            writer.sync()
        out.note_done(f"the {transaction} is stored")
        yield from answers_of(stored, [message.properties for message in found])
        out.flush()


def _body(text: str | None, path: Path | None) -> bytes:
    """The body of one message: from the command line, a file, or stdin."""
    from ..store.errors import InvalidInput, os_errors

    if text is not None and path is not None:
        raise InvalidInput("BODY and --body-file cannot be combined")
    if text is not None:
        return os.fsencode(text)
    with os_errors(path or "stdin"):
        if path is not None:
            with path.open("rb") as file:
                return file.read(_LARGEST_BODY)
        with open(stdin_descriptor(), "rb", closefd=False) as stdin:
            return stdin.read(_LARGEST_BODY)


def _text(record: Mapping[str, Any]) -> str:
    return (
        f"{escape(record['topic'])} queue {record['queue_id']} offset {record['queue_offset']}:"
        f" {record['total_size']} bytes at {record['physical_offset']},"
        f" id {record['message_id']}, unique key {escape(record['unique_key'] or '-')}"
    )
