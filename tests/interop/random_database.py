"""Random damaged stores with queues in a RocksDB, and what starts of the real classes make of them.

As `random_cases`, of which this is one more kind: a store is written by the real classes in one to three
lives, alone in a RocksDB or besides files; one to three mishaps befall its database, its log, and the
other files of a copy; some of the broker's options are others at the start that is judged.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.start.log import switches_of
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import all_outcomes
from tests.damage import Victim
from tests.database_mishaps import DatabaseMishap
from tests.mishaps import Mishap
from tests.rocks_cases import served_by_itself
from tests.slices import rng
from tests.store.start.database_disagreements import in_no_outcome, names_of, read, state_differences

from .conftest import TIMEOUT_SECONDS, Judge
from .oracle import OracleDied
from .random_cases import damaged_copy, victim_of
from .served import Row, loaded
from .test_same_bytes import START_MS

VERSIONS = ("5.3.3", "5.4.0", "5.5.0", "5.5.1")
CASES_PER_STORE = 12
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
ALONE = {"storeType": "defaultRocksDB"}
BOTH = {"rocksdbCQDoubleWriteEnable": "true"}
IN_BOTH = {"combineCQUseRocksdbForLmq": "true"}
ASIDE = {"useSeparateStorePathForRocksdbCQ": "true"}
SELECTIVE = {"rocksdbCQSelectiveDoubleWriteEnable": "true"}
LITE_TOPIC, LITE_NAME = "LightTopic", "%LMQ%$LightTopic$e"
LITE = {LITE_TOPIC: {"message.type": "LITE"}}
#: How a store has its queues → options, by the first version that knows it.
KINDS: dict[str, dict[str, dict[str, str]]] = {
    "5.3.3": {"rocks": ALONE},
    "5.4.0": {"both": BOTH},
    "5.5.0": {"rocks aside": ALONE | ASIDE, "both": BOTH | IN_BOTH, "both aside": BOTH | IN_BOTH | ASIDE},
    "5.5.1": {"selective": BOTH | IN_BOTH | ASIDE | SELECTIVE},
}
#: Options of the start that is judged, and the kinds of stores that they say something to.
OTHER: tuple[tuple[dict[str, str], str], ...] = (
    ({"enableAcceleratedRecovery": "true"}, ""),
    ({"commitLogRecoverMaxNum": "1"}, ""),
    ({"commitLogRecoverMaxNum": "2"}, ""),
    ({"messageIndexSafe": "true"}, ""),
    ({"checkCRCOnRecover": "false"}, ""),
    ({"enableLmq": "false"}, ""),
    ({"enableMultiDispatch": "false"}, ""),
    ({"combineCQPreferCQType": "defaultRocksDB"}, "both"),
    ({"combineCQMaxExtraSearchCommitLogFiles": "0"}, "both"),
    ({"combineCQMaxExtraSearchCommitLogFiles": "1", "combineCQPreferCQType": "defaultRocksDB"}, "both"),
    ({"rocksdbCQDoubleWriteEnable": "false", "combineCQUseRocksdbForLmq": "false"}, "both"),
    ({"rocksdbCQDoubleWriteEnable": "false", "combineCQUseRocksdbForLmq": "false", **ALONE}, "both"),
    ({"storeType": "default"}, "rocks"),
    ({"storeType": "default", **BOTH, **IN_BOTH}, "rocks"),
    ({"useSeparateStorePathForRocksdbCQ": "false"}, "aside"),
    ({"useSeparateStorePathForRocksdbCQ": "true"}, ""),
)
TOPICS = ("TopicA", "TopicA", "TopicB", LITE_TOPIC, "%RETRY%group")
HALVES = (4, 12)
"""sysFlags of messages that get no unit: prepared, rolled back."""
NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%c/d", LITE_NAME)


@dataclass(frozen=True)
class DatabaseStore:
    """An undamaged store. exit: how its last life ended. holes: halves took numbers of LMQs."""

    kind: str
    exit: str
    victim: Victim
    config: dict[str, str]
    topics: dict[str, Any]
    holes: bool

    @classmethod
    def made(cls, judge: Judge, root: Path, chance: random.Random, kind: str) -> DatabaseStore:
        """Let the broker write one."""
        shutil.rmtree(root, ignore_errors=True)
        light = LIGHT if chance.random() < 0.7 or kind == "selective" else {}
        config = {
            "mappedFileSizeCommitLog": str(chance.choice((4096, 8192, 16384))),
            "mappedFileSizeConsumeQueue": str(20 * chance.choice((10, 20, 33))),
            "maxHashSlotNum": "97",
            "maxIndexNum": "400",
            **kinds_of(judge.version)[kind],
            **light,
        }
        topics = LITE if kind == "selective" else {}
        table: Row = {name: {"topicName": name} for name in {*TOPICS, *NAMES}}
        table |= {name: {"topicName": name, "attributes": it} for name, it in topics.items()}
        (root / "config").mkdir(parents=True)
        text = json.dumps({"topicConfigTable": table})
        (root / "config" / "topics.json").write_text(text, encoding="utf-8")
        holes = chance.random() < 0.15
        stored: list[Row] = []
        lives = chance.choice((1, 2, 2, 3))
        exit = "clean"
        for life in range(lives):
            exit = chance.choice(("clean", "halt")) if life + 1 == lives else exit
            count = chance.choice((8, 25, 60))
            begin = len(stored)
            rows = [_message(begin + n, chance, light=bool(light), holes=holes) for n in range(count)]
            queues = QUEUES if chance.random() < 0.5 else []
            put = {"do": "put", "messages": rows}
            answer = loaded(judge, root, config, put, exit=exit, topics=topics, queues=queues, files="none")
            stored += [row for row in answer["steps"][0] if row["status"] == "PUT_OK"]
            assert len(stored) >= count, answer["steps"][0]
        return cls(kind, exit, victim_of(root, stored, config), config, topics, holes)


QUEUES = [[topic, queue_id] for topic in sorted(set(TOPICS)) for queue_id in (0, 1)]
QUEUES += [[name, 0] for name in NAMES]


def kinds_of(version: str) -> dict[str, dict[str, str]]:
    """How stores of a version can have their queues."""
    found: dict[str, dict[str, str]] = {}
    for since, kinds in KINDS.items():
        if since <= version:
            found |= kinds
    return found


def _message(number: int, chance: random.Random, *, light: bool, holes: bool) -> Row:
    row: Row = {
        "topic": chance.choice(TOPICS),
        "queue_id": chance.choice((0, 0, 1)),
        "body": "b" * chance.choice((0, 30, 200, 700)),
        "sys_flag": chance.choice((0, 0, 0, 0, 0, 8, *HALVES)),
        "store_timestamp": START_MS + number * 1000,
        "unique_key": f"{number:032X}",
        "properties": {},
    }
    if chance.random() < 0.4:
        row["tags"] = chance.choice(("TagA", "TagB"))
    if chance.random() < 0.4:
        row["keys"] = f"key{chance.randrange(9)}"
    whole = holes or row["sys_flag"] not in HALVES
    if light and whole and chance.random() < 0.4:
        names = chance.sample(NAMES[:-1], chance.choice((1, 1, 2)))
        names = [LITE_NAME] if row["topic"] == LITE_TOPIC else names
        row["properties"]["INNER_MULTI_DISPATCH"] = ",".join(names)
    return row


@dataclass(frozen=True)
class DatabaseSeen:
    """A start. differences: what no simulated outcome says as it was; outcomes: how many there are."""

    differences: list[str]
    answer: Row
    outcomes: int
    started: bool


@dataclass(frozen=True)
class DatabaseCase:
    """A damaged store. number: of the case, with the version it names it for ever."""

    version: str
    number: int
    store: DatabaseStore
    mishaps: tuple[tuple[int, Mishap | DatabaseMishap], ...]
    options: dict[str, str]
    work: Path

    @property
    def config(self) -> dict[str, str]:
        """As the store is opened."""
        return self.store.config | self.options

    def only(self, some: Sequence[tuple[int, Mishap | DatabaseMishap]]) -> DatabaseCase:
        """The same with fewer mishaps."""
        return replace(self, mishaps=tuple(some))

    def smallest(self, judge: Judge) -> DatabaseCase:
        """The fewest of its mishaps that still disagree."""
        for count in range(len(self.mishaps)):
            for some in combinations(self.mishaps, count):
                fewer = self.only(some)
                if fewer.judged(judge).differences:
                    return fewer
        return self

    def made(self, name: str) -> Path:
        """A damaged copy of the store; one of the same name is replaced."""
        case = f"{self.version} database {self.number}"
        return damaged_copy(self.store.victim, self.work / name, self.mishaps, case)

    def judged(self, judge: Judge) -> DatabaseSeen:
        """Simulate a start on one copy, let the broker's classes start on another."""
        layout = Layout.open(self.made("seen"), BrokerConfig(self.config))
        snapshot = Snapshot.of(layout)
        starts = [*all_outcomes(snapshot, profile_of(self.version), switches_of(snapshot))]
        names = {f"{topic}-{queue_id}" for topic, queue_id in QUEUES}
        asked = sorted(names.union(*map(names_of, starts)))
        root = self.made(f"started-{self.number}")
        answer = self._started(judge, root, asked)
        shutil.rmtree(root, ignore_errors=True)
        found = [self._differences(layout, outcome, answer, asked) for outcome in starts]
        return DatabaseSeen(in_no_outcome(found), answer, len(starts), "after_start" in answer)

    def _started(self, judge: Judge, root: Path, names: list[str]) -> Row:
        judge.oracle.timeout_seconds = TIMEOUT_SECONDS * 3
        queues = [[topic, int(number)] for topic, _, number in (n.rpartition("-") for n in names)]
        request: Row = {"topics": self.store.topics, "queues": queues, "files": "none"}
        try:
            steps = [{"do": "get"}]
            return judge.run(root, config=self.config, steps=steps, **request)
        except OracleDied as died:
            return {"died": str(died), "log": []}
        except RuntimeError as refused:  # by the constructor
            return {"loaded": False, "exception": str(refused), "log": []}

    def _differences(self, layout: Layout, outcome: Outcome, answer: Row, names: list[str]) -> list[str]:
        started = "after_start" in answer
        if not started and outcome.refusal is None:
            # a merge of tables came to what cannot be read, or it was asked for first
            read(layout, outcome)
            if outcome.database is not None and outcome.database.unreadable:
                return []
        if "died" in answer:
            return [] if outcome.hangs else [f"died: {answer['died']}"]
        if outcome.refusal is not None:
            return [f"refused: {outcome.refusal}"] if started else []
        if not started:
            why = answer.get("exception") or answer["log"][-3:]
            return [f"not refused: {why}"]
        return state_differences(outcome, state_of(answer["after_start"]), names) + self._unread(
            layout, outcome, answer
        )

    def _unread(self, layout: Layout, outcome: Outcome, answer: Row) -> list[str]:
        """Where the log is whole, as many messages are served as can be read."""
        other_light = {"enableLmq", "enableMultiDispatch"} & self.options.keys()
        in_log = any(mishap.where == "log" for _, mishap in self.mishaps)
        if self.store.holes or other_light or in_log:
            return []
        mine, real = served_by_itself(read(layout, outcome)), served(answer["steps"][0])
        return [] if mine == real else [f"{mine} readable, not {real}"]

    def __str__(self) -> str:
        mishaps = ", ".join(f"{number}: {mishap}" for number, mishap in self.mishaps)
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.store.kind}, {self.store.exit} exit; {mishaps}; {options}"


def state_of(after: Row) -> Row:
    """What was measured, in the words of the recorded cases."""
    queues = {
        f"{q['topic']}-{q['queue_id']}": [q["min"], q["max"], q["max_physical"]]
        if "exception" not in q
        else [q["exception"]]
        for q in after["queues"]
    }
    found: Row = {"log_end": after["max_offset"], "queues": queues}
    names = {"row": "rocks_checkpoint", "database": "rocks_queues", "files": "file_queues"}
    return found | {mine: after[name] for mine, name in names.items() if name in after}


def served(messages: list[Row]) -> int:
    """Messages that came from the place in a queue where they belong."""
    count = 0
    for message in messages:
        if "sha1" not in message:
            continue
        topic = message["queue"].rpartition("-")[0]
        own = topic == message["topic"] and message["unit"] == message["queue_offset"]
        numbers = dict(
            zip(
                message["properties"].get("INNER_MULTI_DISPATCH", "").split(","),
                message["properties"].get("INNER_MULTI_QUEUE_OFFSET", "").split(","),
                strict=False,
            )
        )
        count += own or numbers.get(topic) == str(message["unit"])
    return count


class DatabaseCases:
    """The cases of a version. A store is made when the first of its cases is asked for."""

    def __init__(self, judge: Judge, folder: Path) -> None:
        self._judge, self._folder = judge, folder
        self._store: tuple[int, DatabaseStore] | None = None

    def __getitem__(self, number: int) -> DatabaseCase:
        version = self._judge.version
        store = self._store_of(number // CASES_PER_STORE)
        chance = rng(f"{version} database {number}")
        mishaps: list[Mishap | DatabaseMishap] = []
        for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 2, 3))):
            if chance.random() < 0.6:
                made = DatabaseMishap.of(store.victim, BrokerConfig(store.config), chance)
                mishaps.append(made)
            else:
                mishaps.append(Mishap.of(store.victim, chance))
        if chance.random() < 0.25:
            mishaps.append(Mishap("abort", "toggle", "abort"))
        options: dict[str, str] = {}
        if chance.random() < 0.4:
            fitting = [options for options, kind in OTHER if kind in store.kind]
            options = chance.choice(fitting)
        return DatabaseCase(version, number, store, tuple(enumerate(mishaps)), options, self._folder)

    def _store_of(self, number: int) -> DatabaseStore:
        if self._store is None or self._store[0] != number:
            kinds = list(kinds_of(self._judge.version))
            chance = rng(f"{self._judge.version} database store {number}")
            kind = kinds[number % len(kinds)]
            made = DatabaseStore.made(self._judge, self._folder / "undamaged", chance, kind)
            self._store = number, made
        return self._store[1]
