"""What a broker takes of one file of `config/` and its .bak (spec 05, 5.2).

The text is read as `config_parse` does; then the tables have to have the shape that the manager's
fields have. Versions differ by `config_rules`. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...formats.json_table import DATA_VERSION, JsonField, JsonTable, Member
from ...formats.kinds import KINDS
from ..config_file import BACKUP, FILES, read_content
from ..config_json import loads
from ..config_parse import TOO_DEEP, Parsed, parse
from ..errors import Missing, StoreError
from .config_rules import ConfigRules

_VERSION = "dataVersion"
_INTEGERS = frozenset({"integer"})
_CONSTANTS = frozenset({"mode", "topicFilterType", "type"})
"""Texts that name one of a few constants: another one counts as none, what is no text is refused."""
_STACK = "nested so deep that the broker dies of it (StackOverflowError)"
_LONG_BYTES = 1 << 20
_BLANKS = b" \t\r\n"


class Start(StrEnum):
    """What a start does with a file: takes it, takes its .bak, begins with an empty table, ends."""

    LOADS = "loads"
    BACKUP = "backup"
    EMPTY = "empty"
    REFUSES = "refuses"


@dataclass(frozen=True)
class Text:
    """One file as a broker reads it. value: what can be read, of a broken file what stands before.

    problem: why it is not taken, "" where it is. there: it has at least one byte; present: it exists.
    deep: nested so deep that a recursive parser runs out of stack. fails: it is taken, and what uses
    its table fails. unseen: what it has cannot be looked at here. dies: whoever reads it dies of the
    problem.
    """

    there: bool
    value: dict[Any, Any] = field(default_factory=dict)
    problem: str = ""
    deep: bool = False
    present: bool = True
    fails: bool = False
    unseen: bool = False
    dies: bool = False


@dataclass(frozen=True)
class Loaded:
    """The outcome of one load. dies: of what the broker dies in it, "" where it does not."""

    name: str
    start: Start
    main: Text
    backup: Text
    dies: str = ""

    @property
    def taken(self) -> Text | None:
        """The file or the .bak, None where neither is taken."""
        return {Start.LOADS: self.main, Start.BACKUP: self.backup}.get(self.start)

    @property
    def reason(self) -> str:
        """Why the start ends, or the file is not taken; "" for a file that is."""
        name = f"config/{self.name}"
        if self.start is Start.LOADS:
            return ""
        if self.dies:
            return f"{name}: {self.dies}"
        if self.start is Start.REFUSES and not self.backup.there:  # a RocksDB stands for the file
            return self.main.problem
        why = f"{name} cannot be read ({self.main.problem})"
        if self.start is Start.BACKUP:
            return why
        if not self.backup.there:
            return f"{why} and there is no {BACKUP}"
        return f"{why}, nor its {BACKUP} ({self.backup.problem})"


def load_config(directory: Path, name: str, rules: ConfigRules) -> Loaded:
    """Load one file of a `config` directory, which need not be there."""
    main = read_text(directory / name, rules)
    if main.there and not main.problem:
        return Loaded(name, Start.LOADS, main, read_text(directory / (name + BACKUP), rules))
    backup = read_text(directory / (name + BACKUP), rules)
    if dies := _dies(main, rules):
        return Loaded(name, Start.REFUSES, main, backup, dies)
    if not backup.there:
        return Loaded(name, Start.EMPTY, main, backup)
    if not backup.problem:
        return Loaded(name, Start.BACKUP, main, backup)
    return Loaded(name, Start.REFUSES, main, backup, _dies(backup, rules))


def _dies(text: Text, rules: ConfigRules) -> str:
    """What kills a broker that reads it, "" for nothing."""
    if text.dies:
        return text.problem
    return _STACK if text.deep and rules.deep_ends_start else ""


def read_text(path: Path, rules: ConfigRules) -> Text:
    """A file, or a .bak, as it is; one that cannot be opened counts as broken."""
    try:
        content = read_content(path)
    except Missing:
        return Text(there=False, problem="missing", present=False)
    except StoreError as error:
        return Text(there=True, problem=error.message)
    name = path.name.removesuffix(BACKUP)
    if content.larger:  # nothing says that it is broken
        return Text(there=True, unseen=True)
    if content.problem:
        parsed = _parsed(content.data)
        value = parsed.value if isinstance(parsed.value, dict) else {}
        return Text(not content.empty, value, content.problem, dies=content.dies)
    return judge(name, content.data, rules)


def judge(name: str, data: bytes, rules: ConfigRules) -> Text:
    """The same of the bytes of a file of this name."""
    if not data:
        return Text(there=False, problem="empty")
    if not data.strip(_BLANKS) and name in rules.blank_is_empty:
        return Text(there=True)
    parsed = _parsed(data)
    value = parsed.value if isinstance(parsed.value, dict) else {}
    if parsed.problem and not _is_empty_table(name, parsed, rules):
        deep = parsed.problem == TOO_DEEP and isinstance(parsed.value, dict)
        return Text(True, value, parsed.problem, deep)
    problem = "" if parsed.problem else _misfit(name, value, rules)
    return Text(True, value, problem, fails=not problem and _fails(name, value, rules))


def _fails(name: str, value: dict[Any, Any], rules: ConfigRules) -> bool:
    tables = [table.member for table in KINDS[FILES[name]].tables[:1]]
    none = (None, "") if name in rules.no_text_is_null else (None,)
    return name in rules.null_fails and any(value.get(name, 0) in none for name in tables)


def _parsed(data: bytes) -> Parsed:
    """As `parse`; what is long and as a broker writes it is read some times faster."""
    if len(data) > _LONG_BYTES:
        try:
            value = loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return Parsed(value)
    return parse(data)


def _is_empty_table(name: str, parsed: Parsed, rules: ConfigRules) -> bool:
    """`null`, and for some parsers an empty list or text, is an object of nothing but defaults."""
    if not parsed.whole:
        return False
    if parsed.value == "":
        return name in rules.no_text_is_empty
    return parsed.value is None or (parsed.value == [] and rules.list_is_empty)


def _misfit(name: str, value: dict[Any, Any], rules: ConfigRules) -> str:
    """Why the manager of this file refuses a whole text, "" where it takes it."""
    for table in KINDS[FILES[name]].tables:
        if table.member == _VERSION:
            continue
        entry, member = value.get(table.member), table.member
        if member not in value:
            if name in rules.table_needed:
                return f"no {member}"
        elif entry is None or (entry == "" and name in rules.no_text_is_null):
            if name in rules.null_refused:
                return f"{member} is null"
        elif text := next(misfits(table, entry), ""):
            return text
    return _misfit_version(value, rules.refused_as_version(name)) if _VERSION in value else ""


def _misfit_version(value: dict[Any, Any], refused: tuple[type, ...]) -> str:
    version = value[_VERSION]
    if isinstance(version, refused):
        return f"{_VERSION} is no object"
    if refused and isinstance(version, dict):
        for one in DATA_VERSION.fields:
            if not _fits(one, version.get(one.name)):
                return f"{one.name} of {_VERSION} is no {one.type}"
    return ""


def misfits(table: JsonTable, entry: Any) -> Iterator[str]:
    """What of a table has another type than the fields of its manager."""
    level: list[tuple[str, Any]] = [(table.member, entry)]
    for step in table.levels:
        below: list[tuple[str, Any]] = []
        for place, value in level:
            if not isinstance(value, dict):
                yield f"{place} is no object"
                return
            if isinstance(step, Member):
                if value.get(step.name) is not None:
                    below.append((step.name, value[step.name]))
                continue
            for key, inner in value.items():
                if _integer_key(step) and not _is_number(key):
                    yield f"a key of {place} is no number"
                    return
                below.append((f"an entry of {place}", inner))
        level = below
    for place, value in level:
        if table.value is not None:
            if not _fits(table.value, value) or value in (None, ""):
                yield f"{place} is no {table.value.type}"
        elif not isinstance(value, dict):
            yield f"{place} is no object"
        else:
            for one in table.fields:
                if one.name in value and not _fits(one, value[one.name]):
                    yield f"{one.name} of {place} is no {one.type}"


def _integer_key(step: JsonField | tuple[JsonField, JsonField]) -> bool:
    return isinstance(step, JsonField) and step.type in _INTEGERS


def _is_number(key: Any) -> bool:
    text = str(key).removeprefix("-")
    return text.isascii() and text.isdecimal()


def _fits(field_: JsonField, value: Any) -> bool:
    """Whether a broker's parser makes one of the field's type of it."""
    if isinstance(value, dict) and any(
        not isinstance(inner, str | None) for key, inner in value.items() if key in _CONSTANTS
    ):
        return False
    if value is None or value == "" or field_.fits(value):
        return True
    if field_.type == "integer":
        return isinstance(value, bool | float) or (isinstance(value, str) and _is_number(value))
    if field_.type == "boolean":
        return isinstance(value, int) or value in ("true", "false")
    if field_.name in _CONSTANTS:
        return False
    return field_.type == "string"
