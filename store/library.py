"""A store as users of the library and of notebooks open it: that of the commands, and frames of it.

It stands above all rooms, since it gives what several of them make of a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .counted import counted
from .errors import Unsupported
from .search import store as search_store

if TYPE_CHECKING:
    from .arrow.log_rows import Reader
    from .broker.filter import Where
    from .log.message import Message
    from .search.log_search import OnDamage, Time


class Store(search_store.StoreReader):
    """The message store in a directory. It is read, never written; a broker may be running on it.

    Parts are opened when they are asked for. What it has found it keeps, the end of the log among it: of a store that
    grows it answers by that end until it is closed. For one thread at a time; others get a copy (`copy.copy`). Use as a
    context manager or `close`.

    path: the root directory. config: the broker's configuration, or its options by name, which overrides what the files
    tell. rate_bytes: most bytes per second that scans of the log read. Raises Missing, NotAStore,
    Unreadable, InvalidInput.

    >>> with Store(path) as store:
    ...     message = store.message("orders", 0, 3)
    ...     message.keys, message.store_timestamp, message.body().data[:11]
    (['key28'], 1795210635090, b'lorem ipsum')
    """

    def message(self, topic: str, queue_id: int, queue_offset: int) -> Message:
        """One message by its place in a queue, of a batch queue one of those inside of a record.

        Raises NotFound, also where the unit is damaged.
        """
        if self.has_batch_queues(topic):
            from .search.queue_search import batch_message

            return batch_message(self, topic, queue_id, queue_offset)
        with self.queues.open(topic, queue_id) as queue:
            return self.message_of_unit(queue, queue_offset)

    def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """The queue offset that a broker answers for a time. Raises NotFound for no such queue."""
        from .search.queue_search import queue_offset_at

        return queue_offset_at(self, topic, queue_id, time_ms)

    def messages(
        self,
        topics: str | Sequence[str] = (),
        *,
        since: Time = None,
        until: Time = None,
        where: str | Where | None = None,
        on_damage: OnDamage = "warn",
    ) -> Iterator[Message]:
        """Messages in log order, those inside of batch records one by one.

        topics: names or patterns as a shell's, none for all. since ≤ store time < until: text as
        `--since` takes it, ms since 1970, or a datetime. where: a condition in RocketMQ's filter
        language. on_damage: `warn` (DamageWarning), `raise` or `skip` a range that cannot be read.
        Raises InvalidInput, Unreadable, Corrupted.

        >>> with Store(path) as store:
        ...     [message.keys for message in store.messages("orders", where="@queue_id = 0")][:2]
        [['key5'], ['key8']]
        """
        from .log.batch import messages
        from .search.log_search import selected

        batches = selected(
            self,
            topics=topics,
            since=since,
            until=until,
            where=where,
            on_damage=on_damage,
            crc=True,
            inner=True,
        )
        return (message for batch in batches for message in messages(batch))

    def to_arrow(
        self,
        fields: str | Sequence[str] | None = None,
        *,
        topics: str | Sequence[str] = (),
        since: Time = None,
        until: Time = None,
        where: str | Where | None = None,
        on_damage: OnDamage = "warn",
    ) -> Reader:
        """Records as a stream of Arrow batches: columns as the JSON names them. Needs pyarrow.

        fields: some of the columns of `rocketmq-log`; None: all but what is made of bodies. The
        rest as for `messages`. Memory: some MiB. Raises Unsupported without pyarrow.

        >>> with Store(path) as store:
        ...     store.to_arrow(["topic", "body"], topics="orders").read_all().num_rows
        87
        """
        try:
            from .arrow.log_rows import reader
        except ImportError as error:
            hint = "pip install 'mqstore[arrow]'"
            raise Unsupported("this needs pyarrow", hint=hint) from error
        return reader(
            self,
            fields,
            topics=topics,
            since=since,
            until=until,
            where=where,
            on_damage=on_damage,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All messages, for whatever takes a stream of Arrow: polars, DuckDB, pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self, fields: str | Sequence[str] | None = None, **wanted: Any) -> Any:
        """The same as a DataFrame of polars, all of it in memory. Raises as `to_arrow`."""
        try:
            import polars
        except ImportError as error:
            raise Unsupported("this needs polars", hint="pip install 'mqstore[frames]'") from error
        return polars.DataFrame(self.to_arrow(fields, **wanted))

    def to_pandas(self, fields: str | Sequence[str] | None = None, **wanted: Any) -> Any:
        """The same as a DataFrame of pandas, all of it in memory. Raises as `to_arrow`."""
        stream = self.to_arrow(fields, **wanted)
        try:
            return stream.read_pandas()
        except ModuleNotFoundError as error:
            raise Unsupported("this needs pandas", hint="pip install 'mqstore[frames]'") from error

    def _repr_html_(self) -> str | None:
        """Its queues as a table, for notebooks."""
        from .output.escaped import table_html
        from .queues.batches import batch_summaries

        queues = [*self.queue_summaries, *batch_summaries(self.layout)]
        queues.sort(key=lambda queue: (queue.topic, queue.queue_id))
        count, end = counted(len(queues), "queue"), self.log_end.position
        title = f"{self.layout.root}: {count}, log ends at {end}"
        rows = [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queues]
        return table_html(title, ("topic", "queue", "min offset", "max offset"), rows)
