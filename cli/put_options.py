"""The options of `put`: one message or many, and how the store is written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import AsBroker
from .damage_option import OnDamage, OnDamageOption
from .declared import Option, Options, path_text
from .options import parse_bytes

if TYPE_CHECKING:
    from ..store.put.producer import ProducerOptions
    from ..store.put.writer import WriterOptions


class Flush(StrEnum):
    """When messages are synced; an answer always comes after the sync."""

    SYNC = "sync"
    ASYNC = "async"


class InputFormat(StrEnum):
    """Format of the input of `--from`."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    AVRO = "avro"


class TransactionStep(StrEnum):
    """Step of a transaction."""

    HALF = "half"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class BodyCompression(StrEnum):
    """Compression of a body, as by a client."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


class PutSourceOptions(Options):
    """Many messages from a file; the annotations declare the options."""

    path: Annotated[
        str | None,
        Option(
            "--from",
            metavar="FILE|DIR|-",
            parser=path_text,
            help="Take many messages: NDJSON or CSV as `mqstore dump` prints them, Parquet, Arrow, Avro, a directory.",
        ),
    ] = None
    form: Annotated[
        InputFormat | None, Option("--from-format", help="Format of --from; default: by its suffix, or ndjson.")
    ] = None
    resume: Annotated[
        bool,
        Option(
            "--resume",
            help="With --from: skip messages that the store has, by topic, queue, unique key (or born time and body).",
        ),
    ] = False
    no_answers: Annotated[bool, Option("--no-answers", help="With --from: print no answer per message.")] = False
    keep_times: Annotated[bool, Option("--keep-times", help="With --from: keep store_timestamp of the input.")] = False
    on_damage: OnDamageOption = OnDamage.FAIL


class PutMessageOptions(Options):
    """One message; the annotations declare the options."""

    queue: Annotated[int, Option("--queue", metavar="N", min=0, help="Queue id.")] = 0
    tag: Annotated[str | None, Option("--tag", metavar="TAG", help="Tag (property TAGS).")] = None
    keys: Annotated[
        str | None, Option("--keys", metavar="'K1 K2'", help="Keys (property KEYS), separated by spaces.")
    ] = None
    properties: Annotated[list[str] | None, Option("--property", metavar="K=V", help="A property; repeatable.")] = None
    body_file: Annotated[Path | None, Option("--body-file", metavar="FILE", help="Read the body from FILE.")] = None
    delay_level: Annotated[
        int | None, Option("--delay-level", metavar="N", min=1, help="Deliver after the delay of level N.")
    ] = None
    deliver_at: Annotated[
        str | None, Option("--deliver-at", metavar="TIME", help="Deliver at this time (5.x): RFC 3339, +10m.")
    ] = None
    transaction: Annotated[
        TransactionStep | None,
        Option(
            "--transaction",
            help="half: store a half message (PGROUP: the group that brokers ask); commit, rollback: decide --half.",
        ),
    ] = None
    half: Annotated[
        str | None, Option("--half", metavar="KEY", help="Unique key or message id of the half message to decide.")
    ] = None
    compress: Annotated[BodyCompression | None, Option("--compress", help="Compress the body as a client does.")] = None
    compress_over: Annotated[
        int,
        Option("--compress-over", metavar="BYTES", parser=parse_bytes, help="Compress only bodies larger than BYTES."),
    ] = 4096

    @property
    def is_given(self) -> bool:
        """Whether any option but those of transactions is given."""
        return bool(self.changed_names("transaction", "half"))

    @property
    def ends_transaction(self) -> bool:
        """Whether a half message is to be decided."""
        return self.half is not None or self.transaction in (TransactionStep.COMMIT, TransactionStep.ROLLBACK)

    def record(self, topic: str) -> dict[str, Any]:
        """The message as a JSON object, without its body. Raises InvalidInput."""
        return {
            "topic": topic,
            "queue_id": self.queue,
            "properties": _properties(self.properties),
            "tags": self.tag,
            "keys": self.keys,
        }

    def producer_options(self) -> ProducerOptions:
        """The options that a producer passes to the broker. Raises InvalidInput."""
        from ..store.errors import InvalidInput
        from ..store.put.producer import ProducerOptions
        from ..store.search.selection import parse_time

        try:
            deliver_ms = None if self.deliver_at is None else parse_time(self.deliver_at)
        except InvalidInput as error:
            raise InvalidInput(f"--deliver-at: {error}") from None
        kind, half = self.compress, self.transaction is TransactionStep.HALF
        return ProducerOptions(self.delay_level, deliver_ms, kind.value if kind else "", self.compress_over, half)


class PutWritingOptions(Options):
    """How the store is written; the annotations declare the options."""

    as_broker: AsBroker = None
    store_host: Annotated[
        str | None,
        Option(
            "--store-host",
            metavar="IP:PORT",
            help="Address of the broker; default: that of the last record, else 127.0.0.1:10911.",
        ),
    ] = None
    flush: Annotated[
        Flush | None,
        Option("--flush", help="sync: flush at once (default for one message); async: flush every second."),
    ] = None
    wait: Annotated[float, Option("--wait", metavar="SECONDS", min=0, help="Wait SECONDS for the store's lock.")] = 10
    no_topic_config: Annotated[bool, Option("--no-topic-config", help="Do not change config/topics.json.")] = False
    follow_links: Annotated[
        bool, Option("--follow-links", help="Allow directories of STORE to be links to other places.")
    ] = False

    def options(self) -> WriterOptions:
        """The options as `StoreWriter` takes them. Raises InvalidInput."""
        from ..store.put.message_json import parse_host
        from ..store.put.writer import WriterOptions

        host = None if self.store_host is None else parse_host(self.store_host, "--store-host")
        return WriterOptions(self.as_broker, host, not self.no_topic_config, self.wait, self.follow_links)


def _properties(options: list[str] | None) -> dict[str, str]:
    """Texts `K=V` as properties; the last one of a name wins. Raises InvalidInput."""
    found = {}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals:
            from ..store.errors import InvalidInput

            raise InvalidInput(f"--property: not K=V: {option}")
        found[name] = value
    return found
