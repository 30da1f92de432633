"""The options of `stats` and its printed answer, for all ways of counting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from ..store.counted import bytes_text, counted
from .declared import Exit, Format, Options, bad_parameter, option
from .options import Common
from .pipeline_options import ask_of
from .selection_options import Since, Until
from .terminal import page_of, time_text
from .unread import Partial, report_bounds, report_lacking, unread_text

if TYPE_CHECKING:
    from ..store.arrow.log_rows import Counted
    from ..store.arrow.stores import ReadOptions

BY = (*("store", "topic", "queue", "queue_id", "group", "tag", "kind", "host"), *("hour", "day", "size", "file"))
_QUEUE = "queue"
_LEAST_BAR = 10
_TIMES = ("hour", "day")


class StatsOptions(Options):
    by: str | None = option("--by", metavar="A,B", help=f"Group by some of: {', '.join(BY)} (default: topic).")
    top: int | None = option("--top", "-n", metavar="N", min=1, help="Only the N groups with the most bytes.")
    since: Since = None
    until: Until = None
    partial: Partial = False

    def refuse(self, answer: str) -> None:
        """Raises BadParameter for options that have no meaning for this kind of answer."""
        if names := self.said():
            raise bad_parameter(f"{names[0]} cannot be combined with {answer}")

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns of `--by`, `store` first; `queue` becomes topic and queue id. Raises BadParameter."""
        asked = [name.strip() for name in (self.by if self.by is not None else "topic").split(",") if name.strip()]
        names = [one for name in asked for one in (("topic", "queue_id") if name == _QUEUE else (name,))]
        if _QUEUE in asked:
            names = list(dict.fromkeys(names))
        unknown = [name for name in names if name not in BY]
        if unknown or not names or len(set(names)) < len(names):
            raise bad_parameter(f"--by: some of {', '.join(BY)}, each once")
        return tuple(sorted(names, key=lambda name: name != "store"))

    @property
    def columns(self) -> tuple[str, ...]:
        from ..store.inspect.stats import COUNTS

        return ("type", *self.wanted, *COUNTS)

    def asked(self, roots: Sequence[str], common: Common) -> ReadOptions:
        """What is read of the stores. Raises InvalidInput."""
        return ask_of(roots, self.since, self.until, common)


def answer(
    found: Counted,
    left_out: Sequence[Mapping[str, Any]],
    options: StatsOptions,
    common: Common,
    *,
    lacking: bool = False,
) -> None:
    """Print the counts, and warn of what they lack. left_out: stores that are not counted. lacking: messages are
    missing, and a warning was already printed. Raises Exit.
    """
    rows = [{"type": "stats", **row} for row in found.stats.rows(options.top)]

    def text(row: Mapping[str, Any]) -> str:
        if row["type"] != "stats":
            return unread_text(row)
        line = _text(row, options.wanted, common)
        return with_bar(line, row["share"], longest, columns) if columns else line

    behind = [] if common.fields or common.format == Format.CSV else left_out
    with common.open_output() as output:
        drawn = output.on_terminal and common.format == Format.TEXT and not common.verbose
        columns = get_terminal_size().columns if drawn else 0
        lines = (_text(row, options.wanted, common) for row in rows if columns)
        longest = max(map(len, lines), default=0)
        output.records([*rows, *behind], text=text, columns=options.columns)
    report_bounds(found.bounds.values(), common)
    raise Exit(max(report_lacking(found.damage), int(bool(left_out) or lacking)))


def with_bar(line: str, share: float, longest: int, columns: int) -> str:
    """The line with its share as a bar, if the longest line leaves room for bars on the terminal.

    >>> with_bar("12 B", 0.5, 6, 30)
    '12 B    ██████████▌'
    """
    room = columns - longest - 3
    if room < _LEAST_BAR:
        return line
    whole, part = divmod(round(share * room * 2), 2)
    return f"{line.ljust(longest)}  {'█' * whole}{'▌' * part}".rstrip()


def _text(row: Mapping[str, Any], by: tuple[str, ...], common: Common) -> str:
    names = "  ".join(_name(row, name, common.utc) for name in by)
    sizes = f"p50 {row['p50_bytes']}, p99 {row['p99_bytes']}, max {row['largest_bytes']}"
    share = f"{row['share']:6.1%}"
    messages = counted(row["messages"], "message ", "messages", form=">10")
    records = counted(row["records"], "record")
    batches = f" (in {records})" if row["messages"] != row["records"] else ""
    line = f"{bytes_text(row['bytes']):>10} {share} {messages}{batches}  {sizes}  {names}"
    more = [f"{'':>18}{'; '.join(_more(row, common.utc))}"] if common.verbose else []
    return page_of([line, *more])


def _name(row: Mapping[str, Any], name: str, utc: bool) -> str:
    if name in _TIMES:
        # the begin of an hour or day in UTC; that of a day is always shown in UTC
        return time_text(row[name], utc or name == "day")
    return f"from {row[name]} B" if name == "size" else str(row[name])


def _more(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    if row["body_bytes"] is not None:
        yield f"bodies {bytes_text(row['body_bytes'])}"
        yield f"properties {bytes_text(row['properties_bytes'])}"
    if row["compressed_records"]:
        count = counted(row["compressed_records"], "body", "bodies", form=",")
        yield f"compressed: {count} of {bytes_text(row['compressed_bytes'])}"
    for name, what in (("retry_bytes", "retries"), ("system_bytes", "system topics")):
        if row[name]:
            yield f"{what} {row[name] / row['bytes']:.1%}"
    if row["first_timestamp"] is not None:
        first, last = (time_text(row[f"{end}_timestamp"], utc) for end in ("first", "last"))
        yield f"{first} … {last}"
    if row["messages_per_second"] is not None:
        rate = bytes_text(int(row["bytes_per_second"]))
        yield f"a second: {row['messages_per_second']:,.1f} messages, {rate}"
    yield f"from the {row['source']}"
