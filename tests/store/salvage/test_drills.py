"""Salvage after mishaps: those of `store.damage`, and bytes that are wrong at random."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqstore.formats.message import MESSAGE
from mqstore.store.damage.scenario import drill
from mqstore.store.damage.scenarios import scenario_of
from mqstore.store.disk.files import Files
from mqstore.store.salvage.runs import Grade, batches_of, images_of
from mqstore.store.salvage.salvage import Salvaged, SalvageRequest, look
from mqstore.store.search.store import StoreReader
from tests.slices import rng, share
from tests.stores import unpack

from .images import SMALL, image, manifest, records_of, salvaged

STORE = "5.3.3-clean"
OF_LOG = (
    *("killed", "illegal-magic", "zero-page", "garbage", "wrong-size", "crc-zero", "torn-tail"),
    *("torn-properties", "stale-tail", "first-segment-gone", "cut-segment", "stray-file"),
)
FAST = ("illegal-magic", "stale-tail", "cut-segment")


def seen(*images: Path) -> Salvaged:
    """What would be salvaged."""
    done = look(images, images_of(images).files, SalvageRequest(config=SMALL), lambda _step, _size: None)
    with done.sources:
        return done


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in OF_LOG])
def test_what_a_mishap_leaves_is_salvaged(name: str, tmp_path: Path) -> None:
    """All records but those whose bytes the mishap changed are in the new log."""
    root, copy, new = unpack(STORE, tmp_path), tmp_path / "copy", tmp_path / "new"
    with StoreReader(root) as store:
        drill(store, copy, scenario_of(name), 5, Files())
    logs = {path.name: path.read_bytes() for path in (copy / "commitlog").iterdir()}
    left = set()
    for position, record in records_of(STORE, root):
        at = position % 262144
        if logs.get(f"{position - at:020d}", b"")[at : at + len(record)] == record:
            left.add(position)
    salvaged(new, copy)
    kept = {line.get("to") for line in manifest(new)}
    assert left <= kept


@pytest.mark.parametrize("rounds", [15, pytest.param(3000, marks=pytest.mark.slow)], ids=["few", "many"])
def test_bytes_that_are_wrong_at_random(rounds: int, tmp_path: Path) -> None:
    """Nothing is raised, nothing is invented: the body of what is whole is one that was sent."""
    root = unpack(STORE, tmp_path)
    files = sorted((root / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in files)
    sent = {MESSAGE.parse(record).body for _, record in records_of(STORE, root)}
    chance = rng(f"random {rounds}")
    for _ in range(rounds if rounds < 100 else share(rounds)):
        spoiled = bytearray(data)
        for _ in range(chance.randrange(1, 200)):
            spoil(spoiled, chance)
        done = seen(image(tmp_path, bytes(spoiled)))
        for run in done.found.runs:
            if run.grade is Grade.STRUCTURE:
                continue
            for columns in batches_of(run, done.sources):
                assert set(columns.ragged("body").tolist()) <= sent


def spoil(data: bytearray, chance: random.Random) -> None:
    """A few bytes anywhere: random ones, zeros, or those of another place."""
    size = chance.choice((1, 4, 8, 100, 4096))
    to, of = (chance.randrange(len(data) - size) for _ in range(2))
    data[to : to + size] = chance.choice(
        (chance.randbytes(size), bytes(size), b"\xff" * size, bytes(data[of : of + size]))
    )
