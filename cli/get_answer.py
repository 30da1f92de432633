"""The answer of `get`: how messages are found for a question, and how they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..store.errors import InvalidInput, NotFound, StoreError
from ..store.log.message import is_batch_record
from ..store.search.find import find, is_unique_key, offset_at
from ..store.search.selection import Selection, is_pattern, parse_time
from ..store.search.store import FoundMessage, StoreReader, Via
from .options import countable
from .searched_text import check_log, scanning, searched_text

if TYPE_CHECKING:
    from ..store.log.message import Message
    from .file_kinds.chunks import RecordPiece
    from .options import Common
    from .output import Output
    from .selection_options import ConditionOptions, GetOptions, PrintOptions


_OF_KNOWN_TOPICS = (
    "the index finds a key in the topics that the store has now; `mqstore dump --key` also finds it in deleted ones"
)


class GetQuestion(NamedTuple):
    """What the command line asks for. whole: show batch records as they are stored."""

    conditions: ConditionOptions
    place: GetOptions
    printing: PrintOptions
    whole: bool

    def check(self) -> None:
        """Raises InvalidInput for options that cannot be combined or are not enough."""
        conditions, place = self.conditions, self.place
        addresses = {
            "--offset": place.offset,
            "--at": place.at,
            "--message-id": place.message_id,
            "--unique-key": conditions.unique_key,
            "--key": conditions.key,
        }
        asked = [option for option, value in addresses.items() if value is not None]
        if len(asked) > 1:
            raise InvalidInput(f"{asked[0]} and {asked[1]} cannot be combined")
        if conditions.queue is not None and conditions.topic is None:
            raise InvalidInput("--queue needs --topic")
        if place.offset is not None and conditions.queue is None:
            raise InvalidInput("--offset needs --topic and --queue")
        if place.offset is not None and conditions.topic is not None and is_pattern(conditions.topic):
            raise InvalidInput("--offset needs one topic, not a pattern")
        if place.count is not None and asked not in ([], ["--offset"]):
            raise InvalidInput(f"--count needs a queue; it cannot be combined with {asked[0]}")
        if not asked and place.count is None and not conditions.changed_names():
            hint = "give --topic, --key or --since, for example; mqstore dump prints everything"
            raise InvalidInput("nothing was asked for", hint=hint)

    def selection(self) -> Selection:
        """The conditions as a selection. Raises InvalidInput."""
        return self.conditions.selection(self.printing.max_body)._replace(whole=self.whole)

    @property
    def by_key(self) -> bool:
        return self.conditions.key is not None or self.conditions.unique_key is not None

    @property
    def in_any_topic(self) -> bool:
        """Whether the question is for a key without its topic."""
        topic = self.conditions.topic
        return self.conditions.key is not None and (topic is None or is_pattern(topic))

    def json_of(self, message: Message) -> dict[str, Any]:
        return message.to_json(raw=self.printing.raw, max_body=self.printing.max_body)

    def body_of(self, message: Message, note: Callable[[str], None]) -> bytes:
        """The body of a message as it is printed. note: told why these bytes are not what the producer gave."""
        what = f"the body of the message at {message.position}"
        if message.body_crc_ok is False:
            note(f"{what} failed its checksum")
        if self.printing.raw:
            return message.stored_body
        body = message.body(self.printing.max_body)
        if body.error:
            option = " (--max-body)" if body.too_large else ""
            note(f"{what} {body.error}{option}; the stored bytes are printed")
        return body.data


def answer(path: Path, question: GetQuestion, common: Common) -> None:
    """Print the messages. Raises NotFound if there are none; Missing, Refused if the log is missing."""
    question.check()
    selection = question.selection()
    with StoreReader(path, common.config()) as store, scanning(store, common):
        limit = countable(question.printing.limit)
        found = _MessageCount(lambda: islice(_find(store, question, selection, common), limit))
        print_found(store, found, question, common)
        if found.scanned and question.by_key:
            common.warn(f"{found.scanned} of {found.all} found by scanning the log, because the index lacks them")
        if found.scanned < found.all and question.in_any_topic and not store.queues_unread:
            common.warn(_OF_KNOWN_TOPICS)
        if found.missing is not None or not found.all:
            check_log(store.layout, common)
        if found.missing is not None:
            raise found.missing
        if not found.all:
            hint = searched_text(store, common.utc)
            raise NotFound("no such message", path=path, hint=hint)


class _MessageCount:
    """Iterates over messages and counts them. missing: the error for a message or a queue that is not there, which is
    kept until the output is complete.
    """

    def __init__(self, find: Callable[[], Iterator[FoundMessage]]) -> None:
        self._find = find
        self.all = 0
        self.scanned = 0
        self.missing: NotFound | None = None

    def __iter__(self) -> Iterator[FoundMessage]:
        try:
            for one in self._find():
                self.all += 1
                self.scanned += one.via is Via.SCAN
                yield one
        except NotFound as error:
            self.missing = error


def _find(store: StoreReader, question: GetQuestion, selection: Selection, common: Common) -> Iterator[FoundMessage]:
    place, reverse = question.place, question.printing.reverse
    if place.message_id is not None:
        return _by_id(store, place.message_id, selection, reverse, common)
    if place.at is not None:
        return _if_wanted(store, store.message_at(place.at), selection)
    count = 1 if place.offset is not None and place.count is None else countable(place.count)
    return find(store, selection, offset=place.offset, count=count, reverse=reverse, note=common.warn)


def _by_id(
    store: StoreReader, message_id: str, selection: Selection, reverse: bool, common: Common
) -> Iterator[FoundMessage]:
    """Yield the message with an id of either kind: the broker's, which is an address, else the client's unique key.

    Both kinds can have the same form. Raises InvalidInput if the id has neither form, NotFound.
    """
    try:
        message = store.message_by_id(message_id)
    except NotFound as error:
        why: StoreError = error
    except InvalidInput as error:
        if not is_unique_key(message_id.strip()):
            raise
        why = error
    else:
        yield from _if_wanted(store, message, selection)
        return
    given = message_id.strip()
    for key in dict.fromkeys((given, given.upper())):
        keyed = selection._replace(unique_key=key)
        found = find(store, keyed, reverse=reverse, note=common.warn)
        first = next(found, None)
        if first is not None:
            common.warn(f"{key} is a unique key (the client's message id), not an offset message id")
            yield first
            yield from found
            return
    looked = searched_text(store, common.utc)
    hint = f"as an offset message id: {why}; as a unique key: {looked}"
    raise NotFound(f"no message with the id {given}", path=store.layout.root, hint=hint)


def _if_wanted(store: StoreReader, message: Message, selection: Selection) -> Iterator[FoundMessage]:
    """Yield the message found by its place, or the messages inside a batch record, if they meet the conditions."""
    message, selection = store.marked(message), selection.of_queues(store.layout)
    if selection.whole or not is_batch_record(message.sys_flag):
        if selection.takes(message):
            yield FoundMessage(message, Via.ADDRESS)
        return

    from ..store.search.log_search import found_in

    record = store.log.record(message.position).replace(mark=message.mark)
    yield from found_in(selection.wanted(record), Via.ADDRESS)


def answer_offset_at(path: Path, question: GetQuestion, time: str, common: Common) -> None:
    topic, queue_id = question.conditions.topic, question.conditions.queue
    if topic is None or queue_id is None:
        raise InvalidInput("--offset-at needs --topic and --queue")
    if is_pattern(topic):
        raise InvalidInput("--offset-at needs one topic, not a pattern")
    time_ms = parse_time(time)
    with StoreReader(path, common.config()) as store:
        check_log(store.layout, common)
        offset = offset_at(store, topic, queue_id, time_ms, note=common.warn)
    record = {
        "type": "queue_offset",
        "topic": topic,
        "queue_id": queue_id,
        "timestamp": time_ms,
        "queue_offset": offset,
    }
    with common.open_output() as out:
        out.record(record, text=lambda found: str(found["queue_offset"]))


# -- printing -------------------------------------------------------------------------------------


def print_found(
    store: StoreReader,
    found: Iterable[FoundMessage],
    question: GetQuestion,
    common: Common,
    output: Output | None = None,
) -> None:
    with output or common.open_output() as out:
        if out.format == "body":
            for one in found:
                out.raw(question.body_of(one.message, common.warn))
        elif out.format == "hex":
            print_hex(store, found, common, out)
        else:
            from .record_text import RecordText
            from .record_types import columns_of

            records = (_record(one, question) for one in found)
            out.records(records, text=RecordText(common.utc), columns=columns_of("message"))


def print_hex(store: StoreReader, found: Iterable[FoundMessage], common: Common, out: Output) -> None:
    from .hex_view import HexView

    view = HexView(out.colour, common.utc)
    for one in found:
        for line in view.lines(_piece_of(store, one)):
            out.painted(line + "\n")


def _record(found: FoundMessage, question: GetQuestion) -> dict[str, Any]:
    record = question.json_of(found.message)
    by_id = question.place.message_id is not None and found.via is not Via.ADDRESS
    if question.by_key or by_id:
        record["found_by"] = found.via.value
    return record


def _piece_of(store: StoreReader, found: FoundMessage) -> RecordPiece:
    from ..formats.message import MESSAGE
    from .file_kinds.chunks import RecordPiece

    message, log = found.message, found.log or store.log_files
    data = log.read(message.position, message.total_size)
    return RecordPiece(f"message at {message.position}", message.position, data, MESSAGE)
