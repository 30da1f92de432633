"""Random damaged stores, and what starts of the real classes make of them.

    cases = Cases("5.3.3", folder)
    case = cases[17]                      # the same for the same seed, whatever came before
    seen = case.judged(judge)             # a start by the broker, and the same one simulated

A store is written by the real classes: sizes, topics, features and exit are chance. One to three
mishaps befall a copy of it. `smallest` leaves out the mishaps that a disagreement does not need.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from mqstore.formats.checkpoint import CHECKPOINT, FIELDS
from mqstore.formats.message import SysFlag
from mqstore.store.broker.load_rules import size_at
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.start.log import switches_of
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import simulate
from tests.damage import Span, Victim
from tests.database_mishaps import DatabaseMishap
from tests.mishaps import Mishap
from tests.recovery_cases import sparse_copy
from tests.slices import SEED, rng
from tests.store.start.disagreements import disagreements

from .conftest import TIMEOUT_SECONDS, Judge
from .oracle import OracleDied
from .served import Row, loaded
from .test_same_bytes import START_MS, random_message

#: Cases that begin with the same undamaged store.
CASES_PER_STORE = 20
#: Long enough for a start that goes well; one that does not is asked again with more patience.
IMPATIENT_SECONDS = 4
LARGE_BYTES = 64 << 20
STARTED = "started"
#: LMQs, named by half messages, too: these take an offset, but get no unit.
HALF_LIGHT = "half light"
#: A plain store whose last record has no unit: 4.9 dispatches it again at every start.
HALF_AT_END = "half at the end"
#: What a store can have besides plain queues, and the first version that knows it.
FEATURES = {"plain": 4, HALF_AT_END: 4, "ext": 4, "light": 4.9, HALF_LIGHT: 4.9, "batch": 5, "timer": 5}
BATCH_TOPICS = {"B": {"queue.type": "BatchCQ"}}
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
OWN = {
    "plain": {},
    HALF_AT_END: {},
    "ext": {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "400"},
    "light": LIGHT,
    HALF_LIGHT: LIGHT,
    "batch": {"mapperFileSizeBatchConsumeQueue": "460"},
    "timer": {"timerWheelEnable": "true", "mappedFileSizeTimerLog": "600"},
}


@dataclass(frozen=True)
class RandomStore:
    """An undamaged store. topics: attributes of topics, as the judge wants to be told.

    steady: the broker's clock never went back.
    """

    feature: str
    exit: str
    victim: Victim
    config: dict[str, str]
    topics: dict[str, Any]
    steady: bool

    @classmethod
    def made(cls, judge: Judge, root: Path, chance: random.Random, feature: str, exit: str = "") -> RandomStore:
        """Let the broker write one."""
        exit = exit or chance.choice(("clean", "halt"))
        config = {
            "mappedFileSizeCommitLog": str(chance.choice((8192, 16384))),
            "mappedFileSizeConsumeQueue": str(20 * chance.choice((10, 20, 33))),
            "maxHashSlotNum": str(chance.choice((10, 97))),
            "maxIndexNum": "200",
        } | OWN[feature]
        topics = BATCH_TOPICS if feature == "batch" else {}
        count = chance.choice((15, 40, 90, 150))
        messages = [_message(number, chance, judge.version, feature) for number in range(count)]
        steady, step_ms = chance.random() < 0.8, chance.choice((0, 7, 997, 30_000))
        for number, message in enumerate(messages if steady else []):
            message["store_timestamp"] = START_MS + number * step_ms
        if feature == HALF_AT_END:
            messages[-1] |= {"sys_flag": SysFlag.PREPARED, "delay_level": 0}
        put = {"do": "put", "messages": messages}
        answer = loaded(judge, root, config, put, exit=exit, topics=topics, files="none", start=True)
        stored = [r for r in answer["steps"][0] if r["status"] == "PUT_OK"]
        assert len(stored) > count // 2, answer["steps"][0]
        _write_topics(root, topics)
        store = cls(feature, exit, victim_of(root, stored, config), config, topics, steady)
        if exit == "halt" and chance.random() < 0.5:
            store._busy_checkpoint(chance)
        return store

    def _busy_checkpoint(self, chance: random.Random) -> None:
        """What a broker that was busy for long has on disk: times from before the end."""
        moment, position = chance.choice(self.victim.moments)
        names = [str(field.name) for field in FIELDS.subcons]
        fields = {n: moment if n.endswith("timestamp") else position for n in names}
        path = self.victim.root / "checkpoint"
        path.write_bytes(CHECKPOINT.build(fields | {"master_flushed_offset": 0}))


def _message(number: int, chance: random.Random, version: str, feature: str) -> Row:
    """A message as the feature needs some."""
    row = random_message(number, chance, version)
    if version.startswith("4"):
        row.pop("delay_level", None)  # delivered one second after the start
    row["topic"] = row["topic"][:40]
    if feature in ("light", HALF_LIGHT) and chance.random() < 0.5:
        row["topic"] = "orders"
        if feature == "light":
            row["sys_flag"] = 0
        row.pop("delay_level", None)
        names = chance.sample(("%LMQ%a", "%LMQ%b", "%LMQ%c"), chance.randint(1, 3))
        row["properties"]["INNER_MULTI_DISPATCH"] = ",".join(names)
    if feature == "timer" and chance.random() < 0.5:
        row["topic"], row["queue_id"], row["sys_flag"] = "rmq_sys_wheel_timer", 0, 0
        row.pop("delay_level", None)
        out = START_MS + 1000 * chance.randrange(100)
        times = {"TIMER_OUT_MS": str(out), "REAL_TOPIC": "orders", "REAL_QID": "0"}
        row["properties"] = {"UNIQ_KEY": f"{number:032X}"} | times
    if feature == "batch" and chance.random() < 0.5:
        bodies = [{"body": "b" * chance.choice((1, 30))} for _ in range(chance.randint(1, 4))]
        row = {key: row[key] for key in ("store_timestamp", "queue_id")}
        row |= {"topic": "B", "batch": bodies, "inner": True}
    return row


def victim_of(root: Path, stored: list[Row], config: dict[str, str]) -> Victim:
    """Where the records lie that the broker says it wrote, and when."""
    size = int(config["mappedFileSizeCommitLog"])
    spans, moments = [], []
    for row in stored:
        at = row["physical_offset"]
        path = root / "commitlog" / f"{at // size * size:020d}"
        spans.append(Span(at, path, at % size, row["size"]))
        moments.append((row["store_timestamp"], at))
    return Victim(root, tuple(spans), tuple(moments))


def damaged_copy(victim: Victim, root: Path, mishaps: Iterable[tuple[int, Mishap | DatabaseMishap]], case: str) -> Path:
    """A copy of a store at `root` that these mishaps befell; what lies there is replaced. case: for their seeds."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(victim.root, root, copy_function=sparse_copy)
    copy = victim.moved(root)
    for number, mishap in mishaps:
        mishap.befall(copy, rng(f"{case} mishap {number}"))
    return root


def _write_topics(root: Path, topics: dict[str, Any]) -> None:
    """topics.json, as a whole broker would keep it: the store's classes know nothing of it."""
    names = {path.name: {"topicName": path.name} for path in root.glob("*consumequeue/*")}
    table = names | {n: {"topicName": n, "attributes": it} for n, it in topics.items()}
    (root / "config").mkdir(exist_ok=True)
    text = json.dumps({"topicConfigTable": table})
    (root / "config" / "topics.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Seen:
    """A start. differences: what the simulation says otherwise."""

    outcome: Outcome
    answer: Row
    differences: list[str]


@dataclass(frozen=True)
class RandomCase:
    """A damaged store. number: of the case, with the version it names it for ever."""

    version: str
    number: int
    store: RandomStore
    mishaps: tuple[tuple[int, Mishap], ...]
    work: Path

    @property
    def config(self) -> BrokerConfig:
        """As the store has to be opened."""
        return BrokerConfig(self._settings(self.work / STARTED))

    def _settings(self, root: Path) -> dict[str, str]:
        settings = self.store.config.items()
        return {name: value.replace("{store}", str(root)) for name, value in settings}

    def under(self, *first: Mishap, **config: str) -> RandomCase:
        """The same under another configuration, after mishaps that belong to it."""
        store = replace(self.store, config=self.store.config | config)
        mishaps = [*enumerate(first, -len(first)), *self.mishaps]
        return replace(self, store=store, mishaps=tuple(mishaps))

    def only(self, some: Sequence[tuple[int, Mishap]]) -> RandomCase:
        """The same with fewer mishaps."""
        return replace(self, mishaps=tuple(some))

    def made(self, name: str) -> Path:
        """A damaged copy of the store; one of the same name is replaced."""
        case = f"{self.version} case {self.number}"
        return damaged_copy(self.store.victim, self.work / name, self.mishaps, case)

    def judged(self, judge: Judge) -> Seen:
        """Start the broker's classes on a copy, simulate the start on another at the same place."""
        seen = self._seen(judge, IMPATIENT_SECONDS)
        if seen.differences:
            seen = self._seen(judge, TIMEOUT_SECONDS + seen.outcome.delay_seconds)
        return seen

    def _seen(self, judge: Judge, patience: float) -> Seen:
        measured, answer = self._really(judge, patience)
        root = self.made(STARTED)
        snapshot = Snapshot.of(Layout.open(root, self.config))
        clock = answer.get("timer_after_load", {}).get("now_ms", 0)
        outcome = simulate(snapshot, profile_of(self.version), switches_of(snapshot), clock)
        if "OutOfMemoryError" in answer.get("exception", "") and takes_heap(outcome):
            return Seen(outcome, answer, [])
        return Seen(outcome, answer, disagreements(measured, outcome))

    def _really(self, judge: Judge, patience: float) -> tuple[Row, Row]:
        """What the broker does, in the words of recovery cases, and the judge's whole answer."""
        only_load = self.store.feature == "timer"
        try:
            answer = self._start(judge, patience, start=not only_load)
        except OracleDied as died:
            if only_load:
                return {"load": {"hung": True}}, {"died": str(died)}
            return self._hung(judge, patience)
        load: Row = {"loaded": bool(answer.get("loaded")), "files": _changes(answer)}
        if not load["loaded"] or "after_load" not in answer:
            return {"load": load | {"loaded": False}}, answer
        load["state"] = _state(answer["after_load"])
        measured: Row = {"load": load}
        if only_load:
            measured |= {"feature": "timer"}
            if found := _timer(answer):
                measured["timer"] = {"load": found}
        elif "after_start" in answer and answer["idle"]:
            state = _state(answer["after_start"])
            measured["start"] = {"state": state, "files": load["files"]}
        else:
            measured["start"] = {"hung": True}
        return measured, answer

    def _hung(self, judge: Judge, patience: float) -> tuple[Row, Row]:
        """Whether it is the load that does not come back, or what comes behind."""
        try:
            answer = self._start(judge, patience, start=False)
        except OracleDied as died:
            return {"load": {"hung": True}}, {"died": str(died)}
        load = {"loaded": bool(answer["loaded"]), "files": _changes(answer)}
        if load["loaded"]:
            load["state"] = _state(answer["after_load"])
        return {"load": load, "start": {"hung": True}}, answer

    def _start(self, judge: Judge, patience: float, *, start: bool) -> Row:
        judge.oracle.timeout_seconds = patience
        try:
            return judge.run(
                self.made(STARTED),
                config=self._settings(self.work / STARTED),
                topics=self.store.topics,
                start=start,
                files="size",
            )
        finally:
            judge.oracle.timeout_seconds = TIMEOUT_SECONDS

    def smallest(self, judge: Judge) -> RandomCase:
        """The fewest of its mishaps that still disagree."""
        for count in range(1, len(self.mishaps)):
            for some in combinations(self.mishaps, count):
                fewer = self.only(some)
                if fewer.judged(judge).differences:
                    return fewer
        return self

    def __str__(self) -> str:
        mishaps = ", ".join(f"{number}: {mishap}" for number, mishap in self.mishaps)
        return f"{self.store.feature} store, {self.store.exit} exit; {mishaps}"

    @property
    def command(self) -> str:
        """Makes the damaged store and says what the broker and the simulation make of it."""
        numbers = ",".join(str(number) for number, _ in self.mishaps)
        return (
            f"MQSTORE_SEED={SEED} python -m tests.interop {self.version} case NEW_STORE"
            f" --case {self.number} --mishaps {numbers}"
        )


class Cases:
    """The cases of a version. A store is made when the first of its cases is asked for."""

    def __init__(self, judge: Judge, folder: Path) -> None:
        self._judge, self._folder = judge, folder
        self._store: tuple[int, RandomStore] | None = None

    def __getitem__(self, number: int) -> RandomCase:
        version = self._judge.version
        store = self._store_of(number // CASES_PER_STORE)
        chance = rng(f"{version} case {number}")
        count = chance.choice((1, 1, 1, 2, 3))
        mishaps = [Mishap.of(store.victim, chance) for _ in range(count)]
        return RandomCase(version, number, store, tuple(enumerate(mishaps)), self._folder)

    def _store_of(self, number: int) -> RandomStore:
        if self._store is None or self._store[0] != number:
            known = known_features(self._judge.version)
            chance = rng(f"{self._judge.version} store {number}")
            root = self._folder / "undamaged"
            shutil.rmtree(root, ignore_errors=True)
            feature = (["plain", *known] * 2)[number % (len(known) + 1)]
            self._store = number, RandomStore.made(self._judge, root, chance, feature)
        return self._store[1]


def known_features(version: str) -> list[str]:
    """What a version's stores can have."""
    number = float(version.rpartition(".")[0])
    return [name for name, since in FEATURES.items() if number >= since]


def takes_heap(outcome: Outcome) -> bool:
    """The scan meets a size that old brokers allocate, if their heap allows it (B29).

    It ends there; that of 4.3 goes on, and takes the record for data.
    """
    walk = outcome.walk
    if outcome.profile.record.bounded or walk is None or walk.failure is None:
        return False
    if walk.phantoms:
        return True
    entry = walk.files[walk.end_file].entry
    assert entry is not None
    return size_at(outcome.snapshot, entry, walk.failure.offset) > LARGE_BYTES


def _state(after: Row) -> Row:
    queues = after["queues"]
    return {
        "min_offset": after["min_offset"],
        "max_offset": after["max_offset"],
        "queues": {f"{q['topic']}-{q['queue_id']}": [q["min"], q["max"], q["max_physical"]] for q in queues},
    }


def _changes(answer: Row) -> Row:
    before, after = answer["files_before"].keys(), answer["files_after"].keys()
    return {"removed": sorted(before - after), "added": sorted(after - before)}


def _timer(answer: Row) -> Row | None:
    """The timer's state, slots in the short form."""
    state = answer.get("timer_after_load")
    if state is None:
        return None
    fields = ("index", "time_ms", "first_pos", "last_pos", "num", "magic")
    return {**state, "slots": [[slot[name] for name in fields] for slot in state["slots"]]}
