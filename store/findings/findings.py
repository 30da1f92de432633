"""Findings: places where an invariant does not hold. Similar ones are merged, none is dropped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np

from ...formats.derive.ragged import Flags, Ints
from ..columns import runs
from .catalogue import Severity, catalogue

if TYPE_CHECKING:
    from typing_extensions import Unpack

_APART_MAX = 1000
"""Findings of one kind in one file to keep apart; further ones become one wide range."""

Message = str | Callable[[int], str]
"""What is wrong: a text, or a function of the number of items, called again with the sum when findings are merged."""


class Details(TypedDict, total=False):
    """Fields of a `Finding` that may be given by name. severity None: as in the catalogue."""

    offset: int | None
    length: int | None
    count: int
    severity: Severity | None
    topic: str | None
    queue_id: int | None
    unclean: bool
    repair: str | None


@dataclass(frozen=True)
class Finding:
    """One finding, or several similar consecutive ones.

    path: the file, or the directory. offset, length: bytes of it, None for the whole file. count: number of items of
    the file that it is about. message: what is wrong with the first item. unclean: not damage, but the trace of a
    shutdown that was not clean. topic, queue_id: of a finding about one queue. repair: the repair if it is not that of
    the catalogue, in the same form.
    """

    code: str
    severity: Severity
    path: str
    message: str
    offset: int | None = None
    length: int | None = None
    count: int = 1
    topic: str | None = None
    queue_id: int | None = None
    unclean: bool = False
    repair: str | None = None

    @classmethod
    def of(cls, code: str, path: str | os.PathLike[str], message: str, **details: Unpack[Details]) -> Self:
        """Make a finding, with the severity of the catalogue if no other is given."""
        given = details.pop("severity", None)
        severity = catalogue()[code].severity if given is None else given
        fields: dict[str, Any] = {**details}
        return cls(code, severity, os.fspath(path), message, **fields)

    def place(self, root: str | os.PathLike[str]) -> str:
        """Return where it is, for people: the path below the store at `root`, and the byte."""
        base = os.fspath(root)
        if self.path == base:
            return "the store" if self.offset is None else f"position {self.offset}"
        shown = self.path.removeprefix(base.rstrip(os.sep) + os.sep)
        return shown if self.offset is None else f"{shown} @{self.offset}"

    @property
    def end(self) -> int:
        """Position behind the last byte; 0 for a whole file."""
        return (self.offset or 0) + (self.length or 0)


def how_many_more(first: Finding, like: Iterable[Finding]) -> str:
    """Return " (and 41 more, in 3 places)": the items that `like`, which includes `first`, has beyond those in the
    message of `first`; "" for none.
    """
    counts = [finding.count for finding in like]
    in_text = str(first.count) in re.findall(r"\d+", re.sub(r"\b,\b", "", first.message))
    items = sum(counts) - (first.count if in_text else 1)
    if not items:
        return ""
    places = f", in {len(counts):,} places" if len(counts) > 1 else ""
    return f" (and {items:,} more{places})"


def order(finding: Finding) -> tuple[int, str, str, int]:
    """Sort key of findings: worst first, then by code and place."""
    return (-finding.severity, finding.code, finding.path, finding.offset or 0)


class Findings:
    """All findings of a run."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], list[Finding]] = {}
        #: By kind, the message of the last finding, if it is a function of the number of items.
        self._messages: dict[tuple[Any, ...], Message] = {}

    def add(self, code: str, path: str | os.PathLike[str], message: Message, **details: Unpack[Details]) -> None:
        """Add a finding; merge it with a similar one directly before."""
        new = Finding.of(code, path, _text(message, details.get("count", 1)), **details)
        key = (code, new.severity, new.path, new.topic, new.queue_id, new.unclean, new.repair)
        same = self._found.setdefault(key, [])
        if same and len(same) < _APART_MAX and new.offset is not None and same[-1].end == new.offset:
            same[-1] = self._merged(key, [same[-1], new])
            return
        same.append(new)
        if len(same) > _APART_MAX:
            if len(same) > 2 * _APART_MAX:
                same[_APART_MAX - 1 :] = [self._merged(key, same[_APART_MAX - 1 :])]
            return
        self._messages.pop(key, None)
        if not isinstance(message, str):
            self._messages[key] = message

    def add_rows(
        self,
        code: str,
        path: str | os.PathLike[str],
        wrong: Flags,
        starts: Ints,
        ends: Ints,
        message: Callable[[int], str],
        **more: Unpack[Details],
    ) -> None:
        """Add a finding for each run of `wrong` rows; the rows are consecutive items of one file.

        wrong: bool[n]. starts, ends: int64[n], bytes of the file. message: called with a row. more: as in `add`.
        """
        rows = np.flatnonzero(wrong)
        for begin, end in runs(rows):
            first, offset = int(rows[begin]), int(starts[rows[begin]])
            length = int(ends[rows[end - 1]]) - offset
            details: Details = {**more, "offset": offset, "length": length, "count": end - begin}
            self.add(code, path, message(first), **details)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Finding]:
        """Yield findings, worst first, then by code and place."""
        everything = (finding for key in self._found for finding in self._of(key))
        return iter(sorted(everything, key=order))

    def _of(self, key: tuple[Any, ...]) -> list[Finding]:
        found, apart = self._found[key], _APART_MAX - 1
        return [*found[:apart], self._merged(key, found[apart:])] if len(found) > _APART_MAX else found

    def _merged(self, key: tuple[Any, ...], found: Sequence[Finding]) -> Finding:
        """Return findings of a kind as one: the first, with the range and the count of all."""
        first, count = found[0], sum(each.count for each in found)
        text = _text(self._messages.get(key, first.message), count)
        if first.offset is None:
            return replace(first, count=count, message=text)
        placed = [(each.offset, each.end) for each in found if each.offset is not None]
        offset, end = min(placed)[0], max(end for _, end in placed)
        return replace(first, offset=offset, length=end - offset, count=count, message=text)


def _text(message: Message, count: int) -> str:
    return message if isinstance(message, str) else message(count)
