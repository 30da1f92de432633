"""JSON that may reach a terminal: the same data, nothing dangerous, some lines at a time."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli import json_text
from mqstore.store.output.escaped import DANGEROUS

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(st.dictionaries(ANY_TEXT, st.one_of(ANY_TEXT, st.lists(ANY_TEXT), st.integers())))
def test_json_is_the_same_data_and_safe(value: dict[str, object]) -> None:
    """Escapes of JSON lose nothing; not even halves of surrogate pairs of a file name."""
    for text in (json_text.dumps(value), " ".join(json_text.indented_lines(value)).replace("\n", " ")):
        assert re.search(DANGEROUS, text) is None
        assert json.loads(text) == _joined(value)
        text.encode()


def test_a_long_object_is_written_some_lines_at_a_time() -> None:
    """The lines are those of the whole, also where a line has what steers a terminal."""
    value = {str(number): ["a", number, "b\u202e\x7f"] for number in range(20_000)}
    parts = list(json_text.indented_lines(value))
    assert len(parts) > 2
    assert "\n".join(parts) == json.dumps(value, ensure_ascii=False, indent=2).translate(
        {0x202E: "\\u202e", 0x7F: "\\u007f"}
    )


def _joined(value: dict[str, object]) -> object:
    """What any JSON reader makes of it: two halves side by side become one character."""
    return json.loads(json.dumps(value))
