"""The index of a DLedger log over several files and terms: what the real file store wrote and reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.log.commit_log import index_units, is_valid

from .oracle import VERSIONS, compiled, java, missing

pytestmark = pytest.mark.interop

SOURCES = sorted((Path(__file__).parent / "java" / "dledger").glob("*.java"))
ENTRIES = 100
FIELDS = ("magic", "pos", "size", "index", "term")


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "4.9"])
def test_units_are_those_of_the_real_store(version: str, tmp_path: Path) -> None:
    if why := missing(version):
        pytest.skip(why)
    command = [*java(version, compiled(version, SOURCES), heap="1g"), "dledger.DLedgerFiles"]
    done = subprocess.run(
        [*command, str(tmp_path), str(ENTRIES)], capture_output=True, text=True, check=True, timeout=60
    )
    known = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(known) == ENTRIES
    with MappedFileQueue.open(tmp_path / "dledger-n0" / "index") as files:
        assert len(files.files) > 1
        parts = list(index_units(files))
    assert all(is_valid(part).all() for part in parts)
    found = [row for part in parts for row in part.units[list(FIELDS)].tolist()]
    assert found == known
    assert len({row[-1] for row in found}) > 1, "terms"
