"""What `stats` is asked for, and its answer as it is printed, wherever it was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from ..store.counted import counted
from .declared import Exit, Option, Options, bad_parameter
from .options import Common, Format
from .selection_options import Since, Until
from .unread import Partial, tell_lacking, unread_text

if TYPE_CHECKING:
    from ..store.arrow.ask import Ask
    from ..store.arrow.log_rows import Counted

_BY = ("store", "topic", "queue_id", "tag", "host", "hour")


class StatsOptions(Options):
    """What is counted, and how it is grouped."""

    by: Annotated[
        str,
        Option("--by", metavar="A,B", help=f"Group by some of: {', '.join(_BY)}."),
    ] = "topic"
    top: Annotated[
        int | None,
        Option("--top", "-n", metavar="N", min=1, help="Only the N groups with most bytes."),
    ] = None
    since: Since = None
    until: Until = None
    partial: Partial = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """What `--by` names, the store first. Raises BadParameter."""
        names = [name.strip() for name in self.by.split(",") if name.strip()]
        unknown = [name for name in names if name not in _BY]
        if unknown or not names or len(set(names)) < len(names):
            raise bad_parameter(f"--by: some of {', '.join(_BY)}, each once")
        return tuple(sorted(names, key=lambda name: name != "store"))

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the answer."""
        from ..store.inspect.stats import COUNTS

        return ("type", *self.wanted, *COUNTS)

    def asked(self, roots: Sequence[str], common: Common) -> Ask:
        """What it asks of stores. Raises InvalidInput, BadParameter."""
        from ..store.arrow.ask import FAIL_UNREADABLE, Ask
        from ..store.search.selection import parse_range

        return Ask(
            tuple(roots),
            times=parse_range(self.since, self.until),
            on_damage=FAIL_UNREADABLE,
            config=dict(common.config()),
        )


def answer(
    found: Counted, left_out: Sequence[Mapping[str, Any]], options: StatsOptions, common: Common
) -> None:
    """Print it, and tell what it lacks. left_out: stores that are not counted. Raises Exit."""
    rows = [{"type": "stats", **row} for row in found.stats.rows(options.top)]

    def text(row: Mapping[str, Any]) -> str:
        return _text(row, options.wanted) if row["type"] == "stats" else unread_text(row)

    behind = [] if common.fields or common.format == Format.CSV else left_out
    with common.open_output() as output:
        output.records([*rows, *behind], text=text, columns=options.columns)
    raise Exit(max(tell_lacking(found.damage), int(bool(left_out))))


def _text(row: Mapping[str, Any], by: tuple[str, ...]) -> str:
    from ..store.counted import bytes_text

    names = "  ".join(str(row[name]) for name in by)
    sizes = f"p50 {row['p50_bytes']}, p99 {row['p99_bytes']}, max {row['largest_bytes']}"
    share = f"{row['share']:6.1%}"
    messages = counted(row["messages"], "message ", "messages", form=">10")
    records = counted(row["records"], "record")
    batches = f" (in {records})" if row["messages"] != row["records"] else ""
    return f"{bytes_text(row['bytes']):>10} {share} {messages}{batches}  {sizes}  {names}"
