"""`mqstore dump`: decode every record of a store, or of one of its files, one by one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .declared import Argument, Format, Option, Options, bad_parameter, flag
from .kind_option import Kind
from .options import PASSED_OVER, Common, countable, shared
from .selection_options import MAX_BODY_BYTES, ConditionOptions, MaxBody

if TYPE_CHECKING:
    from ..store.inspect.recognise import Recognised
    from ..store.search.selection import Selection
    from .dump_log import DumpedRecords
    from .file_kinds.chunks import Chunk, Record


class RecordOptions(Options):
    """How much of a record is shown."""

    hex: bool = flag("--hex", help="Show the bytes of each record beside its fields.")
    raw: bool = flag(
        "--raw", help="Print bodies as stored (base64), batches as one record, also unused timer wheel slots."
    )
    max_body: MaxBody = MAX_BODY_BYTES


@shared(unread=PASSED_OVER)
def dump(
    path: Annotated[Path, Argument(metavar="PATH", help="A store, or a directory or file of one.")],
    kind: Kind = None,
    at: Annotated[
        int | None,
        Option(
            "--at", metavar="N", min=0, help="Start at this log position, queue offset, or number of an item or slot."
        ),
    ] = None,
    count: Annotated[int | None, Option("--count", "-n", metavar="N", min=0, help="Print at most N records.")] = None,
    *,
    conditions: ConditionOptions,
    view: RecordOptions,
    common: Common,
) -> None:
    """Decode every record, one by one.

    Of a store the commit log is printed, in order; name other files by their path. The kind of PATH is recognised
    by its place, name and content; files compressed by gzip or zstd (.gz, .zst) are decompressed first. Damage is
    printed as a record of its own, and reading continues at the next good record. With a condition (--topic,
    --since, …) only matching messages of a commit log are printed. A message that names an LMQ (light message
    queue) also matches the topic of that LMQ.

    Messages that a client sent together and that one record holds (queue.type=BatchCQ) are printed one by one, as a
    consumer gets them; put --from joins them into one record again. --raw and --hex show the record as stored.

    \b
    Examples:
      mqstore dump /data/store --format ndjson | jq 'select(.topic=="orders")'
      mqstore dump /data/store --at 1073741824 --count 10
      mqstore dump /data/store --topic batches --raw --format ndjson
      mqstore dump /data/store/consumequeue/orders/0
      mqstore dump /data/store/index --format csv --output index.csv
      mqstore dump copied-segment.bin --as commit-log --hex --count 1
    """
    from ..store.inspect.recognise import recognise

    if view.hex and (common.format is not Format.TEXT or common.fields):
        raise bad_parameter("--hex prints text for people: it cannot be combined with --format or --fields")
    what = recognise(path, kind, common.config())
    common.explain(f"{path} is of kind {what.kind} ({what.reason})")
    selection = conditions.selection(view.max_body)._replace(whole=view.raw or view.hex)
    at, count = countable(at), countable(count)
    chunks = _chunks(what, at, view.raw, selection, common)
    chunks = chunks if at is None else _from(chunks, at, common)
    if view.hex:
        _print_hex(chunks, count, common)
    else:
        _print_records(chunks, what, count, common)


def _chunks(
    what: Recognised, at: int | None, raw: bool, selection: Selection, common: Common
) -> Iterator[Chunk | DumpedRecords]:
    from ..store.errors import InvalidInput
    from .dump_log import KINDS, commit_log
    from .file_kinds import file_kind

    if what.kind in KINDS:
        return commit_log(what, at, raw, selection, common)
    if selection.asks:
        raise InvalidInput(f"conditions select messages; this path is of kind {what.kind}", path=what.path)
    return file_kind(what.kind).chunks(what, at, raw, common)


def _from(chunks: Iterator[Chunk | DumpedRecords], at: int, common: Common) -> Iterator[Chunk | DumpedRecords]:
    """Pass the chunks on, and warn if there is nothing to print from `at` on: the number may be mistyped."""
    from .file_kinds.chunks import NonRecordRange

    nothing = True
    for chunk in chunks:
        nothing = nothing and isinstance(chunk, NonRecordRange) and chunk.record["type"] == "zeros"
        yield chunk
    if nothing:
        common.warn(f"nothing to print at {at} or behind it")


def _print_hex(chunks: Iterator[Chunk | DumpedRecords], count: int | None, common: Common) -> None:
    from .hex_view import HexView

    with common.open_output() as out:
        view = HexView(out.colour, common.utc)
        remaining = -1 if count is None else count
        for piece in chain.from_iterable(chunk.pieces() for chunk in chunks):
            if not remaining:
                return
            remaining -= piece.counts
            for line in view.lines(piece):
                out.painted(line + "\n")


def _print_records(
    chunks: Iterator[Chunk | DumpedRecords], what: Recognised, count: int | None, common: Common
) -> None:
    from .record_text import RecordText
    from .record_types import columns_of, types_of_kind

    damage = _Damage()
    with common.open_output() as out:
        if out.is_lines:
            out.lines(_ndjson(damage.passed(chunks), count))
        else:
            records = chain.from_iterable(chunk.records() for chunk in damage.passed(chunks))
            columns = columns_of(*types_of_kind(what.kind))
            out.records(islice(records, count), text=RecordText(common.utc), columns=columns)
    if damage.ranges:
        common.warn(str(damage))


def _ndjson(chunks: Iterator[Chunk | DumpedRecords], count: int | None) -> Iterator[bytes | memoryview]:
    """The records as NDJSON with all fields; messages are encoded column by column."""
    from .dump_log import DumpedRecords
    from .json_text import line_of

    remaining = sys.maxsize if count is None else count
    while remaining and (chunk := next(chunks, None)) is not None:
        if isinstance(chunk, DumpedRecords):
            for data, records in chunk.lines(remaining):
                yield data
                remaining -= records
        else:
            for record in islice(chunk.records(), remaining):
                yield line_of(record)
                remaining -= 1


class _Damage:
    def __init__(self) -> None:
        self.ranges = 0
        self.bytes = 0
        self.first: Record = {}

    def passed(self, chunks: Iterable[Chunk | DumpedRecords]) -> Iterator[Chunk | DumpedRecords]:
        from .file_kinds.chunks import NonRecordRange

        for chunk in chunks:
            if isinstance(chunk, NonRecordRange) and chunk.record["type"] == "damage":
                self.first = self.first or chunk.record
                self.ranges += 1
                self.bytes += chunk.record["size"]
            yield chunk

    def __str__(self) -> str:
        from .file_kinds.chunks import damage_text

        return damage_text(self.ranges, self.bytes, f"{self.first['position']}: {self.first['reason']}")
