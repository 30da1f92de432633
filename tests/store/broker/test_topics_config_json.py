"""The configuration's JSON: brokers' files come out as they went in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.topics import dumps, loads

from ...stores import NAMES

SAME_TEXT = ("topics", "subscriptionGroup")
SAME_TEXT_OF_FASTJSON_1 = (*SAME_TEXT, "consumerOffset", "delayOffset")
"""Of these the text comes back. 5.5 breaks the lines of number keys and lists in another way."""


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-clean")])
def test_files_of_brokers(name: str, store: Callable[[str], Path]) -> None:
    seen = 0
    same_text = SAME_TEXT if name.startswith("5.5") else SAME_TEXT_OF_FASTJSON_1
    for path in (store(name) / "config").iterdir():
        text = path.read_bytes().decode("utf-8", "replace")
        if path.is_file() and text.startswith("{"):
            value = loads(text)
            assert loads(dumps(value)) == value, path.name
            if path.name.startswith(same_text):
                assert dumps(value) == text, path.name
                seen += 1
    assert seen >= 3


keys = st.text(max_size=5) | st.integers()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
)


@given(values)
def test_any_value_comes_back(value: object) -> None:
    assert loads(dumps(value)) == value


def test_keys_without_quotes() -> None:
    assert loads('{"a{1:2":{0 : "{3:4", -1:5}, "l":[{7:8}]}') == {"a{1:2": {0: "{3:4", -1: 5}, "l": [{7: 8}]}


@pytest.mark.parametrize("text", ["", "{", "{a:1}", '{"a":1', "[1,]", "nul", '{"a\\\\', '{"\\\\"1:'])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)
