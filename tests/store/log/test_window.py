"""Walking and checking a window by columns, against reading it record by record."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats import dledger
from mqstore.formats.commit_log import DLEDGER, PLAIN, Frame
from mqstore.formats.derive.ragged import Ragged, StringNotes
from mqstore.formats.hashing import crc31
from mqstore.formats.hashing_columns import index_hash_column, java_hash_column, word_sums
from mqstore.formats.message import MESSAGE
from mqstore.formats.property_columns import PropertyItems, noting_values
from mqstore.store.broker.dispatch import split_keys
from mqstore.store.columns import dictionary
from mqstore.store.log.window import NOTING_HASHES, NOTING_TOPICS, PlainChain, Window, check, find_item, walk

from ...slices import examples
from ..made_log import bodies, entry, naive_starts, record

pytestmark = pytest.mark.long

SLOW = pytest.mark.slow
FRAMES = pytest.mark.parametrize("frame", [PLAIN, DLEDGER], ids=["plain", "dledger"])
#: Bytes of a window of many records.
MANY = 5 << 16


def chain(frame: Frame, rng: random.Random, size: int, position: int, largest: int) -> bytes:
    """Records one after the other, about `size` bytes."""
    make = entry if frame.payload else record
    data, count = bytearray(), 0
    while len(data) < size:
        for body in bodies(rng, 40, largest):
            data += make(position + len(data), body, queue_offset=count)
            count += 1
    return bytes(data)


def agree(frame: Frame, data: bytes, position: int) -> int:
    """walk and check say what the naive reader says; returns the number of records."""
    window = Window(bytearray(data), len(data), position)
    starts, _ = walk(window, frame)
    checked = check(window, frame, starts)
    whole = int(checked.whole.sum())
    assert checked.whole[:whole].all()
    expected = naive_starts(data, frame.payload)
    assert starts[:whole].tolist() == expected
    assert len(checked) <= whole + 1
    assert checked.body_crc_ok is not None
    for i, start in enumerate(expected):
        if i % 7 and i < whole - 2:
            continue  # one in seven is looked at closely
        parsed = MESSAGE.parse(data[start + frame.payload : int(checked.columns.ends[i])])
        at = position + start + frame.payload
        assert checked.position[i] == at
        assert checked.in_place[i] == (parsed.physical_offset == at)
        ok = not parsed.body or parsed.body_crc == crc31(parsed.body)
        assert checked.body_crc_ok[i] == ok
        assert checked.columns.ragged("body")[i] == parsed.body
        assert checked.columns.ints("store_timestamp")[i] == parsed.store_timestamp
    return whole


@pytest.mark.few(1)
@FRAMES
@pytest.mark.parametrize(
    ("largest", "position"),
    [
        *((50, 0), (3000, 1 << 30), (200_000, (1 << 40) + 12345)),
        *(pytest.param(n, 1 << 40, marks=SLOW) for n in (50, 3000, 200_000)),
        *(pytest.param(n, 0, marks=SLOW) for n in (3000, 200_000)),
    ],
)
def test_many_records(frame: Frame, largest: int, position: int) -> None:
    rng = random.Random(f"{frame.payload} {largest} {position}")
    data = chain(frame, rng, MANY, position, largest)
    assert agree(frame, data, position) > 4
    for cut in (1, 4, 48, 100, rng.randrange(len(data))):
        agree(frame, data[:-cut], position)


@FRAMES
@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=examples(25))
def test_few_records_and_any_damage(frame: Frame, seed: int, data: st.DataObject) -> None:
    """Small windows; some bytes changed, the end cut off."""
    rng = random.Random(seed)
    block = bytearray(chain(frame, rng, 1, 7 << 30, 60))
    places = st.tuples(st.integers(0, len(block) - 1), st.integers(0, 255))
    for at, byte in data.draw(st.lists(places, max_size=3)):
        block[at] = byte
    agree(frame, bytes(block[: data.draw(st.integers(0, len(block)))]), 7 << 30)


@pytest.mark.few(2)
@FRAMES
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=SLOW) for n in range(4, 20))])
def test_damage_in_large_windows(frame: Frame, seed: int) -> None:
    """One field, one bit, a run of zeros or of small numbers."""
    rng = random.Random(seed)
    data = bytearray(chain(frame, rng, MANY, 0, rng.choice([50, 1000])))
    starts = naive_starts(bytes(data), frame.payload)
    for _ in range(rng.randrange(1, 4)):
        at = rng.choice(starts)
        kind = rng.randrange(5)
        if kind == 0:
            data[at + rng.randrange(100)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            size = rng.choice([0, 1, 4, 47, 90, 91, 1000, len(data), 2**31 - 1, 2**32 - 1])
            data[at + frame.size_offset : at + frame.size_offset + 4] = size.to_bytes(4, "big")
        elif kind == 2:
            data[at : at + 5000] = bytes(min(5000, len(data) - at))
        elif kind == 3:
            fill = b"\0\0\0\4" * 30_000
            data[at : at + len(fill)] = fill[: len(data) - at]
        else:
            other = rng.choice(starts)
            data[at : at + 300] = data[other : other + 300][: len(data) - at]
    agree(frame, bytes(data), 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("filling", [b"\0", b"\0\0\0\1", b"\0\0\0\4", b"\xff", b"\0\0\1"])
def test_no_pattern_makes_the_walk_creep(filling: bytes) -> None:
    """Steps are bounded by what records could need, and so is the memory for them."""
    front = chain(PLAIN, random.Random(1), MANY, 0, 500)
    noise = (filling * (4 << 20))[: 4 << 20]
    back = chain(PLAIN, random.Random(2), MANY, len(front) + len(noise), 500)
    assert agree(PLAIN, front + noise + back, 0) == len(naive_starts(front))
    assert agree(PLAIN, noise + back, len(front)) == 0


def test_a_size_may_lead_into_a_body() -> None:
    """Cursors that follow a fake chain inside a body are found out by where they land."""
    fakes, at = b"", 88
    while len(fakes) < MANY:
        fakes += record(at + len(fakes), b"fake" * 20)
    data = record(0, fakes)
    data += chain(PLAIN, random.Random(3), MANY, len(data), 300)
    assert agree(PLAIN, data, 0) == len(naive_starts(data)) > 1


@FRAMES
def test_find_item(frame: Frame) -> None:
    """An item that names its own position, nowhere else, up to the last byte it needs."""
    make = entry if frame.payload else record
    position = 5 << 30
    for front in (0, 1, 37, 5000):
        item = make(position + front, b"body")
        needed = frame.payload + PLAIN.position_offset + 8
        data = bytes(front) + item + make(0, b"elsewhere")
        window = Window(bytearray(data), len(data), position)
        assert find_item(window, frame, 0, len(data)) == front
        assert find_item(window, frame, front, front + 1) == front
        assert find_item(window, frame, front + 1, len(data)) is None
        assert find_item(window, frame, 0, front) is None
        for size in (0, 10, front + needed - 1, front + needed):
            cut = Window(bytearray(data[:size]), min(size, len(data)), position)
            expected = front if size >= front + needed else None
            assert find_item(cut, frame, 0, size) == expected


def test_find_entry_needs_the_entry() -> None:
    """A record in place without its entry is none of a DLedger log."""
    data = bytes(100) + record(100, b"body")
    window = Window(bytearray(data), len(data), 0)
    assert find_item(window, PLAIN, 0, len(data)) == 100
    assert find_item(window, DLEDGER, 0, len(data)) is None
    item = bytearray(entry(0, b"body"))
    window = Window(item, len(item), 0)
    assert find_item(window, DLEDGER, 0, 1) == 0
    item[dledger.ENTRY.magic.sizeof() - 1] = 9
    assert find_item(window, DLEDGER, 0, 1) is None


@FRAMES
@pytest.mark.parametrize("size", [0, 1, 7, 47, 90])
def test_windows_too_small_for_anything(frame: Frame, size: int) -> None:
    window = Window(bytearray(size), size, 0)
    starts, stop = walk(window, frame)
    assert (len(starts), stop) == (0, 0)
    assert len(check(window, frame, starts)) == 0
    assert find_item(window, frame, 0, size) is None


def test_crc_is_left_out_on_demand() -> None:
    data = record(0, b"body")
    window = Window(bytearray(data), len(data), 0)
    assert check(window, PLAIN, np.zeros(1, np.int64), crc=False).body_crc_ok is None


def test_an_empty_body_needs_no_crc() -> None:
    """Whatever its CRC field says (spec 7.2); a wrong CRC of others is told."""
    data = record(0, b"", body_crc=5)
    data += record(len(data), b"x", body_crc=5)
    window = Window(bytearray(data), len(data), 0)
    checked = check(window, PLAIN, walk(window, PLAIN)[0])
    assert checked.whole.tolist() == [True, True]
    assert checked.body_crc_ok is not None
    assert checked.body_crc_ok.tolist() == [True, False]


def test_what_is_noted_on_the_way_is_what_a_look_at_the_strings_finds() -> None:
    rng, data = random.Random(5), bytearray()
    words = ["", "a", "k1 k2", "k" * 9, "TagA", "\u00fc", " ", "0123456789abcdef" * 3]
    for _ in range(700):
        names = rng.choices(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "x"], k=rng.randrange(5))
        text = "".join(f"{name}\x01{rng.choice(words)}\x02" for name in names)
        odd = rng.choice([b"", b"", b"KEYS", b"\x00", b"\x01\x02"])
        topic = rng.choice([b"T", b"topic-of-some-length", b"Topic%d" % rng.randrange(40)])
        data += record(len(data), b"body", topic=topic, properties=text.encode() + odd)
    window = Window(data, len(data), 0)
    checked = PlainChain(noting=NOTING_HASHES).checked(window, PLAIN, crc=True)
    if checked is None:  # there is no kernel
        return
    assert len(checked) == 700
    topics, texts = (checked.columns.ragged(name) for name in ("topic", "properties"))
    assert topics.noted.numbers is not None and texts.noted.items is not None
    found = dictionary(Ragged(*topics.arrays))
    assert dictionary(topics).values == found.values
    assert dictionary(topics).ids.tolist() == found.ids.tolist()
    noted, looked = PropertyItems(texts), PropertyItems(Ragged(*texts.arrays))
    for name in ("UNIQ_KEY", "KEYS", "TAGS", "WAIT", "__CRC32#"):
        assert noted.find(name).tolist() == looked.find(name).tolist()
        assert noted.count(name).tolist() == looked.count(name).tolist()
        assert noted.has_name(name) == looked.has_name(name)
    for flag in ("has_nul", "malformed", "run_together", "repeated"):
        assert getattr(noted, flag)().tolist() == getattr(looked, flag)().tolist()
    unique = noted.find("UNIQ_KEY")
    assert unique.noted.sums is not None
    assert word_sums(unique).tolist() == word_sums(Ragged(*unique.arrays)).tolist()
    for name in ("UNIQ_KEY", "KEYS", "TAGS"):
        with_notes = noted.find(name)
        hashes = with_notes.noted.hashes
        assert hashes is not None
        plain = np.array([b" " not in text and text.isascii() for text in with_notes])
        assert ((hashes >= 0) == plain).all()
        some = with_notes[plain]
        told = Ragged(*some.arrays, StringNotes(hashes=hashes[plain]))
        assert java_hash_column(told).tolist() == java_hash_column(some).tolist()
        before = np.arange(len(some), dtype=np.int32) * 7919
        expected = index_hash_column(before, some).tolist()
        assert index_hash_column(before, told).tolist() == expected
        rows, keys = split_keys(told)
        assert (rows.tolist(), keys.tolist()) == _split(some)


def test_one_of_the_two_is_noted_alone() -> None:
    data = bytearray()
    for number in range(300):
        text = f"KEYS\x01k{number % 7}\x02" + (f"price\x01{number}\x02" if number % 3 else "")
        data += record(len(data), b"body", topic=b"T%d" % (number % 4), properties=text.encode())
    window = Window(data, len(data), 0)
    by_name = noting_values("properties", ["price", "nobody", "price"])
    assert by_name is not None and by_name.names == (b"nobody", b"price")
    for noting in (NOTING_TOPICS, by_name):
        checked = PlainChain(noting=noting).checked(window, PLAIN, crc=False)
        if checked is None:  # there is no kernel
            return
        topics, texts = (checked.columns.ragged(name) for name in ("topic", "properties"))
        assert (topics.noted.numbers is None) == (noting is by_name)
        assert (texts.noted.items is None) == (noting is NOTING_TOPICS)
        assert texts.noted.sums is None and texts.noted.hashes is None
        found = dictionary(Ragged(*topics.arrays))
        assert dictionary(topics).ids.tolist() == found.ids.tolist()
        noted, looked = PropertyItems(texts), PropertyItems(Ragged(*texts.arrays))
        for name in ("price", "nobody", "KEYS", "TAGS"):
            assert noted.find(name).tolist() == looked.find(name).tolist()
            assert noted.has_name(name) == looked.has_name(name)


def test_no_names_and_too_many_are_not_noted() -> None:
    assert noting_values("properties", []) is None
    assert noting_values("properties", map(str, range(65))) is None
    assert noting_values("properties", map(str, range(64))) is not None


def _split(keys: Ragged) -> tuple[list[int], list[bytes]]:
    rows, parts = split_keys(keys)
    return rows.tolist(), parts.tolist()
