"""What a replica may be: a store, its log, several directories of files, packed ones; and what it may not."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, Missing, NotAStore, Refused, Unsupported
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze

from ..recover.recovered import content
from .ha_pair import CONFIG, FILE_BYTES, MASTER, SLAVE, Stores, log_bytes, planned, recovered


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", ["log directory", "several", "packed"])
def test_what_a_replica_may_be(unpacked: Stores, torn: Path, tmp_path: Path, shape: str) -> None:
    """A directory of log files, several directories, files that somebody has packed."""
    log = unpacked(SLAVE) / "commitlog"
    name = str(log)
    if shape != "log directory":
        places = [tmp_path / part for part in ("a", "b")]
        for place in places:
            place.mkdir()
        for number, path in enumerate(sorted(log.iterdir())):
            target = places[number % 2 if shape == "several" else 0] / path.name
            if shape == "packed":
                target.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes(), 1))
            else:
                shutil.copy(path, target)
        name = ":".join(map(str, places)) if shape == "several" else str(places[0])
    assert recovered(torn, name).lost.messages == 0
    assert log_bytes(torn)[:FILE_BYTES] == log_bytes(unpacked(MASTER))[:FILE_BYTES]


def test_nothing_of_the_replica_is_changed(unpacked: Stores, torn: Path) -> None:
    before = content(unpacked(SLAVE))
    recovered(torn, unpacked(SLAVE))
    assert content(unpacked(SLAVE)) == before


def test_what_is_no_replica_is_told(unpacked: Stores, torn: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the store itself"):
        planned(torn, torn)
    with pytest.raises(Missing):
        planned(torn, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStore):
        planned(torn, tmp_path / "empty")
    with pytest.raises(Unsupported, match="DLedger"):
        planned(torn, unpacked("5.3.3-dledger"))
    with pytest.raises(InvalidInput, match="keep"):
        analyze(Layout.open(torn, CONFIG), "5.3", options=RecoveryOptions(Policy.BROKER, replica=str(torn)))


def test_files_of_another_size_are_refused(unpacked: Stores, torn: Path, tmp_path: Path) -> None:
    log = tmp_path / "other"
    log.mkdir()
    (log / file_name(0)).write_bytes(bytes(2 * FILE_BYTES))
    with pytest.raises(Refused, match="the files are not of"):
        planned(torn, log)
