"""Property texts: one by one and by columns, and the whole-record CRC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.hashing import java_string
from mqstore.formats.message_properties import (
    CRC32,
    CRC_DIGITS_AT,
    KEYS,
    TAGS,
    UNIQ_KEY,
    crc_digits_value,
    crc_item,
    crc_ok,
    format_properties,
    parse,
)
from mqstore.formats.property_columns import Items, ends_with_misnamed_crc_item, find
from tests.slices import examples

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
NAMES = st.sampled_from(["a", "ab", KEYS, TAGS, UNIQ_KEY, "UNIQ_KEYS", "12345678", "123456789", "é"])
#: Texts made of the pieces that matter, in any disorder.
PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"ab", b"KEYS", b"TAGS", b"UNIQ_KEY", b"1234567", b"8", b"\xc3\xa9"])
TEXTS = st.lists(PIECES, max_size=12).map(b"".join)


def parse_as_java(text: bytes) -> dict[str, str]:
    """MessageDecoder.string2messageProperties of 4.9.1 and later, step by step."""
    found: dict[str, str] = {}
    whole, index = java_string(text), 0
    while index < len(whole):
        end = whole.find("\x02", index)
        end = len(whole) if end < 0 else end
        if end - index >= 3:
            separator = whole.find("\x01", index)
            if index < separator < end - 1:
                found[whole[index:separator]] = whole[separator + 1 : end]
        index = end + 1
    return found


@given(st.one_of(TEXTS, st.binary(max_size=30)))
@settings(max_examples=examples(400))
@example(b"")
@example(b"KEYS\x01a\x01b\x02")
@example(b"a\x01\x02b\x01x")
@example(b"\x01x\x02a\x01b\x02\x02a\x01c")
@example(b"a\x01\xed\xa0\x80\x02")
def test_parse(text: bytes) -> None:
    assert parse(text) == parse_as_java(text)


@given(st.dictionaries(WORDS, WORDS, max_size=6), st.booleans())
def test_format_is_the_inverse(properties: dict[str, str], final: bool) -> None:
    text = format_properties(properties, final_separator=final)
    assert parse(text) == properties
    assert list(parse(text)) == list(properties)
    assert text.endswith(b"\x02") == (final and bool(properties))


@pytest.mark.parametrize("properties", [{"": "x"}, {"x": ""}, {"a\x01": "b"}, {"a": "b\x02"}, {"a\x02": "b"}])
def test_what_cannot_be_written_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="property"):
        format_properties(properties)


def check(texts: list[bytes], name: str) -> None:
    ragged = Ragged.of(texts)
    found = find(ragged, name)
    items = Items(ragged)
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


@given(st.lists(TEXTS, max_size=6), NAMES)
@settings(max_examples=examples(400))
def test_find(texts: list[bytes], name: str) -> None:
    """The last item with a value wins, as in parse."""
    check(texts, name)


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


@given(st.binary(max_size=60))
def test_crc_of_a_whole_record(before: bytes) -> None:
    record = before + crc_item(before)
    assert crc_ok(record) is True
    for at in range(len(record)):
        spoiled = bytearray(record)
        spoiled[at] ^= 0x10
        assert crc_ok(bytes(spoiled)) is not True
    assert crc_ok(before) is (None if CRC32.encode() not in before[-20:] else crc_ok(before))
    assert crc_digits_value(record[-11:-1]) >= 0


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


@pytest.mark.parametrize("digits", [b"", b"1", b"12345678901", b"123456789x", b"9999999999", b"-123456789"])
def test_malformed_digits(digits: bytes) -> None:
    assert crc_digits_value(digits) == -1


@given(st.lists(TEXTS, max_size=8))
def test_items_with_more_than_one_separator(texts: list[bytes]) -> None:
    wanted = [any(item.count(b"\x01") > 1 for item in text.split(b"\x02")) for text in texts]
    assert Items(Ragged.of(texts)).run_together().tolist() == wanted


SHAPES = [
    b"KEYS\x01k%06d\x02UNIQ_KEY\x01%08d\x02TAGS\x01a\x02",
    b"KEYS\x01k%06d\x02UNIQ_KEY\x01%08d\x02TAGS\x01bb\x02",
    b"UNIQ_KEY\x01%08d\x0212345678\x01%d\x0212345678\x01again\x02",
    b"TAGS\x01%d\x02KEYS\x01%d\x02UNIQ_KEYS\x01x\x02",
]
"""As producers make them; numbers grow, so that one of them has texts of several lengths."""


NAMES_ASKED = ("KEYS", "TAGS", "UNIQ_KEY", "UNIQ_KEYS", "12345678", "absent", "K")


def answers(items: Items) -> list[list[Any]]:
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
    items = Items(many)
    parts = [Items(Ragged.of(texts[begin : begin + 100])) for begin in (0, 100, 200)]
    expected = [[*one, *two, *three] for one, two, three in zip(*map(answers, parts), strict=True)]
    assert answers(items) == expected
    for name in NAMES_ASKED:
        assert items.has_name(name) == any(part.has_name(name) for part in parts)
