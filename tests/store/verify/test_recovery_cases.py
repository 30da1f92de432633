"""No miss: verify says of each damaged store of tests/recovery_cases what it does not say of the sound one.

Cases whose damage leaves every statement of the catalogue true are those of `SOUND`, with the reason;
edits that write what is there already are left out, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify

from ... import slices
from ...recovery_cases import SHARED, Case, all_cases, all_feature_cases, cases, config_of, damaged, feature_cases

pytestmark = pytest.mark.long

FAST_STEP = 90
_EXPIRED = "file_missing_first|expired_more"
"""What a broker itself does to its oldest files. The messages in them are gone for good."""
_SILENT = "bornHost|bornPort|bornTimestamp|storeHost|storePort|flag|reconsumeTimes"
SOUND = {
    "none(_force)?|append_off|ext_off|lmq_off": "nothing is damaged, and no option is needed to read",
    "directory_third|read_only_(both|extra|log-[ab])|swapped": "all files are in some directory",
    "all_in_one|moved_.*|read_only_old_files": "each file lies in another directory of the log",
    "abort_toggled .*halt.*": "what was killed with everything written looks like what was stopped",
    r"checkpoint_logics_offset_high .*(4\.|5\.[0-4]).*": "brokers before 5.5 do not have the field",
    "checkpoint_confirm_low|checkpoint_early|checkpoint_index_zero": (
        "a checkpoint may be behind, or was never written: a start does more, and the same comes out"
    ),
    "lock_missing": "a broker makes the file when it starts",
    _EXPIRED: "a log that has expired looks like that, and its queues too until they are cleaned",
    "extra_next_file|ext_extra_next|ext_extra_queue": "files made in advance",
    "cq_empty_queue|empty_queue": "a queue that was never used",
    f"flip_({_SILENT})_.* v2ipv6.*": (
        "no other part of the store knows the field, and any value is as good as another"
    ),
    "flip_storeTimestamp_born6_middle v2ipv6-.*-clean-2": (
        "8 ms, before the next record is stored; the index has no more than seconds"
    ),
    "first_time_zero_10 long-.*-1": "the record has an IPv6 address where others have that time",
    "ext_end_missing": "the end of what is written counts where no mark is",
    "check_flush_zero": "timercheck may be behind the timer log: a start reads it again",
    "metrics_missing|snapshot_extra": "a broker counts from zero, or does not look at it",
    "wheel_slot_magic": "no broker reads the field",
}
"""Kinds of damage, or kind and base (regular expressions) → why no statement is broken by them.

What the real classes did with them is in the cases: where they lost a message it counts as damage.
"""
_NOT_SHIPPED = {"first_time_zero_10 long-.*-1", "flip_storeTimestamp_born6_middle v2ipv6-.*-clean-2"}
_TIMES_OF_FILES = "I-013"
"""Damaging a file makes it newer than those behind it."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("cases")


def _said(root: Path, config: BrokerConfig, now_ms: int | None) -> frozenset[tuple[object, ...]]:
    with StoreReader(root, config) as store:
        found = verify(store, now_ms=now_ms).findings
    return frozenset(
        (f.code, f.severity, f"{f.path}: {f.message}".replace(str(root), ""), f.count)
        for f in found
        if f.code != _TIMES_OF_FILES
    )


@cache
def _undamaged() -> dict[str, Case]:
    """The case without damage, by base, and by feature for bases that have none."""
    found: dict[str, Case] = {}
    for case in (*all_cases(), *all_feature_cases()):
        if case["kind"] == "none":
            found.setdefault(_feature(case), case)
            found[case["base"]] = case
    return found


def _feature(case: Case) -> str:
    return f"feature {case.get('feature', 'plain')}"


@cache
def _before(undamaged: str, now_ms: int | None, work: Path) -> frozenset[tuple[object, ...]]:
    case = json.loads(undamaged)
    root = damaged(case, work)
    return _said(root, config_of(case, root), now_ms)


def _is_found(case: Case, work: Path) -> bool:
    """verify says something of it that it does not say of the base, or the bytes are the same."""
    usual = _undamaged().get(case["base"]) or _undamaged()[_feature(case)]
    kept = {name: usual[name] for name in ("config", "topics") if name in usual}
    undamaged = json.dumps({"base": case["base"], "edits": [], **kept})
    now_ms = _now_ms(case)
    before = _before(undamaged, now_ms, work)
    root = damaged(case, work)
    new = _said(root, config_of(case, root), now_ms) - before
    if new or not case["edits"]:
        return bool(new)
    files = _files(root)
    return files == _files(damaged(json.loads(undamaged), work))


def _now_ms(case: Case) -> int | None:
    """When the broker was started, where that matters."""
    timer = case.get("timer") or {}
    now_ms: int | None = (timer.get("load") or {}).get("now_ms")
    return now_ms


def _files(root: Path) -> dict[Path, tuple[int, int]]:
    """Length and checksum of each file."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {p.relative_to(root): (p.stat().st_size, crc32(p.read_bytes())) for p in paths}


def _is_sound(case: Case) -> bool:
    """There is a reason, and the real classes served what they served before."""
    if _is_of(case, _EXPIRED):
        return True
    return any(_is_of(case, pattern) for pattern in SOUND) and _serves_all(case)


def _serves_all(case: Case) -> bool:
    """The real classes started on it, and gave and waited with every message."""
    served = (case.get("messages") or {}).get("readable")
    timer = (case.get("timer") or {}).get("load") or {}
    return bool(served == case["before"]["messages"]) and not timer.get("lost")


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
    every = (*cases(), *feature_cases(), *all_cases(), *all_feature_cases())
    known = [case for case in every if _is_sound(case)]
    unused = [p for p in SOUND if not any(_is_of(case, p) for case in known)]
    assert set(unused) <= _NOT_SHIPPED
    assert not unused or not SHARED.exists()


def test_the_last_record_says_another_queue_than_the_unit_that_names_it(work: Path) -> None:
    """No unit of the queue that it says names it, and nothing behind it was dispatched."""
    name, header = "commitlog/00000000000000057344", {"offset": 12, "data": "00000009"}
    edits = [{"op": "write", "file": name, **header}]
    root = damaged({"base": "4.3.1-halt-1", "edits": edits}, work)
    with StoreReader(root, BrokerConfig()) as store:
        codes = {finding.code for finding in verify(store).findings}
    assert "I-063" in codes
