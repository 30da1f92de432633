"""Reading the JSON of `config/` whatever it holds: what is wrong, where, and what can be read.

Takes what a broker takes (measured with the real classes of 4.3.1 to 5.5.0): keys without quotes or
with single ones, comments, commas at the end of a list, a byte order mark, NULs behind the end; of a
key that occurs twice the last value. Nothing here recurses, and depth and number of values are
bounded. A text that ends early or goes wrong gives what stands before that. What else the two
parsers of brokers pass over, a comma that is another character for one, is a `Grammar`.

The entries of a table, as formats.json_table declares it, become records; `misfits` tells what of them no broker takes.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from ...formats.json_table import JsonField, JsonTable, Member
from ...formats.topics import TOPIC_FILTER_TYPE
from ..counted import counted

DEEPEST = 100
TOO_DEEP = f"nested deeper than {DEEPEST} levels"
MOST_VALUES = 8_000_000
_SHORT_BYTES, _MOST_KEPT = 1 << 16, 64
"""Of texts up to this length so many are kept: one command asks for each file several times."""
_LONGEST_NUMBER = 40
CONFIG_VALUE = "config_value"
"""Type of a record of what fits no table."""
_CONSTANTS = frozenset({"mode", TOPIC_FILTER_TYPE, "type"})
"""Texts that name one of a few constants: another one counts as none, what is no text is refused."""
_INTEGER = JsonField("", "integer", "", bits=32)
_VALUE, _NEXT = "a value", "a comma or an end"
_TABLE = 2
"""So many containers are open inside of a table."""
_BLANK = r" \t\r\n\f\x08"
_COMMENTS = r"|/\*.*?\*/|//[^\n]*+"
_TOKENS = (
    r"(?:(?P<text>\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+')"
    # a letter behind a number is its type in Java
    r"|(?P<number>-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?)[BDFLS]?+"
    r"|(?P<word>[A-Za-z_$][\w$.]*+)"
    r"|(?P<sign>[][{}:,]))"
)


def _tokens(blanks: str) -> re.Pattern[str]:
    """One token behind blanks and comments."""
    return re.compile(rf"(?:[{blanks}]++{_COMMENTS})*+{_TOKENS}", re.DOTALL)


_TOKEN = _tokens(_BLANK)
_TOKEN_OR_CONTROLS = _tokens(r"\x00-\x19\x1b- \x7f")
_TOKEN_OR_NUL = re.compile(rf"[{_BLANK}]*+\0?+{_TOKEN.pattern}", re.DOTALL)
_INSTEAD_OF_COMMA = re.compile(rf"[\x00-\x19\x1b- \x7f]*+[^\x00- \"',/\]fntx+}}\x7f](?=[{_BLANK}]*+[\"}}])")
"""One character between two entries of a map, of those that are a token by themselves."""
_BEHIND = re.compile(rf"(?:[\s\0]++{_COMMENTS})*+", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}
_BOM = "\ufeff"
_PLAIN = re.compile(r"[^\\\x00-\x1f]*+")


class Grammar(StrEnum):
    """What is passed over besides. fastjson: control characters behind a value and between numbers,
    one character in the place of a comma between two entries, each comma between numbers. fastjson2:
    commas of tables where a blank stands, a NUL behind signs. What fastjson takes by chance besides, as another
    sign for a brace, counts as broken: that is no all-clear.
    """

    PLAIN = "JSON"
    FASTJSON = "fastjson"
    FASTJSON_2 = "fastjson2"


class ParsedConfig(NamedTuple):
    """What a text says. value: None without any. position, problem: byte and what is wrong there.

    note: what is odd but taken. gives_up: after this problem a broker does not look at the .bak.
    whole: it was read to its end, and only its value is none that a file has. numbered: members with
    keys inside that are no texts. open: keys down to where it goes wrong; what they lead to is not whole.
    bare: some key has no quotes.
    """

    value: Any
    problem: str = ""
    position: int = 0
    note: str = ""
    gives_up: bool = False
    whole: bool = False
    numbered: frozenset[Any] = frozenset()
    open: tuple[Any, ...] = ()
    bare: bool = False


def parse(data: bytes, grammar: Grammar = Grammar.PLAIN) -> ParsedConfig:
    """Parse; never raises."""
    if len(data) > _SHORT_BYTES:
        return _parse(data, grammar)
    parsed: ParsedConfig = pickle.loads(_parse_once(data, grammar))  # each caller may change its value
    return parsed


def _parse(data: bytes, grammar: Grammar) -> ParsedConfig:
    text = data.decode("utf-8", "surrogateescape")
    if not data.strip(b"\0 \t\r\n"):
        return ParsedConfig(None, _nothing(data))
    reader = _Reader(text, len(_BOM) if text.startswith(_BOM) else 0, grammar)
    try:
        reader.read()
    except _WrongCharacter as wrong:
        position = len(text[: wrong.at].encode("utf-8", "surrogateescape"))
        return ParsedConfig(reader.top, wrong.what, position, open=reader.open)
    if not isinstance(reader.top, dict):
        return ParsedConfig(reader.top, "not an object", 0, whole=True)
    note = _note(text, data, len(text) - reader.at)
    return ParsedConfig(reader.top, note=note, numbered=frozenset(reader.numbered), bare=reader.bare)


@lru_cache(_MOST_KEPT)
def _parse_once(data: bytes, grammar: Grammar) -> bytes:
    return pickle.dumps(_parse(data, grammar))


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


class _WrongCharacter(Exception):
    """Something that a broker does not read, at a character."""

    def __init__(self, what: str, at: int) -> None:
        self.what = what
        self.at = at


class _Reader:
    """One pass over the text; containers fill as it goes, so a cut leaves what was read."""

    def __init__(self, text: str, at: int, grammar: Grammar) -> None:
        self.text = text
        self.at = at
        self.top: Any = None
        self.numbered: set[Any] = set()
        self.bare = False
        self._grammar = grammar
        self._by_numbers: list[bool] = []
        """Of each open container, whether its last key was a number."""
        self._behind_sign = True
        self._open: list[tuple[Any, Any]] = []
        """Containers around the place where the text is, each with the key that waits for it."""
        self._values = 0

    @property
    def open(self) -> tuple[Any, ...]:
        """Keys of the containers around the place where the text is."""
        return tuple(key for _, key in self._open[1:])

    def read(self) -> None:
        """Read all of the text. Raises _Wrong."""
        self._value(*self._token(_VALUE), None)
        while self._open:
            container, _ = self._open[-1]
            kind, token = self._token("the next entry" if container else "an entry or the end")
            if kind == "sign" and token == ("}" if isinstance(container, dict) else "]"):
                self._open.pop()
                self._by_numbers.pop()
                if self._open:
                    self._behind_value()
            elif isinstance(container, dict):
                key = self._key(kind, token)
                self._value(*self._token(_VALUE), key)
            else:
                self._value(kind, token, None)
        if not _BEHIND.fullmatch(self.text, self.at):
            raise _WrongCharacter("there is more behind the end of the JSON", self.at)

    def _token(self, wanted: str) -> tuple[str, str]:
        match = self._pattern(wanted).match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].strip("\0 \t\r\n\f")
            what = "cannot read" if rest else "the file ends before"
            if rest[:1] in ('"', "'"):
                what = "the file ends inside"
            raise _WrongCharacter(f"{what} {wanted}", self.at)
        self.at = match.end()
        kind = match.lastgroup or ""
        self._behind_sign = kind == "sign"
        return kind, match[kind]

    @property
    def _by_number(self) -> bool:
        return bool(self._by_numbers) and self._by_numbers[-1]

    def _pattern(self, wanted: str) -> re.Pattern[str]:
        """A token, with what may stand in front of it here."""
        loose = self._by_number or wanted in (_VALUE, _NEXT)
        if self._grammar is Grammar.FASTJSON and loose and self._open:
            return _TOKEN_OR_CONTROLS
        if self._grammar is Grammar.FASTJSON_2 and self._behind_sign and not self._by_number:
            return _TOKEN_OR_NUL
        return _TOKEN

    def _key(self, kind: str, token: str) -> Any:
        begin = self.at - len(token)
        self._by_numbers[-1] = kind == "number"
        if self._by_number and len(self._open) > 1:
            self.numbered.add(self._open[1][1])
        self.bare |= kind == "word"
        if kind == "sign":
            raise _WrongCharacter(f"{token} where a key should be", begin)
        colon = self._token("a colon")
        if colon != ("sign", ":"):
            raise _WrongCharacter("no colon behind a key", self.at - len(colon[1]))
        return self._string(token, begin) if kind == "text" else token

    def _value(self, kind: str, token: str, key: Any) -> None:
        begin = self.at - len(token)
        self._values += 1
        if self._values > MOST_VALUES:
            raise _WrongCharacter(f"more than {MOST_VALUES} values", begin)
        value: Any
        if kind == "sign":
            if token not in "{[":
                raise _WrongCharacter(f"{token} where a value should be", begin)
            if len(self._open) >= DEEPEST:
                raise _WrongCharacter(TOO_DEEP, begin)
            value = {} if token == "{" else []
        elif kind == "text":
            value = self._string(token, begin)
        elif kind == "number":
            value = _number(token)
        elif token in _WORDS:
            value = _WORDS[token]
        else:
            raise _WrongCharacter(f"{_short(token)} where a value should be", begin)
        if kind != "number" or len(self._open) != 1 or self.text[self.at :].strip("\0"):
            self._store(value, key)  # a number of the file itself that may have lost digits is none
        if kind == "sign":
            self._open.append((value, key))
            self._by_numbers.append(False)
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
        before, entry_ended = self.at, self._behind_sign
        if entry_ended and self._instead_of_comma():
            return
        kind, token = self._token(_NEXT)
        if kind == "sign" and token in "]}":
            self.at -= len(token)
        elif (kind, token) != ("sign", ",") and not self._no_comma(before, kind):
            raise _WrongCharacter("no comma behind a value", self.at - len(token))

    def _instead_of_comma(self) -> bool:
        """fastjson takes any token for the comma between two entries of a table."""
        if self._grammar is not Grammar.FASTJSON or self._by_number or len(self._open) != _TABLE:
            return False
        other = _INSTEAD_OF_COMMA.match(self.text, self.at)
        self.at = other.end() if other else self.at
        return other is not None

    def _no_comma(self, before: int, kind: str) -> bool:
        """The next key stands where a comma should, and that is passed over."""
        blank = self.text[before : before + 1] <= " " or self.text[before] == "-"
        numbers = self._grammar is Grammar.FASTJSON and self._by_number and kind == "number"
        second = self._grammar is Grammar.FASTJSON_2 and kind in ("number", "text", "word")
        in_table = isinstance(self._open[-1][0], dict) and len(self._open) >= _TABLE
        if not (in_table and blank and (numbers or second)):
            return False
        self.at = before
        return True

    def _string(self, token: str, begin: int) -> str:
        inside = token[1:-1]
        if not _PLAIN.fullmatch(inside):
            try:
                # a quote of the other kind has no backslash, single ones may have one
                quoted = inside.replace("\\'", "'") if token[0] == "'" else inside
                quoted = re.sub(r'(?<!\\)"', '\\"', quoted) if token[0] == "'" else quoted
                inside = json.loads(f'"{quoted}"', strict=False)
            except ValueError as error:
                raise _WrongCharacter("a text with an invalid escape", begin) from error
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


def with_numbers(value: Any) -> Any:
    """Keys that are numbers as numbers, and whole numbers without a point, as a broker writes them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [with_numbers(item) for item in value]
    if not isinstance(value, dict):
        return value
    texts = (key for key in value if isinstance(key, str) and key.isascii() and key.isdigit())
    numbers = {key: int(key) for key in texts if len(key) < 20}
    return {numbers.get(key, key): with_numbers(item) for key, item in value.items()}


def entries(table: JsonTable, value: Any, head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Records of one table; what does not fit is a `config_value` that says so.

    head: fields in front of all others.
    """
    table_head = {**head, "table": table.member} if table.member else dict(head)
    for path, keys, entry in _walk(table, value):
        record = _record(table, table_head, keys, entry) if keys is not None else None
        if record is None:
            name = ".".join((table.member, *path))
            yield {
                "type": CONFIG_VALUE,
                **head,
                "name": name,
                "value": entry,
                "problem": f"no {table.record_type.replace('_', ' ')}",
            }
        else:
            yield record


_Keys = dict[str, Any]


def _walk(table: JsonTable, value: Any) -> Iterator[tuple[tuple[str, ...], _Keys | None, Any]]:
    """(place, keys, entry) of all entries; keys None where the levels are not as declared."""
    level: list[tuple[tuple[str, ...], _Keys | None, Any]] = [((), {}, value)]
    for step in table.levels:
        level = [found for one in level for found in _down(step, *one)]
    return iter(level)


def _down(
    step: JsonField | tuple[JsonField, JsonField] | Member, place: tuple[str, ...], keys: _Keys | None, value: Any
) -> Iterator[tuple[tuple[str, ...], _Keys | None, Any]]:
    if keys is None or not isinstance(value, dict):
        yield place, None, value
    elif isinstance(step, Member):
        inner = value.get(step.name)
        yield (*place, step.name), keys if isinstance(inner, dict) else None, inner
    else:
        for name, entry in value.items():
            found = _key(step, str(name))
            yield (*place, str(name)), None if found is None else keys | found, entry


def _key(step: JsonField | tuple[JsonField, JsonField], name: str) -> _Keys | None:
    """What one key gives to a record, None for one that is not as declared."""
    if not isinstance(step, JsonField):
        # a topic may have an @ or _ itself, a group or number has none
        first, separator, second = name.rpartition(step[1].after)
        last = _key(step[1], second)
        return {step[0].column: first} | last if separator and last is not None else None
    if step.type == "integer":
        plain = name.removeprefix("-")
        return {step.column: int(name)} if plain.isdecimal() and len(plain) < 20 else None
    return {step.column: name}


def _record(table: JsonTable, head: Mapping[str, Any], keys: _Keys, entry: Any) -> dict[str, Any] | None:
    record = {"type": table.record_type, **head, **keys}
    if table.value is not None:
        return {**record, table.value.column: entry} if table.value.fits(entry) else None
    if not isinstance(entry, dict):
        return None
    more = dict(entry)
    for field in table.fields:
        if field.name in more and field.fits(more[field.name]):
            record[field.column] = more.pop(field.name)
    for field in table.keys:  # the broker writes some keys into the entry once more
        if more.get(field.name) == keys[field.column]:
            del more[field.name]
    return {**record, "more": more} if more else record


class Misfit(NamedTuple):
    """What a manager does not take: `holder[key]`, or the key itself."""

    text: str
    holder: dict[Any, Any]
    key: Any


def misfits(table: JsonTable, entry: Any) -> Iterator[Misfit]:
    """What of a table has another type than the fields of its manager, or is a number beyond them."""
    level = [Misfit(table.member, {table.member: entry}, table.member)]
    for step in table.levels:
        below: list[Misfit] = []
        for place, holder, name in level:
            value = holder[name]
            if not isinstance(value, dict):
                yield Misfit(f"{place} is no object", holder, name)
            elif isinstance(step, Member):
                below += [Misfit(step.name, value, step.name)] if step.name in value else []
            else:
                integer = step if isinstance(step, JsonField) and step.type == _INTEGER.type else None
                for key in value:
                    if integer and not integer.holds(str(key)):
                        yield Misfit(f"a key of {place} is no {integer.told}", value, key)
                    else:
                        below.append(Misfit(f"an entry of {place}", value, key))
        level = below
    for place, holder, name in level:
        value = holder[name]
        if table.value is not None:
            yield from _misfits_of(table.value, holder, name, place)
            if value in (None, "") and not table.value.nullable:
                yield Misfit(f"{place} is no {table.value.told}", holder, name)
        elif not isinstance(value, dict):
            yield Misfit(f"{place} is no object", holder, name)
        else:
            for one in table.fields:
                if one.name in value:
                    yield from _misfits_of(one, value, one.name, f"{one.name} of {place}")


def _misfits_of(one: JsonField, holder: dict[Any, Any], key: Any, place: str) -> Iterable[Misfit]:
    """The same of one value. An array counts as a whole: what an item means may be a matter of its place."""
    value = holder[key]
    if not _fits(one, value):
        return [Misfit(f"{place} is no {one.told}", holder, key)]
    if one.inner is None or not value:
        return ()
    if isinstance(value, dict):
        return misfits(one.inner, value)
    items = (item for item in value if item is not None or one.inner.value)
    found = (misfit for item in items for misfit in misfits(one.inner, item))
    return [Misfit(f"an item of {place}: {misfit.text}", holder, key) for misfit in islice(found, 1)]


def _fits(field_: JsonField, value: Any) -> bool:
    """Whether a broker's parser makes one of the field's type of it."""
    if value is None or value == "":
        return True
    if field_.type == "integer":
        return isinstance(value, bool | float) or (isinstance(value, int | str) and field_.holds(value))
    if field_.fits(value):
        return True
    if field_.type == "boolean":
        return isinstance(value, int) or value in ("true", "false")
    return field_.type == "string" and field_.name not in _CONSTANTS
