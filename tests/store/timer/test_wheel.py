"""timerPrecisionMs is learned from a store; what a store does not show is no reason for an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.derive import dtype_of
from mqstore.formats.timer_check import PAGE_BYTES
from mqstore.formats.timer_wheel import FILE_BYTES, SLOT
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.inspect.timers import WAITING, TimerMessageState, timers
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.options import options_of
from mqstore.store.timer.read import timer_wheel
from mqstore.store.timer.wheel import broker_precision
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import stores
from ...timer_precision import CLEAN, KILLED, NAMES, config, truth, unpack

OPTION = "timerPrecisionMs"


def learned(root: Path) -> tuple[int, str]:
    """Value and origin."""
    found = options_of(Layout.open(root)).timer_precision
    return found.value, found.origin


def findings(root: Path, *settings: str) -> list[Finding]:
    """All but those that only inform."""
    with StoreReader(root, BrokerConfig().with_set(settings)) as store:
        found = verify(store, Scope(broker_version=store.generation.version)).findings
    return [finding for finding in found if finding.severity > Severity.INFO]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_that_of_the_broker(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    assert learned(root) == (truth(name)["precision_ms"], "files")


@pytest.mark.parametrize("name", [n for n in stores.NAMES if "timer" in n])
def test_the_usual_one(name: str, tmp_path: Path) -> None:
    assert learned(stores.unpack(name, tmp_path)) == (1000, "files")


def without_wheel(root: Path) -> None:
    (root / "timerwheel").unlink()


def without_slots(root: Path) -> None:
    (root / "timerwheel").write_bytes(bytes(FILE_BYTES))


def without_timer(root: Path) -> None:
    """Nothing but the messages is left."""
    without_wheel(root)
    shutil.rmtree(root / "timerlog")
    (root / "config" / "timercheck").unlink()


def with_noise(root: Path) -> None:
    """Every third slot of the wheel is damaged, and timercheck."""
    wheel = np.memmap(root / "timerwheel", dtype_of(SLOT), "r+")
    used = np.concatenate([part.number for part in timer_wheel(root / "timerwheel")])
    wheel["time"][used[::3]] = np.arange(len(used[::3])) * 7_777_777_777
    (root / "config" / "timercheck").write_bytes(b"\x5a" * PAGE_BYTES)


@pytest.mark.few(12)
@pytest.mark.parametrize("harm", [without_wheel, without_slots, without_timer, with_noise])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_shows_it(name: str, harm: Callable[[Path], None], tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    harm(root)
    assert learned(root) == (truth(name)["precision_ms"], "files")


def test_nothing_shows_it(tmp_path: Path) -> None:
    """Without queues nobody looks at all messages; they are no errors then."""
    root = unpack("5.3.3-500ms-clean", tmp_path)
    without_timer(root)
    shutil.rmtree(root / "consumequeue" / "rmq_sys_wheel_timer")
    assert learned(root) == (1000, "default")
    of_time = [finding for finding in findings(root) if finding.code == "I-049"]
    assert {finding.severity for finding in of_time} == {Severity.WARNING}
    assert all("does not show" in finding.message for finding in of_time)
    assert "I-049" in {f.code for f in findings(root, f"{OPTION}=1000") if f.severity is Severity.ERROR}
    assert learned(stores.unpack("4.9.7-clean", tmp_path)) == (1000, "default")


@pytest.mark.few(6)
@pytest.mark.parametrize("name", NAMES)
def test_verify_without_being_told(name: str, tmp_path: Path) -> None:
    """What it says with the broker's options, and no error of a store that was shut down."""
    root = unpack(name, tmp_path)
    found = findings(root)
    assert name not in CLEAN or not [f for f in found if f.severity >= Severity.ERROR]
    told = config(name, root)
    assert [f.message for f in found] == [f.message for f in findings(root, *told)]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_wheel_leads_to(name: str, tmp_path: Path) -> None:
    """What waits, at the times of the chains that the real classes follow."""
    known = truth(name)
    with StoreReader(unpack(name, tmp_path)) as store:
        found = timers(store, known["timer"]["now_ms"], print)
    expected = {
        (slot["time_ms"], entry["offset_py"])
        for slot in known["timer"]["slots"]
        for entry in slot["chain"]
        if slot["time_ms"] >= found.read_timestamp
    }
    waits = [row for row in found.rows if row.next_timestamp is not None and row.state in WAITING]
    assert waits
    assert {(row.next_timestamp, row.positions[-1]) for row in waits} <= expected
    assert not any(row.state in (TimerMessageState.NEVER, TimerMessageState.UNKNOWN) for row in found.rows)
    delivered = {m["properties"]["UNIQ_KEY"] for m in known["messages"] if m["topic"].startswith("alarms")}
    assert {row.unique_key for row in found.rows if row.state is TimerMessageState.DELIVERED} == delivered


@pytest.mark.parametrize("name", CLEAN)
def test_another_one_is_given(name: str, tmp_path: Path) -> None:
    """It holds, and the store contradicts it."""
    own = truth(name)["precision_ms"]
    other = 500 if own != 500 else 100
    root = unpack(name, tmp_path)
    found = options_of(Layout.open(root, BrokerConfig({OPTION: str(other)})))
    assert (found.timer_precision.value, found.timer_precision.shown) == (other, own)
    (note,) = [note for note in found.notes() if OPTION in note]
    assert f"{OPTION}={other} in the configuration, but the store shows {own}" in note
    same = options_of(Layout.open(root, BrokerConfig({OPTION: truth(name)["config"][OPTION]})))
    assert same.timer_precision.value == own and not same.notes()


def test_what_a_broker_makes_of_it() -> None:
    """`setTimerPrecisionMs` of the real classes; the stores of 2000 ms are the proof of one."""
    wanted = {50: 100, 100: 100, 150: 100, 250: 200, 499: 200, 500: 500, 999: 500, 2000: 1000}
    assert {asked: broker_precision(asked) for asked in wanted} == wanted
    assert KILLED
