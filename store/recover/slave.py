"""What a new master's epochs make a slave cut off its log (spec 06, 6.2; AutoSwitchHAClient.doTruncate).

A broker with a controller compares its epochs with those of the master that it follows: from the newest on,
the first that both have, with the same begin, tells how far the logs are one. What lies behind is cut off
before anything is copied. The rule is that of the real EpochFileCache; that the cut is made is by source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..audit.messages import Messages, Tally, scan_messages
from ..broker.dispatch import Dispatched
from ..broker.dispatch_record import Dispatching
from ..disk.byte_reader import refusing
from ..disk.layout import Layout
from ..errors import InvalidInput, NotFound
from ..log.batch import Batch, Extent
from ..queues.references import commit_log_of
from ..settings.read import read_config_file

EPOCH_FILE = "epochFileCheckpoint"
_OPEN = (1 << 63) - 1


class Epoch(NamedTuple):
    """One epoch of a log: the positions [begin, end) were written in it."""

    number: int
    begin: int
    end: int


def read_epochs(path: Path, end: int) -> list[Epoch]:
    """The epochs of a file, the last one up to `end`. Raises InvalidInput, Missing, Unreadable."""
    found = read_config_file(path, "epoch-file")
    if found.problem is not None:
        raise InvalidInput(f"no epoch file: {found.problem.reason}", path=path)
    begins = {int(r["epoch"]): int(r["start_offset"]) for r in found.records() if "epoch" in r}
    rows = sorted(begins.items())
    epochs = [Epoch(number, begin, behind) for (number, begin), (_, behind) in pairwise(rows)]
    # a log that ends before its last epoch begins leaves that one open
    epochs += [Epoch(n, begin, end if begin <= end else _OPEN) for n, begin in rows[-1:]]
    return epochs


def consistent_point(own: Sequence[Epoch], master: Sequence[Epoch]) -> int:
    """Position up to which both logs are one, -1 where no epoch says so."""
    others = {epoch.number: epoch for epoch in master}
    for epoch in reversed(own):
        other = others.get(epoch.number)
        if other is not None and other.begin == epoch.begin:
            return min(epoch.end, other.end)
    return -1


@dataclass
class _Behind:
    """Counts the messages that lie behind a position."""

    position: int
    lost: Tally = field(default_factory=Tally)

    def messages(self, messages: Messages) -> None:
        """Those of one queue."""
        cut = messages.take((messages.position >= self.position) & ~messages.lost)
        self.lost.add(cut.queue, "", cut.size, cut.store_timestamp, cut.offset)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """All is in the messages."""

    def extent(self, extent: Extent) -> None:
        """What is no record is no loss."""

    def stale(self, batch: Batch) -> None:
        """What is dead already neither."""


@dataclass(frozen=True)
class SlaveCut:
    """outcome: `same`: nothing is cut; `cuts`: behind `position`; `refuses`: no epoch is common, or no
    record begins at `position`: the slave tries again for ever; `copies`: it has no epochs and asks for all.
    """

    layout: Layout
    outcome: Literal["same", "cuts", "refuses", "copies"]
    position: int
    log_end: int
    own: Sequence[Epoch]
    master: Sequence[Epoch]
    lost: Tally = field(default_factory=Tally)

    def to_json(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "type": "slave_cut",
            "store": str(self.layout.root),
            "outcome": self.outcome,
            "position": self.position,
            "log_end": self.log_end,
            "last_epoch": self.own[-1].number if self.own else None,
            "master_epoch": self.master[-1].number if self.master else None,
            "lost": self.lost.to_json(),
            "by_source": "AutoSwitchHAClient.doTruncate",
        }


@refusing()
def slave_cut(layout: Layout, master: Path) -> SlaveCut:
    """What a slave with this store cuts off to follow a master. master: its epoch file, or its store, whose
    log end counts then. Raises InvalidInput, NotFound, Missing, NotAStore, Unreadable.
    """
    log = commit_log_of(layout)
    end = log.end().position if log.files else 0
    if master.is_dir():
        other = Layout.open(master)
        others = commit_log_of(other)
        its_end = others.end().position if others.files else 0
        master = master / other.broker_config.get("storePathEpochFile", EPOCH_FILE)
    else:
        its_end = _OPEN
    masters = read_epochs(master, its_end)
    if not masters:
        raise NotFound("the master's epoch file has no epoch", path=master)
    own_file = layout.root / layout.broker_config.get("storePathEpochFile", EPOCH_FILE)
    own = read_epochs(own_file, end) if own_file.exists() else []
    if not own:
        return SlaveCut(layout, "copies", 0, end, own, masters)
    position = consistent_point(own, masters)
    if position >= end:
        return SlaveCut(layout, "same", end, end, own, masters)
    behind = _Behind(max(position, 0))
    scan_messages(log, [behind], Dispatching(), crc=False)
    aligned = position >= 0 and (position == log.min_offset or log.begins_at(position))
    outcome: Literal["cuts", "refuses"] = "cuts" if aligned else "refuses"
    return SlaveCut(layout, outcome, position, end, own, masters, behind.lost)
