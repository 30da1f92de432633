"""What a replica may be: a store, its log, several directories of files, packed ones; and what it may not."""

from __future__ import annotations

import gzip
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, Missing, NotAStore, Refused, Unsupported
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.replica import where_differing
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
    shutil.copytree(unpacked(SLAVE) / "commitlog", tmp_path / "other")
    with pytest.raises(InvalidInput, match="both have the log file of position 0, and only one replica counts"):
        planned(torn, f"{unpacked(SLAVE)}:{tmp_path / 'other'}")
    with pytest.raises(InvalidInput, match="only for a slave"):
        analyze(Layout.open(torn, CONFIG), "5.3", options=RecoveryOptions(Policy.BROKER, replica=str(torn)))


def test_files_of_another_size_are_refused(unpacked: Stores, torn: Path, tmp_path: Path) -> None:
    log = tmp_path / "other"
    log.mkdir()
    (log / file_name(0)).write_bytes(bytes(2 * FILE_BYTES))
    with pytest.raises(Refused, match="the files are not of"):
        planned(torn, log)


@given(
    st.lists(st.integers(0, 99), unique=True).map(sorted),
    st.dictionaries(st.integers(0, 99), st.integers(1, 255), max_size=4),
    st.integers(0, 50),
)
def test_where_two_logs_differ(positions: list[int], changes: dict[int, int], missing: int) -> None:
    """In files of 40 bytes and windows of 16: every place before a difference, and few others."""
    own = bytes(range(100))
    other = bytearray(own)
    for at, change in changes.items():
        other[at] ^= change
    end = 100 - missing

    def log(data: bytes) -> SimpleNamespace:
        read = lambda begin, size: data[begin : begin + size]
        return SimpleNamespace(read=read, queue=SimpleNamespace(file_size=40))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mqstore.store.plan.replica._WINDOW_BYTES", 16)
        replica = SimpleNamespace(log=log(bytes(other[:end])))
        found = where_differing(cast(Any, log(own)), cast(Any, replica), np.array(positions, np.int64)).tolist()
    needed = [
        here
        for here, behind in pairwise([*positions, 100])
        if any(at in changes or at >= end for at in range(here, behind))
    ]
    assert set(needed) <= set(found) <= set(positions) and found == sorted(found)
    assert len(found) <= len(needed) + 9, "one a window is asked for anyway"
