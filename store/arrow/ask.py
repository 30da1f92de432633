"""What a source is asked for: the options of `spark.read`, understood and checked once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ..disk.broker_conf import BrokerConfig
from ..errors import InvalidInput, StoreError, UnreadableRange
from ..offsets.positions import CONSUMED as OFFSETS
from ..offsets.positions import TABLES as OFFSET_TABLES
from ..search.selection import TimeRange, parse_range
from .stores import stores_of

REPORT = "report"
FAIL = "fail"
FAIL_UNREADABLE = "fail-unreadable"
NO_BODY, PLAIN_BODY, STORED_BODY = "none", "plain", "stored"
LOG = "log"
DAMAGE_OF = (LOG, "queue", "index", "timer", "offsets", "lag")
"""Of what damage may be asked for (`damage_rows`)."""
_ALL = "*"
_SEPARATOR = ","
ALWAYS = TimeRange()
BODY, BODY_CRC_OK, RAW = "body", "body_crc_ok", "raw"
_NOTES = {
    STORED_BODY: (BODY_CRC_OK, RAW),
    PLAIN_BODY: (BODY_CRC_OK, "body_compression", "body_error"),
}
"""What stands beside a body, and tells whether it is sound, and how a writer has to take it."""
OPTIONS = frozenset(
    {"path", "paths", "fields", "topics", "queue_id", "since", "until", "body", "on_damage"}
    | {"pushdown", "split_bytes", "broker_config", "quick", "tables", "of"}
)


@dataclass(frozen=True)
class Ask:
    """The options of a read.

    stores: root directories or URIs. fields: columns by name, None for the usual ones. topics:
    names or patterns as a shell's, none for all. times: by store time. body: `none`, `plain`
    (decompressed) or `stored`; where `fields` names a body it is one anyway. on_damage: `report`
    gives a row for what cannot be read, `fail` ends the query, `fail-unreadable` does so for bytes
    that a disk does not give. pushdown: let Spark hand filters down; its session must allow it, and
    the DataFrame must serve one query only (see `PushingLogReader`). split_bytes: size of a part
    that one task reads, None for what fits. config: of the brokers, as in broker.conf.
    quick: of findings, structure and ends only. tables: of offsets, some of `OFFSET_TABLES`. of_what:
    of damage, some of `DAMAGE_OF`.
    """

    stores: tuple[str, ...]
    fields: tuple[str, ...] | None = None
    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    times: TimeRange = ALWAYS
    body: str = NO_BODY
    on_damage: str = REPORT
    pushdown: bool = False
    split_bytes: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    tables: tuple[str, ...] = (OFFSETS,)
    of_what: tuple[str, ...] = (LOG,)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """From Spark's options, whose names it may have put into lower case.

        Raises InvalidInput, and as `stores_of`.
        """
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - OPTIONS):
            known = ", ".join(sorted(OPTIONS))
            raise InvalidInput(f"no option {unknown[0]!r} here", hint=f"there are {known}")
        body = _one_of(given, "body", (NO_BODY, PLAIN_BODY, STORED_BODY))
        return cls(
            stores=tuple(stores_of(_paths(given))),
            fields=with_notes(_list(given, "fields"), body) or None,
            topics=_list(given, "topics"),
            queue_id=_number(given, "queue_id"),
            times=parse_range(given.get("since"), given.get("until")),
            body=body,
            on_damage=_one_of(given, "on_damage", (REPORT, FAIL, FAIL_UNREADABLE)),
            pushdown=_one_of(given, "pushdown", ("false", "true")) == "true",
            split_bytes=_number(given, "split_bytes"),
            config=parse_object(given, "broker_config"),
            quick=_one_of(given, "quick", ("false", "true")) == "true",
            tables=_some_of(given, "tables", OFFSET_TABLES),
            of_what=_some_of(given, "of", DAMAGE_OF),
        )

    @property
    def broker_config(self) -> BrokerConfig:
        return BrokerConfig(dict(self.config))

    @property
    def fails(self) -> bool:
        """Damage ends the query."""
        return self.on_damage == FAIL

    def fails_at(self, error: StoreError) -> bool:
        """This error ends the query."""
        gone = self.on_damage == FAIL_UNREADABLE and isinstance(error, UnreadableRange)
        return self.fails or gone

    def columns(self, known: Iterable[str], usual: Iterable[str]) -> tuple[str, ...]:
        """The columns asked for. Raises InvalidInput for one that is not known."""
        if self.fields is None:
            return tuple(usual)
        names = tuple(known)
        if unknown := [name for name in self.fields if name not in names]:
            raise InvalidInput(
                f"no column {unknown[0]!r} here", hint=f"there are {', '.join(names)}"
            )
        return tuple(dict.fromkeys(self.fields))


def with_notes(fields: tuple[str, ...], body: str) -> tuple[str, ...]:
    """Some columns, and beside a body what tells how it is to be taken. body: as `Ask.body`.

    >>> with_notes(("topic", "body"), "plain")
    ('topic', 'body', 'body_crc_ok', 'body_compression', 'body_error')
    """
    notes = _NOTES.get(body, _NOTES[PLAIN_BODY]) if BODY in fields else ()
    return tuple(dict.fromkeys((*fields, *notes)))


def _paths(given: Mapping[str, str]) -> list[str]:
    """What `load` was given: one word, several lines of words, or several words."""
    several = json.loads(given["paths"]) if given.get("paths") else []
    words = [*given.get("path", "").splitlines(), *several]
    if not words:
        raise InvalidInput("no path is given", hint='write .load("/data/store")')
    return words


def _list(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    parts = (part.strip() for part in given.get(name, "").split(_SEPARATOR))
    return tuple(part for part in parts if part)


def _some_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Some of the values, or `*` for all; the first is the default. Raises InvalidInput."""
    wanted = _list(given, name) or values[:1]
    if unknown := [one for one in wanted if one not in (*values, _ALL)]:
        known = f"{', '.join(values)} or {_ALL}"
        raise InvalidInput(f"option {name}: no {unknown[0]!r} there", hint=f"there are {known}")
    return values if _ALL in wanted else tuple(dict.fromkeys(wanted))


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
        raise InvalidInput(f"option {name}: not a number: {text!r}")
    return int(text)


_DIGITS_MAX = 19


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """The option's value, which must be one of some; the first is the default."""
    value = given.get(name, values[0]).lower()
    if value not in values:
        raise InvalidInput(f"option {name}: not one of {', '.join(values)}: {value!r}")
    return value


def parse_object(given: Mapping[str, str], name: str) -> dict[str, str]:
    """A JSON object of an option, its values as texts. Raises InvalidInput."""
    try:
        found: Any = json.loads(given.get(name, "{}"))
    except ValueError as error:
        raise InvalidInput(f"option {name}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"option {name}: not a JSON object")
    return {str(key): str(value) for key, value in found.items()}
