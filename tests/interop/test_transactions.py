"""Transactions that `put` has ended: a real broker serves the committed, and asks only for the open."""

from __future__ import annotations

from pathlib import Path

import pytest

from .brokers import VERSIONS
from .served import as_broker, mqstore, put, settings
from .test_brokers import SIZES, broker, message, sent

pytestmark = pytest.mark.interop


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_only_open_transactions_are_asked_for(version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, [message("orders", "at once")], SIZES, *as_broker(version))
    for body in ("committed", "rolled back", "open"):
        half = ("--transaction", "half", "--property", "PGROUP=payers")
        sent(root, body, version, *half)
    for how, key in (("commit", "key-of-committed"), ("rollback", "key-of-rolled-back")):
        mqstore("put", root, "--transaction", how, "--half", key, *settings(SIZES))
    often = {"transactionCheckInterval": 1_000, "transactionTimeOut": 1_000}
    with broker(version, root, SIZES, **often) as running:
        running.consume({"orders": "*"})
        running.decide("payers", "orders", {"open": "COMMIT_MESSAGE"})
        got = {row["body"]: row for row in running.received(3)}
        assert got.keys() == {"at once", "committed", "open"}
        assert (got["committed"]["topic"], got["committed"]["queue_id"]) == ("orders", 1)
        assert {row["body"] for row in running.checked(9, seconds=3)} == {"open"}
