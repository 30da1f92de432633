"""Random damage: a start does what `recover` says, and finds nothing to do after `recover`."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.config import BrokerConfig
from mqstore.store.errors import StoreError
from mqstore.store.recovery.record_check import size_at
from tests.damage import Damage, Victim, damage
from tests.slices import SEED, rng, share
from tests.store.recovery.recovered import recover, started

from .conftest import Judge
from .oracle import OracleDied
from .served import SIZES, Row, assert_left_alone, loaded, message, victim

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CASES_PER_VERSION = 600
EXITS = ("clean", "halt")
OUT_OF_MEMORY: dict[str, Any] = {"died": "OutOfMemoryError"}
LARGE_BYTES = 64 << 20
FOR_A_PERSON = (
    "a log file of",
    "log files are missing",
    "no commit log beside full queues",
    "queue files have",
    "all records name other positions",
)
"""What `recover` may refuse: damage that only the operator can put right."""
CONFIG = BrokerConfig().with_set([f"{key}={value}" for key, value in SIZES.items()])


def bases(judge: Judge, folder: Path) -> list[Victim]:
    """Undamaged stores, one for each exit, with files of every kind."""
    messages = [message(n) | {"store_timestamp": 1_795_000_000_000 + n * 997} for n in range(120)]
    made = []
    for exit in EXITS:
        root = folder / exit
        answer = loaded(judge, root, SIZES, {"do": "put", "messages": messages}, exit=exit)
        made.append(victim(root, answer["steps"][0]))
    return made


def damaged_copy(base: Victim, root: Path, chance: random.Random) -> list[Damage]:
    """A copy of `base` at `root` with one to three things wrong."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base.root, root)
    copy = base.moved(root)
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
        of_kind = {
            "log": [path for path in files if path.parent.name == "commitlog"],
            "queue": [path for path in files if "consumequeue" in path.parts],
            "index": [path for path in files if path.parent.name == "index"],
            "checkpoint": [path for path in files if path.name == "checkpoint"],
        }
        choices = [kind for kind, found in of_kind.items() if found]
        weights = [{"log": 6, "queue": 2}.get(kind, 1) for kind in choices]
        path = chance.choice(of_kind[chance.choices(choices, weights)[0]])
        done.append(damage(copy, chance, path=path))
    return done


def state(answer: Row) -> dict[str, Any]:
    """What the broker says of itself after its start."""
    after = answer["after_start"]
    queues = {f"{q['topic']}/{q['queue_id']}": (q["min"], q["max"]) for q in after["queues"]}
    return {
        "log": (max(after["min_offset"], 0), after["max_offset"]),  # -1: no file is left
        "queues": {name: ends for name, ends in queues.items() if ends != (0, 0)},
    }


def predicted(root: Path, version: str) -> dict[str, Any] | None:
    """The same from the simulation; None where it says that the broker does not come up."""
    outcome = started(root, CONFIG, version)
    if outcome.refusal or outcome.hangs:
        return None
    queues = {str(name): (q.min_offset, q.max_offset) for name, q in outcome.queues.items()}
    return {
        "log": (outcome.log_start, outcome.log_end),
        "queues": {name: ends for name, ends in queues.items() if ends != (0, 0)},
    }


def takes_heap(root: Path, version: str) -> bool:
    """The scan meets a size that old brokers allocate, if their heap allows it (B29).

    It ends there; that of 4.3 goes on, and takes the record for data.
    """
    outcome = started(root, CONFIG, version)
    walk = outcome.walk
    if outcome.profile.record.bounded or walk is None or walk.failure is None:
        return False
    if walk.ghosts:
        return True
    entry = walk.files[walk.end_file].entry
    assert entry is not None
    return size_at(outcome.snapshot, entry, walk.failure.offset) > LARGE_BYTES


def real(judge: Judge, root: Path) -> dict[str, Any] | None:
    """What a start really does; None where the broker does not come up."""
    try:
        answer = judge.run(root, config=SIZES, files="none")
    except OracleDied:
        return None
    if "OutOfMemoryError" in answer.get("exception", ""):
        return OUT_OF_MEMORY
    return state(answer) if "after_start" in answer and "exception" not in answer else None


def test_random_damage_ends_as_predicted(judge: Judge, version: str, tmp_path: Path) -> None:
    made = bases(judge, tmp_path)
    wrong = []
    for number in range(share(CASES_PER_VERSION)):
        name = f"{version} damage {number}"
        chance = rng(name)
        root = tmp_path / "copy"
        done = damaged_copy(chance.choice(made), root, chance)
        expected, takes = predicted(root, version), takes_heap(root, version)
        found = real(judge, root)
        if found != (OUT_OF_MEMORY if takes and found == OUT_OF_MEMORY else expected):
            wrong.append(f"{name} ({', '.join(map(str, done))}): {expected} is really {found}")
    assert not wrong, f"seed {SEED}, {len(wrong)} cases:\n" + "\n".join(wrong[:5])


def contents(root: Path) -> dict[Path, bytes]:
    """Every file of a store but the lock, which is made to look."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    return {path.relative_to(root): path.read_bytes() for path in files}


def left_alone_by_its_own_recovery(judge: Judge, root: Path) -> bool:
    """Whether the broker finds nothing to do in a damaged store that it has recovered itself.

    A record whose stored position is too great is dispatched at every start of 5.x, for ever.
    """
    try:
        after = loaded(judge, root, SIZES)["after_start"]
        queues = [queue | {"max_offset": queue["max"]} for queue in after["queues"]]
        assert_left_alone(judge, root, SIZES, {"log_end": after["max_offset"], "queues": queues})
    except AssertionError:
        return False
    return True


def test_random_damage_is_left_alone_once_recovered(
    judge: Judge, version: str, tmp_path: Path
) -> None:
    made = bases(judge, tmp_path)
    refusals, cases = 0, share(CASES_PER_VERSION)
    for number in range(cases):
        name = f"{version} recovery {number}"
        chance = rng(name)
        root, untouched = tmp_path / "copy", tmp_path / "untouched"
        done = damaged_copy(chance.choice(made), root, chance)
        shutil.rmtree(untouched, ignore_errors=True)
        shutil.copytree(root, untouched)
        case = f"seed {SEED}, {name} ({', '.join(map(str, done))})"
        try:
            plan, _ = recover(root, CONFIG, version)
        except StoreError as refused:  # some damage has to be put right by a person
            assert contents(root) == contents(untouched), f"{case}: {refused}"
            assert any(reason in str(refused) for reason in FOR_A_PERSON), f"{case}: {refused}"
            refusals += 1
            continue
        queues = [
            {"topic": row.queue.topic, "queue_id": row.queue.queue_id, "max_offset": row.max_offset}
            for row in plan.queues
        ]
        try:
            assert_left_alone(judge, root, SIZES, {"log_end": plan.log_end, "queues": queues})
        except AssertionError as wrong:
            if left_alone_by_its_own_recovery(judge, untouched):
                raise AssertionError(f"{case}: {wrong}") from wrong
    # few cases, as in a slice, may hold more of them by chance
    assert refusals <= max(4, cases // 5), f"seed {SEED}: {refusals} of {cases} refused"
