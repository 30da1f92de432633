"""Stores that something went wrong with."""

from __future__ import annotations

import random
from pathlib import Path

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.search.store import StoreReader

from ... import slices, stores
from ...damage import Victim
from ...mishaps import Mishap
from ...stores import unpack


def damaged_store(case: str, work: Path) -> Path:
    """One or two mishaps to one of `FEW`, by the name of the case and the seed."""
    chance = random.Random(f"{slices.SEED} {case}")
    name = chance.choice(stores.FEW)
    root = unpack(name, work)
    victim = Victim.of(name, root)
    for _ in range(chance.choice([1, 1, 2])):
        Mishap.of(victim, chance).befall(victim, chance)
    return root


def give_twice(root: Path, *, named: bool) -> None:
    """Give the last message of a queue the queue offset of the one before, as a start does after a kill.

    named: its unit stays where it is, else it takes the place of the other one's.
    """
    with StoreReader(root) as store:
        ends = max(store.queue_summaries, key=lambda each: each.max_offset)
        with store.queues.open(ends.topic, ends.queue_id) as queue:
            last = queue.unit(ends.max_offset - 1)
            assert last is not None
            units = queue.files.files[-1]
            file = store.log_files.file_at(last.physical_offset)
            assert file is not None
    _write(Path(file.path), last.physical_offset - file.start + 20, (last.queue_offset - 1).to_bytes(8, "big"))
    if not named:
        at = last.queue_offset * UNIT_BYTES - units.start
        unit = Path(units.path).read_bytes()[at : at + UNIT_BYTES]
        _write(Path(units.path), at - UNIT_BYTES, unit + bytes(UNIT_BYTES))


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
