"""The steps of a plan: what is changed in which file, and why. Data, nothing is done here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

Content = bytes | memoryview
"""Bytes to write; what is taken from another store is mapped, not loaded."""

EditKind = Literal["write", "create", "truncate", "move", "remove", "rebuild"]


class Phase(IntEnum):
    """When an edit is made; those of one phase are made in the order in which they were planned."""

    PAGE = 0
    PARTS = 1
    LOG = 2
    CHECKPOINT = 3
    ABORT = 4


@dataclass(frozen=True)
class Edit:
    """One change of one file.

    kind: `write` (bytes at `offset`; `data` None: zeros), `create` (a file of `length` bytes that
    holds `pieces`), `truncate` (to `length` bytes), `move` (the file goes to the session's folder),
    `remove` (the same, for a file that a broker removes too), `rebuild` (index files are made from
    the log; `offset`: position that indexing begins at). path: absolute. codes: of the catalogue.
    phase: behind all edits of those before.
    """

    kind: EditKind
    path: str
    reason: str
    codes: tuple[str, ...] = ()
    offset: int = 0
    length: int = 0
    data: Content | None = None
    pieces: tuple[tuple[int, Content], ...] = ()
    phase: Phase = Phase.PARTS

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        kind = "create" if self.kind == "rebuild" else self.kind
        return {
            "path": self.path,
            "kind": kind,
            "offset": self.offset,
            "length": self.length,
            "reason": self.reason,
            "codes": list(self.codes),
        }


def digest(edits: Iterable[Edit]) -> str:
    """Fingerprint of a list of edits: two plans with the same one do the same."""
    total = hashlib.sha256()
    for edit in edits:
        head = (edit.kind, edit.path, edit.offset, edit.length, edit.data is None)
        total.update(repr(head).encode("utf-8", "surrogateescape"))
        total.update(edit.data or b"")
        for offset, data in edit.pieces:
            total.update(b"%d:%d:" % (offset, len(data)))
            total.update(data)
    return total.hexdigest()
