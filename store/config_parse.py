"""Reading the JSON of `config/` whatever it holds: what is wrong, where, and what can be read.

Takes what a broker takes (measured with the real classes of 4.3.1 to 5.5.0): keys without quotes or
with single ones, comments, commas at the end of a list, a byte order mark, NULs behind the end; of a
key that occurs twice the last value. Nothing here recurses, and depth and number of values are
bounded. A text that ends early or goes wrong gives what stands before that.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .counted import counted

DEEPEST = 100
TOO_DEEP = f"nested deeper than {DEEPEST} levels"
MOST_VALUES = 8_000_000
_LONGEST_NUMBER = 40
_TOKEN = re.compile(
    r"(?:\s++|/\*.*?\*/|//[^\n]*+)*+"
    r"(?:(?P<text>\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+')"
    r"|(?P<number>-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?)"
    r"|(?P<word>[A-Za-z_$][\w$.]*+)"
    r"|(?P<sign>[][{}:,]))",
    re.DOTALL,
)
_BEHIND = re.compile(r"(?:[\s\0]++|/\*.*?\*/|//[^\n]*+)*+", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}
_BOM = "\ufeff"
_PLAIN = re.compile(r"[^\\\x00-\x1f]*+")


class Parsed(NamedTuple):
    """What a text says. value: None without any. position, problem: byte and what is wrong there.

    note: what is odd but taken. gives_up: after this problem a broker does not look at the .bak.
    whole: it was read to its end, and only its value is none that a file has.
    """

    value: Any
    problem: str = ""
    position: int = 0
    note: str = ""
    gives_up: bool = False
    whole: bool = False


def parse(data: bytes) -> Parsed:
    """Parse; never raises."""
    text = data.decode("utf-8", "surrogateescape")
    if not data.strip(b"\0 \t\r\n"):
        return Parsed(None, _nothing(data))
    reader = _Reader(text, len(_BOM) if text.startswith(_BOM) else 0)
    try:
        reader.read()
    except _Wrong as wrong:
        position = len(text[: wrong.at].encode("utf-8", "surrogateescape"))
        return Parsed(reader.top, wrong.what, position)
    if not isinstance(reader.top, dict):
        return Parsed(reader.top, "not an object", 0, whole=True)
    return Parsed(reader.top, note=_note(text, data, len(text) - reader.at))


def _nothing(data: bytes) -> str:
    if not data:
        return "empty"
    return f"{counted(len(data), 'NUL byte')} and nothing else" if b"\0" in data else "only blanks"


def _note(text: str, data: bytes, left: int) -> str:
    notes = []
    if text.startswith(_BOM):
        notes.append("begins with a byte order mark")
    if left and "\0" in text[-left:]:
        zeros = text[-left:].count(chr(0))
        notes.append(f"{counted(zeros, 'NUL byte')} behind the end")
    if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
        notes.append("not valid UTF-8")
    return "; ".join(notes)


class _Wrong(Exception):
    """Something that a broker does not read, at a character."""

    def __init__(self, what: str, at: int) -> None:
        self.what = what
        self.at = at


class _Reader:
    """One pass over the text; containers fill as it goes, so a cut leaves what was read."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.top: Any = None
        self._open: list[tuple[Any, Any]] = []
        """Containers around the place where the text is, each with the key that waits for it."""
        self._values = 0

    def read(self) -> None:
        """Read all of the text. Raises _Wrong."""
        self._value(*self._token("a value"), None)
        while self._open:
            container, _ = self._open[-1]
            kind, token = self._token("the next entry" if container else "an entry or the end")
            if kind == "sign" and token == ("}" if isinstance(container, dict) else "]"):
                self._open.pop()
                if self._open:
                    self._behind_value()
            elif isinstance(container, dict):
                key = self._key(kind, token)
                self._value(*self._token("a value"), key)
            else:
                self._value(kind, token, None)
        if not _BEHIND.fullmatch(self.text, self.at):
            raise _Wrong("something stands behind the end of the JSON", self.at)

    def _token(self, wanted: str) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].strip("\0 \t\r\n\f")
            what = "cannot read" if rest else "the file ends before"
            if rest[:1] in ('"', "'"):
                what = "the file ends inside"
            raise _Wrong(f"{what} {wanted}", self.at)
        self.at = match.end()
        kind = match.lastgroup or ""
        return kind, match[kind]

    def _key(self, kind: str, token: str) -> Any:
        begin = self.at - len(token)
        if kind == "sign":
            raise _Wrong(f"{token} where a key should be", begin)
        colon = self._token("a colon")
        if colon != ("sign", ":"):
            raise _Wrong("no colon behind a key", self.at - len(colon[1]))
        return self._string(token, begin) if kind == "text" else token

    def _value(self, kind: str, token: str, key: Any) -> None:
        begin = self.at - len(token)
        self._values += 1
        if self._values > MOST_VALUES:
            raise _Wrong(f"more than {MOST_VALUES} values", begin)
        value: Any
        if kind == "sign":
            if token not in "{[":
                raise _Wrong(f"{token} where a value should be", begin)
            if len(self._open) >= DEEPEST:
                raise _Wrong(TOO_DEEP, begin)
            value = {} if token == "{" else []
        elif kind == "text":
            value = self._string(token, begin)
        elif kind == "number":
            value = _number(token)
        elif token in _WORDS:
            value = _WORDS[token]
        else:
            raise _Wrong(f"{_short(token)} where a value should be", begin)
        self._store(value, key)
        if kind == "sign":
            self._open.append((value, key))
        elif self._open:
            self._behind_value()

    def _store(self, value: Any, key: Any) -> None:
        if not self._open:
            self.top = value
            return
        container, _ = self._open[-1]
        if isinstance(container, dict):
            container[key] = value
        else:
            container.append(value)

    def _behind_value(self) -> None:
        """A comma, or the end of the container, which is left to the caller."""
        before = self.at
        kind, token = self._token("a comma or an end")
        if kind == "sign" and token in "]}":
            self.at = before
        elif (kind, token) != ("sign", ","):
            raise _Wrong("no comma behind a value", self.at - len(token))

    def _string(self, token: str, begin: int) -> str:
        inside = token[1:-1]
        if not _PLAIN.fullmatch(inside):
            try:
                # a quote of the other kind has no backslash, single ones may have one
                quoted = inside.replace("\\'", "'") if token[0] == "'" else inside
                quoted = re.sub(r'(?<!\\)"', '\\"', quoted) if token[0] == "'" else quoted
                inside = json.loads(f'"{quoted}"', strict=False)
            except ValueError as error:
                raise _Wrong("a text with an escape that is none", begin) from error
        if inside.isascii():
            return inside
        return inside.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(token: str) -> Any:
    """An int or a float; a number that is neither in 64 bits nor short stays text."""
    if len(token) > _LONGEST_NUMBER:
        return token
    if token.lstrip("-").isdigit():
        return int(token)
    value = float(token)
    return value if abs(value) != float("inf") else token


def _short(token: str) -> str:
    return token if len(token) <= _LONGEST_NUMBER else token[:_LONGEST_NUMBER] + "…"
