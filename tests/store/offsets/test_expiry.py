"""What goes next: against a broker's rules played minute by minute, and their options."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.offsets.expiry import (
    HOUR_MS,
    Disk,
    ExpiryRules,
    Forecast,
    LogFile,
    Why,
    _simulate,
    disk_of,
    forecast,
    rules_of,
)
from mqstore.store.search.store import StoreReader

from ...stores import unpack

NOW = 1_795_500_000_000
FILE = 1000
MINUTE = 60_000


def rules(**options: str) -> ExpiryRules:
    config = BrokerConfig(options)
    return rules_of(Layout.of("/nowhere", config))


def by_the_minute(found: Forecast, files: list[LogFile], log_end: int) -> list[tuple[int, int]]:
    """(start, minute) of each file that goes: the broker's loop, each minute of a log that grows."""
    waiting, gone = list(files), []
    used, end, rules = float(found.disk.used_bytes), float(log_end), found.rules
    for minute in range((found.until_ms - found.now_ms) // MINUTE + 1):
        time_ms = found.now_ms + minute * MINUTE
        while waiting:
            oldest = waiting[0]
            if oldest.start + FILE > end:  # the last file
                break
            changed = oldest.changed_ms
            if oldest.start + FILE > log_end:  # full since this run of the clock
                changed = found.now_ms + round((oldest.start + FILE - log_end) / found.rate)
            old = time_ms >= changed + rules.reserved_ms
            in_hour = (time_ms // HOUR_MS + UTC_OFFSET) % 24 in rules.hours
            if not in_hour and rules.failing_hour is not None:  # an exception ends the round
                break
            ratio = used / found.disk.total_bytes * 100
            forced = rules.forced_percent is not None and ratio > rules.forced_percent
            if not (forced or (old and (in_hour or ratio > rules.delete_percent))):
                break
            gone.append((waiting.pop(0).start, minute))
            used -= FILE
        used += found.rate * MINUTE
        end += found.rate * MINUTE
        while waiting[-1].start + FILE <= end:
            waiting.append(LogFile("", waiting[-1].start + FILE, FILE, 0))
    return gone


UTC_OFFSET = 8


@pytest.fixture(autouse=True)
def _local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "<+08>-8")
    time.tzset()


@settings(max_examples=60, deadline=None)
@given(
    ages_hours=st.lists(st.integers(0, 100), min_size=1, max_size=6),
    reserved=st.integers(1, 90),
    hours=st.sets(st.integers(0, 23), max_size=3),
    used=st.integers(0, 99),
    hours_a_file=st.integers(1, 40),
    forcibly=st.booleans(),
    failing=st.sampled_from(["", ";x"]),
)
def test_files_go_as_a_broker_lets_them_go(
    ages_hours: list[int], reserved: int, hours: set[int], used: int, hours_a_file: int, forcibly: bool, failing: str
) -> None:
    """To two minutes; the last file never goes, and none before the one that is older."""
    ages = sorted(ages_hours, reverse=True)
    files = [LogFile(f"{n}", n * FILE, FILE, NOW - age * HOUR_MS) for n, age in enumerate([*ages, 0])]
    log_end = len(ages) * FILE + FILE // 2
    config = {
        "fileReservedTime": str(reserved),
        "deleteWhen": (";".join(f"{hour:02}" for hour in sorted(hours)) or "24") + failing,
        "cleanFileForciblyEnable": str(forcibly).lower(),
    }
    rate = FILE / (hours_a_file * HOUR_MS)
    disk = Disk(20 * FILE, used * FILE // 5)
    found = Forecast(rules(**config), disk, NOW, NOW + 4 * 24 * HOUR_MS, rate, 1.0, None)
    _simulate(found, files, log_end)
    wanted = [(start, minute) for start, minute in by_the_minute(found, files, log_end)]
    mine = [(one.file.start, (one.goes_ms - NOW) / MINUTE) for one in found.going]
    expected = [(start, minute) for start, minute in wanted if start < len(files) * FILE]
    near_the_end = (found.until_ms - NOW) / MINUTE - 3
    assert len([m for m in mine if m[1] < near_the_end]) <= len(expected)
    for (start, at), (other, minute) in zip(mine, expected, strict=False):
        assert start == other
        assert minute - 3 <= at <= minute + 3
    assert [start for start, minute in expected if minute < near_the_end] == [
        start for start, at in mine if at < near_the_end
    ][: len(expected)]


def test_options_are_those_of_a_broker() -> None:
    default = rules()
    assert (default.reserved_ms, default.hours) == (72 * HOUR_MS, (4,))
    assert (default.delete_percent, default.forced_percent, default.full_percent) == (75, 85, 90)
    assert default.given == ()
    bounded = rules(diskMaxUsedSpaceRatio="99", diskSpaceWarningLevelRatio="5")
    assert (bounded.delete_percent, bounded.full_percent) == (95, 35)
    assert rules(deleteWhen="16;04").hours == (4, 16)
    assert rules(cleanFileForciblyEnable="false").forced_percent is None
    with pytest.raises(InvalidInput):
        rules(fileReservedTime="-1")


@pytest.mark.parametrize(
    ("text", "hours", "failing"),
    [
        ("04", (4,), None),
        ("16;04", (4, 16), None),
        ("4;16;;", (4, 16), None),
        ("+4;004;\u0664", (4,), None),
        (";", (), None),
        ("04; 16", (4,), " 16"),
        ("04;;16", (4,), ""),
        ("04,16", (), "04,16"),
        ("04 ", (), "04 "),
        (";04", (), ""),
        ("", (), ""),
        ("3000000000;04", (), "3000000000"),
    ],
)
def test_hours_are_read_as_brokers_read_them(text: str, hours: tuple[int, ...], failing: str | None) -> None:
    """Java's `split` and `parseInt`, as measured with `UtilAll` of 4.3.1 and 5.3.3."""
    found = rules(deleteWhen=text)
    assert (found.hours, found.failing_hour, found.notes) == (hours, failing, ())


def test_an_hour_that_never_comes_is_told() -> None:
    found = rules(deleteWhen="24;04;-1")
    assert (found.hours, found.failing_hour) == ((4,), None)
    assert [note.split()[1] for note in found.notes] == ["-1", "24"]


def test_a_disk_fills_up_where_nothing_may_go() -> None:
    """Each ratio in its turn, at the rate of the log."""
    config = {"cleanFileForciblyEnable": "false", "fileReservedTime": "9999"}
    disk = Disk(1000, 500)
    found = Forecast(rules(**config), disk, NOW, NOW + 1000, 1.0, 1.0, None)
    _simulate(found, [LogFile("0", 0, FILE, NOW)], 0)
    assert (found.over_ms, found.refuses_ms, found.full_ms) == (NOW + 250, NOW + 400, NOW + 500)
    assert found.forced_ms is None and not found.going


def test_of_a_store(tmp_path: Path) -> None:
    """The rate is that of its own times; the last file stays, as long as it is the last one."""
    root = unpack("4.9.7-expired", tmp_path)
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        os.utime(path, (NOW / 1000 + number, NOW / 1000 + number))
    with StoreReader(root) as store:
        found = forecast(store, Disk(1 << 40, 1 << 30), NOW, NOW + 10 * 24 * HOUR_MS, 24 * HOUR_MS)
        log = store.log_end.position - store.log_files.start
        assert found.rate * 92_388 == pytest.approx(log, rel=0.01)
    assert [one.why for one in found.going] == [Why.TIME] * 4
    assert disk_of(Layout.open(root)).total_bytes > 0


def test_a_file_with_a_time_in_the_future_keeps_all_behind_it(tmp_path: Path) -> None:
    """A broker stops at the first file that is not old enough; only a disk that is nearly full makes it go on."""
    root = unpack("4.9.7-expired", tmp_path)
    first, *others = sorted((root / "commitlog").iterdir())
    now_ms, later_ms = time.time_ns() // 1_000_000, 2 * NOW
    os.utime(first, (later_ms / 1000, later_ms / 1000))
    for path in others:
        os.utime(path, (1, 1))
    with StoreReader(root) as store:
        found = forecast(store, Disk(1 << 40, 1 << 30), now_ms, now_ms + 24 * HOUR_MS, HOUR_MS)
        assert [one.path for one in found.ahead] == [str(first)] and not found.going
        found = forecast(store, Disk(1 << 30, 1 << 30), now_ms, now_ms + HOUR_MS, HOUR_MS)
    gone = found.going[0]
    assert (gone.file.path, gone.why, gone.goes_ms, gone.kept_ms) == (str(first), Why.FORCED, now_ms, 0)


def test_a_log_without_queues_tells_its_rate(tmp_path: Path) -> None:
    """By the first records of its files."""
    root = unpack("4.9.7-clean", tmp_path)
    rates = []
    for _ in range(2):
        with StoreReader(root) as store:
            found = forecast(store, Disk(1 << 40, 1 << 30), NOW, NOW + HOUR_MS, 24 * HOUR_MS)
        rates.append(found.rate)
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
    assert rates[1] == pytest.approx(rates[0], rel=0.2) and rates[0] > 0


@pytest.mark.parametrize("text", ["fileReservedTime=x", "fileReservedTime=-1"])
def test_a_bad_value_of_the_own_configuration_is_told(text: str, tmp_path: Path) -> None:
    """And the default counts; a given one is refused."""
    found = own_rules(f"{text}\ndiskMaxUsedSpaceRatio=60\n".encode(), tmp_path)
    assert (found.hours, found.reserved_ms, found.delete_percent) == ((4,), 72 * HOUR_MS, 60)
    assert ["broker.properties" in note for note in found.notes] == [True]
    with pytest.raises(InvalidInput):
        rules(**dict([text.split("=")]))


def test_hours_of_the_own_configuration_are_read_by_the_version_of_the_store(tmp_path: Path) -> None:
    """Brokers before 5.2 keep a blank at the end, which is no number then."""
    assert own_rules(b"deleteWhen=04 \n", tmp_path, "4.9.7-clean").failing_hour == "04 "
    assert own_rules(b"deleteWhen=04 \n", tmp_path, "5.3.3-clean")[1:2] == ((4,),)
    assert own_rules(b"deleteWhen=\\u00b2\n", tmp_path).failing_hour == "²"


def own_rules(written: bytes, tmp_path: Path, store: str = "4.9.7-clean") -> ExpiryRules:
    root = unpack(store, tmp_path)
    (root / "config" / "broker.properties").write_bytes(written)
    return rules_of(Layout.of(root, BrokerConfig()))
