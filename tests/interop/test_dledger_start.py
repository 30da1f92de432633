"""A start on a damaged DLedger log ends as predicted: the real classes load random ones."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.exit_codes import ExitCode
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.layout import Layout
from mqstore.store.start import dledger
from mqstore.store.start.log import switches_of
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import simulate
from tests.dledger_mishaps import STORE, damaged
from tests.slices import pick
from tests.stores import config, unpack

from .conftest import Judge
from .oracle import OracleDied
from .served import mqstore

pytestmark = pytest.mark.interop

VERSIONS = ("5.3.3", "5.4.0", "5.5.0", "5.5.1")
SEEDS = 40
SIZES = ("mappedFile", "maxHash", "maxIndex", "enableDLeger", "dLeger")


def predicted(root: Path, version: str, *, started: bool) -> Outcome:
    """As the start ends, or its load."""
    snapshot = Snapshot.of(Layout.open(root))
    switches = switches_of(snapshot)._replace(timer_wheel_enable=False)
    with pytest.MonkeyPatch.context() as patched:
        if not started:
            patched.setattr(dledger, "reput", lambda *_: None)
        return simulate(snapshot, profile_of(version), switches)


def options(root: Path) -> dict[str, Any]:
    """What the broker had, and a port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {k: v for k, v in config(STORE, root).items() if k.startswith(SIZES)}
    return known | {"dLegerPeers": f"n0-127.0.0.1:{port}", "timerWheelEnable": "false"}


def compared(judge: Judge, root: Path, version: str, *, started: bool) -> list[str]:
    """What is not as predicted."""
    outcome = predicted(root, version, started=started)
    try:
        answer = judge.run(root, config=options(root), start=started, files="none")
    except OracleDied:
        answer = {"loaded": False, "exits": True, "log": []}
    if not answer["loaded"] or outcome.refusal:
        same = bool(outcome.refusal) is not answer["loaded"]
        return [] if same else [f"{outcome.refusal}, real {answer['loaded']} {answer['log'][-3:]}"]
    seen = answer["after_start" if started else "after_load"]
    ledger = outcome.dledger
    assert ledger is not None
    pairs = {
        "end": (ledger.end, seen["ledger_end"]),
        "last": (ledger.last, seen["ledger_last"]),
        "max": (max(ledger.committed, 0) if not started else ledger.last_end, seen["max_offset"]),
        "queues": (
            {(q.topic, q.queue_id): s.max_offset for q, s in outcome.queues.items() if s.max_offset},
            {(q["topic"], q["queue_id"]): q["max"] for q in seen["queues"] if q["max"]},
        ),
    }
    return [f"{name}: {mine} real {real}" for name, (mine, real) in pairs.items() if mine != real]


def _seeds(fast: tuple[int, ...], name: str) -> list[Any]:
    return [*fast, *(pytest.param(n, marks=pytest.mark.slow) for n in pick(range(SEEDS), name))]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(STORE, tmp_path_factory.mktemp("dledger"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", _seeds((0, 5), "DLedger loads"))
def test_a_load_ends_as_predicted(
    oracle: Callable[[str], Judge], version: str, seed: int, base: Path, tmp_path: Path
) -> None:
    names = damaged(seed, base, tmp_path / "store")
    assert not compared(oracle(version), tmp_path / "store", version, started=False), names


@pytest.mark.slow
@pytest.mark.parametrize("seed", pick(range(100, 130), "DLedger starts", 1))
def test_a_start_ends_as_predicted(oracle: Callable[[str], Judge], seed: int, base: Path, tmp_path: Path) -> None:
    """The node is elected, has what it has committed, and dispatches the rest."""
    names = damaged(seed, base, tmp_path / "store")
    assert not compared(oracle("5.3.3"), tmp_path / "store", "5.3.3", started=True), names


def contents(root: Path) -> dict[str, bytes]:
    """What a start may not change: entries, their index (its units), queues."""
    found = {}
    for part in ("dledger-n0/data", "dledger-n0/index", "consumequeue"):
        for path in sorted((root / part).rglob("0000*")):
            with path.open("rb") as file:
                found[str(path)] = file.read(1 << 20)
    return found


def starts(judge: Judge, root: Path) -> bool:
    """The real classes load it; of some damage their process ends."""
    try:
        return bool(judge.run(root, config=options(root), start=False, files="none")["loaded"])
    except OracleDied:
        return False


@pytest.mark.parametrize("policy", ["keep", "broker"])
@pytest.mark.parametrize("seed", _seeds((5, 13), "DLedger recoveries"))
def test_what_was_recovered_is_left_alone(
    oracle: Callable[[str], Judge], seed: int, policy: str, base: Path, tmp_path: Path
) -> None:
    """The real classes load it, cut nothing, and have the queues of the plan."""
    root = tmp_path / "store"
    names = damaged(seed, base, root)
    words = ("--policy", policy, "--broker-version", "5.3", "--format", "json", "--apply", "--yes")
    codes = (0, 1, ExitCode.FAILED) if policy == "broker" else (0, 1)
    told = json.loads(mqstore("recover", root, *words, "-q", codes=codes) or "{}")
    if not told:  # refused: a start does not get as far
        assert not starts(oracle("5.3.3"), root), names
        return
    before = contents(root)
    answer = oracle("5.3.3").run(root, config=options(root), start=False, files="none")
    assert answer["loaded"], (names, answer["log"][-3:])
    assert answer["after_load"]["ledger_end"] == told["plan"]["log_end"], names
    queues = {(q["topic"], q["queue_id"]): q["max_offset"] for q in told["plan"]["queues"]}
    seen = {(q["topic"], q["queue_id"]): q["max"] for q in answer["after_load"]["queues"]}
    assert {q: end for q, end in seen.items() if end} == {q: e for q, e in queues.items() if e}
    assert contents(root) == before, names
