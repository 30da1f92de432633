"""The JSON of config/: what a broker takes, what it does not, and where; whatever the bytes are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.topics import dumps
from mqstore.store.settings import parse as config_parse
from mqstore.store.settings.parse import DEEPEST, ParsedConfig, parse

# What the real classes of 4.3.1 to 5.5.0 read; tests/interop/test_config_json.py asks them.
TAKEN = {
    '{"offsetTable":{"a@b":{0:1}}}': {"offsetTable": {"a@b": {"0": 1}}},
    '{"a":1,"a":2}': {"a": 2},
    '{"t":{"x":1},"t":{"y":2}}': {"t": {"y": 2}},
    '\ufeff{"a":1}': {"a": 1},
    '{"a":1}\0\0\0': {"a": 1},
    '{"a":1} \n': {"a": 1},
    "{'a':'b'}": {"a": "b"},
    '{"a":1,}': {"a": 1},
    '{"a":[1,]}': {"a": [1]},
    '/*c*/{"a":1}': {"a": 1},
    '{"a":1 // c\n}': {"a": 1},
    '{"a":123456789012345678901234567890}': {"a": 123456789012345678901234567890},
    '{"a":01}': {"a": 1},
    '{"a":"b\nc"}': {"a": "b\nc"},
}
REFUSED = {
    '{"a":1}garbage': (7, "behind the end"),
    '{"a":1}}': (7, "behind the end"),
    '{"a":0x10}': (6, "no comma"),
    '{"a":"\\u00"}': (5, "escape"),
    '{"a":tru}': (5, "tru where a value"),
    " ": (0, "only blanks"),
    "[]": (0, "not an object"),
    "1": (0, "not an object"),
    '"s"': (0, "not an object"),
    "\0\0\0\0": (0, "4 NUL bytes"),
    '{"a":1': (6, "the file ends"),
    '{"a":': (5, "the file ends"),
    '{"a': (1, "the file ends inside"),
    "{": (1, "the file ends"),
    '{"a":{"b":1}': (12, "the file ends"),
    '{"a" 1}': (5, "no colon"),
    '{"a":"x': (5, "the file ends inside"),
    "{:1}": (1, "where a key"),
    '{"a":1 "b":2}': (7, "no comma"),
}


@pytest.mark.parametrize("text", TAKEN)
def test_what_a_broker_takes(text: str) -> None:
    found = parse(text.encode())
    assert (found.value, found.problem) == (TAKEN[text], "")


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_broker_does_not_take(text: str) -> None:
    position, problem = REFUSED[text]
    found = parse(text.encode())
    assert problem in found.problem
    assert found.position == position


def test_the_quick_way_of_long_texts_gives_the_same() -> None:
    """Or leaves the text to the other one."""
    odd = (
        '{"a":NaN}',
        '{"a":[-Infinity]}',
        '{"a":1e999}',
        '{"a":"\\ud800"}',
        '{"a":"1e9NaN"}',
        '{"a":{-1:2,"b":"{0:"}}',
    )
    quick = {text: config_parse._plain(text.encode(), quoting=True) for text in (*TAKEN, *REFUSED, *odd)}
    for text, found in quick.items():
        assert found is None or ParsedConfig(found) == parse(text.encode())._replace(numbered=frozenset()), text
    taken = {text for text, found in quick.items() if found is not None}
    assert {'{"offsetTable":{"a@b":{0:1}}}', '{"a":1,"a":2}', '{"a":"1e9NaN"}', '{"a":{-1:2,"b":"{0:"}}'} <= taken


def test_what_is_whole_in_front_of_a_cut() -> None:
    """A number beside the tables may have had more digits; of entries the keys of those that are open are told."""
    cut = parse(b'{"kept":7,"table":{"a":{0:{"x":1},5:{"x":2')
    assert cut.value == {"kept": 7, "table": {"a": {"0": {"x": 1}, "5": {"x": 2}}}}
    assert cut.open == ("table", "a", "5")
    assert parse(b'{"table":{},"number":12').value == {"table": {}}
    assert parse(b'{"table":{},"number":12,').value == {"table": {}, "number": 12}


def test_what_is_odd_is_said() -> None:
    assert "byte order mark" in parse(b'\xef\xbb\xbf{"a":1}').note
    assert "3 NUL bytes" in parse(b'{"a":1}\0\0\0').note
    assert "UTF-8" in parse(b'{"a":"\xff"}').note
    assert parse(b'{"a":"\xff"}').value == {"a": "\ufffd"}
    assert parse(rb'{"a":"\ud83d\ude00\ud800"}').value == {"a": "\U0001f600\ufffd"}


def test_a_value_is_the_callers_own() -> None:
    """Whoever asks next gets what the bytes say, whatever was done to the value before."""
    parse(b'{"a":{"b":[1]}}').value["a"]["b"].append(2)
    assert parse(b'{"a":{"b":[1]}}').value == {"a": {"b": [1]}}


def test_a_text_that_is_cut_keeps_what_stands_before() -> None:
    whole = {"table": {f"topic{n}": {"perm": 6, "name": f"topic{n}"} for n in range(20)}}
    text = dumps(whole).encode()
    seen = set[int]()
    for cut in range(len(text)):
        found = parse(text[:cut])
        assert found.problem
        assert 0 <= found.position <= cut
        entries = (found.value or {}).get("table", {})
        seen.add(len(entries))
        for name, entry in [*entries.items()][:-1]:
            assert whole["table"][name] == entry, cut
    assert seen == set(range(21))
    assert parse(text).value == whole


@pytest.mark.parametrize("opening", ['{"a":', "[", '{"a":[', "[[{1:"])
def test_depth_is_bounded(opening: str) -> None:
    found = parse(opening.encode() * 2_000_000)
    assert f"deeper than {DEEPEST}" in found.problem
    assert found.position <= DEEPEST * len(opening)
    fits = DEEPEST // opening.count("{") if "[" not in opening else 10
    json.dumps(parse((opening * fits).encode()).value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"' + b"\\" * 3_000_000,
        b"/*" * 1_000_000,
        b"{" + b'"' * 2_000_001,
        b'{"a":' + b"9" * 3_000_000 + b"}",
        b" " * 5_000_000 + b"x",
        b"'" * 2_000_001,
        b'{"a":1e' + b"9" * 1_000_000,
    ],
)
def test_no_text_takes_long(data: bytes) -> None:
    """Each would, for a reader that goes back; the number is not made to one."""
    found = parse(data)
    assert found.problem or isinstance(found.value["a"], str)


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_parse, "MOST_VALUES", 100)
    found = parse(b'{"a":[' + b"1," * 200)
    assert "more than 100 values" in found.problem
    assert len(found.value["a"]) == 98


_LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(st.dictionaries(st.text(), _VALUES), st.booleans())
def test_all_json_is_read_as_python_reads_it(value: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    long = any(len(digits) > 40 for digits in text.split())
    infinite = "Infinity" in text
    if not long and not infinite:
        found = parse(text.encode("utf-8", "surrogatepass"))
        assert (found.value, found.problem) == (json.loads(text), "")


_PIECES = st.sampled_from(
    [*'{}[]:,"', "'", "\\", "0", "-1", "1e9", "true", "null", '"a"', "/*", "*/", "//", "\n", "\0"]
)


_ODD = ["{}", "[1]", "\\ud800", "\\u00e9", "\ud800", "é", "NaN", "-0", "0.5", "1e999", "9" * 45, "[" * 60, "]" * 60]


@given(st.dictionaries(st.text(), _VALUES), st.lists(st.tuples(st.integers(0, 300), st.sampled_from(_ODD)), max_size=3))
def test_the_quick_parser_reads_as_the_tolerant_one(value: dict[str, Any], odd: list[tuple[int, str]]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    for at, piece in odd:
        text = text[:at] + piece + text[at:]
    data = text.encode("utf-8", "surrogatepass")
    quick = parse(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_parse, "_plain", lambda *_, **__: None)
        config_parse._parse_once.cache_clear()
        tolerant = parse(data)
        config_parse._parse_once.cache_clear()
    assert repr(quick) == repr(tolerant)


@given(st.lists(_PIECES | st.text(max_size=3), max_size=40))
def test_no_text_raises(pieces: list[str]) -> None:
    data = "".join(pieces).encode("utf-8", "surrogatepass")
    found = parse(data)
    assert 0 <= found.position <= len(data)
    assert found.problem or isinstance(found.value, dict)


@given(st.binary(max_size=60))
def test_no_bytes_raise(data: bytes) -> None:
    found = parse(b'{"a":' + data)
    assert 0 <= found.position <= len(data) + 5
