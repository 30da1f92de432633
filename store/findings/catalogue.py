"""The invariants of docs/invariants.md as data: what each says, and what is told of one that is broken.

The texts stand in `catalogue/*.toml`, one file per group; a code that has a check and no text, or a
text and no check, fails a test.
"""

from __future__ import annotations

import tomllib
from enum import IntEnum
from functools import cache
from pkgutil import get_data
from typing import NamedTuple


class Severity(IntEnum):
    """How bad a finding is; the order counts."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    FATAL = 3

    @property
    def label(self) -> str:
        """As in JSON."""
        return self.name.lower()


class Invariant(NamedTuple):
    """One row of the catalogue.

    statement: what holds of a sound store. broker: what a broker does where it does not.
    repair: what mends it, a word of `store.next_commands`, or a command by hand with {store}, {path},
    {topic}, {queue_id} and {position} to fill in; "" for none. cause, log, effect: how it comes to
    be, the broker's own log line, what users notice. links: incidents. unchecked: why files alone cannot tell, "" where they can.
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


GROUPS = (
    "layout",
    "commit_log",
    "consume_queue",
    "index",
    "checkpoint",
    "timer",
    "config",
    "compaction",
    "start",
)
"""The groups A … H of docs/invariants.md, by the name of their file and of their module of checks, and the next start."""


@cache
def catalogue() -> dict[str, Invariant]:
    """Every invariant by its code, in the order of docs/invariants.md."""
    return {code: row for group in GROUPS for code, row in of_group(group).items()}


@cache
def of_group(group: str) -> dict[str, Invariant]:
    """Those of one group, in the order of docs/invariants.md; the texts of the others are not read."""
    found: dict[str, Invariant] = {}
    data = get_data(__package__, f"catalogue/{group}.toml")
    assert data is not None
    for code, row in tomllib.loads(data.decode("utf-8")).items():
        severity = Severity[row.pop("severity").upper()]
        links = tuple(row.pop("links", ()))
        found[code] = Invariant(code=code, group=group, severity=severity, links=links, **row)
    return found
