"""The answer of `diff`: the pairs of stores, their differences, and these as records and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..store.counted import bytes_text, counted
from .declared import Exit, Format
from .diff_options import MESSAGES, WHAT, DiffOptions
from .exit_codes import ExitCode
from .json_text import dumps
from .options import Common
from .pipeline_options import damage_text
from .record_types import columns_of
from .terminal import escape
from .unread import UNREAD, report_unreadable, retry_without_lost, unread_text

if TYPE_CHECKING:
    from ..store.arrow.differences import Unsound
    from ..store.compare.both import Comparison
    from ..store.compare.logs import PositionRange
    from ..store.disk.broker_conf import BrokerConfig
    from ..store.errors import StoreError

COLUMNS = columns_of("difference", "part_difference", "comparison")
_SHOWN = 12
"""Differences of a part in a text; the others are only counted."""
_ONLY = {"only_a": "only in A", "only_b": "only in B"}
_LONGEST = 120
"""Characters of a value in a text."""
_THINGS = {
    "log": ("range of the log", "ranges of the log"),
    "record": ("field of a record", "fields of records"),
    "epoch": ("epoch", ""),
    "queue": ("queue", ""),
    "unit": ("queue with different units", "queues with different units"),
    "index": ("part of the index", "parts of the index"),
    "offset": ("position", ""),
    "config": ("entry of the configuration", "entries of the configuration"),
    "timer": ("hour of timers", "hours of timers"),
}


@dataclass
class Sides:
    """Pairs of stores by name, and what their comparison found. bytes: of all logs. rows: queues with different
    messages. unsound: ranges that damage hides, and bodies that fail their checksum. parts: by pair, if on this
    machine. within: position ranges where the logs of a pair may differ.
    """

    pairs: Mapping[str, tuple[str, str]]
    bytes: int
    rows: Sequence[Mapping[str, Any]] = ()
    unsound: Unsound | None = None
    parts: dict[str, Comparison] = field(default_factory=dict)
    within: dict[str, Sequence[PositionRange]] = field(default_factory=dict)

    def compare_parts(
        self, config: BrokerConfig, note: Callable[[int], None], looks: DiffOptions, *, quick: bool
    ) -> None:
        """Compare everything but messages, of the pairs that are on this machine. Raises StoreError."""
        if looks.parts == {MESSAGES}:
            return
        from ..store.compare.both import compare_stores
        from ..store.disk.layout import is_uri
        from ..store.search.store import StoreReader

        for name, pair in self.pairs.items():
            if any(map(is_uri, pair)):
                if looks.only is not None or looks.quick:  # else its messages are compared: it has nothing more
                    parts = ", ".join(part for part in WHAT if part in looks.parts - {MESSAGES})
                    reason = f"{parts}: in object storage only messages can be compared"
                    self.parts[name] = _of_messages_alone(reason)
                continue
            with StoreReader(pair[0], config) as one, StoreReader(pair[1], config) as other:
                found = compare_stores(one, other, looks.parts, quick=quick, note=note)
            self.parts[name] = found
            if (apart := found.logs.apart) is not None:
                self.within[name] = apart

    @property
    def hidden(self) -> set[str]:
        """Names of the pairs with messages that damage hides."""
        ranges = {} if self.unsound is None else self.unsound.ranges
        return {name for name, pair in self.pairs.items() if not ranges.keys().isdisjoint(pair)}

    def found(self, rows: Sequence[Mapping[str, Any]], unsound: Unsound) -> None:
        self.rows, self.unsound = rows, unsound


def answer(a: str, b: str, partial: bool, common: Common, compare: Callable[[Sides], None]) -> None:
    """Compare the stores of both sides with `compare`, which gets the pairs, and print the differences. partial: leave
    out the pair of a store that cannot be read. Raises Missing, InvalidInput, Exit.
    """
    from ..pipeline.diff import pairs_of
    from ..store.arrow.stores import log_sizes, stores_of

    output = common.open_output()
    output.check(COLUMNS)
    of_a, of_b = stores_of([a]), stores_of([b])
    pairs, alone = pairs_of(of_a, of_b)
    paired = {root for pair in pairs.values() for root in pair}
    sizes, unread = log_sizes([root for root in (*of_a, *of_b) if root in paired], common.config())
    pairs = {name: pair for name, pair in pairs.items() if unread.keys().isdisjoint(pair)}
    left_out = report_unreadable(unread, others=bool(pairs), partial=partial)
    for name in alone:
        common.warn(f"{name}: only one side has this store")

    def compared(names: set[str]) -> Sides:
        some = {name: pair for name, pair in pairs.items() if name in names}
        compare(sides := Sides(some, sum(sizes[root] for pair in some.values() for root in pair)))
        return sides

    def rest(names: set[str], error: StoreError) -> set[str] | None:
        failed = next((name for name, pair in pairs.items() if error.store in pair), None)
        if not partial or failed is None:
            return None
        others = names - {failed}
        left_out.extend(report_unreadable({error.store or "": error}, others=bool(others), partial=True))
        return others

    _, sides = retry_without_lost(compared, set(pairs), rest)
    _tell(sides.unsound, common)
    for name, part in sides.parts.items():
        for text in part.unread:
            common.warn(f"not compared: {f'{name}: ' if name else ''}{text}")
    with output:
        every = common.verbose or common.format is not Format.TEXT or common.fields is not None
        found = _records(sides, every=every)
        output.records([*found, *left_out], text=text_of, columns=COLUMNS)
    apart = any(not part.same or part.unread for part in sides.parts.values())
    wrong = sides.rows or sides.unsound or alone or left_out or apart
    raise Exit(ExitCode.NO if wrong else ExitCode.DONE)


def _tell(unsound: Unsound | None, common: Common) -> None:
    if unsound is None:
        return
    for lost in unsound.first:
        common.warn(f"not compared: {damage_text(asdict(lost))}")
    for store, (places, size) in unsound.cut.items():
        cut = f"{counted(size, 'byte')} in total, in {counted(places, 'place')}"
        common.warn(f"not compared: {store}: {cut}")
    for store, (bodies, position) in unsound.bodies.items():
        fail = counted(bodies, "body fails its checksum", "bodies fail their checksums")
        common.warn(f"{store}: {fail}, the first at {position}")


def _records(sides: Sides, *, every: bool) -> Iterator[Mapping[str, Any]]:
    """Yield a record for each pair, then its differences, then those of its messages. every: do not cut long lists."""
    alone = {} if sides.unsound is None else {name: _of_messages_alone() for name in sides.pairs}
    for name, found in (alone | sides.parts).items():
        rows = [row for row in sides.rows if row["store"] == name]
        yield _comparison(name, found, len(rows), hidden=name in sides.hidden)
        seen = Counter[str]()
        for one in found.differs:
            seen[one.part] += 1
            if every or seen[one.part] <= _SHOWN:
                yield {"type": "part_difference", "store": name, **asdict(one)}
            if not every and seen[one.part] == _SHOWN + 1:
                yield {"type": "more", "part": one.part, "count": found.counts[one.part] - _SHOWN}
        yield from ({"type": "difference", **row} for row in rows)


def _of_messages_alone(*unread: str) -> Comparison:
    from ..store.compare.both import Comparison
    from ..store.compare.logs import LogsCompared

    return Comparison(LogsCompared(None, None, samples=0), quick=False, unread=[*unread])


def _comparison(name: str, found: Comparison, queues: int, *, hidden: bool) -> dict[str, Any]:
    """The record of a pair. queues: number of queues with different messages. hidden: damage hides some messages."""
    logs = found.logs
    return {
        "type": "comparison",
        "store": name,
        "same": found.same and not queues and not hidden,
        "same_log": logs.same,
        "quick": found.quick,
        "samples": logs.samples,
        "first_difference": logs.first,
        "a_start": logs.a.start if logs.a else None,
        "a_end": logs.a.stop if logs.a else None,
        "b_start": logs.b.start if logs.b else None,
        "b_end": logs.b.stop if logs.b else None,
        "bytes": logs.compared,
        "expired_a": sum(each.size for each in logs.expired_a),
        "expired_b": sum(each.size for each in logs.expired_b),
        "differences": {**found.counts, **({"message": queues} if queues else {})},
        "unread": [*found.unread, *(["some messages: damage hides them"] if hidden else [])],
    }


# -- text -----------------------------------------------------------------------------------------


def text_of(row: Mapping[str, Any]) -> str:
    """The text of a record, with dangerous characters escaped."""
    return escape(_line(row))


def _line(row: Mapping[str, Any]) -> str:
    if row["type"] == UNREAD:
        return unread_text(row)
    store = f"{row['store']}: " if row.get("store") else ""
    if row["type"] == "comparison":
        return f"{store}{_sentence(row)}"
    if row["type"] == "more":
        return f"  … {row['count']} more (--verbose shows all)"
    if row["type"] == "part_difference":
        return f"  {store}{_difference(row)}"
    first = {**_ONLY, "changed": "the messages differ"}
    counts = f"{row['only_a']} only in A, {row['only_b']} only in B, {row['changed']} changed"
    return (
        f"  {store}messages {row['topic']}/{row['queue_id']} from {row['queue_offset']} on"
        f" ({first[row['how']]}): {counts}"
    )


def _sentence(row: Mapping[str, Any]) -> str:
    """The result for a pair of stores, and how much was compared."""
    looked = f"{bytes_text(row['bytes'])} of log compared byte by byte"
    alone = row["samples"] == 0 and row["same_log"] is None
    if row["samples"] == 0:
        looked = "only messages were compared" if alone else "no log was read"
    elif row["quick"]:
        looked = f"--quick compared ends, beginnings of files and samples: {bytes_text(row['bytes'])}"
    expired = [
        f"{bytes_text(row[key])} before them only in {side}"
        for key, side in (("expired_a", "A"), ("expired_b", "B"))
        if row[key]
    ]
    looked = "; ".join([looked, *expired])
    if row["same"]:
        return f"The same ({looked})"
    if not row["differences"]:
        parts = ", ".join(text.partition(":")[0] for text in row["unread"])
        compared = "" if alone and MESSAGES not in parts else f" ({looked})"  # nothing may have been compared
        return f"Unknown whether they are the same: {parts} could not be compared{compared}"
    differences = [
        counted(number, *_THINGS.get(part, ("queue with different messages", "queues with different messages")))
        for part, number in row["differences"].items()
    ]
    if alone:
        head = "Not the same"
    elif row["same_log"] is None:
        head = "Not the same: the logs have no bytes in common"
    elif not row["same_log"]:
        head = "Not the same: two different logs"
    elif row["first_difference"] is None:
        head = "The same log, but the stores differ"
    else:
        head = f"Two copies of one log, different from {row['first_difference']:,} on"
    return f"{head}: {', '.join(differences)} ({looked})"


def _difference(row: Mapping[str, Any]) -> str:
    what = f"{row['part']} {row['name']}"
    if row["part"] == "log" and row["position"] is not None:
        size = bytes_text(row["a"] if row["b"] is None else row["b"])
        return f"{what}: {size} {_ONLY.get(row['how'], 'not the same')}"
    more = f" ({row['count']:,} in total)" if row["count"] > 1 else ""
    if row["how"] in _ONLY:
        return f"{what}: {_ONLY[row['how']]}, {_value(row[row['how'][-1]])}{more}"
    return f"{what}: A {_value(row['a'])}, B {_value(row['b'])}{more}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else "nothing" if value is None else dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
