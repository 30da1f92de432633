"""The invariants of docs/invariants.md as data: what each says, and texts for findings that break it.

The texts are in `catalogue/*.toml`, one file per group; a test fails for a code with a check but no text, or a text but
no check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from pkgutil import get_data
from typing import NamedTuple


class Severity(IntEnum):
    """How bad a finding is, in increasing order."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    FATAL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Invariant(NamedTuple):
    """One row of the catalogue.

    statement: what is true of a sound store. broker: what a broker does otherwise. repair: a word of
    `findings.next_commands`, or a command by hand with {store}, {path}, {topic}, {queue_id} and {position} to fill in;
    "" for none. cause, log, effect: how it happens, the broker's own log line, what users notice. links: incidents.
    unchecked: why files alone cannot show it, "" if they can.
    """

    code: str
    group: str
    severity: Severity
    statement: str
    broker: str
    repair: str
    cause: str
    log: str
    effect: str
    links: tuple[str, ...] = ()
    unchecked: str = ""


GROUPS = ("layout", "commit_log", "consume_queue", "index", "checkpoint", "timer", "config", "compaction", "start")
"""The groups A … H of docs/invariants.md, and the next start, by the names of their file and module of checks."""


class Catalogue(Mapping[str, Invariant]):
    """Every invariant by its code, in the order of docs/invariants.md.

    The texts of a group are parsed when one is first used: to parse all takes longer than to check a small store.
    """

    def __getitem__(self, code: str) -> Invariant:
        return of_group(group_of()[code])[code]

    def __iter__(self) -> Iterator[str]:
        return iter(group_of())

    def __len__(self) -> int:
        return len(group_of())


def catalogue() -> Catalogue:
    return Catalogue()


@cache
def group_of() -> dict[str, str]:
    """Return the group of each code, in the order of docs/invariants.md, without parsing the texts."""
    lines = ((line, group) for group in GROUPS for line in _text(group).splitlines())
    return {line[1:-1]: group for line, group in lines if line.startswith("[I-")}


@cache
def of_group(group: str) -> dict[str, Invariant]:
    """Return the invariants of one group, in the order of docs/invariants.md."""
    import tomllib  # only needed when something is wrong

    found: dict[str, Invariant] = {}
    for code, row in tomllib.loads(_text(group)).items():
        severity = Severity[row.pop("severity").upper()]
        links = tuple(row.pop("links", ()))
        found[code] = Invariant(code=code, group=group, severity=severity, links=links, **row)
    return found


@cache
def _text(group: str) -> str:
    data = get_data(__package__, f"catalogue/{group}.toml")
    assert data is not None
    return data.decode("utf-8")
