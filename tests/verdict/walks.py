"""Walks over damaged stores: what is said of each, before and after it is mended, and what is wrong with it.

Each gives the lines that it has to complain of, and notes its store in the table (`matrix.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from mqstore.store.damage.drill import drill
from mqstore.store.damage.scenario import Scenario
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import BARRIER_PREFIX, Layout
from mqstore.store.errors import NotFound, StoreError
from mqstore.store.search.store import StoreReader
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.verdict import Status

from .. import recovery_cases, slices, stores
from ..damage import Victim
from ..mishaps import Mishap
from ..recovery_cases import Case, config_of
from ..store.session.test_undo import everything
from ..store.verify.mutations import Mutation, copied, original
from . import Said, apply_recovery, apply_repair, fresh, left_behind, matrix, said_of

SCENARIO_STORES = (
    "4.9.7-clean",
    "5.1.4-clean",
    "5.3.3-killed",
    "5.3.3-timer-clean",
    "5.5.0-clean",
)
_SEEDS = 2
_EXPIRED = ("file_missing_first", "expired_more")
"""What a broker itself does to its oldest files: their messages are gone before any start."""


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
    looked_at = everything(root)
    if looked_at != held:
        differing = [p for p in held.keys() | looked_at.keys() if held.get(p) != looked_at.get(p)]
        yield f"A LOOK HAS CHANGED {differing[:3]}"
    yield from before.contradictions()
    if real == "harm" and before.status is not Status.DAMAGED and not before.refused:
        yield f"FALSE ALL-CLEAR: {before}"
    if before.refused or before.found is None or before.found.plan is None:
        matrix.row(kind).note(real, before.status.value, "refused")
        return
    yield from _mended(before, config, version, kind, real, by_repair=by_repair)
    # a start barrier that is left of another recovery is no part of the store: it stays away
    kept = {name: told for name, told in held.items() if BARRIER_PREFIX not in name}
    if everything(root) != kept:
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
    session = apply_repair(root, config, version)[1] if by_repair else apply_recovery(before, config)
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


def check_store(name: str, work: Path) -> list[str]:
    """A store that a real broker left."""
    root = stores.unpack(name, work)
    config = BrokerConfig(stores.config(name, root))
    wrong = told(name, walked(root, config, None, f"store {name}"))
    before = said_of(root, config)
    if stores.truth(name)["expected_verdict"] == "clean" and before.status is not Status.CLEAN:
        wrong.append(f"{name}: FALSE ALARM: {before}")
    return wrong


def check_scenario(name: str, scenario: Scenario, work: Path) -> list[str]:
    """A scenario of damage in a real store, with each seed."""
    source = original(name, work)
    config = BrokerConfig(stores.config(name, source))
    wrong: list[str] = []
    for seed in range(_SEEDS):
        target = fresh(work / "drill")
        try:
            with StoreReader(source, config) as store:
                drill(store, target, scenario, seed, Files())
        except NotFound:  # the store has not what it damages
            continue
        mine = BrokerConfig(stores.config(name, target))
        found = walked(target, mine, None, f"scenario {scenario.name}")
        wrong += told(f"{name} {scenario.name} {seed}", found)
    return wrong


def check_mutation(mutation: Mutation, work: Path) -> list[str]:
    """An invariant that is broken, in each store it is broken in."""
    wrong: list[str] = []
    for name in mutation.stores:
        source = original(name, work)
        root = copied(source, fresh(work / "own"))  # one of its own: a file whose disk fails stays so (I-015)
        config = BrokerConfig(stores.config(name, root))
        did = mutation.mutate(root, random.Random(f"{slices.SEED} {mutation.code}"))
        found = walked(root, config, None, f"invariant {mutation.code}")
        wrong += told(f"{mutation.code} in {name} ({did})", found)
    return wrong


def spoil_config(root: Path, chance: random.Random) -> str:
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


def check_random(number: int, work: Path) -> list[str]:
    """One store with one to three mishaps in any of its files."""
    chance = random.Random(f"{slices.SEED} verdict {number}")
    name = chance.choice([n for n in stores.FEW if not n.endswith("-restarted")])
    source = original(name, work)
    root, victim = copied(source, work), Victim.of(name, source)
    config = BrokerConfig(stores.config(name, root))
    did = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if chance.random() < 0.3:
            did.append(spoil_config(root, chance))
            continue
        mishap = Mishap.of(victim, chance)
        mishap.befall(Victim(root, victim.spans, victim.moments), chance)
        did.append(str(mishap))
    found = walked(root, config, None, "random", by_repair=number % 2 == 1)
    return told(f"store {number}, {name}: {'; '.join(did)}", found)
