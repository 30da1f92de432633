"""Properties of whole columns as text by text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.hashing import java_string
from mqstore.formats.message_properties import (
    CRC_DIGITS_AT,
    CRC_ITEM_BYTES,
    KEYS,
    TAGS,
    UNIQ_KEY,
    crc_item,
    ends_with_crc,
    format_properties,
    has_item,
    parse,
)
from mqstore.formats.property_columns import PropertyItems, ends_with_crc_item, ends_with_misnamed_crc_item, find
from tests.slices import examples

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)


NAMES = st.sampled_from(["a", "ab", KEYS, TAGS, UNIQ_KEY, "UNIQ_KEYS", "12345678", "123456789", "é"])


#: Texts made of the pieces that matter, in any disorder.
PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"ab", b"KEYS", b"TAGS", b"UNIQ_KEY", b"1234567", b"8", b"\xc3\xa9"])


TEXTS = st.lists(PIECES, max_size=12).map(b"".join)


def check(texts: list[bytes], name: str) -> None:
    ragged = Ragged.of(texts)
    found = find(ragged, name)
    items = PropertyItems(ragged)
    expected = [parse(text).get(name) for text in texts]
    decoded = [
        None if length < 0 else java_string(value)
        for value, length in zip(found.tolist(), found.length.tolist(), strict=True)
    ]
    assert decoded == expected
    assert items.find(name).tolist() == found.tolist()
    head = name.encode() + b"\x01"
    counts = [sum(item.startswith(head) for item in text.split(b"\x02")) for text in texts]
    assert items.count(name).tolist() == counts
    repeated = [
        (row, item.removeprefix(head))
        for row, text in enumerate(texts)
        for item in text.split(b"\x02")
        if counts[row] > 1 and item.startswith(head) and item != head
    ]
    assert items.repeated_values(name) == repeated
    for wanted in {value for _, value in repeated} | {b"", b"a"}:
        assert items.repeated_values(name, wanted) == [one for one in repeated if one[1] == wanted]
        having = [wanted != b"" and head + wanted in text.split(b"\x02") for text in texts]
        assert [has_item(text, name, wanted.decode()) for text in texts] == having


@pytest.mark.parametrize(
    ("text", "torn", "lost"),
    [
        (b"KEYS\x01k\x02color\x01red\0ish\x02", False, False),
        (b"KEYS\x01k\x02color\x01red\0\x02n\0m\x01\0v", False, False),  # of 4.9
        (b"KEYS\x01k\x02empty\x01\x02color\x01red\0ish", False, False),
        (b"a\x01" + b"b\0" * 5000 + b"\x02", False, False),
        (b"KEYS\x01k\0\0", True, True),
        (b"KEYS\x01k\x02\0", True, True),
        (b"KEYS\x01k\0\x02TA\0", True, True),
        (b"a\x01b" + bytes(512) + b"c\x02TAGS\x01a\x02", True, True),
        (b"KEYS\x01k\0TAGS\x01a\x02", False, True),
        (b"KEYS\0k\x02TAGS\x01a\x02", False, True),
        (b"KEYS\x01k\0\xfe", False, True),
    ],
)
@pytest.mark.parametrize("many", [1, 300])
def test_a_nul_in_a_value_has_cost_nothing(text: bytes, torn: bool, lost: bool, many: int) -> None:
    items = PropertyItems(Ragged.of([b"a\x01b", text, b""] * many))
    assert items.torn().tolist() == [False, torn, False] * many
    assert items.has_lost_items().tolist() == [False, lost, False] * many


@given(st.lists(TEXTS, max_size=6), NAMES)
@settings(max_examples=examples(400))
def test_find(texts: list[bytes], name: str) -> None:
    """The last item with a value wins, as in parse."""
    check(texts, name)


@given(st.lists(TEXTS, min_size=1, max_size=6), NAMES)
@settings(max_examples=examples(40))
def test_find_in_many(texts: list[bytes], name: str) -> None:
    """Enough texts for the native kernel."""
    check(texts * 300, name)


@given(st.lists(st.dictionaries(NAMES, WORDS, max_size=5), max_size=6), NAMES)
def test_find_in_good_texts(properties: list[dict[str, str]], name: str) -> None:
    check([format_properties(p, final_separator=len(p) % 2 == 0) for p in properties], name)


def test_find_between_other_bytes() -> None:
    """Texts in any order inside a buffer that has other things before and behind."""
    buffer = np.frombuffer(b"KEYS\x01no\x02TAGS\x01t1\x02KEYS\x01yes\x02KEYS\x01no", np.uint8)
    texts = Ragged(buffer, np.array([16, 8, 0]), np.array([9, 8, -1]))
    assert find(texts, KEYS).tolist() == [b"yes", b"", b""]
    assert find(texts, KEYS).length.tolist() == [3, -1, -1]
    assert find(texts, TAGS).tolist() == [b"", b"t1", b""]
    assert find(Ragged.of([]), KEYS).tolist() == []


@given(st.lists(st.tuples(st.binary(max_size=9), st.booleans(), st.integers(-1, 19)), max_size=9))
def test_crc_items_with_another_name(rows: list[tuple[bytes, bool, int]]) -> None:
    """Whatever stands before the digits but the name, and no digit less."""
    texts, wanted = [], []
    for before, good, at in rows:
        item = bytearray(crc_item(before))
        if not good and at >= 0:
            item[at] ^= 0x80
        texts.append(before + item)
        wanted.append(not good and 0 <= at < CRC_DIGITS_AT)
    texts.append(crc_item(b"")[1:])
    assert ends_with_misnamed_crc_item(Ragged.of(texts)).tolist() == [*wanted, False]


@given(st.lists(TEXTS, max_size=8))
def test_items_with_more_than_one_separator(texts: list[bytes]) -> None:
    wanted = [any(item.count(b"\x01") > 1 for item in text.split(b"\x02")) for text in texts]
    assert PropertyItems(Ragged.of(texts)).run_together().tolist() == wanted


SHAPES = [
    b"KEYS\x01k%06d\x02UNIQ_KEY\x01%08d\x02TAGS\x01a\x02",
    b"KEYS\x01k%06d\x02UNIQ_KEY\x01%08d\x02TAGS\x01bb\x02",
    b"UNIQ_KEY\x01%08d\x0212345678\x01%d\x0212345678\x01again\x02",
    b"TAGS\x01%d\x02KEYS\x01%d\x02UNIQ_KEYS\x01x\x02",
]
"""As producers make them; numbers grow, so that one of them has texts of several lengths."""


NAMES_ASKED = ("KEYS", "TAGS", "UNIQ_KEY", "UNIQ_KEYS", "12345678", "absent", "K")


def answers(items: PropertyItems) -> list[list[Any]]:
    """All that can be asked, row by row."""
    flags = (items.has_nul(), items.malformed(), items.run_together(), items.repeated())
    found = [column.tolist() for column in flags]
    for name in NAMES_ASKED:
        values = items.find(name)
        found += [values.tolist(), values.length.tolist(), items.count(name).tolist()]
    _, names, values = items.pairs()
    return [*found, names.tolist(), values.tolist()]


@given(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 299), st.integers(0, 60), PIECES), max_size=3),
    st.booleans(),
)
@settings(max_examples=examples(40))
def test_texts_of_few_shapes(shapes: list[bytes], damage: list[tuple[int, int, bytes]], apart: bool) -> None:
    """Many texts are answered by their shapes, few are taken apart: the answers are the same."""
    wanted = [shapes[n % len(shapes)] for n in range(300)]
    texts = [shape % ((n,) * shape.count(b"%")) for n, shape in enumerate(wanted)]
    for row, at, piece in damage:
        texts[row] = texts[row][:at] + piece + texts[row][at + len(piece) :]
    many = Ragged.of(texts)
    if apart:
        many = many[np.arange(len(texts))[::-1]]
        texts.reverse()
    items = PropertyItems(many)
    parts = [PropertyItems(Ragged.of(texts[begin : begin + 100])) for begin in (0, 100, 200)]
    expected = [[*one, *two, *three] for one, two, three in zip(*map(answers, parts), strict=True)]
    assert answers(items) == expected
    for name in NAMES_ASKED:
        assert items.has_name(name) == any(part.has_name(name) for part in parts)


def test_an_item_that_only_begins_like_a_checksum_is_none() -> None:
    """A name that goes on behind `__CRC32#` is the property of a client."""
    other = b"__CRC32#2\x01value7890\x02"
    texts = [b"A\x01b\x02" + crc_item(b""), other, b"A\x01b\x02" + other]
    found = ends_with_crc_item(Ragged.of(texts)).tolist()
    assert len(other) == CRC_ITEM_BYTES and found == [ends_with_crc(text) for text in texts] == [True, False, False]
