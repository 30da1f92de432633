"""Stores of real brokers with delayed messages, retries and transactions, as they were left."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.search.store import StoreReader

from ...stores import unpack
from ..choices import each_of, stores_where

WITH_TRANSACTIONS = stores_where(
    lambda t: (
        any(part in t["name"] for part in ("-clean", "-killed"))
        and "timer" not in t["name"]
        and "damage" not in t
        and "restarted" not in t["name"]
        and t["name"].split("-")[1] in ("clean", "killed")
    )
)


name = each_of(WITH_TRANSACTIONS)


@pytest.fixture
def store(name: str, tmp_path: Path) -> StoreReader:
    return StoreReader(unpack(name, tmp_path))
