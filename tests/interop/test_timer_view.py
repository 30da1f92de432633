"""`inspect --timers` says what a real TimerMessageStore then does: whom it delivers, whom it cancels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.profiles import profile_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.inspect.timers import TimerMessageState, Timers, timers
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.generation import Generation
from tests.slices import pick

from .conftest import Judge
from .served import Row, as_broker, loaded, put
from .test_timer import CONFIG, FIVE

pytestmark = pytest.mark.interop

AHEAD_MS = 8_000
"""Time for `put` and for the start of a broker before the first message is due."""
WAYS = ("none", "key", "topic+key", "next tick", "other key")


CASES = (*((version, False) for version in FIVE), ("5.4.0", True), ("5.5.0", True), ("5.5.1", True))
"""Versions, and whether appendTopicForTimerDeleteKey is on; older ones do not have that option."""


def record(key: str, out_ms: int, **more: str) -> Row:
    """A message of the timer topic."""
    properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "TIMER_OUT_MS": str(out_ms)}
    return {
        "type": "message",
        "topic": "rmq_sys_wheel_timer",
        "body": key,
        "properties": {**properties, "UNIQ_KEY": key, **more},
    }


def made(first_ms: int) -> list[Row]:
    """A message for each way to cancel it, in ticks of their own and in one together."""
    found = []
    for number, way in enumerate((*WAYS, *WAYS)):
        key = f"{number:032X}"
        tick = first_ms + 1_000 * (number if number < len(WAYS) else len(WAYS) + 1)
        found.append(record(key, tick))
        text = {"topic+key": f"orders+{key}", "other key": f"{key}0"}.get(way, key)
        if way != "none":
            late = 1_000 if way == "next tick" else 0
            found.append(record(f"{number:031X}C", tick + late, TIMER_DEL_UNIQKEY=text))
    return found


def view(root: Path, version: str, config: dict[str, Any]) -> Timers:
    """The view now; the broker's version is known here, not guessed."""
    options = BrokerConfig({name: str(value) for name, value in config.items()})
    profile = profile_of(version).version
    with StoreReader(root, options) as store:
        store.generation = Generation(profile, "the test", (profile,))
        return timers(store, int(time.time() * 1000), lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "append_topic"), pick(CASES, "timer view"))
def test_a_broker_does_what_the_view_says(version: str, append_topic: bool, oracle: Any, tmp_path: Path) -> None:
    judge: Judge = oracle(version)
    root = tmp_path / "store"
    config = CONFIG | ({"appendTopicForTimerDeleteKey": "true"} if append_topic else {})
    first_ms = int(time.time()) * 1000 + AHEAD_MS
    messages = made(first_ms)
    put(root, messages, config, *as_broker(version))
    before = view(root, version, config)
    told = {row.unique_key: row for row in before.rows}
    assert {row.state for row in before.rows} == {TimerMessageState.PENDING, TimerMessageState.CANCELLED}
    for later_ms in (2_000, 1_000 * (len(WAYS) + 4)):  # two sessions, since each has its time limit
        wait_ms = max(0, first_ms + later_ms - int(time.time() * 1000))
        loaded(judge, root, config, {"do": "wait", "ms": wait_ms})
    after = {row.unique_key: row for row in view(root, version, config).rows}
    assert after.keys() == told.keys()
    for key, row in after.items():
        cancelled = told[key].state is TimerMessageState.CANCELLED
        assert row.state is (TimerMessageState.CANCELLED if cancelled else TimerMessageState.DELIVERED), (key, row)
        assert len(row.delivered) == (not cancelled) and not row.again, (key, row)
    by_topic = append_topic or version == "5.3.3"
    heeded = WAYS.index("topic+key" if by_topic else "key")
    wanted = {f"{number:032X}" for number in (heeded, heeded + len(WAYS))}
    assert {key for key, row in told.items() if row.state is TimerMessageState.CANCELLED} == wanted
