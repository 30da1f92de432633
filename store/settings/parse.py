"""A tolerant parser for the JSON of `config/`: what is wrong, where, and everything that can be read.

It accepts what brokers accept (measured with the real classes of 4.3.1 to 5.5.0): keys without quotes or with single
ones, comments, commas at the end of a list, a byte order mark, NULs behind the end; of a key that occurs twice the last
value. It does not recurse, and bounds depth and number of values. A text that ends early or is malformed gives the part
before that place. `Grammar` is what each of the two parsers of brokers accepts besides.

The entries of a table, as formats.json_table declares it, become records; `misfits` finds values that no broker takes.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from ...formats.json_table import JsonField, JsonTable, Member
from ...formats.topics import TOPIC_FILTER_TYPE
from ..broker.topics import with_quoted_keys
from ..counted import counted

DEEPEST = 100
TOO_DEEP = f"nested deeper than {DEEPEST} levels"
MOST_VALUES = 8_000_000
_DIGITS_MAX = 20
"""No broker writes a number of more digits."""
_CACHED_BYTES, _CACHED_TEXTS = 1 << 16, 64
"""So many texts up to this length are cached parsed: one command asks for each file several times."""
_LONG_BYTES = 1 << 20
"""Of longer texts of plain JSON `numbered` is not known."""
_LONGEST_NUMBER = 40
NO_BYTE = "empty"
"""What is wrong with a file without a byte."""
CONFIG_VALUE = "config_value"
"""Type of a record for a value that fits no table."""
_CONSTANTS = frozenset({"mode", TOPIC_FILTER_TYPE, "type"})
"""Fields that name one of a few constants: an unknown text counts as null, another type is refused."""
_INTEGER = JsonField("", "integer", "", bits=32)
_VALUE, _NEXT = "a value", "a comma or an end"
_TABLE = 2
"""Number of open containers inside a table."""
_BLANK = r" \t\r\n\f\x08"
_COMMENTS = r"|/\*.*?\*/|//[^\n]*+"
_TOKENS = (
    r"(?:(?P<text>\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+')"
    # in Java a letter behind a number is its type
    r"|(?P<number>-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?)[BDFLS]?+"
    r"|(?P<word>[A-Za-z_$][\w$.]*+)"
    r"|(?P<sign>[][{}:,]))"
)


def _tokens(blanks: str) -> re.Pattern[str]:
    """A pattern for blanks and comments, then one token."""
    return re.compile(rf"(?:[{blanks}]++{_COMMENTS})*+{_TOKENS}", re.DOTALL)


_TOKEN = _tokens(_BLANK)
_TOKEN_OR_CONTROLS = _tokens(r"\x00-\x19\x1b- \x7f")
_TOKEN_OR_NUL = re.compile(rf"[{_BLANK}]*+\0?+{_TOKEN.pattern}", re.DOTALL)
_INSTEAD_OF_COMMA = re.compile(rf"[\x00-\x19\x1b- \x7f]*+[^\x00- \"',/\]fntx+}}\x7f](?=[{_BLANK}]*+[\"}}])")
"""One character between two entries of a map, if it is a token by itself for fastjson."""
_BLANKS_AT_END = re.compile(rf"(?:[\s\0]++{_COMMENTS})*+", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}
_BOM = "\ufeff"
_STRICT_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")
_LONG_NUMBER = re.compile(rb"[-.\d]{%d}" % _LONGEST_NUMBER)
_HALF_CHARACTER = re.compile(rb"\\u[dD]")
"""Half of a character of UTF-16, perhaps without the other one."""
_NO_ESCAPE = re.compile(r"[^\\\x00-\x1f]*+")


class Grammar(StrEnum):
    """What a parser accepts beyond `parse`'s own rules.

    fastjson: control characters behind a value and between numbers, one other character in place of a comma between two
    entries, missing commas between numbers. fastjson2: blanks in place of commas in tables, a NUL behind signs. Other
    things that fastjson accepts by chance, such as another sign for a brace, count as broken, to be on the safe side.
    """

    PLAIN = "JSON"
    FASTJSON = "fastjson"
    FASTJSON_2 = "fastjson2"


class ParsedConfig(NamedTuple):
    """The parsed content of a text.

    value: None if there is none. position, problem: byte, and what is wrong there. note: odd but accepted content.
    gives_up: after this problem a broker does not read the .bak. whole: the text was read to its end, only its value is
    of the wrong type. numbered: members that have keys inside that are not texts. open: keys that lead to the place of
    the problem; the values there are incomplete. bare: some key has no quotes.
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
    """Parse a text; never raises."""
    if len(data) > _CACHED_BYTES:
        return _parse(data, grammar)
    parsed: ParsedConfig = pickle.loads(_parse_once(data, grammar))  # a copy, since callers may change it
    return parsed


def _parse(data: bytes, grammar: Grammar) -> ParsedConfig:
    plain = _plain(data, quoting=grammar is Grammar.PLAIN and len(data) > _LONG_BYTES)
    if plain is not None:
        return ParsedConfig(plain)
    text = data.decode("utf-8", "surrogateescape")
    if not data.strip(b"\0 \t\r\n"):
        return ParsedConfig(None, _problem_of_empty(data))
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


def _plain(data: bytes, *, quoting: bool) -> dict[str, Any] | None:
    """The object of a text that Python's own parser reads like `_Reader`, only quicker; None for any other text.

    quoting: keys that are numbers, as brokers write offsets, are read, too.
    """
    signs = _STRICT_TEXT.sub(b"", data)
    most = signs.count(b",") + signs.count(b"{") + signs.count(b"[") + 1
    if most > MOST_VALUES or _is_deep(signs) or _LONG_NUMBER.search(signs) or _HALF_CHARACTER.search(data):
        return None
    try:
        text = data.decode()
        value = _STRICT.decode(with_quoted_keys(text) if quoting else text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _is_deep(signs: bytes) -> bool:
    """Whether containers lie deeper than `DEEPEST` in a text without its strings."""
    depth = 0
    for sign in _BRACKETS.findall(signs):
        depth += 1 if sign in b"{[" else -1
        if depth > DEEPEST:
            return True
    return False


@lru_cache(_CACHED_TEXTS)
def _parse_once(data: bytes, grammar: Grammar) -> bytes:
    return pickle.dumps(_parse(data, grammar))


def _problem_of_empty(data: bytes) -> str:
    if not data:
        return NO_BYTE
    return f"{counted(len(data), 'NUL byte')} and nothing else" if b"\0" in data else "only blanks"


def _note(text: str, data: bytes, unread: int) -> str:
    notes = []
    if text.startswith(_BOM):
        notes.append("begins with a byte order mark")
    if unread and "\0" in text[-unread:]:
        zeros = text[-unread:].count(chr(0))
        notes.append(f"{counted(zeros, 'NUL byte')} behind the end")
    if not text.isascii() and any("\udc80" <= c <= "\udcff" for c in text):
        notes.append("not valid UTF-8")
    return "; ".join(notes)


class _WrongCharacter(Exception):
    """Something at a character that a broker does not accept."""

    def __init__(self, what: str, at: int) -> None:
        self.what = what
        self.at = at


class _Reader:
    """One pass over the text; containers are filled on the way, so that a cut text gives what was read."""

    def __init__(self, text: str, at: int, grammar: Grammar) -> None:
        self.text = text
        self.at = at
        self.top: Any = None
        self.numbered: set[Any] = set()
        self.bare = False
        self._grammar = grammar
        self._by_numbers: list[bool] = []
        """For each open container, whether its last key is a number."""
        self._behind_sign = True
        self._open: list[tuple[Any, Any]] = []
        """The open containers, outermost first, each with the key under which its parent has it."""
        self._values = 0

    @property
    def open(self) -> tuple[Any, ...]:
        """Keys that lead to the innermost open container."""
        return tuple(key for _, key in self._open[1:])

    def read(self) -> None:
        """Read all of the text. Raises _WrongCharacter."""
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
        if not _BLANKS_AT_END.fullmatch(self.text, self.at):
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
        """The pattern of the next token, with what may precede it here."""
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
            self._store(value, key)  # not a top-level number at the end of the file, which may have lost digits
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
        """Read a comma. The end of the container is left to the caller."""
        before, entry_ended = self.at, self._behind_sign
        if entry_ended and self._instead_of_comma():
            return
        kind, token = self._token(_NEXT)
        if kind == "sign" and token in "]}":
            self.at -= len(token)
        elif (kind, token) != ("sign", ",") and not self._no_comma(before, kind):
            raise _WrongCharacter("no comma behind a value", self.at - len(token))

    def _instead_of_comma(self) -> bool:
        """Skip a character that fastjson takes for the comma between two entries of a table."""
        if self._grammar is not Grammar.FASTJSON or self._by_number or len(self._open) != _TABLE:
            return False
        other = _INSTEAD_OF_COMMA.match(self.text, self.at)
        self.at = other.end() if other else self.at
        return other is not None

    def _no_comma(self, before: int, kind: str) -> bool:
        """Whether the next key may follow without a comma; the position then goes back to it."""
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
        if not _NO_ESCAPE.fullmatch(inside):
            try:
                # JSON has a backslash before " but none before '
                quoted = inside.replace("\\'", "'") if token[0] == "'" else inside
                quoted = re.sub(r'(?<!\\)"', '\\"', quoted) if token[0] == "'" else quoted
                inside = json.loads(f'"{quoted}"', strict=False)
            except ValueError as error:
                raise _WrongCharacter("a text with an invalid escape", begin) from error
        if inside.isascii():
            return inside
        return inside.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(token: str) -> Any:
    """An int or a float; a number that is too long or too large for both stays text."""
    if len(token) > _LONGEST_NUMBER:
        return token
    if token.lstrip("-").isdigit():
        return int(token)
    value = float(token)
    return value if abs(value) != float("inf") else token


_STRICT = json.JSONDecoder(strict=False, parse_float=_number, parse_constant=_no_number)


def _short(token: str) -> str:
    return token if len(token) <= _LONGEST_NUMBER else token[:_LONGEST_NUMBER] + "…"


def with_numbers(value: Any) -> Any:
    """Convert keys that are numbers to int, and whole floats to int, as a broker writes them."""
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
    """Yield records of one table; an entry that does not fit becomes a `config_value` that says so.

    head: fields that come first in each record.
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
    """(place, keys, entry) of all entries; keys is None if the levels are not as declared."""
    level: list[tuple[tuple[str, ...], _Keys | None, Any]] = [((), {}, value)]
    for step in table.levels:
        level = [found for one in level for found in _step_down(step, *one)]
    return iter(level)


def _step_down(
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
    """The fields that one key gives to a record; None for a key that is not as declared."""
    if not isinstance(step, JsonField):
        # a topic may contain @ or _, a group or number does not
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
    for field in table.keys:  # a broker repeats some keys in the entry
        if more.get(field.name) == keys[field.column]:
            del more[field.name]
    return {**record, "more": more} if more else record


class Misfit(NamedTuple):
    """Something that a broker's manager does not take: `holder[key]`, or the key itself."""

    text: str
    holder: dict[Any, Any]
    key: Any


def misfits(table: JsonTable, entry: Any) -> Iterator[Misfit]:
    """Yield what in a table has another type than the fields of its manager, or is a number out of range."""
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


def without_damaged_row(rows: Any, keys: Sequence[Any], levels: int) -> Any:
    """Return the rows of a table without the damaged one, of which a part alone does harm: a segment of a tiered store
    without its size, a static topic without the number of its queues.

    keys: path to the damaged value. levels: number of keys to a row.
    """
    if len(keys) < levels or not isinstance(rows, dict) or keys[0] not in rows:
        return rows
    if levels == 1:
        return {key: row for key, row in rows.items() if key != keys[0]}
    return {**rows, keys[0]: without_damaged_row(rows[keys[0]], keys[1:], levels - 1)}


def is_int(value: Any) -> bool:
    """Whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def numbers(value: Any) -> Any:
    """Offsets as a broker's parser reads them: `true`, 1.5 and texts of digits count as numbers, too."""
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items()}
    if isinstance(value, bool | float):
        return int(value) if abs(value) < float("inf") else value
    if isinstance(value, str) and len(value) <= _DIGITS_MAX:
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdecimal() else value
    return value


def _misfits_of(one: JsonField, holder: dict[Any, Any], key: Any, place: str) -> Iterable[Misfit]:
    """The misfits of one value. A bad item makes the whole array a misfit, as its place may have a meaning."""
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
    """Whether a broker's parser converts the value to the field's type."""
    if value is None or value == "":
        return True
    if field_.type == "integer":
        return isinstance(value, bool | float) or (isinstance(value, int | str) and field_.holds(value))
    if field_.fits(value):
        return True
    if field_.type == "boolean":
        return isinstance(value, int) or value in ("true", "false")
    return field_.type == "string" and field_.name not in _CONSTANTS
