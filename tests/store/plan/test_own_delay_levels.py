"""A delayed message's unit says when it is due, by the delay levels that the broker had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.store.broker.snapshot import QueueId, Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.units import read_units
from mqstore.store.repair.ext import _expected
from mqstore.store.settings.options import options_of

from ...cli.datadriven import run_here

SETTINGS = {"messageDelayLevel": "7s 9s", "mappedFileSizeCommitLog": "65536"}
GIVEN = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
DELAYED = QueueId("SCHEDULE_TOPIC_XXXX", 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    for body in ("a", "b", "c"):
        words = ["put", str(store), "orders", body, "--delay-level", "2", "--as-broker", "5.3"]
        found = run_here([*words, *GIVEN])
        assert found.code == 0, found.stderr
    return store


def test_a_header_is_put_right(root: Path) -> None:
    log = root / "commitlog" / "00000000000000000000"
    before = log.read_bytes()
    snapshot = Snapshot.of(Layout.open(root, BrokerConfig(SETTINGS)))
    units = read_units(snapshot.queues[DELAYED][0], 0, 2)
    at = int(units["physical_offset"][1])
    log.write_bytes(before[: at + 4] + bytes(4) + before[at + 8 :])  # its magic
    (root / "abort").write_bytes(b"")
    found = run_here(["recover", str(root), "--apply", "--yes", "--broker-version", "5.3", *GIVEN])
    assert log.read_bytes() == before, found.stdout


def test_units_of_consumequeue_ext(root: Path) -> None:
    layout = Layout.open(root, BrokerConfig(SETTINGS))
    units = read_units(Snapshot.of(layout).queues[DELAYED][0], 0, 3)
    known = _expected(units, commit_log_of(layout), options_of(layout).delay_waits())
    assert [known[at].tags_code for at in units["physical_offset"].tolist()] == units["tags_code"].tolist()
    assert np.all(units["tags_code"] > 0)
