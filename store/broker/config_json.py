"""The JSON of `config/`, as fastjson reads and writes it (spec/05-config.md, 5.1).

Pretty printed with tabs; map keys that are numbers have no quotes and no lines of their own. Keys keep their order and their
kind, so a file that is read and written again is the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_STRING_OR_NUMBER_KEY = re.compile(
    # a string without an end goes on to the end of the text: none begins inside of it
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?<=[{,])(\s*)(-?\d+)(?=\s*:)',
    re.DOTALL,
)
_NUMBER_KEY = re.compile(r"[{,]\s*-?\d")
"""What has none of these has no keys that are numbers, and need not be looked through."""
_MARK = "\0"
"""Marks a key that had no quotes; it is in no text that fastjson writes unescaped."""


def loads(text: str) -> Any:
    """Parse; keys without quotes become int. Raises ValueError."""
    if text.endswith("\0"):  # no JSON; a huge file of holes has mebibytes of them to look through
        raise ValueError("NULs behind the end")
    if _NUMBER_KEY.search(text):
        text = _STRING_OR_NUMBER_KEY.sub(_quote, text)
    return json.loads(text, object_pairs_hook=_object, strict=False)


def _quote(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{_MARK}{match[2]}"'


def _object(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {int(key[1:]) if key.startswith(_MARK) else key: value for key, value in pairs}


def dumps(value: Any) -> str:
    """Text of a value, without a line end behind it.

    >>> dumps({"offsetTable": {0: 12}, "list": [], "order": False})
    '{\\n\\t"offsetTable":{0:12\\n\\t},\\n\\t"list":[],\\n\\t"order":false\\n}'
    """
    return "".join(_lines(value, "\n"))


def _lines(value: Any, line: str) -> Iterator[str]:
    """Pieces of text; `line` begins a line of the level that `value` stands on."""
    if isinstance(value, dict) and value:
        inner = line + "\t"
        separator = "{"
        for key, item in value.items():
            # fastjson begins a line for a text key only, but ends the map on one of its own
            place = "" if isinstance(key, int) else inner
            yield f"{separator}{place}{_key(key)}:"
            yield from _lines(item, inner)
            separator = ","
        yield line + "}"
    elif isinstance(value, list):
        yield "[" + ",".join("".join(_lines(item, line + "\t")) for item in value) + "]"
    else:
        yield json.dumps(value, ensure_ascii=False)


def _key(key: str | int) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)
