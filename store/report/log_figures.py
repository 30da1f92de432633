"""Pictures of the log: its map by state, topic and age, and when what was stored.

A place of the map shows the worst that it holds, so that a damaged record of a terabyte is to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from ...formats.derive.ragged import Ints
from ..counted import bytes_text, counted
from .gather import Seen
from .shapes import GUTTER, Box, Key, Label, Picture, Table, across
from .watch import MAP_COLUMNS, OTHERS, TIME_STEPS_S, LogPicture, State

TOPICS_SHOWN = 7
"""Topics with a colour of their own."""
ROWS_SHOWN = 60
SHADES = 8
_ROW_PX, _BAR_PX = 16, 13
_MAP_PX = 120
"""A map of few files is about so high."""
_COLUMNS = 56
"""Columns of time at most."""
_HEAT_ROWS = 12
_OTHER = "all others"
_TEXTS = {
    State.RECORDS: ("records", "records"),
    State.DEAD: ("dead", "cut off by an earlier start (dead tail), or of an earlier life"),
    State.DAMAGE: ("damage", "damaged or torn"),
    State.MISSING: ("missing", "in no file, or not readable"),
    State.BLANK: ("blank", "blank: the filled rest of a file"),
    State.ZEROS: ("zeros", "zeros: not written yet"),
}
_WORST_FIRST = (State.DAMAGE, State.MISSING, State.DEAD)

TimeText = Callable[[int], str]
"""A time in ms as people write it."""


class Topics:
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
        """Their numbers."""
        some = np.flatnonzero(self.records)
        found: list[int] = some[np.argsort(-self.bytes[some], kind="stable")].tolist()
        return found

    def look(self, number: int) -> str:
        """The colour of a topic."""
        top = self.order[:TOPICS_SHOWN]
        return f"t{top.index(number)}" if number in top else "other"

    @property
    def legend(self) -> list[Key]:
        """The topics that have one."""
        keys = [Key(f"t{n}", self.names[t]) for n, t in enumerate(self.order[:TOPICS_SHOWN])]
        return [*keys, Key("other", _OTHER)] if len(self.order) > TOPICS_SHOWN else keys


def log_maps(seen: Seen, topics: Topics, time: TimeText) -> Iterator[Picture]:
    """The log, a row for a file or a few, coloured by state, by topic and by age."""
    picture = seen.picture
    places = picture.places
    files = "a file" if places.files == 1 else counted(places.files, "file")
    looks = _states(picture)
    present = set(looks)
    legend = [Key(look, text) for look, text in _TEXTS.values() if look in present]
    row = f"Each row is {files} ({bytes_text(places.row_bytes)}), named by its first log position"
    table = _map_table(picture, topics, time)
    says = f"{row}; damage, and what is cut off, is shown wherever there is any."
    yield _map("state", "Map of the log: state", says, picture, looks, legend, table)
    if not picture.records_at.any():
        return
    by_topic = [topics.look(t) if t >= 0 else "" for t in picture.top.tolist()]
    says = f"{row}; the colour is that of the topic with most bytes there."
    only = Table(("topic", "#records", "#bytes"), *_topic_rows(topics))
    yield _map("topics", "Map of the log: topics", says, picture, by_topic, topics.legend, only)
    ages, first, last = _ages(picture)
    legend = [
        Key(f"h{SHADES - 1}", f"newest, {time(last)}"),
        Key("h0", f"oldest, {time(first)}"),
    ]
    says = f"{row}; the stronger the colour, the newer are the records, from {time(first)} to {time(last)}."
    yield _map("age", "Map of the log: age", says, picture, ages, legend, _age_table(picture, time))


def _states(picture: LogPicture) -> list[str]:
    state = picture.state
    most = state.argmax(axis=0)
    found = []
    for place in range(picture.places.total):
        worst = next((s for s in _WORST_FIRST if state[s, place]), None)
        if worst is None and state[:, place].any():
            worst = State(int(most[place]))
        found.append("" if worst is None else _TEXTS[worst][0])
    return found


def _ages(picture: LogPicture) -> tuple[list[str], int, int]:
    there = picture.state[State.RECORDS] > 0
    begins = picture.records_at > 0
    mean = np.zeros(len(there))
    mean[begins] = picture.age[begins] / picture.records_at[begins]
    # where no record begins there is the end of one that began before
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
    legend: Sequence[Key],
    table: Table,
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
    """Where neighbours that look the same begin and end."""
    begin = 0
    for end in range(1, len(looks) + 1):
        if end == len(looks) or looks[end] != looks[begin]:
            if looks[begin]:
                yield begin, end
            begin = end


def _map_table(picture: LogPicture, topics: Topics, time: TimeText) -> Table:
    head = ["log position", "#records", *(f"#bytes: {state.name.lower()}" for state in State)]
    rows = []
    state = picture.state.reshape(len(State), picture.places.rows, MAP_COLUMNS).sum(axis=2)
    records = picture.records_at.reshape(-1, MAP_COLUMNS).sum(axis=1)
    for row in range(picture.places.rows):
        start = picture.places.start + row * picture.places.row_bytes
        numbers = [f"{int(each):,}" for each in (records[row], *state[:, row])]
        rows.append((f"{start:,}", *numbers))
    return Table(head, rows)


def _age_table(picture: LogPicture, time: TimeText) -> Table:
    rows = []
    records = picture.records_at.reshape(-1, MAP_COLUMNS)
    ages = picture.age.reshape(-1, MAP_COLUMNS)
    for row in range(picture.places.rows):
        there = records[row] > 0
        if not there.any():
            continue
        mean = ages[row][there] / records[row][there]
        start = picture.places.start + row * picture.places.row_bytes
        rows.append((f"{start:,}", time(int(mean.min())), time(int(mean.max()))))
    return Table(("log position", "oldest place", "newest place"), rows)


def _topic_rows(topics: Topics) -> tuple[list[tuple[str, ...]], int]:
    rows: list[tuple[str, ...]] = [
        (topics.names[n], f"{int(topics.records[n]):,}", f"{int(topics.bytes[n]):,}")
        for n in topics.order[:ROWS_SHOWN]
    ]
    return rows, max(0, len(topics.order) - ROWS_SHOWN)


def heat_maps(seen: Seen, topics: Topics, time: TimeText) -> Iterator[Picture]:
    """Records and bytes over time, a row for a topic."""
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
    """Least and greatest time that are shown, and how many records are not: a wrong clock is no reason
    to show nothing of the others.
    """
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
            return _one(name) if number == 1 else f"{number} {name}s"
    return "a second" if seconds == 1 else f"{seconds} seconds"


def _one(name: str) -> str:
    return f"an {name}" if name == "hour" else f"a {name}"


def _heat(
    name: str,
    title: str,
    says: str,
    grid: Ints,
    names: Sequence[str],
    edges: Sequence[int],
    time: TimeText,
    note: str,
) -> Picture:
    # what stands for many topics may be darker than any: it does not set the scale
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
    legend = [
        Key("h1", "few"),
        Key(f"h{SHADES - 1}", f"{show(most)} {'' if name == 'bytes' else name}"),
    ]
    table = Table(
        ("from", *(f"#{topic}" for topic in names)),
        [
            (time(edges[column]), *(f"{int(grid[row, column]):,}" for row in range(len(names))))
            for column in np.flatnonzero(grid.any(axis=0)).tolist()
        ],
    )
    return Picture(f"time-{name}", title, says, below + 18, boxes, labels, legend, table, note)
