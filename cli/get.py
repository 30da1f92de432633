"""`mqstore get`: read messages by any address."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from .declared import App, Argument, Option, bad_parameter, exclude, path_text
from .options import PASSED_OVER, Common, shared
from .selection_options import Conditions, GetOptions, Printing

app = App()


class GetFormat(StrEnum):
    """How messages are printed."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    BODY = "body"
    HEX = "hex"


@app.command()
@shared(GetFormat, unread=PASSED_OVER)
def get(
    store: Annotated[Path, Argument(metavar="STORE", help="The store's root directory.")],
    *,
    conditions: Conditions,
    place: GetOptions,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Wait for new messages; with --since those of before come first.")
    ] = False,
    offset_at: Annotated[
        str | None,
        Option("--offset-at", metavar="TIME", help="Print the queue offset that a broker answers for this time."),
    ] = None,
    addresses: Annotated[
        str | None,
        Option("--addresses", metavar="FILE|-", parser=path_text, help="One answer for each address, a line each."),
    ] = None,
    printing: Printing,
    common: Common,
) -> None:
    """Read messages by any address.

    Find them by place in a queue, by position in the log, by offset message id, by key, or all that fit: of a
    topic, a queue, a time, with a tag, with a text in the body. Conditions can be combined. The order
    is that of the log, of one queue that of the queue.

    --where takes what consumers subscribe with, and compares as a broker does: = <> < <= > >= AND OR
    NOT BETWEEN IN IS NULL CONTAINS STARTSWITH ENDSWITH. Properties are text; beside a number they are
    read as one of its kind, and a message whose text is none does not match: price > 50 skips a price
    of 34.19, price > 50.0 does not. @fields are those of the message as JSON, such as @queue_id.

    A message that names an LMQ (light message queue) is of that topic, too, in queues and log; it is printed as it is
    stored, with its own topic, queue and number. A broker of 4.9 takes other names, too: the log is asked for these
    with --set enableMultiDispatch=true.

    A compaction topic answers from its compaction log, as a broker does: --offset begins at the next
    message that is left.

    Keys are looked up in the index; where it lacks them the log is scanned, and the answer says so
    (found_by). --message-id takes both ids of a message: the offset message id of its broker and the
    unique key of its client. Bodies that the producer compressed come out decompressed.

    What a client sent together a broker stores as one record where the topic has queue.type=BatchCQ.
    Its messages are found and printed one by one, as a consumer gets them, each with its own queue
    offset, keys and properties; position and message id are the record's, whose own id leads to all of
    them. --raw and --format hex show the record as it is stored.

    --follow begins at the end of the log, or at --since, and goes on until --limit, Ctrl-C or a closed
    pipe: over new files, files that were made ahead, and a broker that starts again. For a log that is
    taken away it waits, after a line on stderr. Where another directory is put in its place it goes on if that has
    the message it read last; if not, or if it has read none yet, it ends (exit code 5).

    --addresses reads one address a line, from a file or from stdin: a position in the log, an offset
    message id, a unique key, TOPIC/QUEUE/OFFSET, or a JSON object that has one of them, such as an
    answer of put. Each gets one answer, in order; one without a message a record of type missing, and
    exit code 1 at the end. The position or the message id of a record that holds a batch gets it as it
    is stored.

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
        raise bad_parameter(f"--fields names fields of records: --format {form} prints none")
    question = GetQuestion(conditions, place, printing, whole=printing.raw or form == GetFormat.HEX.value)
    groups = conditions, place, printing
    if addresses is not None:
        if follow or offset_at is not None:
            other = "--follow" if follow else "--offset-at"
            raise bad_parameter(f"--addresses and {other} exclude each other")
        exclude("--addresses", groups, "raw", "max_body")
        from .get_addresses import answer_addresses

        answer_addresses(store, addresses, question, common)
    elif follow:
        if offset_at is not None:
            raise bad_parameter("--follow and --offset-at exclude each other")
        exclude("--follow", groups, *conditions.__annotations__.keys() - {"until"}, "limit", "raw", "max_body")
        from .follow import follow_log

        follow_log(store, question, common)
    elif offset_at is not None:
        exclude("--offset-at", groups, "topic", "queue")
        if form in (GetFormat.BODY.value, GetFormat.HEX.value):
            raise bad_parameter(f"--offset-at and --format {form} exclude each other")
        answer_offset_at(store, question, offset_at, common)
    else:
        answer(store, question, common)
