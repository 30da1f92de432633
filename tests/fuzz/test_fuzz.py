"""The corpus, inputs like it, and in slow runs atheris."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..slices import SEED, pick, rng, share
from ..store.made_log import patience
from .all_targets import TARGETS
from .target import CORPUS, corpus

SECONDS = 60
"""How long atheris has for one target in a whole run."""
BYTES = 400
each_target = pytest.mark.parametrize("name", TARGETS)


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    for name in TARGETS:
        assert corpus(name)
        assert all(path.stat().st_size <= 1 << 13 for path in corpus(name))


@pytest.mark.few(4)
@each_target
def test_the_corpus(name: str) -> None:
    """Each input as it is, cut at some places, and with some bytes changed."""
    chance = random.Random(name)
    for path in corpus(name):
        data = path.read_bytes()
        with patience():
            TARGETS[name](data)
            for _ in range(4):
                TARGETS[name](data[: chance.randrange(len(data) + 1)])
                TARGETS[name](changed(data, chance))


def changed(data: bytes, chance: random.Random) -> bytes:
    """Bytes overwritten, left out, doubled, or numbers made extreme."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found) + 1)
        size = chance.choice([1, 1, 2, 4, 8, 20])
        found[at : at + size] = chance.choice(
            [
                chance.randbytes(size),
                b"",
                bytes(found[at : at + size]) * 2,
                b"\x7f" + b"\xff" * (size - 1),
                b"\x80" + bytes(size - 1),
                bytes(size),
                b"\xff" * size,
            ]
        )
    return bytes(found)


@pytest.mark.slow
@each_target
def test_many_changes_of_the_corpus(name: str) -> None:
    chance = rng(f"fuzz {name}")
    inputs = [path.read_bytes() for path in corpus(name)]
    for number in range(share(3000)):
        data = changed(chance.choice(inputs), chance)
        try:
            with patience():
                TARGETS[name](data)
        except Exception as error:
            error.add_note(f"seed {SEED}, input {number}: {data.hex()}")
            raise


@pytest.mark.slow
@each_target
@given(data=st.binary(max_size=BYTES))
@settings(max_examples=share(1000), derandomize=False)
def test_any_bytes(name: str, data: bytes) -> None:
    with patience():
        TARGETS[name](data)


#: Without atheris (it has wheels for Linux on x86-64 only) no target is guided.
GUIDED = pick(tuple(TARGETS), "fuzz targets") if find_spec("atheris") else []


@pytest.mark.slow
def test_guided_by_coverage(tmp_path: Path) -> None:
    """atheris for a minute a target, with a limit of memory and of time for one input."""
    for name in GUIDED:
        guide(name, tmp_path / name)


def guide(name: str, folder: Path) -> None:
    """Run atheris on one target."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, str(share(SECONDS)), str(SEED)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "MQSTORE_FUZZ_FOUND": str(folder), "PYTHONPATH": "src"},
        capture_output=True,
        check=False,
        timeout=20 * SECONDS,
    )
    found = {path.name: path.read_bytes().hex() for path in folder.glob("*-*") if path.is_file()}
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, (name, SEED, found, said[-4000:])
    assert "stat::number_of_executed_units" in said, said[-2000:]
