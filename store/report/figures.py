"""Pictures of a store: maps of the log, records over time, and what fills disk, queues, groups, timers, sizes.

A place of the map shows the worst that it holds, so that one damaged record in a terabyte is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...formats.derive.ragged import Ints
from ..counted import bytes_text, counted
from ..inspect.stats import least_of_bin
from ..inspect.stats_dimensions import highest_bit
from ..queues.read import QueueSummary
from .gather import ALL_QUEUES, MAP_COLUMNS, OTHERS, TIME_STEPS_S, LogPicture, PlaceContent, Seen
from .shapes import GUTTER, Box, Label, LegendLine, NumbersTable, Picture, across, squarified

_TILES = 40
_TREE_WIDTH, _TREE_PX = 640, 300
_QUEUES = 40
_ROW_PX, _BAR_PX = 16, 13
_PLOT_PX = 140
T = TypeVar("T")


def pictures_of(seen: Seen, time: TimeText) -> Iterator[Picture]:
    """Yield all pictures that show something, in the order of the page."""
    topics = TopicRanking(seen.picture)
    yield from log_maps(seen, topics, time)
    if not topics.order:
        return
    yield from heat_maps(seen, topics, time)
    yield tree_map(topics)
    yield queue_spans(seen, topics)
    yield from lags(seen, time)
    yield from due_hours(seen, time)
    yield sizes(seen)


def tree_map(topics: TopicRanking) -> Picture:
    """Show who fills the disk."""
    shown = topics.order[:_TILES]
    rest = topics.order[_TILES:]
    total = int(topics.bytes.sum())
    rest_bytes = int(topics.bytes[rest].sum()) if rest else 0
    tiles = [(topics.names[n], int(topics.bytes[n]), topics.look(n)) for n in shown]
    tiles += [(counted(len(rest), "more topic", form=","), rest_bytes, "other")] if rest else []
    tiles.sort(key=lambda tile: -tile[1])
    boxes, labels = list[Box](), list[Label]()
    places = squarified([tile[1] for tile in tiles], _TREE_WIDTH, _TREE_PX)
    for (name, size, look), (x, y, width, height) in zip(tiles, places, strict=True):
        left_x, wide = x * 100 / _TREE_WIDTH, width * 100 / _TREE_WIDTH
        text = f"{name}: {bytes_text(size)}"
        boxes.append(Box(left_x, y, wide, height, f"{look} tile", text))
        if height >= 14 and wide >= 4:
            labels.append(Label(left_x + 0.5, y, wide - 1, name, f"on-{look}"))
        if height >= 30 and wide >= 8:
            labels.append(Label(left_x + 0.5, y + 15, wide - 1, bytes_text(size), f"on-{look}"))

    def row(n: int) -> tuple[str, ...]:
        records, size = int(topics.records[n]), int(topics.bytes[n])
        share, average = f"{size / max(1, total):.1%}", f"{size // max(1, records):,}"
        return topics.names[n], f"{records:,}", f"{size:,}", share, average

    table = _table(("topic", "#records", "#bytes", "#share", "#average bytes"), topics.order, row)
    says = f"Each rectangle is a topic, as large as its records in the log: {bytes_text(total)} in all."
    return Picture("disk", "Who fills the disk", says, _TREE_PX, boxes, labels, (), table)


def queue_spans(seen: Seen, topics: TopicRanking) -> Picture:
    """Show where the records of each queue lie in the log, and how far its units lead."""
    start = seen.picture.places.start
    end = max(start + 1, seen.verdict.facts.end)
    queues = _queues(seen, topics)
    boxes, labels = list[Box](), list[Label]()
    for place, (name, units, sums) in enumerate(queues[:_QUEUES]):
        y = place * _ROW_PX
        labels.append(Label(0, y, GUTTER - 1, name, anchor="end"))
        if sums:
            *_, first, last = sums
            x, width = across((first - start) / (end - start), (last + 1 - start) / (end - start))
            boxes.append(Box(x, y, max(width, 0.3), _BAR_PX, "span", name))
        reach = units.end_position if units else None
        if reach is not None and start <= reach:
            x, _ = across(min(1.0, (reach - start) / (end - start)), 1)
            boxes.append(Box(max(GUTTER, x - 0.5), y, 0.5, _BAR_PX, "reach"))
    head = (
        *("queue", "#records", "#bytes", "#first at", "#last at"),
        *("#min offset", "#max offset", "#units lead to"),
    )
    says = (
        f"The log from {start:,} to {end:,}, left to right; each bar goes from the first record of a queue"
        f" to its last; the mark shows how far its units reach."
    )
    legend = [LegendLine("span", "records in the log"), LegendLine("reach", "end of what its units name")]
    height = min(_QUEUES, len(queues)) * _ROW_PX
    table = _table(head, queues, _queue_row)
    notes = [f"The {_QUEUES} queues with most bytes of {len(queues):,}."] if len(queues) > _QUEUES else []
    if empty := sum(not queue.sums for queue in queues):
        notes.append(f"Without a record of their own in the log: {counted(empty, 'queue', form=',')}.")
    title = "Queues against the log"
    return Picture("queues", title, says, height, boxes, labels, legend, table, " ".join(notes))


class _Queue(NamedTuple):
    """A queue. units: what its units say, or None. sums: number and bytes of its records in the log, positions of the
    first and the last; empty if the log has none.
    """

    name: str
    units: QueueSummary | None
    sums: tuple[int, ...]


def _queues(seen: Seen, topics: TopicRanking) -> list[_Queue]:
    """Return the queues, those with most bytes first; then queues without a record, if each was counted by itself."""
    rows = seen.picture.queues.rows()
    each = rows.cell != ALL_QUEUES
    number = np.where(each, rows.cell - ((rows.cell >> 31) << 32), ALL_QUEUES).tolist()
    found = list[_Queue]()
    unseen = dict(seen.queues) if each.all() and OTHERS not in rows.group else {}
    for at in np.argsort(-rows.bytes, kind="stable").tolist():
        topic, queue_id = topics.names[int(rows.group[at])], number[at]
        unseen.pop((topic, queue_id), None)
        name = f"{topic}/{'*' if queue_id == ALL_QUEUES else queue_id}"
        found.append(_Queue(name, seen.queues.get((topic, queue_id)), tuple(int(column[at]) for column in rows[2:])))
    return [*found, *(_Queue(f"{topic}/{queue_id}", unseen[topic, queue_id], ()) for topic, queue_id in sorted(unseen))]


def _table(head: Sequence[str], items: Sequence[T], row: Callable[[T], tuple[str, ...]]) -> NumbersTable:
    """Return the rows of the first items, and how many more there are."""
    return NumbersTable(head, [row(item) for item in items[:ROWS_SHOWN]], max(0, len(items) - ROWS_SHOWN))


def _queue_row(queue: _Queue) -> tuple[str, ...]:
    _, units, sums = queue
    sums_text = [f"{number:,}" for number in sums] if sums else ["0", "0", "", ""]
    return (
        queue.name,
        *sums_text,
        f"{units.min_offset:,}" if units else "no units",
        f"{units.max_offset:,}" if units else "no units",
        f"{units.end_position:,}" if units and units.end_position is not None else "",
    )


def _lag_text(row: Mapping[str, Any]) -> str:
    return "unknown" if row["lag"] is None else f"{row['lag']:,}"


def lags(seen: Seen, time: TimeText) -> Iterator[Picture]:
    """Show how far groups are behind."""
    rows = seen.lags
    if not rows:
        return
    shown = rows[:_QUEUES]
    most = max(1, *(row["lag"] or 0 for row in shown))
    boxes, labels = list[Box](), list[Label]()
    for number, row in enumerate(shown):
        y = number * _ROW_PX
        name = f"{row['group'] or 'delay levels'} of {row['topic'] or 'no topic'}"
        labels.append(Label(0, y, GUTTER - 1, name, anchor="end"))
        x, width = across(0, (row["lag"] or 0) / most)
        if row["lag"]:
            boxes.append(Box(x, y, max(width * 0.8, 0.3), _BAR_PX, "bar", name))
        at = GUTTER + max(width, 0.0) * 0.8 + 0.5
        labels.append(Label(at, y, 100 - at, _lag_text(row)))

    def line(row: Mapping[str, Any]) -> tuple[str, ...]:
        return (
            row["group"] or "delay levels",
            row["topic"] or "",
            f"{row['queues']:,}",
            _lag_text(row),
            "" if row["lag_bytes"] is None else f"{row['lag_bytes']:,}",
            time(row["oldest_unread_timestamp"]) if row["oldest_unread_timestamp"] else "",
            f"{row['expired']:,}",
            f"{row['moved_back']:,}",
        )

    head = (
        *("group", "topic", "#queues", "#messages behind", "#bytes", "oldest unread"),
        *("#expired unread", "#moved back"),
    )
    behind = sum(bool(row["lag"]) for row in rows)
    are = "is behind" if behind == 1 else "are behind"
    says = (
        f"Messages before each group in the queues of a topic: {behind:,} of"
        f" {counted(len(rows), 'group and topic', 'groups and topics', form=',')} {are}."
    )
    table = _table(head, rows, line)
    height, title = len(shown) * _ROW_PX, "How far groups are behind"
    yield Picture("groups", title, says, height, boxes, labels, (), table)


def due_hours(seen: Seen, time: TimeText) -> Iterator[Picture]:
    """Show what waits in the timer wheel, by the hour."""
    due = seen.due
    if not due.messages:
        return
    bars = [(time(hour), number) for hour, number in due.hours]
    if due.past:
        bars.insert(0, ("before now", due.past))
    if due.later:
        bars.append(("later", due.later))
    waiting = counted(due.messages, "timed message waits", "timed messages wait", form=",")
    past = f" The first bar is all that is due before {time(seen.now_ms)}." if due.past else ""
    says = f"{waiting} in the wheel; a bar is an hour.{past}"
    boxes, labels = _bars([number for _, number in bars])
    _, width = across(0, 0.5)
    labels.append(Label(GUTTER, _PLOT_PX, width, bars[0][0]))
    if len(bars) > 1:
        labels.append(Label(GUTTER + width, _PLOT_PX, width, bars[-1][0], anchor="end"))
    table = NumbersTable(("hour", "#messages"), [(hour, f"{number:,}") for hour, number in bars if number])
    title, height = "Timers due, by hour", _PLOT_PX + 18
    yield Picture("timers", title, says, height, boxes, labels, (), table)


def sizes(seen: Seen) -> Picture:
    """Show how large records are."""
    bins = np.flatnonzero(seen.picture.sizes)
    least = np.array([least_of_bin(int(number)) for number in bins], np.int64)
    power = highest_bit(least)
    first, last = int(power.min()), int(power.max())
    counts = np.bincount(power - first, seen.picture.sizes[bins]).astype(np.int64)
    total = np.bincount(power - first, seen.picture.size_bytes[bins]).astype(np.int64)
    names = [f"{bytes_text(1 << n)}" for n in range(first, last + 1)]
    boxes, labels = _bars(counts.tolist())
    for number, name in enumerate(names):
        x, width = across(number / len(names), (number + 1) / len(names))
        labels.append(Label(x, _PLOT_PX, width, name, anchor="middle"))
    rows = [
        (f"{bytes_text(1 << n)} to {bytes_text(2 << n)}", f"{int(c):,}", f"{int(b):,}")
        for n, c, b in zip(range(first, last + 1), counts, total, strict=True)
    ]
    cumulated = np.cumsum(seen.picture.sizes[bins])
    half, most = (int(least[np.searchsorted(cumulated, int(cumulated[-1]) * percent // 100)]) for percent in (50, 99))
    says = (
        f"Records by size, each bar twice as large as the one before: half of them have up to"
        f" {bytes_text(half)}, 99 of 100 up to {bytes_text(most)}."
    )
    table = NumbersTable(("size", "#records", "#bytes"), rows)
    return Picture("sizes", "Sizes of records", says, _PLOT_PX + 18, boxes, labels, (), table)


def _bars(values: list[int]) -> tuple[list[Box], list[Label]]:
    """Return bars from the bottom; the largest is as high as the plot."""
    most = max(1, *values)
    boxes = []
    for number, value in enumerate(values):
        if not value:
            continue
        x, width = across(number / len(values), (number + 1) / len(values))
        height = max(1.0, (_PLOT_PX - 4) * value / most)
        boxes.append(Box(x + width * 0.08, _PLOT_PX - height, width * 0.84, height, "bar"))
    return boxes, [Label(0, 0, GUTTER - 1, f"{most:,}", anchor="end")]


TOPICS_SHOWN = 7
"""This many topics have a colour of their own."""
ROWS_SHOWN = 60
SHADES = 8
_MAP_PX = 120
"""About the height of a map of few files."""
_COLUMNS = 56
"""At most this many columns of time."""
_HEAT_ROWS = 12
_OTHER = "all others"
_TEXTS = {
    PlaceContent.RECORDS: ("records", "records"),
    PlaceContent.DEAD: ("dead", "cut off by an earlier start (dead tail), or of an earlier life"),
    PlaceContent.DAMAGE: ("damage", "damaged or torn"),
    PlaceContent.MISSING: ("missing", "in no file, or not readable"),
    PlaceContent.BLANK: ("blank", "blank: the filled rest of a file"),
    PlaceContent.ZEROS: ("zeros", "zeros: not written yet"),
}
_WORST_FIRST = (PlaceContent.DAMAGE, PlaceContent.MISSING, PlaceContent.DEAD)

TimeText = Callable[[int], str]
"""Formats a time in ms."""


class TopicRanking:
    """Topics by their bytes in the log, the largest first."""

    def __init__(self, picture: LogPicture) -> None:
        rows = picture.queues.rows()
        self.names = picture.names
        self.names[OTHERS] = f"topics behind the first {len(self.names) - 1:,}"
        count = len(self.names)
        self.records = np.bincount(rows.group, rows.records, minlength=count).astype(np.int64)
        self.bytes = np.bincount(rows.group, rows.bytes, minlength=count).astype(np.int64)

    @cached_property
    def order(self) -> list[int]:
        """Numbers of the topics, by bytes."""
        some = np.flatnonzero(self.records)
        found: list[int] = some[np.argsort(-self.bytes[some], kind="stable")].tolist()
        return found

    def look(self, number: int) -> str:
        """Return the colour of a topic."""
        top = self.order[:TOPICS_SHOWN]
        return f"t{top.index(number)}" if number in top else "other"

    @property
    def legend(self) -> list[LegendLine]:
        """The topics that have a colour of their own."""
        keys = [LegendLine(f"t{n}", self.names[t]) for n, t in enumerate(self.order[:TOPICS_SHOWN])]
        return [*keys, LegendLine("other", _OTHER)] if len(self.order) > TOPICS_SHOWN else keys


def log_maps(seen: Seen, topics: TopicRanking, time: TimeText) -> Iterator[Picture]:
    """Show the log, a row for one or more files, coloured by state, by topic and by age."""
    picture = seen.picture
    places = picture.places
    files = "a file" if places.files == 1 else counted(places.files, "file")
    looks = _states(picture)
    present = set(looks)
    legend = [LegendLine(look, text) for look, text in _TEXTS.values() if look in present]
    row = f"Each row is {files} ({bytes_text(places.row_bytes)}), named by its first log position"
    table = _map_table(picture)
    says = f"{row}; damage, and what is cut off, is shown wherever there is any."
    yield _map("state", "Map of the log: state", says, picture, looks, legend, table)
    if not picture.records_at.any():
        return
    by_topic = [topics.look(t) if t >= 0 else "" for t in picture.top.tolist()]
    says = f"{row}; the colour is that of the topic with most bytes there."
    only = _table(
        ("topic", "#records", "#bytes"),
        topics.order,
        lambda n: (topics.names[n], f"{int(topics.records[n]):,}", f"{int(topics.bytes[n]):,}"),
    )
    yield _map("topics", "Map of the log: topics", says, picture, by_topic, topics.legend, only)
    ages, first, last = _ages(picture)
    legend = [LegendLine(f"h{SHADES - 1}", f"newest, {time(last)}"), LegendLine("h0", f"oldest, {time(first)}")]
    says = f"{row}; the stronger the colour, the newer are the records, from {time(first)} to {time(last)}."
    yield _map("age", "Map of the log: age", says, picture, ages, legend, _age_table(picture, time))


def _states(picture: LogPicture) -> list[str]:
    state = picture.state
    most = state.argmax(axis=0)
    found = []
    for place in range(picture.places.total):
        worst = next((s for s in _WORST_FIRST if state[s, place]), None)
        if worst is None and state[:, place].any():
            worst = PlaceContent(int(most[place]))
        found.append("" if worst is None else _TEXTS[worst][0])
    return found


def _ages(picture: LogPicture) -> tuple[list[str], int, int]:
    there = picture.state[PlaceContent.RECORDS] > 0
    begins = picture.records_at > 0
    mean = np.zeros(len(there))
    mean[begins] = picture.age[begins] / picture.records_at[begins]
    # a place where no record begins holds the end of an earlier one
    mean = mean[np.maximum.accumulate(np.where(begins, np.arange(len(mean)), 0))]
    there &= mean > 0
    first, last = float(mean[there].min()), float(mean[there].max())
    shade = ((mean - first) / max(1.0, last - first) * (SHADES - 1)).round().astype(int)
    looks = [f"h{s}" if t else "" for s, t in zip(shade.tolist(), there.tolist(), strict=True)]
    return looks, int(first), int(last)


def _map(
    name: str,
    title: str,
    says: str,
    picture: LogPicture,
    looks: Sequence[str],
    legend: Sequence[LegendLine],
    table: NumbersTable,
) -> Picture:
    boxes, labels = list[Box](), list[Label]()
    places = picture.places
    high = max(_ROW_PX, min(4 * _ROW_PX, _MAP_PX // places.rows))
    for row in range(places.rows):
        y = row * high
        start = places.start + row * places.row_bytes
        labels.append(Label(0, y + (high - _ROW_PX) / 2, GUTTER - 1, f"{start:,}", anchor="end"))
        mine = looks[row * MAP_COLUMNS : (row + 1) * MAP_COLUMNS]
        for begin, end in _runs(mine):
            x, width = across(begin / MAP_COLUMNS, end / MAP_COLUMNS)
            boxes.append(Box(x, y, width, high - 3, mine[begin]))
    return Picture(name, title, says, places.rows * high, boxes, labels, legend, table)


def _runs(looks: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of neighbours that look the same; places without a look are left out."""
    begin = 0
    for end in range(1, len(looks) + 1):
        if end == len(looks) or looks[end] != looks[begin]:
            if looks[begin]:
                yield begin, end
            begin = end


def _map_table(picture: LogPicture) -> NumbersTable:
    head = ["log position", "#records", *(f"#bytes: {state.name.lower()}" for state in PlaceContent)]
    places = picture.places
    state = picture.state.reshape(len(PlaceContent), places.rows, MAP_COLUMNS).sum(axis=2)
    records = picture.records_at.reshape(-1, MAP_COLUMNS).sum(axis=1)
    starts = places.start + np.arange(places.rows, dtype=np.int64) * places.row_bytes
    numbers = np.stack([starts, records, *state], axis=1).tolist()
    return NumbersTable(head, [[f"{number:,}" for number in row] for row in numbers])


def _age_table(picture: LogPicture, time: TimeText) -> NumbersTable:
    rows = []
    by_row = (column.reshape(-1, MAP_COLUMNS) for column in (picture.records_at, picture.age))
    for row, (records, ages) in enumerate(zip(*by_row, strict=True)):
        there = records > 0
        if there.any():
            mean = ages[there] / records[there]
            start = picture.places.start + row * picture.places.row_bytes
            rows.append((f"{start:,}", time(int(mean.min())), time(int(mean.max()))))
    return NumbersTable(("log position", "oldest place", "newest place"), rows)


def heat_maps(seen: Seen, topics: TopicRanking, time: TimeText) -> Iterator[Picture]:
    """Show records and bytes over time, a row for each topic."""
    picture = seen.picture
    rows = picture.times.rows()
    if not len(rows.cell):
        return
    low, high, outside = _range(rows.cell, rows.records)
    step = picture.step
    while step + 1 < len(TIME_STEPS_S) and _columns(low, high, picture.step, step) > _COLUMNS:
        step += 1
    factor = TIME_STEPS_S[step] // TIME_STEPS_S[picture.step]
    first, count = low // factor, min(_COLUMNS, _columns(low, high, picture.step, step))
    shown = topics.order[:_HEAT_ROWS]
    row_of = np.full(len(topics.names), len(shown), np.int64)
    row_of[shown] = np.arange(len(shown))
    column = rows.cell // factor - first
    inside = (rows.cell >= low) & (rows.cell <= high) & (column < count)
    key = row_of[rows.group[inside]] * count + column[inside]
    names = [topics.names[n] for n in shown]
    edges = [(first + n) * TIME_STEPS_S[step] * 1000 for n in range(count + 1)]
    note = f"Left out: {counted(outside, 'record', form=',')} of other times." if outside else ""
    for name, title, values in (
        ("records", "Records over time, by topic", rows.records),
        ("bytes", "Bytes over time, by topic", rows.bytes),
    ):
        cells = np.bincount(key, values[inside], minlength=(len(shown) + 1) * count)
        grid = cells.astype(np.int64).reshape(len(shown) + 1, count)
        last = [_OTHER] if grid[len(shown)].any() else []
        says = (
            f"A row for a topic, a column for {_step_text(TIME_STEPS_S[step])}"
            f" from {time(edges[0])} on; the stronger the colour, the more {name}."
        )
        yield _heat(name, title, says, grid, [*names, *last], edges, time, note)


def _columns(low: int, high: int, of: int, step: int) -> int:
    factor = TIME_STEPS_S[step] // TIME_STEPS_S[of]
    return high // factor - low // factor + 1


def _range(cell: Ints, records: Ints) -> tuple[int, int, int]:
    """Return the least and the greatest time shown, and how many records are outside: wrong clocks set no scale."""
    order = np.argsort(cell, kind="stable")
    total = np.cumsum(records[order])
    few = int(total[-1]) // 2000
    at = np.searchsorted(total, [few, int(total[-1]) - few - 1], side="right")
    low, high = (int(cell[order[min(int(n), len(order) - 1)]]) for n in at)
    outside = int(records[(cell < low) | (cell > high)].sum())
    return low, high, outside


def _step_text(seconds: int) -> str:
    for size, name in ((604800, "week"), (86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            number = seconds // size
            return f"{'an' if name == 'hour' else 'a'} {name}" if number == 1 else f"{number} {name}s"
    return "a second" if seconds == 1 else f"{seconds} seconds"


def _heat(
    name: str, title: str, says: str, grid: Ints, names: Sequence[str], edges: Sequence[int], time: TimeText, note: str
) -> Picture:
    # the row of all others may be darker than any topic: it does not set the scale
    most, count = max(1, int(grid[: len(names) - (names[-1] == _OTHER) or 1].max())), grid.shape[1]
    boxes, labels = list[Box](), list[Label]()
    for row, topic in enumerate(names):
        y = row * _ROW_PX
        labels.append(Label(0, y, GUTTER - 1, topic, anchor="end"))
        for column in np.flatnonzero(grid[row]).tolist():
            x, width = across(column / count, (column + 1) / count)
            value = int(grid[row, column])
            shade = min(SHADES - 1, 1 + (SHADES - 2) * value // most)
            boxes.append(Box(x, y, width, _BAR_PX, f"h{shade}"))
    below = len(names) * _ROW_PX
    x, width = across(0, 0.5)
    labels.append(Label(x, below, width, time(edges[0])))
    labels.append(Label(x + width, below, width, time(edges[-1]), anchor="end"))
    show = str if name == "records" else bytes_text
    legend = [LegendLine("h1", "few"), LegendLine(f"h{SHADES - 1}", f"{show(most)} {'' if name == 'bytes' else name}")]
    table = NumbersTable(
        ("from", *(f"#{topic}" for topic in names)),
        [
            (time(edges[column]), *(f"{int(grid[row, column]):,}" for row in range(len(names))))
            for column in np.flatnonzero(grid.any(axis=0)).tolist()
        ],
    )
    return Picture(f"time-{name}", title, says, below + 18, boxes, labels, legend, table, note)
