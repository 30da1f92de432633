"""The native kernel and numpy say the same, of random, real and hostile bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import kernel
from mqstore.formats import message_properties as names
from mqstore.formats.derive.ragged import Ragged, ragged_copy
from mqstore.formats.hashing import crc31, java_hash, java_string
from mqstore.formats.hashing_columns import crc31_column, index_hash_column, java_hash_column
from mqstore.formats.json_lines import JsonLines
from mqstore.formats.property_columns import PropertyItems
from mqstore.store.columns import dictionary
from mqstore.store.inspect.stats import _tally, _tally_natively
from mqstore.store.verify import index_files, log_order

pytestmark = pytest.mark.skipif(not kernel.is_wanted(), reason=kernel.describe())

WORDS = st.sampled_from(
    [
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b"WAIT",
        b"a",
        b"true",
        b"A" * 40,
        b"",
        b"\x00",
        b"\xff",
        "é\n".encode(),
        "中\t".encode(),
    ]
)
TEXTS = st.lists(
    st.one_of(
        st.lists(st.one_of(WORDS, st.sampled_from([b"\x01", b"\x02", b"\x01", b"\x02"]))).map(b"".join),
        st.lists(st.tuples(WORDS, WORDS)).map(lambda items: b"".join(n + b"\x01" + v + b"\x02" for n, v in items)),
        st.binary(max_size=60),
    ),
    min_size=1,
    max_size=12,
)


@contextmanager
def numpy_alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "is_wanted", lambda rows=0: False)
        yield


def both(ask: Callable[[], Any]) -> tuple[Any, Any]:
    """What the kernel says, what numpy says."""
    assert kernel.is_wanted()
    native = ask()
    with numpy_alone():
        return native, ask()


@given(TEXTS)
def test_items_of_texts(texts: list[bytes]) -> None:
    column = Ragged.of([b"\x02", *texts])[1:]  # not at the beginning of their buffer

    def ask() -> Any:
        items = PropertyItems(column)
        wanted = [names.UNIQ_KEY, names.KEYS, names.TAGS, names.WAIT, "a", "A" * 40, names.CRC32]
        return {
            name: (
                items.find(name).tolist(),
                items.find(name).length.tolist(),
                items.count(name).tolist(),
                items.has_name(name),
            )
            for name in wanted
        } | {
            "nul": items.has_nul().tolist(),
            "malformed": items.malformed().tolist(),
            "run together": items.run_together().tolist(),
            "ended": items.ended,
        }

    native, numpy = both(ask)
    assert native == numpy


@given(TEXTS)
def test_names_twice_are_never_missed(texts: list[bytes]) -> None:
    """Numpy may say it of others, too: not all is compared."""
    native, numpy = both(lambda: PropertyItems(Ragged.of(texts)).repeated().tolist())
    for text, one, other in zip(texts, native, numpy, strict=True):
        names_of = [item.partition(b"\x01")[0] for item in text.split(b"\x02")]
        found = [name for name in names_of if name]
        assert one == (len(set(found)) < len(found))
        assert other >= one


@given(st.lists(st.one_of(st.binary(max_size=300), st.text(max_size=80).map(str.encode)), min_size=1))
def test_hashes_and_checksums(texts: list[bytes]) -> None:
    column = Ragged.of(texts)
    seeds = np.arange(len(texts), dtype=np.int32) * np.int32(1_000_003)
    for ask in (crc31_column, java_hash_column, lambda column: index_hash_column(seeds, column)):
        native, numpy = both(lambda ask=ask: ask(column).tolist())  # type: ignore[misc]
        assert native == numpy
    assert crc31_column(column).tolist() == [crc31(text) for text in texts]
    assert java_hash_column(column).tolist() == [java_hash(java_string(text)) for text in texts]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=300), st.integers(1, 300))
def test_different_texts_are_numbered(values: list[bytes], times: int) -> None:
    column = Ragged.of([values[i * i % len(values)] for i in range(times)])
    native, numpy = both(lambda: dictionary(column))
    assert native.values == numpy.values
    assert native.ids.tolist() == numpy.ids.tolist()


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=20))
def test_texts_are_copied(texts: list[bytes]) -> None:
    column = Ragged.of(texts)
    at = np.cumsum(column.length[::-1])[::-1] - column.length

    def ask() -> bytes:
        out = np.zeros(int(column.length.sum()), np.uint8)
        ragged_copy(out, at, column)
        return out.tobytes()

    native, numpy = both(ask)
    assert native == numpy


HUGE = st.sampled_from([-(1 << 63), -1, 0, 1, 50, (1 << 63) - 1])


@given(HUGE, HUGE)
def test_a_range_outside_its_buffer_is_refused(start: int, length: int) -> None:
    column = Ragged(np.zeros(50, np.uint8), np.array([start]), np.array([length]))
    inside = length <= 0 or (0 <= start <= 50 and start + length <= 50)
    out = np.empty(1, np.int32)
    arguments = (kernel.Operation.CHECKSUM, (*column.arrays, out))
    if inside:
        kernel.run(*arguments)
        return
    with pytest.raises(ValueError, match="CHECKSUM"):
        kernel.run(*arguments)


def test_arrays_that_share_bytes_are_refused() -> None:
    both_ways = np.zeros(8, np.int32)
    texts = Ragged.of([b"a", b"b"])
    with pytest.raises(ValueError, match="CHECKSUM"):
        kernel.run(kernel.Operation.CHECKSUM, (both_ways.view(np.uint8), texts.start, texts.length, both_ways[:2]))


@given(TEXTS, st.integers(1, 4))
def test_numbers_of_unique_keys(texts: list[bytes], times: int) -> None:
    keys = Ragged.of([bytes(8), *texts * times])[1:]
    topics = np.arange(len(keys)) % 2
    native, numpy = both(lambda: log_order.key_numbers(keys, topics, [b"a", b"b"]).tolist())
    assert native == numpy


@pytest.mark.parametrize("length", [20, 32, 34, 56])
def test_keys_that_differ_at_their_end_have_other_numbers(length: int) -> None:
    """Of clients of 5.x, 34 characters, and of IPv6 hosts, 56, the counter comes last."""
    keys = Ragged.of([b"7F0000010A2C18B4AAC2".ljust(length - 4, b"0") + b"%04X" % n for n in range(999)])
    for numbers in both(lambda: log_order.key_numbers(keys, np.zeros(999, np.int64), [b"T"])):
        assert len(set(numbers.tolist())) == 999


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=4))
def test_numbers_that_were_met_before(batches: list[list[int]]) -> None:
    """Some share their place: the highest bits."""

    def ask() -> Any:
        met = log_order.SeenKeys(behind=True)
        told = []
        for batch in batches:
            numbers = np.array([(n % 4) << 60 | n for n in batch], np.uint64)
            told.append(met.add(numbers, np.arange(len(batch))).tolist())
        left = met.export()
        return told, left.marks.tolist(), left.numbers.tolist(), left.position.tolist()

    native, numpy = both(ask)
    assert native == numpy


QUEUES = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 6), st.integers(1, 3)), max_size=12)


@given(QUEUES, st.lists(st.integers(-1, 5), min_size=4, max_size=4))
def test_queues_go_on(rows: list[tuple[int, int, int]], begin: list[int]) -> None:
    group, value, count = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    after, first = np.array(begin), np.full(4, -1)
    plain, ok = list(begin), True
    for queue, number, more in rows:
        ok = ok and number >= 0 and plain[queue] in {-1, number}
        plain[queue] = number + more
    went = kernel.run(kernel.Operation.GO_ON, (group, value, count, after, first, np.empty_like(group)))
    assert went == (len(rows) if ok else 0)
    assert after.tolist() == (plain if ok else begin)
    if ok:
        assert first.tolist() == [next((number for q, number, _ in rows if q == queue), -1) for queue in range(4)]


ITEMS = st.lists(st.tuples(st.integers(-1, 9), st.sampled_from([0, 0, 0, 1, -1])), max_size=40)


NUMBERS = st.integers(-(1 << 62), 1 << 62)


@given(st.lists(st.tuples(st.integers(0, 9), NUMBERS, NUMBERS), min_size=1), st.integers(1, 2))
def test_rows_are_counted_in_groups(rows: list[tuple[int, int, int]], columns: int) -> None:
    group, *both = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    span = int(group.max()) + 2
    arguments = group, span, both[:columns], both[2 - columns :]
    found, expected = _tally_natively(*arguments), _tally(*arguments)
    assert group[found.rows].tolist() == group[expected.rows].tolist()  # any row of a group stands for it
    assert found.lengths.tolist() == expected.lengths.tolist()
    for of, to in zip(found[2:], expected[2:], strict=True):
        assert [one.tolist() for one in of] == [one.tolist() for one in to]


@pytest.mark.parametrize("group", [-1, 2])
def test_rows_of_no_group_are_refused(group: int) -> None:
    column, out = np.zeros(1, np.int64), np.zeros(2 * 4, np.int64)
    arrays = np.array([group], np.int64), column, column, out
    with pytest.raises(ValueError, match="no sense"):
        kernel.run(kernel.Operation.TALLY, arrays, (2,))
    kernel.run(kernel.Operation.TALLY, (column, *arrays[1:]), (2,))
    assert out.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


@given(ITEMS, st.integers(1, 4), st.integers(1, 3))
def test_items_are_chained(rows: list[tuple[int, int]], slots: int, first: int) -> None:
    """wrong: what is added to the link that an item should have."""
    newest, plain = np.zeros(slots, np.int32), [0] * slots
    places = np.array([key_hash % slots for key_hash, _ in rows], np.int64)
    numbers = np.arange(first, first + len(rows))
    right = index_files.links_of(newest.copy(), numbers, places).tolist()
    hashes, links, follow, ok = list[int](), list[int](), 0, True
    for number, (key_hash, wrong) in enumerate(rows, first):
        hashes.append(key_hash)
        before = (n for n, place in zip(numbers, places, strict=True) if place == key_hash % slots)
        assert right[number - first] == max((n for n in before if n < number), default=0)
        links.append(right[number - first] + wrong)
        ok = ok and key_hash >= 0 and not wrong
        if ok:
            plain[key_hash % slots] = number
            follow += 1
    arrays = (np.array(hashes, np.int32), np.array(links, np.int32), newest)
    assert kernel.run(kernel.Operation.LINK, arrays, (first,)) == follow
    assert newest.tolist() == plain


@given(TEXTS, st.integers(-(2**63), 2**63 - 1))
def test_lines_of_columns(texts: list[bytes], number: int) -> None:
    column = Ragged.of([b"\x02", *texts, *(text.decode("latin-1").encode() for text in texts)])[1:]
    count = len(column)

    def ask() -> Any:
        made = JsonLines(count, [("\0", "\x1f"), ("\x80", "\x9f"), ("\xc0", "\xc5")])
        made.constant("constant \xe4 ")
        made.number(np.arange(count, dtype=np.int64) + number // 2)
        made.chosen(np.arange(count) % 2, ["one", "another"])
        made.hexadecimal(np.full(count, number), 5)
        made.string(column)
        made.string(column, or_null=True)
        made.list(column, b"a")
        made.object(column, b"\x01", b"\x02")
        parts = list(made.parts())
        return [(part.data[: part.ends.max(initial=0)].tobytes(), part.ends.tolist()) for part in parts]

    native, plain = both(ask)
    assert native == plain
