"""`mqstore recover` on a store whose timer a start would leave silent: the first line says it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mqstore.cli.record_types import schema_of
from mqstore.formats.timer_log import UNIT_BYTES
from mqstore.store.disk.file_queue import file_name

from .. import recovery_cases, timer_precision
from ..conftest import STORES_LEFT_MS
from ..damage import cut_units
from ..stores import config, unpack
from .datadriven import run_here
from .json_schema import errors

pytestmark = pytest.mark.long


def of_case(kind: str, work: Path) -> tuple[Path, list[str]]:
    """A damaged store of the timer, and the options that go with it."""
    pool = recovery_cases.feature_cases()
    case = next(c for c in pool if (c["feature"], c["kind"]) == ("timer", kind))
    root = recovery_cases.damaged(case, work)
    config = recovery_cases.config_of(case, root)
    options = [f"--set={name}={value}" for name, value in config.items()]
    return root, [*options, "--broker-version", case["version"]]


def first_line(root: Path, options: list[str], code: int) -> str:
    result = run_here(["recover", str(root), *options])
    assert result.code == code, result.stderr + result.stdout
    return result.stdout.splitlines()[0]


def timers(root: Path, options: list[str], code: int) -> dict[str, Any]:
    """`prediction.timers` of the JSON, checked against its schema."""
    result = run_here(["recover", str(root), *options, "--format", "json"])
    assert result.code == code, result.stderr + result.stdout
    record = json.loads(result.stdout)
    assert list(errors(schema_of("recovery"), record)) == []
    told: dict[str, Any] = record["prediction"]["timers"]
    return told


@pytest.mark.parametrize("kind", ["wheel_missing", pytest.param("wheel_empty", marks=pytest.mark.slow)])
def test_a_lost_wheel_is_made_anew(kind: str, tmp_path: Path) -> None:
    """B33: the command that the first line names brings all of them back."""
    root, options = of_case(kind, tmp_path)
    before = timers(root, options, 1)
    never, waiting = before["never_fired"], before["pending"]
    assert 0 < never < waiting
    line = first_line(root, options, 1)
    assert line.startswith(
        f"Do not start a broker: a broker {options[-1][:3]} would leave {never} of {waiting} timed "
        f"messages unfired (B33). `mqstore recover {root} --apply "
    )
    assert line.endswith("` loses no message.")
    result = run_here(["recover", str(root), *options, "--apply", "--yes"])
    assert (result.code, result.stdout.splitlines()[0]) == (
        0,
        "Done: recovered, no message lost. A broker can be started.",
    )
    assert timers(root, options, 0) == {**before, "never_fired": 0, "bugs": []}
    assert run_here(["undo", str(root), "--yes"]).code == 0
    assert timers(root, options, 1) == before


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("log_lost_last", "lead the timer into a loop at 1 tick (B31), and then fire no timed message."),
        pytest.param("wheel_page_zero", "leave 6 of 59 timed messages unfired.", marks=pytest.mark.slow),
        pytest.param("entry_offset_other", "leave 1 of 60 timed messages unfired.", marks=pytest.mark.slow),
    ],
)
def test_what_is_left_to_repair(kind: str, first: str, tmp_path: Path) -> None:
    """Log and queues are in order: `recover` mends the timer's files, as far as they can be."""
    root, options = of_case(kind, tmp_path)
    result = run_here(["recover", str(root), *options])
    head = result.stdout.splitlines()[0]
    sizes = [word for size in options[:-2] for word in ("--set", size.removeprefix("--set="))]
    words = ["recover", str(root), "--apply", *options[-2:], *sizes]
    command = shlex.join(["mqstore", *words])
    broker = f"a broker {options[-1][:3]}"
    cure = f"`{command}` loses no message."
    assert (result.code, head) == (1, f"Do not start a broker: {broker} would {first} {cure}")
    assert f"Next: {command}" in result.stdout
    assert run_here([*words, "--yes"]).code == 0
    assert timers(root, options, 0)["never_fired"] == 0


def test_what_damaged_entries_were_for_is_not_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may tell it; how many are left unfired is known once they are mended."""
    root = unpack("5.3.3-timer-roll", tmp_path)
    options = [f"--set={name}={value}" for name, value in config("5.3.3-timer-roll", root).items()]
    with sorted((root / "timerlog").iterdir())[6].open("r+b") as file:
        file.seek(15 * UNIT_BYTES)
        file.write(bytes(4 * UNIT_BYTES))
    clock = SimpleNamespace(time_ns=lambda: (STORES_LEFT_MS + 8 * 86_400_000) * 1_000_000)
    monkeypatch.setattr("mqstore.store.search.store.time", clock)
    told = "` loses no message of the log; timed messages of damaged timer log entries may stay unfired."
    assert first_line(root, options, 1).endswith(told)


def test_messages_that_fire_twice_are_not_lost(tmp_path: Path) -> None:
    """59 wait; one more was delivered after timercheck was written."""
    root, options = of_case("check_master_zero", tmp_path)
    found = timers(root, options, 1)
    assert (found["fired_twice"], found["pending"]) == (60, 59)
    assert run_here(["recover", str(root), *options, "--apply", "--yes"]).code == 0
    assert timers(root, options, 0)["fired_twice"] == 0


def test_a_lost_message_does_not_fire_twice(tmp_path: Path) -> None:
    """Its entry waits, and its unit is read again, but both lead to a tombstone."""
    root = unpack("5.3.3-timer-killed", tmp_path)
    check, log = root / "config" / "timercheck", root / "commitlog" / file_name(0)
    before, old = timers(root, [], 3)["fired_twice"], check.read_bytes()
    with log.open("r+b") as file:
        file.seek(101_588)  # the first message that is read again
        file.write(bytes(827))
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 1
    check.write_bytes(old)
    assert timers(root, [], 0)["fired_twice"] == before - 1


def test_no_wheel_is_made_where_all_is_read_again(tmp_path: Path) -> None:
    """With a wheel each message would fire twice; without timercheck the queue brings them back."""
    root, options = of_case("wheel_missing", tmp_path)
    (root / "config" / "timercheck").unlink()
    found = timers(root, options, 1)
    assert found["never_fired"] == 0
    assert not (root / "timerwheel").exists()


def test_nothing_waits_behind_its_own_tombstones(store: Callable[[str], Path]) -> None:
    """Messages that the timer had read are lost: that is told once, and the store is in order then."""
    root = store("5.3.3-timer-roll")
    with (root / "commitlog" / file_name(0)).open("r+b") as log:
        log.seek(8192)
        log.write(bytes(4096))
    result = run_here(["recover", str(root), "--apply", "--yes"])
    done = "Done: recovered, 9 messages lost. A broker can be started."
    assert (result.code, result.stdout.splitlines()[0]) == (1, done)
    assert run_here(["verify", str(root)]).code == 0


@pytest.mark.parametrize(
    ("name", "waits"),
    [("5.1.4-100ms-clean", "22 of 24"), pytest.param("5.1.4-100ms-killed", "200 of 228", marks=pytest.mark.slow)],
)
def test_a_start_that_comes_too_late(name: str, waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of 100 ms reaches back 16.8 hours. What was due before never fires: `recover` has it fire at once, as a
    real 5.1.4 did with these stores (tests/interop/test_timer.py).
    """
    root = timer_precision.unpack(name, tmp_path)
    options = [f"--set={option}" for option in timer_precision.config(name, root)]
    assert timers(root, options, 3 if name.endswith("killed") else 0)["never_fired"] == 0
    now_ms = STORES_LEFT_MS + 86_400_000
    clock = SimpleNamespace(time_ns=lambda: now_ms * 1_000_000)
    monkeypatch.setattr("mqstore.store.search.store.time", clock)
    most = "up to " if name.endswith("killed") else ""  # those in the queue are read in time by chance
    broken = f"Do not start a broker: a broker 5.1 would leave {most}{waits} timed messages unfired"
    assert first_line(root, options, 1).startswith(broken)
    of_broker = first_line(root, [*options, "--policy", "broker"], 1)
    assert of_broker.endswith(("` loses no message; timed messages stay unfired.", "` is next."))
    for command in (["verify", str(root)], ["repair", str(root), "--timer"]):
        assert run_here([*command, *options]).code == 1
    result = run_here(["recover", str(root), *options, "--apply", "--yes"])
    done = "Done: recovered, no message lost. A broker can be started."
    assert (result.code, result.stdout.splitlines()[0]) == (0, done)
    assert run_here(["verify", str(root), *options]).code == 0
    view = run_here(["inspect", str(root), "--timers", f"--now={now_ms}", *options, "--format", "json"])
    told = json.loads(view.stdout)
    assert (told["pending"] + told["rolled"], told["never"], told["again"]) == (int(waits.split()[0]), 0, 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("begin", [0, 8_361, 16_560])
@pytest.mark.parametrize("policy", ["keep", "broker"])
def test_entries_of_messages_that_are_cut_off_go_in_the_same_run(policy: str, begin: int, tmp_path: Path) -> None:
    """With the end of the log its units are gone, too, or go: some of the timer's messages are left, or none is."""
    root = unpack("5.3.3-timer-clean", tmp_path)
    options = [f"--set={name}={value}" for name, value in config("5.3.3-timer-clean", root).items()]
    log = root / "commitlog" / file_name(0)
    with log.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(begin + 8)
        file.write(bytes(size - begin - 8))
    if policy == "keep":
        cut_units(root, begin + 1)
    command = ["recover", str(root), *options, "--policy", policy]
    result = run_here([*command, "--apply", "--yes", "--format", "json"])
    assert result.code == 1, result.stderr
    assert json.loads(result.stdout)["applied"]["edits_left"] == 0
    for again in (command, ["verify", str(root), *options]):
        assert run_here(again).code == 0, again
