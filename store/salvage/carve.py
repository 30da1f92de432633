"""Carve one source, window by window: runs of records, and records whose blocks lie apart.

A chain of records is walked as in a log. Where the chain breaks, every magic code in the rest of the window is tried: a
record is taken if all its lengths fit, and what begins inside it is its content. A head without its body is reported;
nothing is guessed.

A file system cuts a file at blocks. If a record is cut, the log continues elsewhere: the bytes right before the record
that follows are the end of the cut one. Of all places where it can be cut, exactly one must give a whole record by its
checksum; two such places prove nothing, and the parts are left alone.

`arrange` decides which runs make up the log. The log is a layer: runs that do not overlap. A run whose bytes the layer
has at the same positions is a duplicate. Records that claim a place where others lie go to the next layer; nothing is
thrown away. Damaged and odd runs begin in the layer behind the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.commit_log import HEAD, PLAIN
from ...formats.derive import Columns, decode, decode_one, dtype_of
from ...formats.derive.ragged import Bytes, Flags, Ints, overlapping
from ...formats.dledger import HEAD as ENTRY_HEAD
from ...formats.dledger import HEADER_BYTES, MAGIC_ENTRY
from ...formats.message import BYTES_AROUND_BODY_MAX, MESSAGE, PROPERTIES_BYTES_MAX, SMALLEST
from ..broker.system_topics import ROCKSDB_HALF_TOPIC
from ..log.scan import WINDOW_BYTES
from ..log.window import PlainChain, Window, check, number_at, walk
from . import runs
from .runs import (
    Grade,
    Layer,
    SalvageRun,
    SalvageSource,
    Sources,
    append,
    grades,
    plausible,
    record_places,
    runs_of,
    structural,
)

_HALF = ROCKSDB_HALF_TOPIC.encode()
_HEAD_BYTES_MAX = BYTES_AROUND_BODY_MAX - 2 * PROPERTIES_BYTES_MAX
"""Most bytes that are in front of the body, with the two lengths behind it."""
_KEPT_FRAGMENTS = 100_000
"""Further fragments are only counted."""


class Fragment(NamedTuple):
    """A head at byte `at` of a source, without its record.

    embedded: its record is inside another, damaged one.
    """

    source: int
    at: int
    position: int
    size: int
    embedded: bool


@dataclass
class Carved:
    """What was found in all sources, in their order.

    blanks: where a BLANK behind a record begins in the log → where it ends: a file of the log ends there, too.
    """

    runs: list[SalvageRun] = field(default_factory=list)
    fragments: list[Fragment] = field(default_factory=list)
    split: int = 0
    embedded: int = 0
    joined: int = 0
    blanks: dict[int, int] = field(default_factory=dict)
    bytes: int = 0
    #: There are half messages of a broker that keeps their transactions in a RocksDB.
    in_rocksdb: bool = False

    def forget(self, sources: Collection[int]) -> None:
        """Remove what was found in some sources, which are gone."""
        lost = [one for one in self.fragments if one.source in sources]
        self.embedded -= sum(one.embedded for one in lost)
        self.split -= sum(not one.embedded for one in lost)
        self.fragments = [one for one in self.fragments if one.source not in sources]
        self.runs = [run for run in self.runs if run.source not in sources]

    def note(self, fragment: Fragment) -> None:
        """Count a fragment, and keep it unless there are too many."""
        self.embedded += fragment.embedded
        self.split += not fragment.embedded
        if len(self.fragments) < _KEPT_FRAGMENTS:
            self.fragments.append(fragment)


def carve(source: SalvageSource, number: int, found: Carved, told: Callable[[int], None] = lambda _: None) -> None:
    """Add what one source holds to `found`.

    told: called with bytes done. Raises Unreadable.
    """
    carver = _Carver(source, number, found)
    at = 0
    while (begin := source.next_data(at)) < source.size:
        told(begin - at)
        used = carver.window(begin)
        found.bytes += used
        told(used)
        at = begin + used
    told(source.size - at)


class _Carver:
    """One pass over a source. `_need`: least size of the next window."""

    def __init__(self, source: SalvageSource, number: int, found: Carved) -> None:
        self._source = source
        self._number = number
        self._found = found
        self._buffer = bytearray(0)
        self._need = 0
        self._plain = PlainChain()
        #: Where the window begins in the source, how many bytes it has, and whether the source ends with it.
        self._at = self._size = 0
        self._last = False

    def window(self, at: int) -> int:
        """Look at the window at byte `at`; return how many of its bytes are done.

        That is 0 if a record is longer than the window; the next window will hold it.
        """
        size = min(max(WINDOW_BYTES, self._need), self._source.size - at)
        if not size <= len(self._buffer) <= max(size, 2 * WINDOW_BYTES):
            self._buffer = bytearray(size)
        self._need = 0
        self._at = at
        self._size = self._source.read(memoryview(self._buffer)[:size], at)
        self._last = at + self._size >= self._source.size or self._size < size
        first = runs.first(self._buffer, 0, self._size)
        if first is None:
            return self._size if self._last else self._size - runs.OVERLAP_BYTES
        return self._rest(self._chain(first))

    @property
    def _array(self) -> Bytes:
        return np.frombuffer(self._buffer, np.uint8, self._size)

    def _chain(self, at: int) -> int:
        """Follow the chain of records from byte `at`; return the byte where it breaks."""
        columns = decode(MESSAGE, self._array, np.array([at], np.int64))
        if not structural(columns)[0]:
            return at
        behind = int(columns.ends[0])
        magic = number_at(Window(self._buffer, self._size, 0), behind + PLAIN.magic_offset)
        if magic not in PLAIN.magics:
            return at
        own = int(columns.ints("physical_offset")[0])
        window = Window(self._buffer, self._size, own - at)
        checked = self._plain.checked(window, PLAIN, at, crc=True, in_place=False)
        if checked is None:
            checked = check(window, PLAIN, walk(window, PLAIN, at)[0])
        good = checked.whole & structural(checked.columns)
        count = len(good) if good.all() else int(np.argmin(good))
        if not count:
            return at
        columns = checked.columns.take(slice(0, count))
        self._take(columns, checked.body_crc_ok)
        return int(columns.ends[-1])

    def _take(self, columns: Columns, body_crc_ok: Flags | None = None) -> Ints:
        """Add records; return their grades. body_crc_ok: of the first ones, if known."""
        grade = grades(columns, body_crc_ok)
        self._found.in_rocksdb |= bool(columns.ragged("topic").equals(_HALF).any())
        at, position = columns.starts, columns.ints("physical_offset")
        found = runs_of(self._number, at + self._at, position, columns.ints("total_size").astype(np.int64), grade)
        for run in found:
            self._note_blank(run)
        append(self._found.runs, found)
        return grade

    def _note_blank(self, run: SalvageRun) -> None:
        """Note a BLANK behind a run: a file of the log ends with it."""
        begin = run.at_end - self._at
        if begin + BLANK.sizeof() <= self._size:
            blank = BLANK.parse(bytes(self._buffer[begin : begin + BLANK.sizeof()]))
            if blank.magic_code == MAGIC_BLANK and blank.total_size >= BLANK.sizeof():
                self._found.blanks[run.end] = run.end + blank.total_size

    def _rest(self, at: int) -> int:
        """Try every magic code from byte `at` on; return where the next window begins."""
        starts = runs.every(self._buffer, at, self._size)
        done = self._size if self._last else self._size - runs.OVERLAP_BYTES
        room = SMALLEST if self._last else _HEAD_BYTES_MAX
        cut = int(np.searchsorted(starts, self._size - room, side="right"))
        if cut < len(starts) and not self._last:
            done = int(starts[cut])
        starts = starts[:cut]
        columns = decode(MESSAGE, self._array, starts)
        whole, claimed = structural(columns), columns.ints("total_size")
        taken, inside, heads = list[int](), list[int](), list[int]()
        reach = at
        for row in np.flatnonzero(plausible(columns)).tolist():
            begin = int(starts[row])
            if begin < reach:
                if whole[row]:
                    inside.append(row)
            elif whole[row]:
                taken.append(row)
                reach = int(columns.ends[row])
            elif begin + int(claimed[row]) > self._size and self._end_fits(columns, row):
                self._need, done = int(claimed[row]), begin
                break
            else:
                heads.append(row)
        self._settle(columns, taken, inside, heads)
        return max(done, reach)

    def _end_fits(self, columns: Columns, row: int) -> bool:
        """Whether the record of a head in the window, which ends behind the window, has a fitting end.

        Only the end is read: a head alone is no reason to read a body of many MiB.
        """
        head = int(columns.starts[row])
        size, body = (int(columns.ints(name)[row]) for name in ("total_size", "body_length"))
        # decoding ended before the body, whose start is 0 then, or behind it
        begin = int(columns.ragged("body").start[row]) or int(columns.ends[row])
        tail = size - body - (begin - head)
        if self._at + head + size > self._source.size or not 0 <= tail <= BYTES_AROUND_BODY_MAX:
            return False
        # the same record without its body
        none = HEAD.total_size.build(0)
        short = bytes(self._buffer[head : begin - len(none)]) + none
        short += self._source.bytes_at(self._at + begin + body, tail)
        ends = decode_one(MESSAGE, short)
        return bool(ends.ok[0]) and int(ends.ends[0]) == size - body

    def _settle(self, columns: Columns, taken: list[int], inside: list[int], heads: list[int]) -> None:
        """Add the records taken; note heads without a body, and records inside damaged ones."""
        begins = columns.starts
        if taken:
            rows = np.array(taken, np.int64)
            grade = self._take(columns.take(rows))
            damaged = grade == Grade.STRUCTURE
            for row in inside if damaged.any() else ():
                outer = int(np.searchsorted(begins[rows], begins[row], side="right")) - 1
                if damaged[outer]:
                    self._note(columns, row, embedded=True)
        for row in heads:
            self._note(columns, row, embedded=False)

    def _note(self, columns: Columns, row: int, *, embedded: bool) -> None:
        at = self._at + int(columns.starts[row])
        position, size = (int(columns.ints(n)[row]) for n in ("physical_offset", "total_size"))
        self._found.note(Fragment(self._number, at, position, size, embedded))


BLOCK_BYTES = 4096
"""Block size of nearly all file systems that hold a store."""
_LARGEST_JOINED = 4 << 20
_JOINED_BYTES_MAX = 256 << 20
"""Limit of bytes of joined records, which are held in memory."""
_TRIED_BYTES_MAX = 4 << 30
"""An image may be crafted so that everything is tried with everything."""
_FOLLOWING_MAX = 8


def join(found: Carved, sources: Sources) -> int:
    """Replace cut records by joined ones, in place; return how many. Raises Unreadable."""
    following: dict[int, list[SalvageRun]] = defaultdict(list)
    for run in found.runs:
        if run.grade is Grade.WHOLE:
            following[run.position].append(run)
    joined, done, trial = list[SalvageRun](), list[Fragment](), _Trial(sources)
    held = 0
    for cut in _cuts(found):
        behind = following.get(cut.position + cut.size, [])[:_FOLLOWING_MAX]
        if not behind or cut.size > _LARGEST_JOINED or held + cut.size > _JOINED_BYTES_MAX:
            continue
        record = trial.joined(cut, behind)
        if record is not None:
            number = sources.join(cut.source, record, cut.at)
            joined.append(SalvageRun(number, cut.at, cut.position, cut.size, 1, Grade.WHOLE))
            done.append(cut)
            held += cut.size
    _forget(done, found)
    found.runs += joined
    found.joined += len(joined)
    return len(joined)


def _cuts(found: Carved) -> list[Fragment]:
    """Return heads without a body, and single records that are damaged behind their head."""
    single = (run for run in found.runs if run.grade is not Grade.WHOLE and run.records == 1)
    damaged = (Fragment(run.source, run.at, run.position, run.length, embedded=False) for run in single)
    return [*(fragment for fragment in found.fragments if not fragment.embedded), *damaged]


class _Trial:
    """Tries fronts with backs until enough bytes were tried."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._tried = 0

    def joined(self, cut: Fragment, following: list[SalvageRun]) -> bytes | None:
        """Return the only record that a cut record makes with what stands before the record that follows, or None."""
        front = self._sources[cut.source].bytes_at(cut.at, cut.size)
        made: set[bytes] = set()
        for run in following:
            if run.source != cut.source or run.at < cut.size:
                continue
            back = self._sources[run.source].bytes_at(run.at - cut.size, cut.size)
            # the front ends at a block's end, the back begins at a block's begin
            for head in range(-cut.at % BLOCK_BYTES, cut.size, BLOCK_BYTES):
                aligned = (run.at - cut.size + head) % BLOCK_BYTES == 0
                if not head or not aligned or self._tried > _TRIED_BYTES_MAX:
                    continue
                self._tried += cut.size
                record = front[:head] + back[head:]
                if _is_whole(record, cut):
                    made.add(record)
        return made.pop() if len(made) == 1 else None


def _is_whole(record: bytes, cut: Fragment) -> bool:
    if len(record) != cut.size:
        return False
    columns = decode_one(MESSAGE, record)
    whole = bool(structural(columns)[0]) and int(columns.ends[0]) == cut.size
    return whole and grades(columns)[0] == Grade.WHOLE


def _forget(cuts: list[Fragment], found: Carved) -> None:
    """Remove records that were joined from the fragments and from the damaged records."""
    gone = {(cut.source, cut.at) for cut in cuts}
    found.runs = [r for r in found.runs if r.grade is Grade.WHOLE or (r.source, r.at) not in gone]
    kept = [f for f in found.fragments if f.embedded or (f.source, f.at) not in gone]
    found.split -= len(found.fragments) - len(kept)
    found.fragments = kept


_FEW = 16
_ENTRY_HEAD = dtype_of(ENTRY_HEAD)
_FREE, _SAME, _OTHER = 0, 1, 2


@dataclass
class Arranged:
    """layers: the log, then what lies beside it. duplicates: runs whose bytes another run has already."""

    layers: list[Layer] = field(default_factory=lambda: [Layer()])
    duplicates: list[SalvageRun] = field(default_factory=list)


def arrange(runs: list[SalvageRun], sources: Sources, accepted: Grade) -> Arranged:
    """Sort runs into layers. accepted: the worst grade that the log takes.

    The best and longest runs come first: of two records that claim a place, the one with more records around it is
    likelier to belong there. Of two DLedger entries the one of the later leader does: the group has given up the other.
    Raises Unreadable.
    """
    found = Arranged()
    for run in sorted(runs, key=lambda run: _rank(run, sources)):
        aside = run.odd or run.grade > accepted
        _place(run, 1 if aside else 0, found, sources)
    for layer in found.layers:
        parts, layer.runs = layer.runs, []
        for run in parts:  # neighbours that were one run before they were cut
            append(layer.runs, [run])
    return found


def _rank(run: SalvageRun, sources: Sources) -> tuple[int, ...]:
    """Sort key: the best first, then roughly the longest; all runs of few records count the same."""
    few = run.records < _FEW
    length = 0 if few else -run.length.bit_length()
    return run.grade, run.odd, length, -_term(run, sources), run.source, run.at


def _term(run: SalvageRun, sources: Sources) -> int:
    """Term of the leader that has sent the DLedger entry around a record; 0 of a record that is in none."""
    if run.records > 1 or min(run.at, run.position) < HEADER_BYTES:
        return 0  # each entry has a head, so that its record is a run
    data = sources[run.source].bytes_at(run.at - HEADER_BYTES, HEADER_BYTES)
    head = overlapping(np.frombuffer(data, np.uint8), _ENTRY_HEAD)[:1]
    own = len(head) and int(head["magic"][0]) == MAGIC_ENTRY and int(head["body_length"][0]) == run.length
    return int(head["term"][0]) if own and int(head["pos"][0]) == run.position - HEADER_BYTES else 0


def _place(run: SalvageRun, number: int, found: Arranged, sources: Sources) -> None:
    """Put a run into a layer, and the records that have no room there into later ones."""
    pending = [(number, run)]
    while pending:
        number, run = pending.pop()
        while len(found.layers) <= number:
            found.layers.append(Layer())
        layer = found.layers[number]
        above = found.layers[0] if number else layer
        if not layer.overlapping(run.position, run.end) and not (number and above.overlapping(run.position, run.end)):
            layer.add(run)
            continue
        for verdict, part in _parts(run, layer, above, sources):
            if verdict == _FREE:
                layer.add(part)
            elif verdict == _SAME:
                found.duplicates.append(part)
            else:
                pending.append((number + 1, part))


def _parts(run: SalvageRun, layer: Layer, above: Layer, sources: Sources) -> Iterator[tuple[int, SalvageRun]]:
    """Cut a run by what its layer, or the log, has in the place of its records; yield verdict and part."""
    for positions, ends in record_places(run, sources):
        begin, behind = int(positions[0]), int(ends[-1])
        together = _verdict(run, begin, behind, layer, above, sources)
        alone = together == _FREE and not above.overlapping(begin, behind)
        if alone or together == _SAME:
            yield together, run.part(begin, behind, len(positions))
            continue
        verdicts = [
            _verdict(run, position, end, layer, above, sources)
            for position, end in zip(positions.tolist(), ends.tolist(), strict=True)
        ]
        row = 0
        for verdict, same in groupby(verdicts):
            count = len(list(same))
            begin, behind = int(positions[row]), int(ends[row + count - 1])
            yield verdict, run.part(begin, behind, count)
            row += count


def _verdict(run: SalvageRun, position: int, end: int, layer: Layer, above: Layer, sources: Sources) -> int:
    there = layer.overlapping(position, end)
    others = above.overlapping(position, end) if above is not layer else []
    if not there and not others:
        return _FREE
    for other in (*others, *there):
        if other.position <= position and end <= other.end:
            own = sources[run.source].bytes_at(position - run.shift, end - position)
            if own == sources[other.source].bytes_at(position - other.shift, end - position):
                return _SAME
    return _OTHER if there else _FREE
