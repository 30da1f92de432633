"""Bytes that the disk does not give (I-015), and what cannot be checked for want of them.

Readers go around such ranges and note them (`store/disk/byte_reader.py`); a check that cannot go around ends
there. Whichever groups are asked for, what was met is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ...formats.derive.ragged import Flags, Ints
from ..counted import counted
from ..disk.byte_reader import note, noted, noted_of, unread_of
from ..errors import UnreadableRange
from ..findings.findings import Finding
from .context import VerifyContext
from .register import last

_NOT_CHECKED = "not checked to the end"


@last("I-015")
def every_byte_is_there(context: VerifyContext) -> None:
    """What was read of the files could be read."""
    for one in of_unread():
        context.findings.add("I-015", one.path, one.message, offset=one.offset, length=one.length)
    for place, codes in _ended(context).items():
        context.unread.append(f"{_NOT_CHECKED}, {place}: {', '.join(sorted(codes))}")


def of_unread() -> Iterator[Finding]:
    """What was met so far and could not be read."""
    for unread in noted():
        size = counted(unread.length, "byte")
        text = f"cannot read {size} at {unread.offset}: {unread.reason}"
        found = Finding.of("I-015", unread.path, text)
        yield replace(found, offset=unread.offset, length=unread.length)


def _ended(context: VerifyContext) -> dict[str, set[str]]:
    """Codes of checks that could not go on, by the place where they ended."""
    return context.kept(_NOT_CHECKED, dict[str, set[str]])


@contextmanager
def going_on(context: VerifyContext, codes: Iterable[str]) -> Iterator[None]:
    """A check in this block ends at bytes that cannot be read, the run does not. codes: its own."""
    try:
        yield
    except UnreadableRange as error:
        note(unread_of(error))
        _ended(context).setdefault(f"cannot read {error.path}", set()).update(codes)


def need_whole(paths: Iterable[str]) -> None:
    """Raises UnreadableRange where something of these files could not be read: a check of what is
    between their entries has nothing to go by.
    """
    for path in paths:
        for unread in noted_of(path):
            raise unread.error()


def is_gone(context: VerifyContext, positions: Ints) -> Flags:
    """bool[n]: log positions, int64[n], at which nobody can tell whether a record begins."""
    gone = np.zeros(len(positions), np.bool_)
    for begin, end in context.gone:
        gone |= (positions >= begin) & (positions < end)
    return gone


class Going:
    """Checks that are called again and again: one that has met bytes that cannot be read is left out."""

    def __init__(
        self, context: VerifyContext, moment: dict[str, Any], checks: list[Callable[..., None]]
    ) -> None:
        self._scene = context
        self._moment = moment
        self._checks = checks

    def __call__(self, item: Any) -> None:
        """Hand an item to all of them."""
        for check in self._checks:
            try:
                check(self._scene, item)
            except UnreadableRange as error:
                self._leave_out(check, error)

    def _leave_out(self, check: Callable[..., None], error: UnreadableRange) -> None:
        codes = [code for code, registered in self._moment.items() if registered is check]
        with going_on(self._scene, codes):
            raise error
        self._checks = [other for other in self._checks if other is not check]
