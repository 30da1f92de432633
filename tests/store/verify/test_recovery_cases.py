"""No miss: verify says of each damaged store of tests/recovery_cases what it does not say of the sound one.

Cases whose damage leaves every statement of the catalogue true are those of `SOUND`, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from mqstore.store.store import Store
from mqstore.store.verify.run import verify

from ... import slices
from ...recovery_cases import (
    Case,
    all_cases,
    all_feature_cases,
    base,
    cases,
    config_of,
    damaged,
    feature_cases,
)

FAST_STEP = 30
_NO_FIELD = "no other part of the store knows the field, and any value is as good as another"
_MOVED = "the log is the same, its files lie in another of its directories"
_EMPTY = "a queue, or a part of one, that was never used"
SOUND = {
    "none(_force)?": "nothing is damaged",
    "abort_toggled .*halt.*": "what was killed with everything written looks like what was stopped",
    r"checkpoint_logics_offset_high .*(4\.|5\.[0-4]).*": "brokers before 5.5 do not have the field",
    "lock_missing": "a broker makes the file when it starts",
    "file_missing_first|expired_more": "a log that has expired looks like that",
    "extra_next_file|extra_next|ext_extra_next|ext_extra_queue": "files made in advance",
    "cq_phantom": "the file in front of the empty one is not full",
    "cq_empty_queue|empty_queue": _EMPTY,
    "checkpoint_confirm_low|checkpoint_early|checkpoint_at_.*|checkpoint_index_zero": (
        "a checkpoint may be behind, or was never written"
    ),
    "all_in_one|moved_.*|swapped|read_only_.*": _MOVED,
    "flip_(bornHost|bornPort|storeHost|storePort|flag|reconsumeTimes)_.*": _NO_FIELD,
    "flip_(bornTimestamp|preparedTransactionOffset)_.*": _NO_FIELD,
    "ext_end_missing": "the end of what is written counts where no mark is",
    "all_missing": "without wheel, log and timercheck the timer begins anew",
    "check_flush_zero": "timercheck may be behind the timer log",
    "check_read_future": "the time is past when the test runs",
    "metrics_missing|snapshot_extra": "a broker does not need it, or does not look at it",
    "wheel_slot_magic": "no broker reads the field",
    "unit_offset_first": "the unit had this offset before",
}
"""Kinds of damage, or kind and base (regular expressions) → why no statement is broken by them."""
_TIMES_OF_FILES = "I-013"
"""Damaging a file makes it newer than those behind it."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("cases")


def _said(case: Case, root: Path) -> frozenset[tuple[object, ...]]:
    with Store(root, config_of(case, root)) as store:
        found = verify(store).findings
    return frozenset(
        (f.code, f.severity, f"{f.path}: {f.message}".replace(str(root), ""), f.count)
        for f in found
        if f.code != _TIMES_OF_FILES
    )


@cache
def _before(name: str, options: str, work: Path) -> frozenset[tuple[object, ...]]:
    return _said(json.loads(options), base(name, work))


def _is_found(case: Case, work: Path) -> bool:
    options = json.dumps({name: case[name] for name in ("config",) if name in case})
    return bool(_said(case, damaged(case, work)) - _before(case["base"], options, work))


def _is_sound(case: Case) -> bool:
    """Nothing was edited, or nothing that a statement is about."""
    return not case["edits"] or any(_is_of(case, pattern) for pattern in SOUND)


def _is_of(case: Case, pattern: str) -> bool:
    names = (case["kind"], f"{case['kind']} {case['base']}")
    return any(re.fullmatch(pattern, name) for name in names)


def _missed(chosen: Sequence[Case], work: Path) -> list[str]:
    damaging = (case for case in chosen if not _is_sound(case))
    return [f"{case['kind']} of {case['base']}" for case in damaging if not _is_found(case, work)]


def test_damage_is_found(work: Path) -> None:
    chosen = [*cases()[::FAST_STEP], *feature_cases()[:: 3 * FAST_STEP]]
    assert _missed(chosen, work) == []


@pytest.mark.slow
def test_all_damage_is_found(work: Path) -> None:
    assert _missed(slices.pick(all_cases(), "verify cases"), work) == []


@pytest.mark.slow
def test_all_damage_to_stores_that_use_more_is_found(work: Path) -> None:
    assert _missed(slices.pick(all_feature_cases(), "verify feature cases"), work) == []


def test_each_reason_is_for_some_case() -> None:
    known = (*cases(), *feature_cases())
    assert [p for p in SOUND if not any(_is_of(case, p) for case in known)] == []
