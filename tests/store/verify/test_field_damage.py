"""Damage that no checksum covers: one byte of a field beside the body, found by what contradicts it.

A field that a queue, the index, its own structure or its neighbours know must be found each time; of
the others the slow test stores in docs/detection.md how often it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from mqstore.formats.message import TRANSACTION_MASK
from mqstore.formats.message_properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC

from ... import slices
from .mutations import copied, detection, original, verified
from .mutations.edit import Place, overwrite, read, records

STORES = ("5.3.3-clean", "4.9.7-clean", "5.5.0-clean", "5.1.4-clean")
TIMES = 40
CERTAIN = (
    *("total_size", "magic_code", "body_length", "topic_length", "properties_length"),
    *("body_crc", "queue_id", "queue_offset", "physical_offset", "topic"),
    *("UNIQ_KEY", "KEYS", "TAGS", "separators"),
)
"""Fields in which every change contradicts something."""
UNCERTAIN = (
    *("sys_flag", "store_timestamp", "born_timestamp", "born_host.ip", "born_host.port"),
    *("store_host.ip", "store_host.port", "flag", "reconsume_times"),
    *("prepared_transaction_offset", "property names", "other values"),
)
"""Fields of which some values, or all, are as good as others."""
_NAMED = (b"UNIQ_KEY", b"KEYS", b"TAGS")


def _bytes_of(place: Place, name: str) -> list[int]:
    """Where the bytes of a field lie in the file; none where the record has no such field."""
    if name == "TAGS" and place.topic == SCHEDULE_TOPIC:
        return []  # its unit has the time of delivery in the place of the hash of the tags
    if name in ("separators", "property names", "other values", *(n.decode() for n in _NAMED)):
        start, length = place.span("properties") if place.values["properties_length"] else (0, 0)
        return [start + at for at in _in_properties(place.bytes()[-length:], name)] if length else []
    start, length = place.span(name)
    return list(range(start, start + length))


def _in_properties(text: bytes, name: str) -> Iterator[int]:
    at, items = 0, text.split(ITEM_SEPARATOR)
    # of a name that stands there twice, as UNIQ_KEY of a batch (B13), the last value counts
    last = {item.partition(NAME_VALUE_SEPARATOR)[0]: number for number, item in enumerate(items)}
    for number, item in enumerate(items):
        key, separator, _ = item.partition(NAME_VALUE_SEPARATOR)
        values = range(at + len(key) + 1, at + len(item))
        if name == "separators":
            yield from [at + len(key)] * bool(separator)
        elif name == "property names":
            yield from range(at, at + len(key))
        elif name == (key.decode() if key in _NAMED and number == last[key] else "other values"):
            yield from values
        at += len(item) + 1


def _plain(place: Place) -> bool:
    """A message that consumers get: it is in a queue and in the index."""
    transaction = place.values["sys_flag"] & TRANSACTION_MASK
    return transaction in (0, SysFlag.COMMIT)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("fields")


@cache
def _before(name: str, root: Path) -> tuple[list[Place], frozenset[tuple[object, ...]]]:
    """The records of a store, and what verify says of it as it is."""
    return [place for place in records(root) if _plain(place)], _said(name, root)


def _said(name: str, store: Path) -> frozenset[tuple[object, ...]]:
    found = verified(name, store).findings
    return frozenset((f.code, f.severity, f.path.replace(str(store), ""), f.count) for f in found)


def _damage(field: str, number: int, work: Path) -> tuple[bool, str]:
    """(verify finds it, what was done)."""
    name = STORES[number % len(STORES)]
    random = Random(f"{slices.SEED} {field} {number}")
    root = original(name, work)
    places, before = _before(name, root)
    fitting = [place for place in places if _bytes_of(place, field)]
    place = random.choice(fitting)
    at = random.choice(_bytes_of(place, field))
    store = copied(root, work)
    path = store / place.path.relative_to(root)
    old, times = read(path, at, 1)[0], path.stat()
    new = old ^ random.randrange(1, 256)
    overwrite(path, at, bytes([new]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the edit itself is no finding
    did = f"{name}: record at {place.position} of {place.topic}: {field}, byte {at}: {old} -> {new}"
    return bool(_said(name, store) - before), did


@pytest.mark.few(1)
@pytest.mark.parametrize("field", ["topic", "queue_id", "UNIQ_KEY", "separators"])
def test_a_damaged_field_is_found(field: str, work: Path) -> None:
    found, did = _damage(field, 0, work)
    assert found, did


@pytest.mark.slow
@pytest.mark.parametrize("field", CERTAIN)
def test_every_damage_to_a_field_that_something_knows_is_found(field: str, work: Path) -> None:
    results = [_damage(field, number, work) for number in range(slices.share(TIMES))]
    detection.note_field(field, [found for found, _ in results])
    assert [did for found, did in results if not found] == []


@pytest.mark.slow
@pytest.mark.parametrize("field", UNCERTAIN)
def test_how_often_damage_to_other_fields_is_found(field: str, work: Path) -> None:
    results = [_damage(field, number, work)[0] for number in range(slices.share(TIMES))]
    detection.note_field(field, results)
