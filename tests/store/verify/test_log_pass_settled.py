"""Messages that were proved to have their units are not handed out one queue at a time: the verdict is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.log_pass import LogPass
from mqstore.store.verify.run import verify

from ... import slices, stores
from ...stores import unpack
from .damaged import damaged_store

pytestmark = pytest.mark.long

_NOW_MS = 1_800_000_000_000


def seen(root: Path, scope: Scope | None = None) -> tuple[Any, ...]:
    """All that a run says, and what one that goes on would need of it."""
    with StoreReader(root) as store:
        found = verify(store, scope or Scope(), now_ms=_NOW_MS)
    facts = vars(found.facts) | {"missing": {queue: list(gaps) for queue, gaps in found.facts.missing.items()}}
    return found.status, found.findings, found.unread, facts


def check_same(root: Path, scope: Scope | None = None) -> int:
    """With it and without it. Returns how often it was enough."""
    has_seen, times = LogPass.has_seen, list[bool]()

    def noting(log_pass: LogPass, messages: int) -> bool:
        times.append(has_seen(log_pass, messages))
        return times[-1]

    def never(log_pass: LogPass, messages: int) -> bool:
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogPass, "has_seen", noting)
        quick = seen(root, scope)
        patch.setattr(LogPass, "has_seen", never)
        assert quick == seen(root, scope)
    return sum(times)


@pytest.mark.parametrize("name", ["4.3.1-clean", "5.3.3-clean"])
def test_a_store_in_order(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    assert check_same(root)
    check_same(root, Scope(topic=next(iter(stores.messages(name)))["topic"]))


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.5.0-killed"])
def test_units_that_were_not_dispatched_yet(name: str, tmp_path: Path) -> None:
    assert not check_same(unpack(name, tmp_path))


@pytest.mark.parametrize("name", ["5.3.3-batchcq", "5.3.3-timer-clean", "4.9.7-cqext", "5.3.3-lmq", "5.3.3-rocksdb"])
def test_queues_of_other_kinds(name: str, tmp_path: Path) -> None:
    check_same(unpack(name, tmp_path))


@pytest.mark.parametrize("number", range(6))
def test_damaged(number: int, tmp_path: Path) -> None:
    check_same(damaged_store(f"settled {number}", tmp_path))


@pytest.mark.slow
def test_many_damaged(tmp_path: Path) -> None:
    for number in range(6, 6 + slices.share(400)):
        check_same(damaged_store(f"settled {number}", tmp_path / str(number)))
