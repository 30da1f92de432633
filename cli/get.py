"""`mqstore get`: read messages by any address."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from .declared import Argument, Option, bad_parameter, exclude, path_text
from .options import PASSED_OVER, Common, shared
from .selection_options import ConditionOptions, GetOptions, PrintOptions

GetFormat = StrEnum("GetFormat", "TEXT JSON NDJSON CSV BODY HEX")
"""Output format of messages."""


@shared(GetFormat, unread=PASSED_OVER)
def get(
    store: Annotated[Path, Argument(metavar="STORE", help="The store's root directory.")],
    *,
    conditions: ConditionOptions,
    place: GetOptions,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Wait for new messages; --since prints older ones first.")
    ] = False,
    offset_at: Annotated[
        str | None,
        Option("--offset-at", metavar="TIME", help="Print the queue offset that a broker returns for this time."),
    ] = None,
    addresses: Annotated[
        str | None,
        Option(
            "--addresses",
            metavar="FILE|-",
            parser=path_text,
            help="Read one address per line; print one answer for each.",
        ),
    ] = None,
    printing: PrintOptions,
    common: Common,
) -> None:
    """Read messages by any address.

    Select messages by queue offset, log position, message id or key, or by conditions: topic, queue, time, tag,
    properties, text in the body. Conditions can be combined. The order is that of the log; with --queue, that of
    the queue.

    --where takes the SQL92 filters that consumers subscribe with, and compares as a broker does: = <> < <= > >= AND
    OR NOT BETWEEN IN IS NULL CONTAINS STARTSWITH ENDSWITH. Properties are text. Beside a whole number a property is
    read as a whole number, beside a decimal number as a decimal number; a message whose property cannot be read so
    does not match. A price of 74.19 does not match price > 50, but matches price > 50.0. @NAME is a field of the
    message's JSON, such as @queue_id.

    A message that names an LMQ (light message queue) also belongs to the topic of that LMQ, in queues and in the
    log. It is printed as stored, with its own topic, queue and queue offset. A 4.9 broker also accepts LMQ names
    without %LMQ%; --set enableMultiDispatch=true searches the log for them.

    A compaction topic is read from its compaction log, as a broker reads it: --offset starts at the next message
    that compaction has kept.

    --since and --until go by the clock of the broker. In a log above 64 MiB whose times rise, get reads only the files
    and queue units near these times; messages that a wrong clock gave such times may be elsewhere. If known times step
    back or cannot be read, stderr says what was left out. dump reads the whole log.

    Keys are looked up in the index. If the index lacks a key, the log is scanned, and the answer says so
    (found_by). Without --topic the index leads to the topics that the store still has; dump --key reads the whole
    log. --message-id takes both ids of a message: the broker's offset message id and the client's unique
    key. Bodies that the producer compressed are printed decompressed.

    A topic with queue.type=BatchCQ stores messages that a client sent together as one record. They are found and
    printed one by one, as a consumer gets them, each with its own queue offset, keys and properties. Position and
    message id are those of the record; the record's id finds all its messages. --raw and --format hex show the
    record as stored.

    --follow starts at the end of the log, or at --since. It ends at --limit, Ctrl-C or a closed pipe, and continues
    over new files, preallocated files and broker restarts. If the log is moved away, it says so on stderr and
    waits. If another directory takes the place of the log, it continues if the new log has the last printed
    message; if not, or if nothing was printed yet, it ends (exit code 5).

    --addresses reads one address per line, from a file or stdin: a log position, an offset message id, a unique
    key, TOPIC/QUEUE/OFFSET, or a JSON object with one of them, such as an answer of put. Each address gets one
    answer, in order. An address without a message gets a record of type missing, and the exit code is 1. The
    position or message id of a batch record gets the record as stored.

    \b
    Examples:
      mqstore get /data/store --topic orders --queue 0 --offset 17
      mqstore get /data/store --topic orders --key 4711 --format json
      mqstore get /data/store --topic orders --since -1h --grep 'timeout|refused'
      mqstore get /data/store --topic 'orders*' --where "price > 50.0 AND @queue_id IN ('0', '1')"
      mqstore get /data/store --message-id 7F00000100002A9F0000000000000345 --format body
      mqstore get /data/store --message-id C0000202057B4E0E2F2A668728E90004
      mqstore get /data/store --topic orders --queue 0 --offset-at yesterday
      mqstore get /data/store --topic orders --follow --format ndjson
      mqstore get /data/store --addresses ids.txt --format ndjson
    """
    from .get_answer import GetQuestion, answer, answer_offset_at

    form = common.format.value
    if common.fields and form in (GetFormat.BODY.value, GetFormat.HEX.value):
        raise bad_parameter(f"--fields does not apply to --format {form}, which prints no fields")
    question = GetQuestion(conditions, place, printing, whole=printing.raw or form == GetFormat.HEX.value)
    groups = conditions, place, printing
    if addresses is not None:
        if follow or offset_at is not None:
            other = "--follow" if follow else "--offset-at"
            raise bad_parameter(f"--addresses and {other} cannot be combined")
        exclude("--addresses", groups, "raw", "max_body")
        from .get_addresses import answer_addresses

        answer_addresses(store, addresses, question, common)
    elif follow:
        if offset_at is not None:
            raise bad_parameter("--follow and --offset-at cannot be combined")
        exclude("--follow", groups, *conditions.__annotations__.keys() - {"until"}, "limit", "raw", "max_body")
        from .follow import follow_log

        follow_log(store, question, common)
    elif offset_at is not None:
        exclude("--offset-at", groups, "topic", "queue")
        if form in (GetFormat.BODY.value, GetFormat.HEX.value):
            raise bad_parameter(f"--offset-at and --format {form} cannot be combined")
        answer_offset_at(store, question, offset_at, common)
    else:
        answer(store, question, common)
