"""A repaired store in the hands of the real classes: they load it and change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status
from tests import recovery_cases
from tests.recovery_cases import CONFIG, Case
from tests.slices import pick
from tests.stores import ALL, config, truth, unpack

from .conftest import Judge
from .served import DATA, Row, changed, loaded, mqstore, settings

pytestmark = pytest.mark.interop

SIZES = dict(CONFIG.items())
POISONED = [name for name in ALL if name.endswith("lmq-poison")]
FAST = [
    case
    for version in ("4.9.7", "5.3.3")
    for case in [c for c in recovery_cases.cases() if c["version"] == version][::9]
]


def repaired(root: Path, sizes: dict[str, Any], version: str) -> Row | None:
    """Repair all of a store; None where that was refused, with nothing changed."""
    options = ("--broker-version", version, "--format", "json", *settings(sizes))
    said = mqstore("repair", root, "--all", "--apply", "--yes", *options, codes=(0, 1, 5))
    return json.loads(said) if said else None


def check(case: Case, judge: Judge, work: Path) -> None:
    """After a repair the classes change nothing, and nothing is wrong by `verify`."""
    root = recovery_cases.damaged(case, work)
    name = f"{case['version']} {case['exit']} {case['seed']} {case['kind']}"
    if repaired(root, SIZES, case["version"]) is None:
        return
    with StoreReader(root, CONFIG) as store:
        found = verify(store)
    assert found.status is not Status.UNCLEAN, name
    answer = loaded(judge, root, SIZES)
    assert not changed(answer, *DATA), name


@pytest.mark.few(1)
@pytest.mark.parametrize("case", FAST, ids=lambda case: f"{case['version']}-{case['kind']}")
def test_some_kinds_of_damage(case: Case, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    check(case, oracle(case["version"]), tmp_path)


@pytest.mark.slow
def test_all_kinds_of_damage(oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    cases = pick(recovery_cases.all_cases(), "repairs")
    for case in sorted(cases, key=lambda case: str(case["version"])):
        check(case, oracle(case["version"]), tmp_path)


@pytest.mark.parametrize("name", POISONED)
def test_a_poisoned_store_starts_again(name: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """One message of one client kept the broker from starting; every other one is served."""
    root = unpack(name, tmp_path)
    sizes = config(name, root) | {"enableLmq": "true", "enableMultiDispatch": "true"}
    version = truth(name)["broker_version"]
    judge = oracle(version)
    assert not judge.run(root, config=sizes)["loaded"], "it does not load before"
    repaired(root, sizes, version)
    with StoreReader(root) as store:
        wanted = {(row.topic, row.queue_id): row.max_offset for row in store.queue_summaries}
    answer = loaded(judge, root, sizes, {"do": "get"}, start=True)
    assert not changed(answer, *DATA)
    served = [row for row in answer["steps"][0] if "sha1" in row]
    assert len(served) == sum(wanted.values())
    assert all(row["look_ok"] for row in served)
