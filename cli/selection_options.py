"""Options that select messages for `get` and `dump`, and the other options of `get`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from ..store.errors import InvalidInput
from .declared import Option, Options, flag, option
from .options import parse_bytes

if TYPE_CHECKING:
    from ..store.broker.filter import Where as Condition
    from ..store.search.selection import Selection

Topic = Annotated[
    str | None,
    Option("--topic", "-t", metavar="T", help="Messages of this topic; a pattern such as orders* is allowed."),
]
Since = Annotated[
    str | None,
    Option(
        "--since", metavar="TIME", help="Stored at this time or later: 2026-11-20T21:38:00Z, -1h, yesterday, epoch ms."
    ),
]
Until = Annotated[str | None, Option("--until", metavar="TIME", help="Stored before this time.")]
MaxBody = Annotated[
    int,
    Option(
        "--max-body",
        metavar="BYTES",
        parser=parse_bytes,
        help="Print bodies as stored that would be larger when decompressed.",
    ),
]
MAX_BODY_BYTES = 64 << 20


class ConditionOptions(Options):
    topic: Topic = None
    queue: int | None = option("--queue", metavar="Q", min=0, help="Only messages of this queue of the topic.")
    key: str | None = option("--key", "-k", metavar="K", help="Messages with this key or unique key.")
    unique_key: str | None = option(
        "--unique-key", metavar="HEX", help="Messages with this unique key (the client's message id)."
    )
    tag: str | None = option("--tag", metavar="TAG", help="Messages with this tag, or with one of A || B.")
    since: Since = None
    until: Until = None
    where: str | None = option(
        "--where", metavar="SQL92", help="Messages that match a RocketMQ SQL92 filter over properties and @fields."
    )
    grep: str | None = option("--grep", metavar="REGEX", help="Messages whose body matches REGEX.")

    def selection(self, max_body_bytes: int) -> Selection:
        """The conditions as a selection. Raises InvalidInput."""
        from ..store.search.selection import Selection, parse_range

        if self.queue is not None and self.topic is None:
            raise InvalidInput("--queue needs --topic")
        if self.tag is not None and not self.tag.replace("||", "").strip():
            raise InvalidInput("--tag: no tag given")
        if "" in (self.key, self.unique_key):
            raise InvalidInput(f"--{'key' if self.key == '' else 'unique-key'}: no key given: is a variable not set?")
        return Selection(
            topic=self.topic,
            queue_id=self.queue,
            key=self.key,
            unique_key=self.unique_key,
            tag=self.tag,
            times=parse_range(self.since, self.until),
            where=_where(self.where),
            grep=_pattern(self.grep),
            max_body_bytes=max_body_bytes,
        )


class GetOptions(Options):
    offset: int | None = option(
        "--offset", metavar="N", min=0, help="The message at this queue offset; with --count, those from there on."
    )
    count: int | None = option(
        "--count", metavar="C", min=1, help="C messages from the start of the queue, or from --offset on."
    )
    at: int | None = option("--at", metavar="POSITION", min=0, help="The record at this physical offset.")
    message_id: str | None = option(
        "--message-id",
        metavar="HEX",
        help="The message with this id: the broker's offset message id or the client's unique key.",
    )


class PrintOptions(Options):
    limit: int | None = option("--limit", "-n", metavar="N", min=1, help="Print at most N messages.")
    reverse: bool = flag("--reverse", "-r", help="Last message first.")
    raw: bool = flag("--raw", help="Print bodies as stored, not decompressed, not decoded; batches as one record.")
    max_body: MaxBody = MAX_BODY_BYTES


def _where(text: str | None) -> Condition | None:
    if text is None:
        return None
    from ..store.broker.filter import Where

    try:
        where = Where(text)
    except InvalidInput as error:
        raise InvalidInput(f"--where: {error}") from error
    return where.to_the_end("--where")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"--grep: not a regular expression: {error}") from error
