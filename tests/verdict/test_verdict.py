"""0 contradictions, 0 false all-clears, 0 false alarms: every store, every kind of damage.

What the commands say of a store is held against what the real classes did to it, where that is on
record, and against what they say once the plan was carried out. Nothing is timed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqstore.store.config import BrokerConfig
from mqstore.store.damage.drill import drill
from mqstore.store.damage.scenario import scenarios
from mqstore.store.errors import NotFound, StoreError
from mqstore.store.layout import Layout
from mqstore.store.recovery.undo import session_to_undo, undo
from mqstore.store.store import Store
from mqstore.store.verify.verdict import Status
from mqstore.store.write.files import Files

from .. import recovery_cases, slices, stores
from ..damage import Victim
from ..mishaps import Mishap
from ..recovery_cases import Case, config_of
from ..store.recovery.test_undo import everything
from ..store.verify.mutations import Mutation, copied, mutations, original
from . import Said, apply_recovery, apply_repair, fresh, left_behind, matrix, said_of

FAST_CASES = 8
RANDOM = 2000
"""Stores with random damage of a whole run."""
_SCENARIO_STORES = (
    "4.9.7-clean",
    "5.1.4-clean",
    "5.3.3-killed",
    "5.3.3-timer-clean",
    "5.5.0-clean",
)
_SEEDS = 2
_EXPIRED = ("file_missing_first", "expired_more")
"""What a broker itself does to its oldest files: their messages are gone before any start."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("verdict")


def walked(
    root: Path,
    config: BrokerConfig,
    version: str | None,
    kind: str,
    *,
    real: str = "",
    by_repair: bool = False,
) -> Iterator[str]:
    """All that is wrong with what is said of one store, before and after it is mended. real: as in the table."""
    held = everything(root)
    before = said_of(root, config, version)
    assert everything(root) == held, "a look at the store has changed it"
    yield from before.contradictions()
    if real == "harm" and before.status is not Status.DAMAGED and not before.refused:
        yield f"FALSE ALL-CLEAR: {before}"
    if before.refused or before.found is None or before.found.plan is None:
        matrix.row(kind).note(real, before.status.value, "refused")
        return
    yield from _mended(before, config, version, kind, real, by_repair=by_repair)
    if everything(root) != held:
        yield "undo does not give every byte back"


def _mended(
    before: Said,
    config: BrokerConfig,
    version: str | None,
    kind: str,
    real: str,
    *,
    by_repair: bool,
) -> Iterator[str]:
    root = before.root
    if by_repair:
        session = apply_repair(root, config, version)[1]
    else:
        session = apply_recovery(before, config)
    after = said_of(root, config, version)
    yield from (f"after: {text}" for text in after.contradictions())
    yield from left_behind(after)
    stays = ", ".join(after.codes)
    matrix.row(kind).note(real, before.status.value, f"{after.status.value} {stays}".strip())
    if session:
        layout = Layout.open(root, config)
        undo(layout, session_to_undo(layout, session), Files())


def told(name: str, found: Iterator[str]) -> list[str]:
    """Each line with the store that it is about; an error that ends a look is a line, too."""
    try:
        return [f"{name}: {text}" for text in found]
    except StoreError as error:
        return [f"{name}: {type(error).__name__}: {error}"]


def _real(case: Case) -> str:
    """What the real classes made of it, "" where that is not on record."""
    if case.get("hung") or not case["load"].get("loaded"):
        return "harm"
    messages = case.get("messages")
    if messages is None or case["kind"] in _EXPIRED:
        return ""
    if case.get("config", {}).get("enableMultiDispatch") is False:
        return ""  # the base counts light queues, and whoever turned the option off wants none
    missing = messages["readable"] < case["before"]["messages"]
    return "harm" if messages["lost"] or messages["shifted"] or missing else "fine"


def check_case(case: Case, work: Path) -> list[str]:
    """One case of the corpus, whose real start is on record."""
    root = recovery_cases.damaged(case, work)
    config, name = config_of(case, root), f"{case['base']} {case['kind']}"
    by_repair = sum(map(ord, name)) % 2 == 0
    kind = f"{case.get('feature', 'plain')}: {case['kind']}"
    version = case["version"]
    found = walked(root, config, version, kind, real=_real(case), by_repair=by_repair)
    lines = told(name, found)
    if case["kind"] == "none":
        before = said_of(root, config, version)
        if before.status is Status.DAMAGED:
            lines.append(f"{name}: FALSE ALARM: {before}")
    return lines


@pytest.mark.parametrize("part", range(2))
def test_cases_whose_real_start_is_on_record(part: int, work: Path) -> None:
    pool = [*recovery_cases.cases(), *recovery_cases.feature_cases()]
    step = max(1, len(pool) // FAST_CASES)
    chosen = pool[part * step // 2 :: step]
    wrong = [text for case in chosen for text in check_case(case, work)]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.3.1", "4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0"])
def test_every_case_whose_real_start_is_on_record(version: str, work: Path) -> None:
    pool = [*recovery_cases.all_cases(), *recovery_cases.all_feature_cases()]
    mine = [case for case in pool if case["version"] == version]
    wrong = [
        text for case in slices.pick(mine, f"verdict {version}") for text in check_case(case, work)
    ]
    assert wrong == [], f"{len(wrong)}\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick(stores.ALL, "verdict stores"))
def test_every_real_store(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    wrong = told(name, walked(root, config, None, f"store {name}"))
    before = said_of(root, config)
    if stores.truth(name)["expected_verdict"] == "clean" and before.status is not Status.CLEAN:
        wrong.append(f"{name}: FALSE ALARM: {before}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SCENARIO_STORES)
def test_every_scenario_of_damage(name: str, work: Path) -> None:
    source = original(name, work)
    config = BrokerConfig(stores.config(name, source))
    wrong: list[str] = []
    for scenario in slices.pick(list(scenarios().values()), f"verdict {name}"):
        for seed in range(_SEEDS):
            target = fresh(work / "drill")
            try:
                with Store(source, config) as store:
                    drill(store, target, scenario, seed, Files())
            except NotFound:  # the store has not what it damages
                continue
            mine = BrokerConfig(stores.config(name, target))
            found = walked(target, mine, None, f"scenario {scenario.name}")
            wrong += told(f"{name} {scenario.name} {seed}", found)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", slices.pick(list(mutations().values()), "verdict"), ids=str)
def test_every_broken_invariant(mutation: Mutation, work: Path, tmp_path: Path) -> None:
    wrong: list[str] = []
    for name in mutation.stores:
        source = original(name, work)
        root = copied(source, tmp_path)  # one of its own: a file whose disk fails stays so (I-015)
        config = BrokerConfig(stores.config(name, root))
        did = mutation.mutate(root, random.Random(f"{slices.SEED} {mutation.code}"))
        found = walked(root, config, None, f"invariant {mutation.code}")
        wrong += told(f"{mutation.code} in {name} ({did})", found)
    assert wrong == [], "\n".join(wrong)


def _spoil_config(root: Path, chance: random.Random) -> str:
    """Something happens to a file of `config/`, or to its .bak."""
    files = sorted(path for path in (root / "config").rglob("*") if path.is_file())
    if not files:
        return "no configuration"
    path = chance.choice(files)
    data = path.read_bytes()
    ways: dict[str, Callable[[], bytes | None]] = {
        "deleted": lambda: None,
        "emptied": lambda: b"",
        "garbage": lambda: chance.randbytes(chance.randrange(1, 200)),
        "cut": lambda: data[: chance.randrange(len(data) + 1)],
        "zeros": lambda: bytes(len(data)),
        "null": lambda: b"null",
        "a list": lambda: b"[1]",
        "an empty table": lambda: b"{}",
        "a flipped bit": lambda: _flipped(data, chance),
    }
    what = chance.choice(sorted(ways))
    changed = ways[what]()
    if changed is None:
        path.unlink()
    else:
        path.write_bytes(changed)
    return f"config/{path.name} {what}"


def _flipped(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _random_store(number: int, work: Path) -> list[str]:
    """One store with one to three mishaps in any of its files."""
    chance = random.Random(f"{slices.SEED} verdict {number}")
    name = chance.choice([n for n in stores.FEW if not n.endswith("-restarted")])
    source = original(name, work)
    root, victim = copied(source, work), Victim.of(name, source)
    config = BrokerConfig(stores.config(name, root))
    did = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if chance.random() < 0.3:
            did.append(_spoil_config(root, chance))
            continue
        mishap = Mishap.of(victim, chance)
        mishap.befall(Victim(root, victim.spans, victim.moments), chance)
        did.append(str(mishap))
    found = walked(root, config, None, "random", by_repair=number % 2 == 1)
    return told(f"store {number}, {name}: {'; '.join(did)}", found)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_damage_to_any_file(part: int, work: Path) -> None:
    mine = range(part, slices.share(RANDOM), 4)
    wrong = [text for number in mine for text in _random_store(number, work)]
    assert wrong == [], f"{len(wrong)}\n" + "\n".join(wrong)


@pytest.mark.parametrize("by_repair", [False, True])
def test_a_file_too_long_before_a_missing_one(by_repair: bool, work: Path) -> None:
    """What is put behind its BLANK belongs to the missing file, not to the one that is cut."""
    name = "4.9.7-killed-hole"
    root = copied(original(name, work), work)
    config = BrokerConfig(stores.config(name, root))
    first = min((root / "commitlog").iterdir())
    os.truncate(first, 2 * first.stat().st_size)
    found = walked(root, config, None, "a file too long", by_repair=by_repair)
    assert told(name, found) == []


@pytest.mark.parametrize("by_repair", [False, True])
def test_a_file_that_is_cut_behind_its_blank(by_repair: bool, work: Path) -> None:
    """Its BLANK still closes it: nothing of it is missing but zeros."""
    name = "4.9.7-killed-hole"
    root = copied(original(name, work), work)
    config = BrokerConfig(stores.config(name, root))
    first = min((root / "commitlog").iterdir())
    os.truncate(first, first.stat().st_size - 1)
    found = walked(root, config, None, "a file that is cut", by_repair=by_repair)
    assert told(name, found) == []


@pytest.mark.slow
def test_the_table_is_stored(rewrite: bool) -> None:
    if rewrite:
        matrix.write()
    assert matrix.PAGE.exists()
