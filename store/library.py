"""A store as users of the library and of notebooks open it, with data frames; and its recovery: planned, applied,
undone.

It stands above all packages of store, because it combines several of them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .counted import counted
from .disk.broker_conf import BrokerConfig
from .disk.byte_reader import at_rate
from .disk.layout import Layout
from .errors import InvalidInput, NotFound, StoreError, Unsupported
from .search import store as search_store

if TYPE_CHECKING:
    from .arrow.log_rows import Reader
    from .broker.filter import Where
    from .disk.files import Files
    from .inspect.timers import Timers
    from .log.message import Message
    from .plan.observer import RecoveryOptions
    from .plan.plan import Plan
    from .search.log_search import OnDamage
    from .search.selection import Time
    from .session.apply import Applied
    from .session.undo import Undone
    from .verify.judged import JudgedRecovery


class Store(search_store.StoreReader):
    """The message store in a directory. It is only read, never written; a broker may be running on it.

    Parts are opened when they are first needed. Results are kept, the end of the log too: a store that grows is seen up
    to that end until it is closed. For one thread at a time; give other threads a copy (`copy.copy`). Use it as a
    context manager, or call `close`.

    path: the root directory. config: the broker's configuration, or its options by name; overrides what the files say.
    rate_bytes: the most bytes per second that scans of the log read. Raises Missing, NotAStore, Unreadable,
    InvalidInput.

    >>> with Store(path) as store:
    ...     message = store.message("orders", 0, 3)
    ...     message.keys, message.store_timestamp, message.body().data[:11]
    (['key28'], 1795210635090, b'lorem ipsum')
    """

    def message(self, topic: str, queue_id: int, queue_offset: int) -> Message:
        """One message by its place in a queue; in a batch queue, one of the messages inside a record.

        If the queue cannot be read or has no unit of the message, the log is scanned as by `get`, with a UserWarning.
        Raises NotFound.
        """
        try:
            return self._message_of_queue(topic, queue_id, queue_offset)
        except NotFound as error:
            if self.has_compaction_queues(topic):  # a scan answers with the next message that is left
                raise
            missing = error
        from .search.find import find
        from .search.selection import Selection

        asked, notes = Selection(topic=topic, queue_id=queue_id), list[str]()
        with suppress(NotFound):
            for found in find(self, asked, offset=queue_offset, count=1, note=notes.append):
                if found.message.position < self.log_end.position:  # not stored since
                    _warn(notes)
                    return found.message
        raise missing

    def _message_of_queue(self, topic: str, queue_id: int, queue_offset: int) -> Message:
        if self.has_batch_queues(topic):
            from .search.queue_search import batch_message

            return batch_message(self, topic, queue_id, queue_offset)
        with self.queues.open(topic, queue_id) as queue:
            return self.message_of_unit(queue, queue_offset)

    def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """The queue offset that a broker answers for a time.

        If the queue cannot be read, the log is scanned, with a UserWarning. Raises NotFound if there is no such queue.
        """
        from .search.find import offset_at

        notes = list[str]()
        found = offset_at(self, topic, queue_id, time_ms, note=notes.append)
        _warn(notes)
        return found

    def messages(
        self,
        topics: str | Sequence[str] = (),
        *,
        since: Time = None,
        until: Time = None,
        where: str | Where | None = None,
        on_damage: OnDamage = "warn",
    ) -> Iterator[Message]:
        """Messages in log order; those inside batch records one by one.

        topics: names or shell patterns; none means all. since ≤ store time < until: text as for `--since`, ms since
        1970, or a datetime; a UserWarning says how many files of a large log are not read although times in it are
        doubtful. where: a condition in RocketMQ's filter language. on_damage: for a range that cannot be read: `warn`
        (DamageWarning), `raise` or `skip`; a log that is missing as a whole always raises Missing or Refused. Raises
        InvalidInput, Unreadable, Corrupted.

        >>> with Store(path) as store:
        ...     [message.keys for message in store.messages("orders", where="@queue_id = 0")][:2]
        [['key5'], ['key8']]
        """
        from .broker.filter import Where
        from .log.batch import messages
        from .search.log_search import selected

        self._check_log(on_damage)
        where = Where(where) if isinstance(where, str) else where
        batches = selected(
            self, topics=topics, since=since, until=until, where=where, on_damage=on_damage, crc=True, inner=True
        )
        return (message for batch in batches for message in messages(batch))

    def _check_log(self, on_damage: OnDamage) -> None:
        """Tell that a directory of the log that had files is missing. Raises Missing, Refused if the log is missing."""
        from .broker.snapshot import lacks_log  # numpy, before a byte of the log is read

        if not lacks_log(self.layout):
            return
        from .plan.normalize import refuse_to_read  # rare, and it imports much
        from .search.log_search import DamageWarning

        def tell(text: str) -> None:
            if on_damage == "warn":
                warnings.warn(text, DamageWarning, stacklevel=5)  # where `messages` or `to_arrow` is called

        refuse_to_read(self.layout, None if on_damage == "raise" else tell)

    def timers(self, now_ms: int | None = None, note: Callable[[str], None] = lambda _: None) -> Timers:
        """Timer messages: when due, whether delivered, cancelled or never delivered, for a broker started at `now_ms`.

        now_ms: ms since 1970, None for now. note: called with a text for what cannot be read. Raises Unreadable.

        >>> with Store(path) as store:
        ...     store.timers().rows
        []
        """
        from .inspect.timers import timers

        return timers(self, search_store.clock_ms() if now_ms is None else now_ms, note)

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
        """Messages as a stream of Arrow batches; columns are named like the JSON fields. Needs pyarrow.

        fields: some columns of `rocketmq-log`; None: all but those made from bodies. The rest as in `messages`. Memory:
        some MiB. Raises Unsupported without pyarrow.

        >>> with Store(path) as store:
        ...     store.to_arrow(["topic", "body"], topics="orders").read_all().num_rows
        87
        """
        try:
            from .arrow.log_rows import reader
        except ImportError as error:
            hint = "pip install 'mqstore[arrow]'"
            raise Unsupported("this needs pyarrow", hint=hint) from error
        self._check_log(on_damage)
        return reader(self, fields, topics=topics, since=since, until=until, where=where, on_damage=on_damage)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All messages, for anything that reads an Arrow stream: polars, DuckDB, pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self, fields: str | Sequence[str] | None = None, **wanted: Any) -> Any:
        """The messages of `to_arrow` as a polars DataFrame, all in memory. Raises what `to_arrow` raises."""
        try:
            import polars
        except ImportError as error:
            raise Unsupported("this needs polars", hint="pip install 'mqstore[frames]'") from error
        stream, errors = self.to_arrow(fields, **wanted), list[StoreError]()

        def batches() -> Iterator[Any]:
            try:
                yield from stream
            except StoreError as error:
                errors.append(error)
                raise

        try:
            return polars.DataFrame(type(stream).from_batches(stream.schema, batches()))
        except Exception:  # of polars, which knows the text of the error alone
            if errors:
                raise errors[0] from None
            raise

    def to_pandas(self, fields: str | Sequence[str] | None = None, **wanted: Any) -> Any:
        """The messages of `to_arrow` as a pandas DataFrame, all in memory. Raises what `to_arrow` raises."""
        stream = self.to_arrow(fields, **wanted)
        try:
            return stream.read_pandas()
        except ModuleNotFoundError as error:
            raise Unsupported("this needs pandas", hint="pip install 'mqstore[frames]'") from error

    def _repr_html_(self) -> str | None:
        """The queues as a table, for notebooks."""
        from .output.escaped import table_html

        queues = [*self.queue_summaries, *self.batch_summaries]
        queues.sort(key=lambda queue: (queue.topic, queue.queue_id))
        count, end = counted(len(queues), "queue"), self.log_end.position
        why = "" if queues else f" ({self.queues_unread})"
        title = f"{self.layout.root}: {count}{why}, log ends at {end}"
        rows = [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queues]
        return table_html(title, ("topic", "queue", "min offset", "max offset"), rows)


def _warn(notes: Sequence[str]) -> None:
    """Warn the caller of a method of what is worth knowing about its answer."""
    for text in notes:
        warnings.warn(text, UserWarning, stacklevel=3)


def recovery(
    path: str | os.PathLike[str] | Layout,
    config: Mapping[str, object] | None = None,
    *,
    broker_version: str | None = None,
    policy: str = "keep",
    jobs: int | None = None,
    rate_bytes: int | None = None,
    tell: Callable[[int], None] | None = None,
    **options: Any,
) -> JudgedRecovery:
    """Return what a broker start would do to a store, the verdict of `verify`, and the plan that repairs the store.
    Nothing is written.

    config: as for `Store`. broker_version: None to guess it. policy: `keep` or `broker`. jobs: cores, None for all.
    rate_bytes: the most bytes read per second. tell: called with the log position reached. options: those of
    `RecoveryOptions` (lost_tag, replica, force_empty_log). Raises Missing, NotAStore, Unreadable, InvalidInput.

    >>> found = recovery(path)
    >>> found.verdict.status.value, found.recovery.prediction.outcome, len(found.recovery.plan.edits)
    ('clean', 'starts', 0)
    """
    from .verify.judged import JudgedRecovery, verified_before, with_start

    layout = path if isinstance(path, Layout) else Layout.open(path, BrokerConfig.of(config))
    if options or policy != "keep":  # before the log is read
        _options(policy, options).check(layout)
    with at_rate(rate_bytes):
        others, proved = verified_before(layout, broker_version, jobs=jobs, tell=tell)
        # planning comes after the pass over the log, so its modules are imported here
        from .recover.recovery import analyze
        from .repair.repair import needs_log, widened

        found = analyze(
            layout,
            broker_version,
            options=_options(policy, options),
            jobs=jobs,
            tell=tell,
            proved=proved,
            exact=policy == "keep" and needs_log(others.findings),
        )
        found = widened(found, with_start(others, found).findings)
        return JudgedRecovery(found, with_start(others, found))


def _options(policy: str, others: Mapping[str, Any]) -> RecoveryOptions:
    from .plan.observer import Policy, RecoveryOptions

    if policy not in tuple(Policy):
        raise InvalidInput(f"no such policy: {policy}; there are {', '.join(Policy)}")
    return RecoveryOptions(Policy(policy), **others)


def apply(
    found: JudgedRecovery, files: Files | None = None, *, wait_seconds: float = 0, rate_bytes: int | None = None
) -> Applied:
    """Carry out the plan of `recovery` under the broker's lock, or continue an interrupted session. What changes is
    kept in `.mqstore` of the store, for `undo`. If the store has changed since planning, nothing is done.

    files: what writes; None: only inside this store. wait_seconds: for the lock. rate_bytes: as for `recovery`. Raises
    Refused, InUse, NoSpace, Unreadable.
    """
    from .disk.files import confined
    from .repair.repair import replan_with_parts
    from .session.apply import apply as carry_out

    planned = found.recovery
    if planned.plan is None and not planned.interrupted:
        assert planned.refusal is not None
        raise planned.refusal
    layout, version = planned.layout, planned.main_version
    files = confined(layout) if files is None else files

    def again() -> Plan:
        return replan_with_parts(Layout.open(layout.root, layout.broker_config), version, planned.options)

    shown = None if planned.interrupted else planned.plan
    with at_rate(rate_bytes):
        return carry_out(layout, shown, again, files, seen=planned.seen, wait_seconds=wait_seconds)


_ROUNDS = 3
"""Looks at a new store: the first plan restores queues, the second what is derived from queues; the last only looks."""


def recover_new_store(
    layout: Layout, broker_version: str | None = None, *, tell: Callable[[int], None] | None = None
) -> JudgedRecovery:
    """Recover a store that was just made, again while that changes something, and keep nothing for `undo`. A plan that
    gives up a record is not carried out. Return the last `recovery`. Raises what `recovery` and `apply` raise.
    """
    from .disk.files import confined
    from .salvage.original import gives_up
    from .session.journal import Journal
    from .session.undo import purge

    for remaining in reversed(range(_ROUNDS)):
        found = recovery(layout, broker_version=broker_version, tell=tell)
        plan = found.recovery.plan
        if not remaining or plan is None or found.recovery.nothing_to_do or gives_up(plan):
            break
        files = confined(layout)
        applied = apply(found, files)
        if applied.session:
            purge(layout, Journal.load(layout.root, layout.journal / applied.session), files)
        layout = Layout.open(layout.root, layout.broker_config)
    return found


def left_to_do(found: JudgedRecovery) -> str:
    """What is left to do with the store of `recover_new_store`, "" if `verify` calls the store safe."""
    from .salvage.original import BEYOND, MORE
    from .verify.verdict import Status

    if found.verdict.status is Status.CLEAN:
        return ""
    if found.recovery.plan is None:
        return str(found.recovery.refusal)
    return BEYOND if found.recovery.nothing_to_do else MORE


def settle_timers(
    root: str | os.PathLike[str], config: Mapping[str, object] | None = None, broker_version: str | None = None
) -> str:
    """Recover a store that was just made of copied messages, if some of them are timed: whatever has long been due a
    start would not fire, and other messages twice. Return what is left to do, "" for nothing. Raises what
    `recover_new_store` raises.
    """
    from .broker.system_topics import TIMER_TOPIC

    layout = Layout.of(root, BrokerConfig.of(config))
    if not (layout.consume_queue / TIMER_TOPIC).is_dir():
        return ""
    return left_to_do(recover_new_store(Layout.open(root, layout.broker_config), broker_version))


def undo(
    path: str | os.PathLike[str],
    session: str | None = None,
    config: Mapping[str, object] | None = None,
    *,
    force: bool = False,
    wait_seconds: float = 0,
) -> Undone:
    """Undo a recovery, a repair or a move of offsets: restore every byte, time and name.

    session: its name, None for the newest. force: even if the store has changed since. Raises NotFound, InUse, Refused,
    Unreadable, NoSpace.
    """
    from .disk.files import confined
    from .session import undo as undoing

    layout = Layout.open(path, BrokerConfig.of(config))
    files = confined(layout)
    journal = undoing.session_to_undo(layout, session)
    return undoing.undo(layout, journal, files, force=force, wait_seconds=wait_seconds)
