"""The options of `put`: one message or many, and how the store is written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.errors import InvalidInput
from .broker_version import AsBroker
from .damage_option import OnDamage, OnDamageOption
from .declared import Options, flag, option, path_text
from .options import parse_bytes

if TYPE_CHECKING:
    from ..store.put.producer import ProducerOptions
    from ..store.put.writer import WriterOptions


Flush = StrEnum("Flush", "SYNC ASYNC")
"""When messages are synced; an answer always comes after the sync."""


InputFormat = StrEnum("InputFormat", "NDJSON CSV PARQUET ARROW AVRO")
"""Format of the input of `--from`."""


TransactionStep = StrEnum("TransactionStep", "HALF COMMIT ROLLBACK")
"""Step of a transaction."""


BodyCompression = StrEnum("BodyCompression", "ZLIB LZ4 ZSTD")
"""Compression of a body, as by a client."""


class PutSourceOptions(Options):
    path: str | None = option(
        "--from",
        metavar="FILE|DIR|-",
        parser=path_text,
        help="Take many messages: NDJSON or CSV as `mqstore dump` prints them, Parquet, Arrow, Avro, a directory.",
    )
    form: InputFormat | None = option("--from-format", help="Format of --from; default: by its suffix, or ndjson.")
    resume: bool = flag(
        "--resume",
        help="With --from: skip messages that the store has, by topic, queue, unique key (or born time and body).",
    )
    no_answers: bool = flag("--no-answers", help="With --from: print no answer per message.")
    keep_times: bool = flag("--keep-times", help="With --from: keep store_timestamp of the input.")
    on_damage: OnDamageOption = OnDamage.FAIL


class PutMessageOptions(Options):
    queue: int = option("--queue", default=0, metavar="N", min=0, help="Queue id.")
    tag: str | None = option("--tag", metavar="TAG", help="Tag (property TAGS).")
    keys: str | None = option("--keys", metavar="'K1 K2'", help="Keys (property KEYS), separated by spaces.")
    properties: list[str] | None = option("--property", metavar="K=V", help="A property; repeatable.")
    body_file: Path | None = option("--body-file", metavar="FILE", help="Read the body from FILE.")
    delay_level: int | None = option("--delay-level", metavar="N", min=1, help="Deliver after the delay of level N.")
    deliver_at: str | None = option("--deliver-at", metavar="TIME", help="Deliver at this time (5.x): RFC 3339, +10m.")
    transaction: TransactionStep | None = option(
        "--transaction",
        help="half: store a half message (PGROUP: the group that brokers ask); commit, rollback: decide --half.",
    )
    half: str | None = option("--half", metavar="KEY", help="Unique key or message id of the half message to decide.")
    compress: BodyCompression | None = option("--compress", help="Compress the body as a client does.")
    compress_over: int = option(
        "--compress-over",
        default=4096,
        metavar="BYTES",
        parser=parse_bytes,
        help="Compress only bodies larger than BYTES.",
    )

    @property
    def is_given(self) -> bool:
        """Whether any option but those of transactions is given."""
        return bool(self.changed_names("transaction", "half"))

    @property
    def ends_transaction(self) -> bool:
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
        from ..store.put.producer import ProducerOptions

        deliver_ms = None
        if self.deliver_at is not None:
            from ..store.search.selection import parse_time

            try:
                deliver_ms = parse_time(self.deliver_at)
            except InvalidInput as error:
                raise InvalidInput(f"--deliver-at: {error}") from None
        kind, half = self.compress, self.transaction is TransactionStep.HALF
        return ProducerOptions(self.delay_level, deliver_ms, kind.value if kind else "", self.compress_over, half)


class PutWritingOptions(Options):
    as_broker: AsBroker = None
    store_host: str | None = option(
        "--store-host",
        metavar="IP:PORT",
        help="Address of the broker; default: that of the last record, else 127.0.0.1:10911.",
    )
    flush: Flush | None = option(
        "--flush", help="sync: flush at once (default for one message); async: flush every second."
    )
    wait: float = option("--wait", default=10, metavar="SECONDS", min=0, help="Wait SECONDS for the store's lock.")
    no_topic_config: bool = flag("--no-topic-config", help="Do not change config/topics.json.")
    follow_links: bool = flag("--follow-links", help="Allow directories of STORE to be links to other places.")

    def options(self) -> WriterOptions:
        """The options as `StoreWriter` takes them. Raises InvalidInput."""
        from ..store.put.message_json import parse_host
        from ..store.put.writer import WriterOptions

        host = None if self.store_host is None else parse_host(self.store_host, "--store-host")
        return WriterOptions(self.as_broker, host, not self.no_topic_config, self.wait, self.follow_links)


def _properties(options: list[str] | None) -> dict[str, str]:
    """Texts `K=V` as properties; the last one of a name wins. Raises InvalidInput."""
    found = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"--property: not K=V: {text}")
        found[name] = value
    return found
