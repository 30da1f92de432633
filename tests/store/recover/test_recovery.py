"""What a recovery finds before it plans anything."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import analyze
from tests.archives import extract


def test_a_store_without_a_log_may_be_a_new_one(tmp_path: Path) -> None:
    """It is safe to start, so its case is no alarm alone."""
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    found = analyze(Layout.open(tmp_path, BrokerConfig({})), None)
    assert found.prediction.case.label == "no-commit-log"
    assert found.prediction.case.found.endswith("or a new store")


def test_without_the_timer_wheel_no_popped_message_comes_back(tmp_path: Path) -> None:
    extract(Path(__file__).parents[2] / "pop" / "5.5.1-no-json.tar.gz", tmp_path)
    for value, wanted in (("false", ["5 queues of the revive topic"]), ("true", [])):
        notes = analyze(Layout.open(tmp_path, BrokerConfig({"timerWheelEnable": value}))).notes
        assert [note[:28] for note in notes if "revive" in note] == wanted
