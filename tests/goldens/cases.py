"""The cases: stores, what is done to them, and the broker versions that are asked for.

Every case has a name that says all of it; `build` makes its store. Which cases a run has is decided by
their names and the seed alone, so that a case of a slice is the same one in every run.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mqstore.store.damage.scenario import drill
from mqstore.store.damage.scenarios import scenarios
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.errors import NotFound
from mqstore.store.search.store import StoreReader

from .. import recovery_cases, stores
from ..damage import Victim
from ..mishaps import Mishap
from ..store.verify.mutations import copied, mutations, original
from ..verdict import fresh
from ..verdict.walks import spoil_config

VERSIONS = ("4.3", "4.9", "5.1", "5.3", "5.4", "5.5")
GUESS = ""
"""No version is named: the command takes the one that the store seems to be of."""
SCENARIO_STORES = (
    *("4.9.7-clean", "4.9.7-lmq", "5.1.4-batchcq", "5.1.4-compaction", "5.3.3-cqext"),
    *("5.3.3-killed", "5.3.3-timer-clean", "5.5.0-clean", "5.5.0-rocksdb-killed"),
)
RANDOM = 7
"""Copies with random damage to any of their files, of each of a few stores."""
SLICE = (
    "4.9.7-clean | whole | 4.9",
    "5.1.4-batchcq | scenario torn-tail | guess",
    "5.3.3-timer-killed | random 3 | guess",
)
"""The cases of `slice.jsonl`."""


@dataclass(frozen=True)
class Case:
    """One store in one state, as a broker of one version will meet it.

    damage: `whole`, or the kind and what it is of this kind. full: all commands are asked, else only
    those that a version makes a difference for.
    """

    store: str
    damage: str
    version: str
    full: bool

    def __str__(self) -> str:
        return f"{self.store} | {self.damage} | {self.version or 'guess'}"

    def chance(self, seed: int) -> random.Random:
        """A generator of its own."""
        return random.Random(f"{seed} {self.store} {self.damage}")

    def number(self, seed: int) -> float:
        """Where the case lies among all, in [0, 1); a slice of the first 5 % has those below 0.05."""
        name = f"{seed} goldens {self}".encode()
        return int.from_bytes(hashlib.sha256(name).digest()[:8]) / 2**64


def cases(seed: int, *, every_version: bool = False) -> Iterator[Case]:
    """All of them. every_version: a damaged store under each, not under one drawn by the seed."""
    for name in stores.ALL:
        for version in (GUESS, *VERSIONS):
            yield Case(name, "whole", version, full=not version)
    for damaged in _damaged():
        yield damaged
        if damaged.version == GUESS:
            drawn = damaged.chance(seed).choice(VERSIONS)
            for version in VERSIONS if every_version else (drawn,):
                yield Case(damaged.store, damaged.damage, version, full=False)


def _damaged() -> Iterator[Case]:
    """Every damaged store once, under the version that it is of."""
    for name in SCENARIO_STORES:
        for scenario in scenarios():
            yield Case(name, f"scenario {scenario}", GUESS, full=True)
    for code, mutation in mutations().items():
        yield Case(mutation.stores[0], f"invariant {code}", GUESS, full=True)
    for name in stores.FEW:
        if not name.endswith("-restarted"):
            for number in range(RANDOM):
                yield Case(name, f"random {number}", GUESS, full=True)
    for case in (*recovery_cases.cases(), *recovery_cases.feature_cases()):
        version = ".".join(case["version"].split(".")[:2])
        feature = case.get("feature", "plain")
        yield Case(f"{case['base']}", f"case {feature}: {case['case']}", version, full=True)


@dataclass(frozen=True)
class Built:
    """A store of a case on the disk, and what it has to be opened with: `KEY=VALUE` each."""

    root: Path
    options: tuple[str, ...]


def build(case: Case, work: Path, seed: int) -> Built | None:
    """Make the store of a case below `work`. None: the store has not what would be damaged."""
    kind, _, what = case.damage.partition(" ")
    if kind == "case":
        return _recorded(what, work)
    source = original(case.store, work)
    config = BrokerConfig(stores.config(case.store, source))
    if kind == "scenario":
        root = fresh(work / "damaged")
        try:
            with StoreReader(source, config) as store:
                drill(store, root, scenarios()[what], seed, Files())
        except NotFound:
            return None
    else:
        root = copied(source, work)
    if kind == "invariant":
        mutations()[what].mutate(root, case.chance(seed))
    if kind == "random":
        _at_random(case, source, root, seed)
    return Built(root, tuple(stores.config_set(case.store, root)))


def _at_random(case: Case, source: Path, root: Path, seed: int) -> None:
    """One to three things happen to any files."""
    chance = case.chance(seed)
    victim = Victim.of(case.store, source)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if chance.random() < 0.3:
            spoil_config(root, chance)
        else:
            Mishap.of(victim, chance).befall(Victim(root, victim.spans, victim.moments), chance)


def _recorded(what: str, work: Path) -> Built:
    """A store that the real broker was started on: `FEATURE: CASE`."""
    name = what.partition(": ")[2]
    every = (*recovery_cases.cases(), *recovery_cases.feature_cases())
    case = next(each for each in every if each["case"] == name)
    root = recovery_cases.damaged(case, work)
    config = recovery_cases.config_of(case, root)
    return Built(root, tuple(f"{key}={value}" for key, value in config.items()))


def copy(built: Built, target: Path) -> Path:
    """A copy of the store that a command may change, holes and times as they are."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(built.root, target, copy_function=recovery_cases.sparse_copy, symlinks=True)
    return target
