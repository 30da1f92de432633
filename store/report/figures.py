"""Pictures of what the log is filled with, and of who waits for it: disk, queues, groups, timers, sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..counted import bytes_text, counted
from ..inspect.stats import least_of_bin
from .gather import Seen
from .log_figures import ROWS_SHOWN, TimeText, Topics, heat_maps, log_maps
from .shapes import GUTTER, Box, Key, Label, Picture, Table, across, squarified
from .watch import ALL_QUEUES

_TILES = 40
_TREE_WIDTH, _TREE_PX = 640, 300
_QUEUES = 40
_ROW_PX, _BAR_PX = 16, 13
_PLOT_PX = 140


def pictures_of(seen: Seen, time: TimeText) -> Iterator[Picture]:
    """All that there is something to show of, in the order of the page."""
    topics = Topics(seen.picture)
    yield from log_maps(seen, topics, time)
    if not topics.order:
        return
    yield from heat_maps(seen, topics, time)
    yield tree_map(topics)
    yield queue_spans(seen, topics)
    yield from lags(seen, time)
    yield from due_hours(seen, time)
    yield sizes(seen)


def tree_map(topics: Topics) -> Picture:
    """Who fills the disk."""
    shown = topics.order[:_TILES]
    rest = topics.order[_TILES:]
    total = int(topics.bytes.sum())
    left = int(topics.bytes[rest].sum()) if rest else 0
    tiles = [(topics.names[n], int(topics.bytes[n]), topics.look(n)) for n in shown]
    tiles += [(counted(len(rest), "more topic", form=","), left, "other")] if rest else []
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
    rows = [
        (
            topics.names[n],
            f"{int(topics.records[n]):,}",
            f"{int(topics.bytes[n]):,}",
            f"{int(topics.bytes[n]) / max(1, total):.1%}",
            f"{int(topics.bytes[n]) // max(1, int(topics.records[n])):,}",
        )
        for n in topics.order[:ROWS_SHOWN]
    ]
    head = ("topic", "#records", "#bytes", "#share", "#average bytes")
    table = Table(head, rows, max(0, len(topics.order) - ROWS_SHOWN))
    says = f"Each rectangle is a topic, as large as its records in the log: {bytes_text(total)} in all."
    return Picture("disk", "Who fills the disk", says, _TREE_PX, boxes, labels, (), table)


def queue_spans(seen: Seen, topics: Topics) -> Picture:
    """Where the records of each queue lie in the log, and how far its units lead."""
    rows, places = seen.picture.queues.rows(), seen.picture.places
    order = np.argsort(-rows.bytes, kind="stable")
    start = places.start
    end = max(start + 1, seen.verdict.facts.end)
    boxes, labels, lines = list[Box](), list[Label](), list[tuple[str, ...]]()
    for place, number in enumerate(order[:ROWS_SHOWN].tolist()):
        group, queue_id = int(rows.group[number]), int(rows.cell[number])
        queue_id -= (queue_id >> 31) << 32 if queue_id != ALL_QUEUES else 0
        topic = topics.names[group]
        name = f"{topic}/{'*' if queue_id == ALL_QUEUES else queue_id}"
        units = seen.queues.get((topic, queue_id))
        first, last = int(rows.first[number]), int(rows.last[number])
        if place < _QUEUES:
            y = place * _ROW_PX
            labels.append(Label(0, y, GUTTER - 1, name, anchor="end"))
            x, width = across((first - start) / (end - start), (last + 1 - start) / (end - start))
            boxes.append(Box(x, y, max(width, 0.3), _BAR_PX, "span", name))
            reach = units.end_position if units else None
            if reach is not None and start <= reach:
                x, _ = across(min(1.0, (reach - start) / (end - start)), 1)
                boxes.append(Box(max(GUTTER, x - 0.5), y, 0.5, _BAR_PX, "reach"))
        lines.append(
            (
                name,
                f"{int(rows.records[number]):,}",
                f"{int(rows.bytes[number]):,}",
                f"{first:,}",
                f"{last:,}",
                f"{units.min_offset:,}" if units else "no units",
                f"{units.max_offset:,}" if units else "no units",
                f"{units.end_position:,}" if units and units.end_position is not None else "",
            )
        )
    more = max(0, len(order) - ROWS_SHOWN)
    head = (
        *("queue", "#records", "#bytes", "#first at", "#last at"),
        *("#min offset", "#max offset", "#units lead to"),
    )
    says = (
        f"The log from {start:,} to {end:,}, left to right; each bar goes from the first record of a queue"
        f" to its last, the mark is how far its units lead."
    )
    legend = [Key("span", "records in the log"), Key("reach", "end of what its units name")]
    height = min(_QUEUES, len(order)) * _ROW_PX
    table = Table(head, lines, more)
    note = (
        f"The {_QUEUES} queues with most bytes of {len(order):,}." if len(order) > _QUEUES else ""
    )
    title = "Queues against the log"
    return Picture("queues", title, says, height, boxes, labels, legend, table, note)


def lags(seen: Seen, time: TimeText) -> Iterator[Picture]:
    """How far groups are behind."""
    rows = seen.lags
    if not rows:
        return
    shown = rows[:_QUEUES]
    most = max(1, *(row["lag"] for row in shown))
    boxes, labels = list[Box](), list[Label]()
    for number, row in enumerate(shown):
        y = number * _ROW_PX
        name = f"{row['group'] or 'delay levels'} of {row['topic'] or 'no topic'}"
        labels.append(Label(0, y, GUTTER - 1, name, anchor="end"))
        x, width = across(0, max(0, row["lag"]) / most)
        if row["lag"] > 0:
            boxes.append(Box(x, y, max(width * 0.8, 0.3), _BAR_PX, "bar", name))
        at = GUTTER + max(width, 0.0) * 0.8 + 0.5
        labels.append(Label(at, y, 100 - at, f"{row['lag']:,}"))
    lines = [
        (
            row["group"] or "delay levels",
            row["topic"] or "",
            f"{row['queues']:,}",
            f"{row['lag']:,}",
            "" if row["lag_bytes"] is None else f"{row['lag_bytes']:,}",
            time(row["oldest_unread_timestamp"]) if row["oldest_unread_timestamp"] else "",
            f"{row['expired']:,}",
            f"{row['moved_back']:,}",
        )
        for row in rows[:ROWS_SHOWN]
    ]
    head = (
        *("group", "topic", "#queues", "#messages behind", "#bytes", "oldest unread"),
        *("#expired unread", "#moved back"),
    )
    behind = sum(row["lag"] > 0 for row in rows)
    are = "is behind" if behind == 1 else "are behind"
    says = (
        f"Messages before each group in the queues of a topic: {behind:,} of"
        f" {counted(len(rows), 'group and topic', 'groups and topics', form=',')} {are}."
    )
    table = Table(head, lines, max(0, len(rows) - ROWS_SHOWN))
    height, title = len(shown) * _ROW_PX, "How far groups are behind"
    yield Picture("groups", title, says, height, boxes, labels, (), table)


def due_hours(seen: Seen, time: TimeText) -> Iterator[Picture]:
    """What waits in the timer wheel, by the hour."""
    due = seen.due
    if not due.messages:
        return
    ends = [("before now", due.past)], [("later", due.later)]
    hours = [(time(hour), number) for hour, number in due.hours]
    bars = [*(ends[0] if due.past else ()), *hours, *(ends[1] if due.later else ())]
    waiting = counted(due.messages, "timed message waits", "timed messages wait", form=",")
    past = f" The first bar is all that is due before {time(seen.now_ms)}." if due.past else ""
    says = f"{waiting} in the wheel; a bar is an hour.{past}"
    boxes, labels = _bars([number for _, number in bars])
    _, width = across(0, 0.5)
    labels.append(Label(GUTTER, _PLOT_PX, width, bars[0][0]))
    if len(bars) > 1:
        labels.append(Label(GUTTER + width, _PLOT_PX, width, bars[-1][0], anchor="end"))
    table = Table(("hour", "#messages"), [(hour, f"{number:,}") for hour, number in bars if number])
    title, height = "Timers due, by hour", _PLOT_PX + 18
    yield Picture("timers", title, says, height, boxes, labels, (), table)


def sizes(seen: Seen) -> Picture:
    """How large records are."""
    bins = np.flatnonzero(seen.picture.sizes)
    least = np.array([least_of_bin(int(number)) for number in bins], np.int64)
    power = np.frexp(np.maximum(least, 1).astype(np.float64))[1].astype(np.int64) - 1
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
    half, most = (
        int(least[np.searchsorted(cumulated, int(cumulated[-1]) * percent // 100)])
        for percent in (50, 99)
    )
    says = (
        f"Records by size, each bar twice as large as the one before: half of them have up to"
        f" {bytes_text(half)}, 99 of 100 up to {bytes_text(most)}."
    )
    table = Table(("size", "#records", "#bytes"), rows)
    return Picture("sizes", "Sizes of records", says, _PLOT_PX + 18, boxes, labels, (), table)


def _bars(values: list[int]) -> tuple[list[Box], list[Label]]:
    """Bars from the bottom, the largest as high as the plot."""
    most = max(1, *values)
    boxes = []
    for number, value in enumerate(values):
        if not value:
            continue
        x, width = across(number / len(values), (number + 1) / len(values))
        height = max(1.0, (_PLOT_PX - 4) * value / most)
        boxes.append(Box(x + width * 0.08, _PLOT_PX - height, width * 0.84, height, "bar"))
    return boxes, [Label(0, 0, GUTTER - 1, f"{most:,}", anchor="end")]
