"""What a recovery finds before it plans anything."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import analyze


def test_a_store_without_a_log_may_be_a_new_one(tmp_path: Path) -> None:
    """It is safe to start, so its case is no alarm alone."""
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    found = analyze(Layout.open(tmp_path, BrokerConfig({})), None)
    assert found.prediction.case.label == "no-commit-log"
    assert found.prediction.case.found.endswith("or a new store")
