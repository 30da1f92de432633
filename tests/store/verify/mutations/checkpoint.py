"""Damage to the checkpoint, and to what it is about, I-110 … I-118."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from mqstore.formats.checkpoint import FIELDS, PAGE_BYTES
from mqstore.store.disk.checkpoint import Checkpoint, read_checkpoint
from mqstore.store.search.store import StoreReader

from . import on
from .edit import overwrite, records, set_field

_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_DAY_MS = 86_400_000


def _set(store: Path, name: str, value: int) -> str:
    return set_field(store / "checkpoint", 0, FIELDS, name, value)


def _newest(store: Path) -> int:
    return max(int(place.values["store_timestamp"]) for place in records(store))


def _checkpoint(store: Path) -> Checkpoint:
    found = read_checkpoint(store / "checkpoint")
    assert found is not None
    return found


def i_110(store: Path, random: Random) -> str:
    """Another length, bytes behind the fields, or nothing but zeros."""
    path, what = store / "checkpoint", random.randrange(4)
    if what == 0:
        size = random.choice([random.randrange(PAGE_BYTES), PAGE_BYTES + random.randrange(1, 5000)])
        os.truncate(path, size)
        return f"the checkpoint has {size} bytes"
    if what == 1:
        path.write_bytes(bytes(PAGE_BYTES))
        return "zeros"
    at = random.randrange(FIELDS.sizeof(), PAGE_BYTES)
    overwrite(path, at, bytes([random.randrange(1, 256)]))
    return f"byte {at}"


@on("5.3.3-clean", "4.9.7-clean", "5.5.0-clean")
def i_111(store: Path, random: Random) -> str:
    """A time later than any message, or before time began."""
    later = _newest(store) + random.randrange(1, _DAY_MS)
    return _set(store, random.choice(_TIMES), random.choice([later, -random.randrange(1, 1 << 62)]))


@on("5.3.3-clean", "4.9.7-clean")
def i_112(store: Path, random: Random) -> str:
    """An index time behind the newest full index file."""
    before = _checkpoint(store).index_msg_timestamp
    newest = _newest(store)
    return _set(store, _TIMES[2], random.randrange(max(before, newest - 1000) + 1, newest + 2))


@on("5.3.3-clean", "5.1.4-clean")
def i_113(store: Path, random: Random) -> str:
    """A confirmed offset where no record is."""
    places = records(store)
    starts = {place.position for place in places}
    end = places[-1].position + places[-1].size
    inside = random.randrange(1, end - 1)
    while inside in starts:
        inside += 1
    beyond = 2 * places[-1].position + random.randrange(1 << 30) + (1 << 20)
    return _set(store, "confirm_phy_offset", random.choice([inside, beyond, -inside]))


@on("5.3.3-clean", "4.3.1-clean", "5.5.0-clean")
def i_114(store: Path, random: Random) -> str:
    """A queue with messages of the log is gone."""
    with StoreReader(store) as opened:
        summaries = [s for s in opened.queue_summaries if s.max_offset > s.min_offset]
    queue = random.choice(summaries)
    shutil.rmtree(store / "consumequeue" / queue.topic / str(queue.queue_id))
    return f"{queue.topic}/{queue.queue_id} removed"


@on("5.3.3-clean", "4.9.7-clean")
def i_115(store: Path, random: Random) -> str:
    """A time long before the newest message."""
    value = _newest(store) - random.randrange(60_001, _DAY_MS)
    return _set(store, random.choice(_TIMES[:2]), value)


def _say_all_is_flushed(store: Path) -> None:
    """The next start begins in the last file that has a record."""
    later = _newest(store) + _DAY_MS
    for name in _TIMES[:2]:
        _set(store, name, later)


@on("5.3.3-killed", "4.9.7-killed")
def i_116(store: Path, random: Random) -> str:
    """A queue of older messages is gone, and the checkpoint says that it was flushed."""
    _say_all_is_flushed(store)
    first = [p for p in records(store) if p.path.name.strip("0") == ""]
    queues = sorted({(p.topic, p.values["queue_id"]) for p in first})
    queues = [(t, q) for t, q in queues if (store / "consumequeue" / t / str(q)).is_dir()]
    topic, queue_id = random.choice(queues)
    shutil.rmtree(store / "consumequeue" / topic / str(queue_id))
    return f"{topic}/{queue_id} removed"


@on("5.5.0-clean", "5.5.0-timer-clean")
def i_117(store: Path, random: Random) -> str:
    """A flushed position where no record is."""
    places = records(store)
    starts = {place.position for place in places}
    inside = random.randrange(1, places[-1].position)
    while inside in starts:
        inside += 1
    beyond = places[-1].position + places[-1].size + random.randrange(1 << 40)
    return _set(store, "logics_physical_offset", random.choice([inside, beyond, -inside]))


@on("5.3.3-killed", "4.9.7-killed")
def i_118(store: Path, random: Random) -> str:
    """Index files newer than the checkpoint begin before the start file."""
    _say_all_is_flushed(store)
    return _set(store, _TIMES[2], random.randrange(1, 1_700_000_000_000))
