"""Real stores, damaged in every way: every undamaged record of the truth still comes out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqstore.formats import dledger
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of
from tests.damage import ALL_KINDS, Victim, damage
from tests.slices import SEED, rng, share

from ...stores import unpack
from ..made_log import account
from ..real_log import layout_of

NAMES = (
    *("4.3.1-killed", "4.9.7-dledger", "4.9.7-expired", "4.9.7-multipath", "5.1.4-v2"),
    *("5.3.3-multipath-killed", "5.5.0-propcrc"),
)
LIVE = (Mark.NONE, Mark.AFTER_DAMAGE)


class Patient:
    """An unpacked store that is damaged and healed again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.root = unpack(name, folder)
        self.around = dledger.HEADER_BYTES if "dledger" in name else 0
        self.victim = Victim.of(name, self.root)
        self.sizes = {span.position: span.size for span in self.victim.spans}

    def check(self, kind: str, chance: random.Random, what: str) -> None:
        """Damage one file, scan, judge, and put the file back."""
        before = {path: path.read_bytes() for path in self.victim.log_files()}
        hurt = damage(self.victim, chance, kind=kind)
        try:
            end = hurt.offset + hurt.length
            # the head of an entry is no part of the record, but leads to it
            heads = {
                span.position
                for span in self.victim.spans
                if span.path == hurt.path and span.offset - self.around < end <= span.offset
            }
            self._judge(hurt.spoiled | heads, f"{what}, {self.name}, {hurt}")
        finally:
            hurt.path.write_bytes(before[hurt.path])

    def _judge(self, spoiled: frozenset[int], what: str) -> None:
        log = commit_log_of(layout_of(self.name, self.root))
        found = account(log, around=self.around)
        log.queue.close()
        records = {position + self.around: told for position, told in found.records.items()}
        for position, size in self.sizes.items():
            if position not in spoiled:
                assert position in records, f"{what}: {position} lost"
                assert records[position][0] == size + self.around, f"{what}: {position}"
                assert records[position][1] in LIVE, f"{what}: {position} {records[position]}"
        for position, (size, mark, _) in records.items():
            if mark in LIVE:
                expected = self.sizes.get(position, 0) + self.around
                assert size == expected, f"{what}: false at {position}"


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind(name: str, tmp_path: Path) -> None:
    patient = Patient(name, tmp_path)
    for kind in ALL_KINDS:
        patient.check(kind, random.Random(f"{name} {kind}"), "fixed")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_at_length(name: str, tmp_path: Path) -> None:
    patient, chance = Patient(name, tmp_path), rng(f"real damage {name}")
    for number in range(share(1_000)):
        patient.check(chance.choice(ALL_KINDS), chance, f"seed {SEED}, case {number}")
