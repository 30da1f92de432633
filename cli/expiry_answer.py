"""`mqstore stats --expires`: which files are deleted next, when the disk is full, what goes unread or undelivered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.counted import bytes_text, counted
from .declared import Exit, Options, bad_parameter, flag, option
from .exit_codes import ExitCode
from .options import Common, parse_bytes
from .record_types import columns_of
from .terminal import page_of, time_text

if TYPE_CHECKING:
    from ..store.offsets.expiry import Disk, Forecast

_FILES = 10
"""Files and groups of a store that are listed without --verbose."""
_SHOWN = 80
"""Characters shown of a value in deleteWhen that is not a number."""
_WHY = {
    "time": "old enough, deleted at the hour of deleteWhen",
    "disk": "old enough, and the disk is above the limit",
    "forced": "disk above the forced limit: age does not count",
}


class ExpiryOptions(Options):
    expires: bool = flag("--expires", help="Which files are deleted next, when the disk is full, who loses what.")
    within: str | None = option("--within", metavar="SPAN", help="--expires: how far to look ahead (default: 7d).")
    trend: str | None = option(
        "--trend", metavar="SPAN", help="--expires: the log grows as in the last SPAN (default: 24h)."
    )
    disk_size: int | None = option(
        "--disk-size", metavar="BYTES", parser=parse_bytes, help="--expires: size of the broker's disk."
    )
    disk_used: int | None = option(
        "--disk-used", metavar="BYTES", parser=parse_bytes, help="--expires: used bytes of the broker's disk."
    )
    now: str | None = option("--now", metavar="TIME", help="--expires: look ahead from TIME (default: now).")

    def check(self, *others: bool) -> None:
        """Raises BadParameter for options that cannot be combined. others: whether another kind of answer is wanted."""
        if self.expires and any(others):
            raise bad_parameter("--expires cannot be combined with --quick, --browse or --master")
        if not self.expires and self.changed_names():
            raise bad_parameter("--within, --trend, --disk-size, --disk-used, --now need --expires")

    def spans_ms(self) -> tuple[int, int, int]:
        """Now, the end of the forecast, and the length of the span whose growth is taken. Raises InvalidInput."""
        from ..store.search.selection import parse_span, parse_time

        now_ms = parse_time("now" if self.now is None else self.now)
        ahead_ms = parse_span("7d" if self.within is None else self.within)
        last_ms = parse_span("24h" if self.trend is None else self.trend)
        return now_ms, now_ms + ahead_ms, last_ms

    def disk(self) -> Disk | None:
        """The disk that the options describe, or None. Raises BadParameter."""
        if (self.disk_size is None) != (self.disk_used is None):
            raise bad_parameter("--disk-size and --disk-used need each other")
        if self.disk_size is None or self.disk_used is None:
            return None
        if self.disk_used > self.disk_size:
            raise bad_parameter("--disk-used is larger than --disk-size")
        from ..store.offsets.expiry import Disk

        return Disk(self.disk_size, self.disk_used, here=False)


def print_expiry(stores: list[str], expiring: ExpiryOptions, common: Common) -> None:
    """Print the forecast of each store. Raises Exit, InvalidInput, and what reading raises."""
    from ..store.offsets.expiry import forecast, losing, undelivered
    from ..store.search.store import StoreReader

    now_ms, until_ms, last_ms = expiring.spans_ms()
    disk = expiring.disk()
    records: list[dict[str, Any]] = []
    bad = False
    for root in _expanded(stores):
        with StoreReader(root, common.config()) as store:
            found = forecast(store, disk, now_ms, until_ms, last_ms)
            losses = losing(store, found.going)
            notes = [*found.rules.notes, *_of_the_future(found, common.utc), *losses.notes]
            lacks: list[str] = []
            waiting = undelivered(store, found.going, now_ms, notes.append, lacks.append)
        groups = losses.rows
        for note in notes:
            common.warn(f"{root}: {note}")
        unknown = [f"{note}: it is not known which groups or delay levels lose messages" for note in losses.unknown]
        unknown += [f"{note}: it is not known which timed messages go undelivered" for note in lacks]
        for note in unknown:
            common.warn(f"{root}: {note}")
        fails = found.refuses_ms is not None or found.rules.failing_hour is not None
        bad = bad or fails or bool(groups or waiting or unknown)
        records.append({"type": "expiry", "store": root, **found.to_json()})
        records += [{"type": "losing_group", "store": root, **one._asdict()} for one in groups]
        records += [{"type": "losing_delayed", "store": root, **one._asdict()} for one in waiting]
        records += [{"type": "expiring_file", "store": root, **g.to_json()} for g in found.going]

    def text(record: Mapping[str, Any]) -> str:
        return page_of(_TEXTS[record["type"]](record, common.utc))

    shown: Iterable[dict[str, Any]] = records
    if common.format.value == "text" and not common.verbose:
        shown = _folded(records)
    columns = columns_of("expiring_file", "losing_group", "losing_delayed", "expiry")
    with common.open_output() as output:
        output.records(shown, text=text, columns=columns)
    raise Exit(ExitCode.NO if bad else ExitCode.DONE)


def _of_the_future(found: Forecast, utc: bool) -> Iterator[str]:
    """Say which files have no age yet: a clock was wrong, or a tool wrote other times."""
    if found.ahead:
        first, last = Path(found.ahead[0].path).name, time_text(max(one.changed_ms for one in found.ahead), utc)
        files = counted(len(found.ahead), "file has", "files have", form=",")
        yield (
            f"{files} a modification time in the future, {first} first, up to {last}: a broker counts their age from"
            " then on, and keeps what is behind them as long; touch gives them another time"
        )


def _expanded(words: list[str]) -> list[str]:
    """The roots of the stores. Patterns, lists and URIs are expanded as by other commands."""
    if all(Path(word).is_dir() for word in words) or not any(sign in word for word in words for sign in "*?[@:"):
        return words  # pyarrow is not needed for these
    from ..store.arrow import require_arrow

    require_arrow("no patterns")
    from ..store.arrow.stores import stores_of

    return stores_of(words)


def _folded(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first records of each type of each store, and `more` for the others."""
    number, before = 0, ""
    for record in records:
        number = number + 1 if record["type"] == before else 1
        before = record["type"]
        if number <= _FILES:
            yield record
        elif number == _FILES + 1:
            yield {"type": "more"}


def _expiry_text(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    from .offsets_text import age_text

    hours = ", ".join(f"{hour:02}:00" for hour in row["delete_hours"]) or "no hour"
    failing, forced = row["failing_hour"], row["forced_percent"]
    if failing is not None:
        none = f"files are deleted at {hours} only" if row["delete_hours"] else "no file is deleted"
        yield f"{row['store']}: {none}, however full the disk is."
        yield f"  The broker's cleaning fails on {failing[:_SHOWN]!r} in deleteWhen, which is not a number."
    span = age_text(row["until_timestamp"] - row["now_timestamp"])
    files = counted(row["files_going"], "file is deleted", "files are deleted", form=",")
    yield f"{row['store']}: {files} within {span}, {bytes_text(row['bytes_going'])}."
    from_ = "given" if row["options_given"] else "defaults"
    forcibly = "" if forced is None else f", above {forced} % whatever its age"
    above = f"; above {row['delete_percent']} % of the disk at any hour{forcibly}" if failing is None else forcibly
    if failing is None or row["delete_hours"]:
        yield f"  A file is kept for {age_text(row['reserved_ms'])} and deleted at {hours}{above} ({from_})."
    share = row["disk_used_bytes"] / max(1, row["disk_bytes"])
    rate = bytes_text(int(row["log_bytes_per_second"] * 3600))
    since = row["rate_since_timestamp"]
    grows = f"the log grows by {rate} per hour" if since else "the growth of the log is not known"
    yield f"  Disk: {bytes_text(row['disk_bytes'])}, {share:.1%} used; {grows}."
    for name, percent, what in (
        ("over", row["delete_percent"], "old files are deleted at any hour"),
        ("forced", row["forced_percent"], "files are deleted whatever their age"),
        ("refuses", row["refuses_percent"], "the broker refuses messages"),
        ("full", 100, "the disk is full"),
    ):
        when = row[f"{name}_timestamp"]
        if when is not None and (failing is None or name in ("refuses", "full")):
            ahead = when - row["now_timestamp"]
            at = "now" if ahead <= 0 else f"{time_text(when, utc)}, in {age_text(ahead)}"
            yield f"  {percent} % {at}: {what}."
    if row["refuses_timestamp"] is None and since:
        yield f"  The disk does not get full within {span}."
    kept = row["shortest_kept_ms"]
    if kept is not None and kept < row["reserved_ms"]:
        yield f"  Messages are kept for only {age_text(kept)}."


def _losing_text(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    messages = counted(row["messages"], "unread message", form=",")
    yield (
        f"  {row['group']} loses {messages} of {row['topic']}, of"
        f" {row['unread']:,}, from {time_text(row['first_timestamp'], utc)} on"
    )


def _delayed_text(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    level = row["delay_level"]
    messages = counted(row["messages"], "timed message" if level is None else "message", form=",")
    of_level = "" if level is None else f" of delay level {level}"
    first, last = (time_text(row[name], utc) for name in ("first_timestamp", "next_timestamp"))
    yield f"  {messages}{of_level} deleted undelivered, from {first} on; a broker would read the last at {last}"


def _file_text(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    from .offsets_text import age_text

    ahead = "now" if row["in_ms"] <= 0 else f"in {age_text(row['in_ms'])}"
    yield (
        f"  {row['file']} {bytes_text(row['size']):>10}  {time_text(row['goes_timestamp'], utc)}"
        f" ({ahead}): {_WHY[row['why']]}"
    )


def _more_text(row: Mapping[str, Any], utc: bool) -> Iterator[str]:
    yield "  … and more (--verbose shows all)"


_TEXTS = {
    "expiry": _expiry_text,
    "losing_group": _losing_text,
    "losing_delayed": _delayed_text,
    "expiring_file": _file_text,
    "more": _more_text,
}
