"""Small stores whose messages that belong together lie far apart."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.findings import Finding
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

SIZES = BrokerConfig({"mappedFileSizeCommitLog": "262144"})
CUT = 1 << 13
NOW_MS = 1_795_000_000_000


def written(root: Path, messages: list[NewMessage], levels: str = "7s 20s") -> Path:
    """A store of a broker with these delay levels; the configuration is not kept."""
    config = SIZES.with_set([f"messageDelayLevel={levels}"])
    options = WriterOptions(as_broker="5.3")
    with StoreWriter.open(root, config, options, clock=lambda: NOW_MS) as store:
        for message in messages:
            store.append(message)
    return root


def told(root: Path, code: str, jobs: int = 1, **scope: float | str) -> list[Finding]:
    """The findings of a code that such a store has."""
    with StoreReader(root, SIZES) as store:
        found = verify(store, Scope(**scope), now_ms=NOW_MS, jobs=jobs)  # type: ignore[arg-type]
    return [finding for finding in found.findings if finding.code == code]


PLAIN = NewMessage(b"orders", bytes(1000))
APART = [PLAIN] * 20
