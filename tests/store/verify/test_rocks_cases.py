"""No false all-clear of stores with queues in RocksDB: what a real start of 5.5.1 made of each is on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.verify.verdict import Status

from ... import rocks_cases, slices
from ...rocks_cases import Case, case_of, cases, damaged, is_harmed
from ...verdict import said_of

pytestmark = pytest.mark.long

EXPIRED = "file_missing_first"
"""A log that has expired looks like that."""
UNDAMAGED = ("none", "db_wal_missing", "db_lock_missing", "db_extra_files", "prefer_rocks")
FAST = (
    *("hybrid-clean-1/none", "hybrid-halt-1/none", "rocks-halt-1/none", "same-clean-1/none"),
    "hybrid-halt-1/prefer_rocks",
    *("hybrid-halt-1/file_queues_missing", "hybrid-clean-1/prefer_rocks_cq_missing_middle"),
    *("hybrid-clean-1/other_path", "rocks-clean-1/cq_missing_middle"),
    *("rocks-clean-1/db_manifest_half", "rocks-clean-1/row_min_high"),
    "rocks-clean-1/db_sst_flip",
)


def wrong(case: Case, work: Path) -> list[str]:
    """What verify says of a case that the real start denies."""
    root, config = damaged(case, work)
    said = said_of(root, config, case["version"])
    damage = said.status is Status.DAMAGED
    if is_harmed(case) and not damage and case["kind"] != EXPIRED:
        return [f"{case['case']}: FALSE ALL-CLEAR: {said}"]
    if case["kind"] in UNDAMAGED and not is_harmed(case) and damage:
        return [f"{case['case']}: FALSE ALARM: {said}"]
    return []


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FAST)
def test_some_cases(name: str, tmp_path: Path) -> None:
    assert wrong(case_of(f"5.5.1-{name}"), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("base", sorted({case["base"] for case in cases()}))
def test_all_cases(base: str, tmp_path: Path) -> None:
    mine = [case for case in rocks_cases.cases() if case["base"] == base]
    chosen = slices.pick(mine, f"rocks {base}")
    assert [text for case in chosen for text in wrong(case, tmp_path)] == []
