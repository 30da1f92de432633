"""What can go wrong with the commit log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...formats.commit_log import PLAIN
from ...formats.derive import spans
from ...formats.message import MESSAGE, SMALLEST
from ..disk.edits import Edit
from ..disk.file_queue import file_name
from ..errors import NotFound
from .corrupt import PAGE_BYTES, Spot, flip_bit, garbage, torn_tail, truncate, wrong_size, zero_page
from .scenario import Place, Scene, create, killed, remove, scenario, write, zeros

_STALE_RECORDS = 5
_LARGEST_COPY = 1 << 24


def _field(scene: Scene, place: Place, name: str) -> tuple[int, int]:
    """Byte of the file where a field of a record begins, and its length."""
    for span in spans(MESSAGE, scene.bytes_of(place)):
        if span.path == name:
            return place.offset + span.offset, span.length
    raise NotFound(f"the record has no {name}", path=place.file.path, offset=place.offset)


def _spot(scene: Scene, place: Place, skipped: int = 0) -> Spot:
    """A record without so many bytes at its front, to be spoiled."""
    data = scene.bytes_of(place)[skipped:]
    return Spot(place.file.path, place.file.size, place.offset + skipped, data)


@scenario("killed")
def _killed(scene: Scene) -> Iterator[Edit]:
    """The broker was killed: abort is there, nothing else is wrong."""
    yield from killed(scene)


@scenario("illegal-magic", 289, 6767)
def _illegal_magic(scene: Scene) -> Iterator[Edit]:
    """The magic code of a record in the log is overwritten."""
    place = scene.record()
    at, size = _field(scene, place, "magic_code")
    yield write(place.file.path, at, scene.rng.randbytes(size), "magic code of a record")


@scenario("flip-bit")
def _flip_bit(scene: Scene) -> Iterator[Edit]:
    """One bit of a record's body or properties flips."""
    place = scene.record()
    at, _ = _field(scene, place, "body_length")
    yield flip_bit(_spot(scene, place, at - place.offset), scene.rng)


@scenario("zero-page")
def _zero_page(scene: Scene) -> Iterator[Edit]:
    """A page of the log never reached the disk: zeros."""
    yield zero_page(_spot(scene, scene.record()), scene.rng)


@scenario("garbage")
def _garbage(scene: Scene) -> Iterator[Edit]:
    """Up to a page of the log is random bytes."""
    yield garbage(_spot(scene, scene.record()), scene.rng)


@scenario("wrong-size")
def _wrong_size(scene: Scene) -> Iterator[Edit]:
    """The size that a record says is not its size."""
    yield wrong_size(_spot(scene, scene.record()), scene.rng)


@scenario("crc-zero")
def _crc_zero(scene: Scene) -> Iterator[Edit]:
    """The body CRC of a record is 0, as another kind of broker wrote it."""
    place = scene.record()
    at, size = _field(scene, place, "body_crc")
    yield zeros(place.file.path, at, size, "body_crc of a record")


@scenario("torn-tail")
def _torn_tail(scene: Scene) -> Iterator[Edit]:
    """The last record was written in part when the power failed."""
    yield torn_tail(_spot(scene, scene.last_record()), scene.rng, SMALLEST // 2)
    yield from killed(scene)


@scenario("torn-properties", 7437, 9852)
def _torn_properties(scene: Scene) -> Iterator[Edit]:
    """The last record has its body, and zeros for properties: the body CRC does not tell."""
    place = scene.last_record()
    at, size = _field(scene, place, "properties")
    yield zeros(place.file.path, at, size, "properties of the last record")
    yield from killed(scene)


@scenario("stale-tail", 10017)
def _stale_tail(scene: Scene) -> Iterator[Edit]:
    """Behind the log's end lie records of a recycled file: their CRCs fit, their positions do not."""
    yield from _tail(scene, in_place=False)


@scenario("dead-tail", 10666, 6665)
def _dead_tail(scene: Scene) -> Iterator[Edit]:
    """Behind the log's end lie records that a slave had cut off, and which came back."""
    yield from _tail(scene, in_place=True)


def _tail(scene: Scene, *, in_place: bool) -> Iterator[Edit]:
    """Old records behind the end of the log; in_place: they name their own positions."""
    last = scene.last_record()
    at = last.offset + last.size
    data = b""
    for place in scene.records(scene.log[0])[:_STALE_RECORDS]:
        record = scene.bytes_of(place)
        if at + len(data) + len(record) > last.file.size:
            break
        if in_place:
            own = MESSAGE.physical_offset.build(last.file.start + at + len(data))
            begin = PLAIN.position_offset
            record = record[:begin] + own + record[begin + len(own) :]
        data += record
    if not data:
        raise NotFound("no room behind the last record", path=last.file.path, offset=at)
    yield write(last.file.path, at, data, "old records behind the end of the log")
    yield from killed(scene)


@scenario("missing-segment", 2141)
def _missing_segment(scene: Scene) -> Iterator[Edit]:
    """A file in the middle of the log is gone."""
    if len(scene.log) < 3:
        raise NotFound("the log has no file in the middle", path=scene.store.layout.root)
    file = scene.rng.choice(scene.log[1:-1])
    yield remove(file.path, "a file of the log")


@scenario("first-segment-gone", 10417, 8753)
def _first_segment_gone(scene: Scene) -> Iterator[Edit]:
    """The oldest file of the log was deleted; the queues still point into it."""
    if len(scene.log) < 2:
        raise NotFound("the log has one file only", path=scene.store.layout.root)
    yield remove(scene.log[0].path, "the oldest file of the log")


@scenario("cut-segment", 3257, 6904)
def _cut_segment(scene: Scene) -> Iterator[Edit]:
    """A file of the log ends early: length not matched message store config value."""
    yield truncate(_spot(scene, scene.record(), 1), scene.rng)


@scenario("empty-segment", 1560)
def _empty_segment(scene: Scene) -> Iterator[Edit]:
    """Behind the last file of the log there is an empty one."""
    files = scene.store.log_files
    path = f"{files.directories[0]}/{file_name(files.files[-1].start + files.file_size)}"
    yield create(path, b"", "an empty file behind the log")


@scenario("stray-file", 1251)
def _stray_file(scene: Scene) -> Iterator[Edit]:
    """Somebody left a file among those of the log: NumberFormatException."""
    files = scene.store.log_files
    path = f"{files.directories[0]}/{file_name(files.start)}.bak"
    data = scene.rng.randbytes(scene.rng.randint(1, min(PAGE_BYTES, files.file_size)))
    yield create(path, data, "not of the broker", files.file_size)


@scenario("duplicate-segment", 8859, 1231)
def _duplicate_segment(scene: Scene) -> Iterator[Edit]:
    """Of several log directories two hold a file of one name: which one counts is a matter of luck."""
    directories = [path for path in scene.store.layout.commit_log_directories if path.is_dir()]
    if len(directories) < 2:
        raise NotFound("the store has one log directory", path=scene.store.layout.root)
    file = scene.rng.choice(scene.log)
    other = next(path for path in directories if path != Path(file.path).parent)
    stale = scene.store.log_files.read_file(file, 0, min(file.size, _LARGEST_COPY) // 2)
    yield create(other / Path(file.path).name, stale, "an older file of the log", file.size)
