"""0 contradictions, 0 false all-clears, 0 false alarms: every store, every kind of damage.

What the commands say of a store is held against what the real classes did to it, where that is on
record, and against what they say once the plan was carried out. Nothing is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.damage.scenarios import scenarios
from mqstore.store.disk.broker_conf import BrokerConfig

from .. import recovery_cases, slices, stores
from ..store.verify.mutations import Mutation, copied, mutations, original
from . import walks

pytestmark = pytest.mark.long

FAST_CASES = 3
RANDOM = 2000
"""Stores with random damage of a whole run."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("verdict")


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(2))
def test_cases_whose_real_start_is_on_record(part: int, work: Path) -> None:
    pool = [*recovery_cases.cases(), *recovery_cases.feature_cases()]
    step = max(1, len(pool) // FAST_CASES)
    chosen = pool[part * step // 2 :: step]
    wrong = [text for case in chosen for text in walks.check_case(case, work)]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.3.1", "4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0"])
def test_every_case_whose_real_start_is_on_record(version: str, work: Path) -> None:
    pool = [*recovery_cases.all_cases(), *recovery_cases.all_feature_cases()]
    mine = [case for case in pool if case["version"] == version]
    wrong = [text for case in slices.pick(mine, f"verdict {version}") for text in walks.check_case(case, work)]
    assert wrong == [], f"{len(wrong)}\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick(stores.ALL, "verdict stores"))
def test_every_real_store(name: str, tmp_path: Path) -> None:
    assert walks.check_store(name, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", walks.SCENARIO_STORES)
def test_every_scenario_of_damage(name: str, work: Path) -> None:
    chosen = slices.pick(list(scenarios().values()), f"verdict {name}")
    wrong = [text for scenario in chosen for text in walks.check_scenario(name, scenario, work)]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", slices.pick(list(mutations().values()), "verdict"), ids=str)
def test_every_broken_invariant(mutation: Mutation, tmp_path: Path) -> None:
    wrong = walks.check_mutation(mutation, tmp_path)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_damage_to_any_file(part: int, work: Path) -> None:
    mine = range(part, slices.share(RANDOM), 4)
    wrong = [text for number in mine for text in walks.check_random(number, work)]
    assert wrong == [], f"{len(wrong)}\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("walk", [walks.check_today, walks.check_dledger, walks.check_mixed, walks.check_cut])
def test_random_damage_to_other_stores(walk: Callable[[int, Path], list[str]], work: Path) -> None:
    """Of today, of DLedger, with files of two ages, and with a log that ends early."""
    wrong = [text for number in range(slices.share(RANDOM // 4)) for text in walk(number, work)]
    assert wrong == [], f"{len(wrong)}\n" + "\n".join(wrong)


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(12))
def test_a_recovery_that_cuts_the_log_leaves_nothing_to_the_next_one(number: int, work: Path) -> None:
    wrong = walks.check_cut(number, work)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.few(1)
@pytest.mark.parametrize("by_repair", [False, True])
def test_a_file_too_long_before_a_missing_one(by_repair: bool, work: Path) -> None:
    """What is put behind its BLANK belongs to the missing file, not to the one that is cut."""
    name = "4.9.7-killed-hole"
    root = copied(original(name, work), work)
    config = BrokerConfig(stores.config(name, root))
    first = min((root / "commitlog").iterdir())
    os.truncate(first, 2 * first.stat().st_size)
    found = walks.walked(root, config, None, "a file too long", by_repair=by_repair)
    assert walks.told(name, found) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("by_repair", [False, True])
def test_a_file_that_is_cut_behind_its_blank(by_repair: bool, work: Path) -> None:
    """Its BLANK still closes it: nothing of it is missing but zeros."""
    name = "4.9.7-killed-hole"
    root = copied(original(name, work), work)
    config = BrokerConfig(stores.config(name, root))
    first = min((root / "commitlog").iterdir())
    os.truncate(first, first.stat().st_size - 1)
    found = walks.walked(root, config, None, "a file that is cut", by_repair=by_repair)
    assert walks.told(name, found) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [900, 1 << 19])
def test_a_record_that_several_queues_name_gets_its_own_topic_back(size: int, work: Path) -> None:
    """A message may name further queues of any name (4.9.3 to 4.9.8); and it was no 4.3 that made light ones."""
    name = "4.9.7-lmq"
    root = copied(original(name, work), work)
    config = BrokerConfig(stores.config(name, root))
    with min((root / "commitlog").iterdir()).open("r+b") as log:
        log.write(size.to_bytes(4, "big"))
    found = walks.walked(root, config, None, "a record that several queues name")
    assert walks.told(name, found) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("by_repair", [False, True])
def test_a_base_that_its_record_contradicts_is_not_put_into_the_queue(by_repair: bool, work: Path) -> None:
    """A start that dispatches nothing keeps the right unit: so does a plan."""
    name = "5.3.3-batchcq"
    root = copied(original(name, work), work)
    config = BrokerConfig(stores.config(name, root))
    with min((root / "commitlog").iterdir()).open("r+b") as log:
        log.seek(log.read().index(b"INNER_BASE\x0134\x02") + len("INNER_BASE") + 1)
        log.write(b"8")
    found = walks.walked(root, config, None, "a base of a batch", by_repair=by_repair)
    assert walks.told(name, found) == []
