"""A master and its slave: recovering one from the other, what its log holds afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import replan
from mqstore.store.session.apply import apply

MASTER, SLAVE = "5.3.3-ha-master", "5.3.3-ha-slave"
FILE_BYTES = 131072
CONFIG = BrokerConfig().with_set([f"mappedFileSizeCommitLog={FILE_BYTES}"])
MADE_MS = 1_795_300_000_000
PAGE = 61440
"""Position of a page inside records of the first file."""
Stores = Callable[[str], Path]


def planned(root: Path, replica: Path | str, config: BrokerConfig = CONFIG) -> Plan:
    options = RecoveryOptions(Policy.KEEP, MADE_MS, ("5.3",), replica=str(replica))
    return replan(Layout.open(root, config), "5.3", options)


def recovered(root: Path, replica: Path | str, config: BrokerConfig = CONFIG) -> Plan:
    """Plan with a replica, apply; the second time nothing is left to do."""
    plan = planned(root, replica, config)
    apply(Layout.open(root, config), plan, lambda: planned(root, replica, config), Files())
    assert planned(root, replica, config).edits == ()
    return plan


def log_bytes(root: Path) -> bytes:
    """The log from its start, zeros where a file is missing."""
    files = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    end = max(files) + FILE_BYTES
    return b"".join(files.get(start, b"").ljust(FILE_BYTES, b"\0") for start in range(0, end, FILE_BYTES))


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
