"""Walks over damaged stores: what is said of each, before and after it is mended, and what is wrong with it.

Each gives the lines that it has to complain of, and notes its store in the table (`matrix.py`).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from mqstore.store.damage.scenario import Scenario, drill
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import BARRIER_PREFIX, Layout
from mqstore.store.errors import NotFound, StoreError
from mqstore.store.plan.observer import Policy
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter
from mqstore.store.search.store import StoreReader
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.verdict import Status

from .. import dledger_mishaps, recovery_cases, slices, stores
from ..damage import Victim, cut_units
from ..database_mishaps import DatabaseMishap
from ..mishaps import Mishap
from ..recovery_cases import Case, config_of
from ..store.session.test_undo import everything
from ..store.verify.mutations import Mutation, copied, original
from . import Said, apply_recovery, apply_repair, fresh, left_behind, matrix, said_of

WITH_LOST_TIMERS = "5.5.1-rocks-timer-killed-restarted"
"""Stopped in order, and no row says up to when it has delivered timers: a real 5.5.1 never delivers its 168 messages
whose time has passed since (`inspect --timers`, spec 04, 4.10).
"""
SCENARIO_STORES = ("4.9.7-clean", "5.1.4-clean", "5.3.3-killed", "5.3.3-timer-clean", "5.5.0-clean")
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
    policy: Policy = Policy.KEEP,
) -> Iterator[str]:
    """All that is wrong with what is said of one store, before and after it is mended. real: as in the table."""
    held = everything(root)
    before = said_of(root, config, version, policy)
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
    yield from _mended(before, config, version, kind, real, by_repair=by_repair, policy=policy)
    # a start barrier that is left of another recovery is no part of the store: it stays away
    kept = {name: told for name, told in held.items() if BARRIER_PREFIX not in name}
    if everything(root) != kept:
        yield "undo does not give every byte back"


def _mended(
    before: Said, config: BrokerConfig, version: str | None, kind: str, real: str, *, by_repair: bool, policy: Policy
) -> Iterator[str]:
    root = before.root
    session = apply_repair(root, config, version)[1] if by_repair else apply_recovery(before, config)
    after = said_of(root, config, version, policy)
    yield from (f"after: {text}" for text in after.contradictions())
    # whoever lets the log end as a broker does keeps the damage before that end
    yield from left_behind(after, named=before.codes if policy is Policy.BROKER else ())
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
        return ""  # the base counts LMQs, and whoever turned the option off wants none
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
    clean = stores.truth(name)["expected_verdict"] == "clean" and name != WITH_LOST_TIMERS
    if clean and before.status is not Status.CLEAN:
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


@cache
def _of_today() -> tuple[str, ...]:
    """Stores of today whose records are on record, none of DLedger."""
    names = (n for n in stores.OF_TODAY if "dledger" not in n and not n.endswith("-restarted"))
    return tuple(name for name in names if any(True for _ in stores.messages(name)))


def check_today(number: int, work: Path) -> list[str]:
    """One store of today, queues in a RocksDB with or without files, with one to three mishaps in any of its files."""
    chance = random.Random(f"{slices.SEED} today {number}")
    name = chance.choice(_of_today())
    source = original(name, work)
    victim = Victim.of(name, source)
    root = copied(source, work)
    config = BrokerConfig(stores.config(name, root))
    has_database = Layout.open(source, BrokerConfig(stores.config(name, source))).queue_database is not None
    did = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        mishap: Mishap | DatabaseMishap
        if has_database and chance.random() < 0.5:
            mishap = DatabaseMishap.of(victim, BrokerConfig(stores.config(name, source)), chance)
        else:
            mishap = Mishap.of(victim, chance)
        mishap.befall(victim.moved(root), chance)
        did.append(str(mishap))
    found = walked(root, config, None, "today", by_repair=number % 2 == 1)
    return told(f"store of today {number}, {name}: {'; '.join(did)}", found)


def check_dledger(number: int, work: Path) -> list[str]:
    """A DLedger store with up to four mishaps."""
    source = original(dledger_mishaps.STORE, work)
    root = fresh(work / "damaged")
    did = dledger_mishaps.damaged(slices.SEED * 1_000_000 + number, source, root)
    config = BrokerConfig(stores.config(dledger_mishaps.STORE, root))
    found = walked(root, config, None, "dledger", by_repair=number % 2 == 1)
    return told(f"DLedger store {number}: {'; '.join(did)}", found)


def _lost_end(root: Path, victim: Victim, chance: random.Random) -> str:
    """The log ends earlier: as after a crash, with a page of zeros, or without a file."""
    files = sorted({span.path for span in victim.spans})
    span = chance.choice(victim.spans)
    at = span.offset + chance.choice((0, 8, span.size // 2, span.size))
    what = chance.choice(("end", "end and units", "page", *(("last file", "middle file") if len(files) > 1 else ())))
    if what.endswith("file"):
        lost = files[-1] if what == "last file" else files[len(files) // 2]
        lost.unlink()
        return f"{what} {lost.name} lost"
    behind = [span.path] if what == "page" else [path for path in files if path >= span.path]
    for path in behind:
        begin = at if path == span.path else 0
        size = max(0, path.stat().st_size - begin)
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(bytes(min(size, 4096) if what == "page" else size))
    if what == "end and units":
        cut_units(root, span.position)
    return f"{what} from {span.position} on, byte {at - span.offset} of its record"


def check_cut(number: int, work: Path) -> list[str]:
    """A log that ends early or has a hole: one recovery, under either policy, leaves nothing to the next one."""
    chance = random.Random(f"{slices.SEED} cut {number}")
    of_all = (*stores.FEW, *stores.FEW_OF_TODAY)
    name = chance.choice([name for name in of_all if number % 2 == 0 or "timer" in name])
    source = original(name, work)
    root, victim = copied(source, work), Victim.of(name, source)
    did = _lost_end(root, victim.moved(root), chance)
    if chance.random() < 0.5:
        (root / "abort").touch()
    policy = chance.choice(tuple(Policy))
    if "dledger" in name:
        policy = Policy.KEEP  # where a broker ends such a log the last entry may have no record (I-053)
    config = BrokerConfig(stores.config(name, root))
    found = walked(root, config, None, "cut", policy=policy)
    return told(f"cut store {number}, {name}: {did}, {policy}", found)


def _continued(name: str, chance: random.Random, work: Path) -> Path:
    """The same store some messages later."""
    root = fresh(work / "continued")
    shutil.copytree(original(name, work), root, copy_function=recovery_cases.sparse_copy)
    topics = sorted(path.name.encode() for path in root.glob("consumequeue/*"))
    with StoreWriter.open(root, stores.config(name, root)) as writer:
        topics = [each for each in topics if b"_" not in each and not writer.is_batch_topic(each)]
        for at in range(chance.choice((1, 20, 300))):
            topic = chance.choice([*topics[:3], b"New"])
            text = b"KEYS\x01k%d\x02TAGS\x01t\x02" % at
            writer.append(NewMessage(topic, b"later" * 20, chance.randrange(4), properties=text))
    return root


def _parts(older: Path, newer: Path, chance: random.Random) -> list[Path]:
    """What of a store is another age than the rest, relative to it: files of the log, queues, whole directories."""
    there = {p.relative_to(root) for root in (older, newer) for p in root.rglob("*") if p.is_file()}
    kinds: dict[str, list[Path]] = {}
    for path in sorted(there - {Path("lock"), Path("abort")}):
        kinds.setdefault(path.parts[0], []).append(path)
    found = []
    for files in kinds.values():
        how = chance.choice(("old", "old", "new", "some", "last"))
        some = [path for path in files if how == "some" and chance.random() < 0.5]
        found += {"new": files, "some": some, "last": files[-1:]}.get(how, [])
    return found


def check_mixed(number: int, work: Path) -> list[str]:
    """A store some of whose files are older than the others: a copy made while its broker ran, a restored part."""
    chance = random.Random(f"{slices.SEED} mixed {number}")
    pairs = [pair for pair in stores.pairs() if "dledger" not in pair[0]]
    if chance.random() < 0.4:
        name, other = chance.choice(pairs)
        newer = original(other, work)
    else:
        name = chance.choice([n for n in stores.FEW if n.endswith("clean") and "dledger" not in n])
        newer = _continued(name, chance, work)
    older = original(name, work)
    if chance.random() < 0.5:
        older, newer = newer, older
    root = copied(older, work)
    did = []
    for path in _parts(older, newer, chance):
        (root / path).unlink(missing_ok=True)
        if (newer / path).exists():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            recovery_cases.sparse_copy(str(newer / path), str(root / path))
        did.append(str(path))
    if chance.random() < 0.7:
        (root / "abort").touch()
    config = BrokerConfig(stores.config(name, root))
    found = walked(root, config, None, "mixed", by_repair=number % 2 == 1)
    return told(f"mixed store {number}, {name}, of {newer.name}: {', '.join(did)}", found)
