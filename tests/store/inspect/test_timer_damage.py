"""`inspect --timers` of damaged stores, against what real brokers made of them (tests/recovery_cases)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.timer_log import MAGIC_DELETE, MAGIC_ROLL
from mqstore.formats.timer_wheel import SLOTS
from mqstore.store.broker.system_topics import TIMER_TOPIC
from mqstore.store.inspect.timers import WAITING, TimerMessageState, Timers, timers
from mqstore.store.search.store import StoreReader

from ...recovery_cases import Case, all_feature_cases, config_of, damaged, feature_cases
from ...slices import SEED, pick

FEATURE = "timer"
CASES = [case for case in feature_cases() if case["feature"] == FEATURE]
TICK_MS = 1000


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timers")


def view(case: Case, work: Path, now_ms: int) -> Timers:
    root = damaged(case, work)
    with StoreReader(root, config_of(case, root)) as store:
        return timers(store, now_ms, lambda _: None)


def in_chains(state: dict[str, Any], wanted: Callable[[int], bool]) -> dict[str, set[int]]:
    """Unique key → times of the slots whose chains lead to the message, as Java follows them."""
    found: dict[str, set[int]] = {}
    for number, time_ms, _, _, _, _, chain in state["slots"]:
        if time_ms >= state["read_time_ms"] and time_ms // TICK_MS % SLOTS == number:
            for entry in chain:
                if len(entry) == 7 and entry[6] is not None and wanted(entry[2]):
                    found.setdefault(entry[6], set()).add(time_ms)
    return found


def no_cancel(magic: int) -> bool:
    return not magic & MAGIC_DELETE


def no_cancel_now(magic: int) -> bool:
    """A broker takes what is rolled round again before it looks whether it cancels anything."""
    return no_cancel(magic) or bool(magic & MAGIC_ROLL)


def check(case: Case, work: Path) -> None:
    """What the wheel has after load, and what became of it once the broker had started."""
    name = f"{case['case']} (seed {SEED})"
    load, start = case["timer"]["load"], case["timer"]["start"]
    if load is None:
        found = view(case, work, 0)
        assert all(row.reason or row.state is not TimerMessageState.UNKNOWN for row in found.rows), name
        return
    found = view(case, work, load["now_ms"])
    chained = [row for row in found.rows if row.unique_key and row.next_timestamp is not None]
    waits = {row.unique_key: row for row in chained if row.state is not TimerMessageState.NEVER}
    may = in_chains(load, no_cancel_now)
    assert in_chains(load, no_cancel).keys() <= waits.keys() <= may.keys(), name
    assert all(row.next_timestamp in may[key] for key, row in waits.items()), name
    if any(row.unique_key for row in found.rows):  # else nothing tells the generation
        queue = case["load"]["state"]["queues"].get(f"{TIMER_TOPIC}-0", [0])
        assert found.queue_offset == max(load["queue_offset"], queue[0]), name
    never = {row.unique_key for row in found.rows if row.state is TimerMessageState.NEVER}
    assert not never & in_chains(start, no_cancel).keys(), name
    later = in_chains(start, no_cancel_now)
    for row in found.rows:
        if row.state in WAITING and (row.deliver_timestamp or 0) > start["now_ms"]:
            assert row.unique_key in later, (name, row)


@pytest.mark.few(12)
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_every_kind_of_damage(case: Case, work: Path) -> None:
    check(case, work)


@pytest.mark.slow
def test_all_damage(work: Path) -> None:
    every = [case for case in all_feature_cases() if case["feature"] == FEATURE]
    for case in pick(every, "timer damage"):
        check(case, work)
