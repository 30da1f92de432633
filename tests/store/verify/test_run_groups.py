"""Some groups of checks alone: they say what they say among all others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mqstore.store.findings.catalogue import GROUPS, group_of
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import slices
from ...stores import unpack
from .damaged import damaged_store

pytestmark = pytest.mark.long

_READ = "I-015"
"""Bytes that cannot be read: told by whoever meets them."""
_NOW_MS = 1_800_000_000_000


def said(root: Path, groups: frozenset[str] | None = None) -> Counter[tuple[str, str, int | None, str]]:
    """Code, path, offset and severity of each finding."""
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=groups), now_ms=_NOW_MS).findings
    return Counter((each.code, each.path, each.offset, each.severity.name) for each in found)


def check_each_alone(root: Path) -> None:
    """What all groups say together, each says of its own."""
    whole, groups = said(root), group_of()
    for group in GROUPS:
        alone = said(root, frozenset({group}))
        own = Counter({key: count for key, count in whole.items() if groups[key[0]] == group or key[0] == _READ})
        assert alone == own, group


def test_a_checkpoint_of_zeros(tmp_path: Path) -> None:
    root = unpack("5.3.3-killed-checkpoint", tmp_path)
    check_each_alone(root)
    assert [code for code, *_ in said(root, frozenset({"checkpoint"}))] == ["I-110"]


def test_queues_are_missing_after_a_stop_and_after_a_crash(tmp_path: Path) -> None:
    root = unpack("4.9.7-clean-no-queues", tmp_path)
    check_each_alone(root)
    assert "I-114" in {code for code, *_ in said(root, frozenset({"checkpoint"}))}
    (root / "abort").touch()
    check_each_alone(root)
    assert "I-116" in {code for code, *_ in said(root, frozenset({"checkpoint"}))}


def test_an_index_is_missing_after_a_crash(tmp_path: Path) -> None:
    root = unpack("5.3.3-killed", tmp_path)
    for file in (root / "index").iterdir():
        file.unlink()
    check_each_alone(root)
    found = said(root, frozenset({"index"}))
    assert [severity for code, _, _, severity in found if code == "I-101"] != ["INFO"]


@pytest.mark.parametrize("number", range(4))
def test_damaged(number: int, tmp_path: Path) -> None:
    check_each_alone(damaged_store(f"groups {number}", tmp_path))


@pytest.mark.slow
def test_many_damaged(tmp_path: Path) -> None:
    for number in range(4, 4 + slices.share(200)):
        check_each_alone(damaged_store(f"groups {number}", tmp_path / str(number)))
