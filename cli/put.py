"""`mqstore put`: append messages exactly as a broker would."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from .broker_version import AsBroker, tell_nearest
from .damage_option import OnDamage, OnDamageOption
from .declared import App, Argument, Exit, Option, Options, path_text
from .exit_codes import ExitCode
from .options import Common, parse_bytes, shared, stdin_descriptor

if TYPE_CHECKING:
    from ..store.put.message_json import MessageReader
    from ..store.put.producer import ProducerOptions
    from ..store.put.writer import Stored, StoreWriter, WriterOptions
    from .output import Output

app = App()

COLUMNS = (
    *("type", "physical_offset", "total_size", "topic", "queue_id", "queue_offset"),
    *("message_id", "unique_key"),
)
_LARGEST_BODY = 1 << 30
"""More than any broker takes is not read."""


class Flush(StrEnum):
    """When a message is brought to the disk; an answer always means that it is there."""

    SYNC = "sync"
    ASYNC = "async"


class InputFormat(StrEnum):
    """What `--from` reads."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    AVRO = "avro"


class Transaction(StrEnum):
    """What a producer does with a transaction."""

    HALF = "half"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class Compression(StrEnum):
    """How a client compresses a body."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Source(Options):
    """Many messages out of a file; the annotations are the declaration of the options."""

    path: Annotated[
        str | None,
        Option(
            "--from",
            metavar="FILE|DIR|-",
            parser=path_text,
            help="Many: NDJSON or CSV as `mqstore dump` prints it, Parquet, Arrow, Avro, a directory.",
        ),
    ] = None
    form: Annotated[
        InputFormat | None,
        Option("--from-format", help="Format of --from; default: by its suffix, or ndjson."),
    ] = None
    resume: Annotated[
        bool,
        Option(
            "--resume",
            help="With --from: leave out what the store has, by topic, queue, unique key.",
        ),
    ] = False
    no_answers: Annotated[
        bool, Option("--no-answers", help="With --from: no answer for each message.")
    ] = False
    keep_times: Annotated[
        bool, Option("--keep-times", help="With --from: take store_timestamp as it is.")
    ] = False
    on_damage: OnDamageOption = OnDamage.FAIL


class Message(Options):
    """One message; the annotations are the declaration of the options."""

    queue: Annotated[int, Option("--queue", metavar="N", min=0, help="Queue id.")] = 0
    tag: Annotated[str | None, Option("--tag", metavar="TAG", help="Tag (property TAGS).")] = None
    keys: Annotated[
        str | None,
        Option("--keys", metavar="'K1 K2'", help="Keys (property KEYS), separated by spaces."),
    ] = None
    properties: Annotated[
        list[str] | None, Option("--property", metavar="K=V", help="A property; repeatable.")
    ] = None
    body_file: Annotated[
        Path | None, Option("--body-file", metavar="FILE", help="Read the body from FILE.")
    ] = None
    delay_level: Annotated[
        int | None,
        Option("--delay-level", metavar="N", min=1, help="Deliver after delay level N."),
    ] = None
    deliver_at: Annotated[
        str | None,
        Option(
            "--deliver-at", metavar="TIME", help="Delivered at this time (5.x): RFC 3339, +10m."
        ),
    ] = None
    transaction: Annotated[
        Transaction | None,
        Option(
            "--transaction",
            help="Begin one (PGROUP=GROUP is whom a broker asks), or end that of --half.",
        ),
    ] = None
    half: Annotated[
        str | None,
        Option(
            "--half", metavar="KEY", help="Unique key or message id of a half message to decide."
        ),
    ] = None
    compress: Annotated[
        Compression | None, Option("--compress", help="Compress the body as a client does.")
    ] = None
    compress_over: Annotated[
        int,
        Option(
            "--compress-over",
            metavar="BYTES",
            parser=parse_bytes,
            help="Compress only larger bodies.",
        ),
    ] = 4096

    @property
    def is_given(self) -> bool:
        """Something is said of it."""
        default = Message(transaction=self.transaction, half=self.half)
        return Message(**vars(self) | {"compress_over": default.compress_over}) != default

    @property
    def ends_transaction(self) -> bool:
        """It is a half message that is to be decided."""
        return self.half is not None or self.transaction in (
            Transaction.COMMIT,
            Transaction.ROLLBACK,
        )

    def record(self, topic: str) -> dict[str, Any]:
        """It as a JSON object, but for its body. Raises InvalidInput."""
        return {
            "topic": topic,
            "queue_id": self.queue,
            "properties": _properties(self.properties),
            "tags": self.tag,
            "keys": self.keys,
        }

    def wishes(self) -> ProducerOptions:
        """What is asked of a broker. Raises InvalidInput."""
        from ..store.errors import InvalidInput
        from ..store.put.producer import ProducerOptions
        from ..store.search.selection import parse_time

        try:
            deliver_ms = None if self.deliver_at is None else parse_time(self.deliver_at)
        except InvalidInput as error:
            raise InvalidInput(f"--deliver-at: {error}") from None
        kind, half = self.compress, self.transaction is Transaction.HALF
        wishes = ProducerOptions(
            self.delay_level, deliver_ms, kind.value if kind else "", self.compress_over
        )
        return wishes._replace(half=half)


class Writing(Options):
    """How the store is written; the annotations are the declaration of the options."""

    as_broker: AsBroker = None
    store_host: Annotated[
        str | None,
        Option(
            "--store-host",
            metavar="IP:PORT",
            help="Address of the broker; default: that of the last record, or 127.0.0.1:10911.",
        ),
    ] = None
    flush: Annotated[
        Flush | None,
        Option("--flush", help="sync: at once (default for one message); async: every second."),
    ] = None
    wait: Annotated[
        float, Option("--wait", metavar="SECONDS", min=0, help="Wait so long for the store's lock.")
    ] = 10
    no_topic_config: Annotated[
        bool, Option("--no-topic-config", help="Leave config/topics.json alone.")
    ] = False
    follow_links: Annotated[
        bool, Option("--follow-links", help="STORE's directories may be links elsewhere.")
    ] = False

    def options(self) -> WriterOptions:
        """The same for `StoreWriter`. Raises InvalidInput."""
        from ..store.put.message_json import parse_host
        from ..store.put.writer import WriterOptions

        host = None if self.store_host is None else parse_host(self.store_host, "--store-host")
        return WriterOptions(
            self.as_broker, host, not self.no_topic_config, self.wait, self.follow_links
        )


@app.command()
@shared()
def put(
    store: Annotated[Path, Argument(metavar="STORE", help="A store; made where there is none.")],
    topic: Annotated[str | None, Argument(metavar="TOPIC", help="Topic of the message.")] = None,
    body: Annotated[
        str | None, Argument(metavar="BODY", help="Body; without it stdin is the body.")
    ] = None,
    *,
    source: Source,
    message: Message,
    writing: Writing,
    common: Common,
) -> None:
    """Append messages exactly as a broker would.

    Log, consume queues, index, checkpoint and config/topics.json get what the broker of the store
    would write. An answer means: the message is on disk. A store that is in use (exit 4) or was not
    shut down cleanly (exit 3) is left alone. A message with a delay level or a time is stored as the
    broker stores it; the broker delivers it when it runs, put never does. A line of --from with
    "batch": [messages] is what a client sends together: the records come to one file, or are one
    record where the topic has batch queues. Of a directory the Parquet and Arrow files are taken, in the
    order of store_timestamp.

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

    options = writing.options()
    tell_nearest(writing.as_broker, common)
    target = Target(store, options, common)
    corrupted = CorruptedBodies(source.on_damage)
    said = topic is not None or message.is_given
    with common.open_output(growing=True) as out:
        if source.path is not None:
            if said or message.transaction is not None or message.half is not None:
                raise InvalidInput("--from takes its messages from FILE, not from the command line")
            from .put_many import Many, put_many

            at_once = writing.flush is Flush.SYNC
            many = Many(
                source.path,
                source.form,
                source.keep_times,
                at_once,
                source.resume,
                not source.no_answers,
                corrupted,
            )
            answers: Iterator[Any] = put_many(target, many, out)
        elif message.ends_transaction:
            if said:
                raise InvalidInput("a half message is decided as it is: there is only STORE")
            from .put_decision import decide

            answers = decide(target, message.transaction, message.half, out)
        else:
            record = message.record(topic or "")
            if topic is None:
                raise InvalidInput("TOPIC is missing", hint="or take messages with --from FILE")
            wishes = message.wishes()
            answers = _put_one(target, record, _body(body, message.body_file), wishes, out)
        if out.is_lines:
            from .json_text import line_of

            out.lines(one if isinstance(one, memoryview) else line_of(one) for one in answers)
        else:
            out.records(answers, text=_text, columns=COLUMNS)
    if corrupted.met:
        raise Exit(ExitCode.NO)


class Target(NamedTuple):
    """The store that messages go to, and how."""

    store: Path
    options: WriterOptions
    common: Common

    @contextmanager
    def writer(self, reader: MessageReader) -> Iterator[StoreWriter]:
        """The open store; it is closed whole, whatever ends the command.

        `reader` then makes messages as the store's broker does.
        """
        from ..store.counted import counted
        from ..store.put.writer import StoreWriter

        writer = StoreWriter.open(self.store, self.common.config(), self.options)
        reader.final_separator = writer.profile.final_separator
        reader.is_batch_topic = writer.is_batch_topic
        try:
            yield writer
        finally:
            with held_interrupts():
                writer.close()
        for topic, queue_id, count in writer.unserved:
            self.common.warn(
                f"{topic} has {counted(count, 'queue')} in topics.json:"
                f" a broker does not serve queue {queue_id}"
            )


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Ctrl-C waits until what is inside is done: no record is left half written."""
    came = False

    def note(number: int, frame: object) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def new_reader(keep_times: bool = False, *, new_keys: bool = True) -> MessageReader:
    """Makes messages of JSON objects; keys for those without are this process's own.

    new_keys: False refuses a message without a key.
    """
    from ..store.put.message_json import MessageReader
    from ..store.put.new_message import NewMessage, NoKeys, UniqueKeys

    keys = UniqueKeys(NewMessage.born_host[0]) if new_keys else NoKeys()
    return MessageReader(keys, keep_times=keep_times)


def _put_one(
    target: Target, record: dict[str, Any], body: bytes, wishes: ProducerOptions, out: Output
) -> Iterator[dict[str, Any]]:
    """Append one message and answer it."""
    from ..store.put.producer import as_stored, check_producer_topic

    reader = new_reader()
    # what makes no sense is refused before anything is touched
    check_producer_topic(reader.with_body(record, body).topic)
    with target.writer(reader) as writer:
        message = as_stored(reader.with_body(record, body), wishes, writer)
        with held_interrupts():
            stored = writer.append(message)
            writer.sync()
        yield from answers_of([stored], [message.properties])
        out.flush()


def _properties(options: list[str] | None) -> dict[str, str]:
    """`K=V` texts as properties; the last of a name wins."""
    found = {}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals:
            from ..store.errors import InvalidInput

            raise InvalidInput(f"--property: not K=V: {option}")
        found[name] = value
    return found


def _body(text: str | None, path: Path | None) -> bytes:
    """The body of one message: from the command line, a file, or stdin."""
    from ..store.errors import InvalidInput, from_os_error

    if text is not None and path is not None:
        raise InvalidInput("BODY and --body-file are two bodies")
    if text is not None:
        return os.fsencode(text)
    try:
        if path is not None:
            with path.open("rb") as file:
                return file.read(_LARGEST_BODY)
        with open(stdin_descriptor(), "rb", closefd=False) as stdin:
            return stdin.read(_LARGEST_BODY)
    except OSError as error:
        raise from_os_error(error, path or "stdin") from error


def answers_of(stored: Iterable[Stored], properties: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The records that tell where messages with these properties are."""
    from ..formats.message_id import message_id
    from ..formats.message_properties import UNIQ_KEY, parse

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


def _text(record: Mapping[str, Any]) -> str:
    """An answer for people."""
    from .terminal import escape

    return (
        f"{escape(record['topic'])} queue {record['queue_id']} offset {record['queue_offset']}:"
        f" {record['total_size']} bytes at {record['physical_offset']},"
        f" id {record['message_id']}, unique key {escape(record['unique_key'] or '-')}"
    )
