"""Lines of JSON made of columns: each is what json reads back, or left to who writes it alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import json_lines
from mqstore.formats.derive import Ragged
from mqstore.formats.json_lines import JsonLines, in_order

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
ROWS = st.lists(st.tuples(TEXTS, st.integers(-(2**63), 2**63 - 1), st.booleans()), min_size=1, max_size=20)


def ragged(texts: list[str]) -> Ragged:
    return Ragged.of([text.encode() for text in texts])


def lines_of(made: JsonLines) -> list[str | None]:
    """Row by row; None for one that is not there."""
    found: list[str | None] = []
    for part in made.parts():
        assert part.first == len(found)
        begin = 0
        for end in part.ends.tolist():
            found.append(None if end < 0 else part.data[begin:end].tobytes().decode())
            begin = max(begin, end)
        assert part.end == len(found)
    return found


def lines_with(rows: int, piece: str, texts: Ragged, *more: Any, **how: Any) -> list[str | None]:
    made = JsonLines(rows, [])
    getattr(made, piece)(texts, *more, **how)
    return lines_of(made)


@given(ROWS)
def test_each_line_is_read_back(rows: list[tuple[str, int, bool]]) -> None:
    texts, numbers = [row[0] for row in rows], np.array([row[1] for row in rows], np.int64)
    made = JsonLines(len(rows), [])
    made.constant('{"text":')
    made.string(ragged(texts))
    made.constant(',"null":')
    made.string(ragged(texts), or_null=True)
    made.constant(',"number":')
    made.number(numbers)
    made.constant(',"hex":"')
    made.hexadecimal(numbers, 6)
    made.constant('","chosen":')
    made.chosen(np.array([row[2] for row in rows], np.int64), ["false", "true"])
    made.constant("}")
    for line, (text, number, chosen) in zip(lines_of(made), rows, strict=True):
        if "\x7f" in text:
            assert line is None
            continue
        assert line is not None
        assert json.loads(line) == {
            "text": text,
            "null": text or None,
            "number": number,
            "hex": f"{number % (1 << 24):06X}",
            "chosen": chosen,
        }


@given(st.lists(st.lists(TEXTS.filter(lambda text: " " not in text), max_size=4), min_size=1, max_size=8))
def test_lists(rows: list[list[str]]) -> None:
    """Without what is empty between separators."""
    found = lines_with(len(rows), "list", ragged([" ".join(row) for row in rows]), b" ")
    for line, row in zip(found, rows, strict=True):
        assert line is not None and json.loads(line) == [word for word in row if word]


NAMES = TEXTS.filter(bool)


@given(st.lists(st.dictionaries(NAMES, NAMES, max_size=4), min_size=1, max_size=8), st.booleans())
def test_objects(rows: list[dict[str, str]], ended: bool) -> None:
    """Whether the last item has an end or not."""
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in row.items()) for row in rows]
    texts = [text + "\x02" * (ended and bool(text)) for text in texts]
    found = lines_with(len(rows), "object", ragged(texts), b"\x01", b"\x02")
    for line, row in zip(found, rows, strict=True):
        assert line is not None and json.loads(line) == row


@pytest.mark.parametrize("text", ["a\x01b\x01c\x02", "a\x02", "\x01b\x02", "a\x01\x02", "a\x01b\x02\x02"])
def test_items_that_are_not_just_names_and_values(text: str) -> None:
    found = lines_with(2, "object", ragged([text, "a\x01b\x02"]), b"\x01", b"\x02")
    assert found == [None, '{"a":"b"}']


def test_rows_that_are_not_there() -> None:
    """What is no UTF-8, and what is not to be written as it is: others stand beside them."""
    texts = Ragged.of([b"a", b"\xff", b"\x7f", "\x85".encode(), b"b"])
    made = JsonLines(5, [("\x80", "\x9f")])
    made.string(texts)
    assert lines_of(made) == ['"a"', None, None, None, '"b"']
    assert lines_with(5, "string", texts)[3] == '"\x85"'


@given(ROWS, st.integers(1, 200))
def test_parts_of_bounded_size_are_all_rows(rows: list[tuple[str, int, bool]], room: int) -> None:
    def lines() -> list[str | None]:
        made = JsonLines(len(rows), [])
        made.string(ragged([row[0] for row in rows]))
        made.number(np.array([row[1] for row in rows], np.int64))
        return lines_of(made)

    whole = lines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_PART_BYTES", room)
        assert lines() == whole


def test_lines_in_a_row_come_together() -> None:
    data = np.frombuffer(b"aabbbcd", np.uint8)
    ends = np.array([2, 5, -1, 6, -1, -1, 7], np.int64)
    found = [item and (bytes(item[0]), item[1]) for item in in_order(data, ends)]
    assert found == [(b"aabbb", 2), None, (b"c", 1), None, None, (b"d", 1)]
    assert [*in_order(data[:0], np.array([-1]))] == [None]
