"""Random damage anywhere in a store: `inspect` and `dump` answer, and never tell a false message."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from .. import stores
from ..damage import KINDS, spoil_file
from ..slices import rng, share
from .datadriven import Result, run_here
from .json_schema import wrong

STORES = ("4.3.1-clean", "4.9.7-lmq", "5.3.3-timer-clean", "5.3.3-dledger")
MUTATIONS = 50_000
AT_ONCE = 10
WHEEL_BYTES = 1 << 14
"""A wheel is cut to this: one of its own size is zeros, nearly all of it."""
_PARTS = {
    *("abort", "checkpoint", "lock", "commitlog", "consumequeue", "index", "timerlog"),
    *("timerwheel", "dledger-n0"),
}


class Patient:
    """A store that is damaged and mended again."""

    def __init__(self, name: str, folder: Path, chance: random.Random) -> None:
        self.root = stores.unpack(name, folder)
        self._chance = chance
        wheel = self.root / "timerwheel"
        if wheel.exists():
            wheel.write_bytes(wheel.read_bytes()[:WHEEL_BYTES])
        self.files = sorted(
            path
            for path in self.root.rglob("*")
            if path.is_file() and path.relative_to(self.root).parts[0] in _PARTS
            if path.stat().st_size < 1 << 20
        )
        self.messages = {row.get("position", row["physical_offset"]) for row in stores.messages(name)}
        self._whole: dict[Path, bytes] = {}

    def hurt(self, count: int) -> list[Path]:
        """Damage `count` places; returns the files."""
        for path in self._chance.choices(self.files, k=count):
            data = path.read_bytes()
            self._whole.setdefault(path, data)
            if len(data) > 1:
                spoil_file(path, self._chance.choice(sorted(KINDS)), self._chance)
            else:
                path.write_bytes(data + self._chance.randbytes(self._chance.randrange(1, 99)))
        return sorted(self._whole)

    def mend(self) -> None:
        """Undo it."""
        for path, data in self._whole.items():
            path.write_bytes(data)
        self._whole.clear()


def _records(result: Result, about: str) -> list[dict[str, Any]]:
    """What was printed, all of it by its schema. Damage is no internal error."""
    assert result.code in (0, 5), about
    assert "internal error" not in result.stderr, f"{about}: {result.stderr}"
    assert len(result.stderr.splitlines()) <= 1, about
    records = [json.loads(line) for line in result.stdout.splitlines()]
    for record in records:
        assert wrong(record) == [], about
    return records


def check(patient: Patient, mutations: int) -> None:
    """Damage the store so many times, some at once, and look at all of it each time."""
    for number in range(-(-mutations // AT_ONCE)):
        paths = patient.hurt(AT_ONCE)
        about = f"round {number}: {', '.join(str(p.relative_to(patient.root)) for p in paths)}"
        for path in (patient.root, *paths):
            for command in ("inspect", "dump"):
                arguments = [command, str(path), "--format", "ndjson"]
                found = _records(run_here(arguments), f"{about}; {command} {path}")
                if path == patient.root:
                    _no_false_message(found, patient.messages, about)
        patient.mend()


def _no_false_message(records: list[dict[str, Any]], known: set[int], about: str) -> None:
    """Every message lies where the broker wrote one, or is marked as stale."""
    for record in records:
        if record["type"] == "message" and "stale" not in record:
            assert record.get("position", record["physical_offset"]) in known, about


@pytest.mark.few(1)
@pytest.mark.parametrize("name", STORES)
def test_damage_anywhere(name: str, tmp_path: Path) -> None:
    """A few rounds."""
    check(Patient(name, tmp_path, random.Random(name)), 3 * AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_much_damage_anywhere(name: str, tmp_path: Path) -> None:
    """Seeded by MQSTORE_SEED."""
    chance = rng(f"cli mutations of {name}")
    check(Patient(name, tmp_path, chance), share(MUTATIONS // len(STORES)))
