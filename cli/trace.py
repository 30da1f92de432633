"""`mqstore trace`: show the life of one message, and why a group has got it or not."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .broker_version import BrokerVersion, warn_of_nearest_version
from .declared import Argument, Exit, Options, flag, option
from .exit_codes import ExitCode
from .options import PASSED_OVER, Common, shared
from .selection_options import Topic

if TYPE_CHECKING:
    from ..store.findings.next_commands import Given
    from ..store.trace.trace import TraceQuestion


class TraceKind(StrEnum):
    """What the given text is: `By`, without an import of the store."""

    KEY = "key"
    UNIQUE_KEY = "unique-key"
    MESSAGE_ID = "message-id"
    POSITION = "position"
    QUEUE = "queue"


class TraceOptions(Options):
    by: TraceKind | None = option("--by", help="What KEY is, if it could be several things.")
    topic: Topic = None
    group: str | None = option(
        "--group", "-g", metavar="G", help="The verdict for this group only, also if config/ does not know it."
    )
    tags: str | None = option(
        "--tags", metavar="A||B", help="Tags that the group of --group subscribes to; no store keeps them."
    )
    sql: str | None = option(
        "--sql", metavar="SQL92", help="The SQL92 filter that the group of --group subscribes with."
    )
    now: str | None = option("--now", metavar="TIME", help="Show what is due or visible at TIME (default: now).")
    next_start: bool = flag("--next-start", help="Always say what the next start does to the message.")
    limit: int = option("--limit", "-n", default=10, metavar="N", min=1, help="Show at most N messages of a key.")

    def question(self, text: str, given: Given) -> TraceQuestion:
        """The question to a store. given: from `Common.given`, with the broker version.

        Raises InvalidInput.
        """
        from ..store.errors import InvalidInput
        from ..store.search.selection import parse_time
        from ..store.trace.answer import By
        from ..store.trace.groups import given as subscribed
        from ..store.trace.locate import TraceTarget
        from ..store.trace.trace import TraceQuestion

        if (self.tags is not None or self.sql is not None) and self.group is None:
            raise InvalidInput("--tags and --sql need --group: they say what one group subscribes to")
        return TraceQuestion(
            TraceTarget(text, By(self.by.value) if self.by else None, self.topic),
            parse_time("now" if self.now is None else self.now),
            self.group,
            subscribed(self.tags, self.sql),
            self.next_start,
            given,
        )


@shared(unread=PASSED_OVER)
def trace(
    store: Annotated[Path, Argument(metavar="STORE", help="The store's root directory.")],
    text: Annotated[
        str,
        Argument(
            metavar="KEY|UNIQUE-KEY|MESSAGE-ID|POSITION",
            help="What you know of the message; TOPIC/QUEUE/OFFSET works, too.",
        ),
    ],
    broker_version: BrokerVersion = None,
    *,
    tracing: TraceOptions,
    common: Common,
) -> None:
    """Show the life of one message, and why a group has got it or not.

    The story lists every record of the message in order: the send, the half message and the record that decided it,
    the delay level or timer and when it fires, each queue and LMQ (light message queue) that names the message,
    index items, POP, retries and dead letters of each group, records that replaced it, messages sent again with the
    same unique key, and tombstones, which recover wrote in place of lost messages. Each line has its position or
    path, so that you can look it up.

    Then follows a verdict for each group that config/ connects with the topic, with the facts behind it:
    delivered_and_passed, waiting, filtered, not_dispatched, half_or_rolled_back, not_yet_due, timer_never_fires,
    never_delivered, in_retry_or_dlq, pop_invisible, offset_moved, expired_or_cut_off, unreadable, not_served,
    unknown. delivered_and_passed means only that the group's offset is beyond the message. If the store does not show
    the answer, the verdict is unknown. No store keeps the tags that a group subscribes to: give them with --tags.

    A number is a position if a record starts there, else a key. 32 hex digits are a message id if a record has it,
    else a unique key. --by decides otherwise. Keys are looked up in the index; if the index lacks them, the log is
    scanned once. After a crash, and if no queue leads consumers to the message, the next start is predicted: what
    it would do to the message. --next-start does so in any case. Versions differ in what they do at their start:
    without --broker-version the version is guessed, and the answer says so.

    Exit code: 0 found; 1 nothing has that key, id or place.

    \b
    Examples:
      mqstore trace /data/store 4711
      mqstore trace /data/store C0000202057B4E0E2F2A668728E90004 --group billing
      mqstore trace /data/store order-9 --topic orders --group billing --tags 'paid || sent'
      mqstore trace /data/store orders/0/17 --next-start --broker-version 5.3
      mqstore trace /data/store 4711 --format ndjson | jq '.groups[] | {group, verdict, reason}'
    """
    from .trace_answer import answer

    warn_of_nearest_version(broker_version, common)
    question = tracing.question(text, common.given(broker_version))
    if not answer(store, question, tracing.limit, common):
        raise Exit(ExitCode.NO)
