"""Damage to `config/`: files that do not parse, entries that contradict the store (group G)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from mqstore.store.broker.system_topics import TRANSACTION_POSITIONS
from mqstore.store.broker.topics import dumps, loads
from mqstore.store.queues.read import ConsumeQueue
from mqstore.store.search.store import StoreReader
from mqstore.store.tiered.segments import segment_name

from .... import tiered
from . import on

CLEAN = ("5.3.3-clean", "4.9.7-clean", "5.1.4-clean", "4.3.1-clean", "5.5.0-clean")
ROCKSDB = ("5.3.3-rocksdb", "5.5.0-rocksdb")
_BAK = ".bak"
_JSON = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
_DATABASES = ("topics", "subscriptionGroups", "consumerOffsets")
_WITHOUT_ENTRY = ("SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC")
_TIERED = "tieredStoreMetadata.json"


def _file(store: Path, name: str) -> Path:
    return store / "config" / name


def _edit(store: Path, name: str, change: Callable[[dict[Any, Any]], str]) -> str:
    """Read a file, change its content, write it again; what was done."""
    path = _file(store, name)
    content = loads(path.read_text("utf-8")) if path.exists() else {}
    did = change(content)
    path.write_text(dumps(content), "utf-8")
    return f"{name}: {did}"


def _spoil(path: Path, random: Random) -> str:
    """Cut a text, or put what no text has into it."""
    data = path.read_bytes() if path.exists() else b"{}"
    kind = random.choice(["cut", "zeros", "noise", "comma"])
    if kind == "cut":
        data = data[: random.randrange(1, max(2, len(data) - 1))]
    elif kind == "zeros":
        data = bytes(len(data))
    elif kind == "noise":
        at = data.index(b"{") + 1
        data = data[:at] + bytes([1, 2, random.randrange(32)]) + data[at + 3 :]
    else:
        data = data.replace(b":", b",", 1) if b":" in data else b"{,"
    path.write_bytes(data)
    return f"{path.name}: {kind}"


@on(*CLEAN)
def i_140(store: Path, random: Random) -> str:
    """A file and its .bak are broken."""
    path = _file(store, random.choice(_JSON))
    did = _spoil(path, random)
    backup = path.with_name(path.name + _BAK)
    if random.random() < 0.3:
        backup.unlink(missing_ok=True)
        return f"{did}; no .bak"
    return f"{did}; {_spoil(backup, random)}"


@on("5.3.3-clean", "5.5.0-clean", "5.1.4-clean")
def i_141(store: Path, random: Random) -> str:
    """Only the .bak can be read, or dataVersion is odd."""
    name = random.choice(("topics.json", "subscriptionGroup.json", "delayOffset.json"))
    path = _file(store, name)
    backup = path.with_name(name + _BAK)
    if not backup.exists():
        shutil.copy(path, backup)
    if random.random() < 0.4:
        return _spoil(path, random)
    counter = random.choice([-random.randrange(1, 99), random.randrange(10_000, 1 << 40)])

    def change(content: dict[Any, Any]) -> str:
        content["dataVersion"]["counter"] = counter
        return f"counter {counter}"

    return _edit(store, name, change)


@on(*CLEAN)
def i_142(store: Path, random: Random) -> str:
    """A topic has another name, an impossible perm, or no queues."""

    def change(content: dict[Any, Any]) -> str:
        topic = random.choice(sorted(content["topicConfigTable"]))
        name, value = random.choice(
            [
                ("topicName", topic + random.choice("abc")),
                ("perm", random.choice([-1, 16, 1 << 20])),
                ("readQueueNums", -random.randrange(9)),
                ("writeQueueNums", -random.randrange(9)),
            ]
        )
        content["topicConfigTable"][topic][name] = value
        return f"{topic}: {name} {value}"

    return _edit(store, "topics.json", change)


@on(*CLEAN)
def i_143(store: Path, random: Random) -> str:
    """A group has another name."""

    def change(content: dict[Any, Any]) -> str:
        table = content["subscriptionGroupTable"]
        group = random.choice(sorted(table))
        table[group]["groupName"] = random.choice([g for g in (*table, "none") if g != group])
        return f"{group}: groupName {table[group]['groupName']}"

    return _edit(store, "subscriptionGroup.json", change)


@on(*CLEAN)
def i_144(store: Path, random: Random) -> str:
    """An offset is behind the end of its queue or negative, or its key is none."""

    def change(content: dict[Any, Any]) -> str:
        table = content["offsetTable"]
        key = random.choice(sorted(table))
        if random.random() < 0.2:
            table[key.replace("@", "")] = table.pop(key)
            return f"{key} without @"
        queue = random.choice(sorted(table[key]))
        table[key][queue] = random.choice([-1, -99, random.randrange(1 << 16, 1 << 40)])
        return f"{key} {queue}: {table[key][queue]}"

    return _edit(store, "consumerOffset.json", change)


@on(*CLEAN)
def i_145(store: Path, random: Random) -> str:
    """An offset of a group or on a topic that is not there."""
    name = f"lost{random.randrange(999)}"

    def change(content: dict[Any, Any]) -> str:
        key = random.choice(sorted(k for k in content["offsetTable"] if "RMQ_SYS" not in k))
        topic, _, group = key.rpartition("@")
        new = random.choice([f"{name}@{group}", f"{topic}@{name}"])
        content["offsetTable"][new] = {0: 0}
        return new

    return _edit(store, "consumerOffset.json", change)


@on(*CLEAN)
def i_146(store: Path, random: Random) -> str:
    """A delay level that is not there, or an offset outside its queue."""

    def change(content: dict[Any, Any]) -> str:
        level = random.choice([0, -1, 19, 99, *range(1, 19)])
        content["offsetTable"][level] = random.choice([-5, random.randrange(1 << 16, 1 << 40)])
        return f"level {level}: {content['offsetTable'][level]}"

    return _edit(store, "delayOffset.json", change)


@on(*CLEAN)
def i_147(store: Path, random: Random) -> str:
    """Something is left over from a write."""
    name = random.choice(_JSON)
    _file(store, name + ".tmp").write_bytes(_file(store, name).read_bytes()[: random.randrange(90)])
    return f"{name}.tmp"


@on("5.3.3-compaction", "5.1.4-compaction", "5.3.3-clean")
def i_148(store: Path, random: Random) -> str:
    """An attribute is unknown, or does not fit the files."""

    def change(content: dict[Any, Any]) -> str:
        table = content["topicConfigTable"]
        topic = "state" if "state" in table else random.choice(sorted(table))
        name, value = random.choice(
            [
                ("queue.type", random.choice(["simple", "Batch", ""])),
                ("cleanup.policy", random.choice(["COMPACT", "NONE"])),
                ("message.type", "ORDERED"),
                ("reserve.time", "soon"),
                (f"any{random.randrange(99)}", "1"),
            ]
        )
        table[topic]["attributes"] = {**table[topic].get("attributes", {}), name: value}
        return f"{topic}: {name} {value!r}"

    return _edit(store, "topics.json", change)


@on("5.3.3-cqext", "4.9.7-cqext")
def i_149(store: Path, random: Random) -> str:
    """A filter names another topic or group than it is filed under."""

    def change(content: dict[Any, Any]) -> str:
        topics = content["filterDataByTopic"]
        topic = random.choice(sorted(topics))
        groups = topics[topic]["groupFilterData"]
        group = random.choice(sorted(groups))
        name = random.choice(["topic", "consumerGroup"])
        groups[group][name] += random.choice("abc")
        return f"{topic} {group}: {name} {groups[group][name]}"

    return _edit(store, "consumerFilter.json", change)


@on(*CLEAN)
def i_150(store: Path, random: Random) -> str:
    """A topic with queues is not in topics.json."""

    def change(content: dict[Any, Any]) -> str:
        table = content["topicConfigTable"]
        plain = [t for t in table if (store / "consumequeue" / t).is_dir() and t[:3].lower() != "rmq"]
        topic = random.choice(sorted(t for t in plain if t not in _WITHOUT_ENTRY))
        if random.random() < 0.2:
            table.clear()
            return "no topics"
        del table[topic]
        return f"without {topic}"

    return _edit(store, "topics.json", change)


@on("5.3.3-clean", "5.1.4-clean", "5.5.0-clean")
def i_151(store: Path, random: Random) -> str:
    """Parts of a static topic are in the wrong order."""
    parts = [
        {"gen": gen, "queueId": 0, "bname": "b", "logicOffset": gen * 100, "startOffset": 0}
        for gen in range(random.randrange(2, 5))
    ]
    number = random.randrange(1, len(parts))
    parts[number][random.choice(["gen", "logicOffset"])] = -random.randrange(2, 9)

    def change(content: dict[Any, Any]) -> str:
        mapping = {"topic": "t", "totalQueues": 1, "bname": "b", "epoch": 1}
        content["topicQueueMappingInfoMap"] = {"t": {**mapping, "hostedQueues": {0: parts}}}
        return f"{parts}"

    return _edit(store, "topicQueueMapping.json", change)


@on("5.3.3-lmq", "4.9.7-lmq")
def i_152(store: Path, random: Random) -> str:
    """An offset of an LMQ is behind its end, or of another queue."""

    def change(content: dict[Any, Any]) -> str:
        key = random.choice(["%LMQ%123@%LMQ%g", "plain@%LMQ%g", "%LMQ%none@%LMQ%g"])
        content.setdefault("lmqOffsetTable", {})[key] = random.randrange(1 << 16, 1 << 40)
        return f"{key} {content['lmqOffsetTable'][key]}"

    return _edit(store, "lmqConsumerOffset.json", change)


@on("5.3.3-clean", "5.5.0-clean")
def i_153(store: Path, random: Random) -> str:
    """Segments have a gap, overlap, or an open one is before a sealed one."""
    size = random.randrange(100, 1 << 30)
    segments = {
        number * size: {"path": "p", "baseOffset": number * size, "status": 1, "size": size}
        for number in range(random.randrange(2, 6))
    }
    hit = segments[random.randrange(len(segments) - 1) * size]
    name = random.choice(["size", "status"])
    hit[name] = 0 if name == "status" else size + random.choice([-1, 1, 4096])
    member = random.choice(["commitLogFileSegmentTable", "consumeQueueFileSegmentTable"])
    return _edit(store, _TIERED, lambda content: str(content.update({member: {"p": segments}}) or segments))


@on("5.3.3-pop", "5.5.0-pop")
def i_154(store: Path, random: Random) -> str:
    """A mode that is none."""

    def change(content: dict[Any, Any]) -> str:
        groups = content["messageRequestModeMap"]
        topic = random.choice(sorted(groups))
        group = random.choice(sorted(groups[topic]))
        groups[topic][group]["mode"] = random.choice(["pop", "PUSH", "", "PULL "])
        return f"{topic} {group}: {groups[topic][group]['mode']!r}"

    return _edit(store, "messageRequestMode.json", change)


@on(*ROCKSDB)
def i_155(store: Path, random: Random) -> str:
    """A database does not open."""
    path = _file(store, random.choice(_DATABASES))
    kind = random.choice(["current", "manifest", "gone", "noise"])
    manifest = max(path.glob("MANIFEST-*"))
    if kind == "gone":
        shutil.rmtree(path)
    elif kind == "current":
        (path / "CURRENT").write_bytes(random.choice([b"", b"MANIFEST-999999\n", b"noise"]))
    elif kind == "manifest":
        manifest.unlink()
    else:
        manifest.write_bytes(random.randbytes(manifest.stat().st_size))
    return f"{path.name}: {kind}"


@on("5.3.3-clean", "4.9.7-clean", "5.5.0-clean")
def i_156(store: Path, random: Random) -> str:
    """A file is gone, with its .bak or without, or its table is a list."""
    name = random.choice(_JSON)
    path, backup = _file(store, name), _file(store, name + _BAK)
    if random.random() < 0.5:
        table = {"subscriptionGroup.json": "subscriptionGroupTable", "topics.json": "topicConfigTable"}
        path.write_text(f'{{"{table.get(name, "offsetTable")}":[]}}', "utf-8")
        return f"{name}: the table is a list"
    path.unlink()
    if random.random() < 0.5:
        backup.unlink(missing_ok=True)
        return f"{name} and its .bak deleted"
    return f"{name} deleted"


def add_tier(store: Path, version: str) -> Path:
    """Put a real tiered store, segments and metadata, into a store of the version; its cluster."""
    tier = tiered.unpack(version, store.parent / f"{store.name}-tier")
    shutil.copytree(tier / tiered.CLUSTER, store / tiered.CLUSTER)
    shutil.copy(tier / "config" / _TIERED, store / "config" / _TIERED)
    shutil.rmtree(tier.parent)
    return store / tiered.CLUSTER


@on("5.3.3-clean", "5.5.0-clean")
def i_157(store: Path, random: Random) -> str:
    """A segment is gone, cut, too long, or the metadata do not know it."""
    cluster = add_tier(store, random.choice(tiered.VERSIONS))
    path = random.choice(sorted(path for path in cluster.rglob("*") if path.is_file()))
    kind = random.choice(["gone", "cut", "long", "unknown"])
    if kind == "gone":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])
    elif kind == "long":
        logs = list((cluster / "broker-a" / tiered.TOPIC).glob("[012]/COMMIT_LOG/*" + "0" * 20))
        path = random.choice(sorted(logs))
        path.write_bytes(path.read_bytes() + b"x")
    else:
        end = max(int(one.name[8:]) + one.stat().st_size for one in path.parent.iterdir())
        (path.parent / segment_name(end + random.randrange(1 << 30))).write_bytes(b"x")
    return f"{path.relative_to(store)}: {kind}"


@on("5.3.3-clean", "5.5.0-clean")
def i_159(store: Path, random: Random) -> str:
    """A segment is zeros, or a byte of it is another one."""
    cluster = add_tier(store, random.choice(tiered.VERSIONS))
    kinds = ("COMMIT_LOG", "CONSUME_QUEUE")
    path = random.choice(sorted(path for kind in kinds for path in cluster.rglob(f"{kind}/*")))
    data, zeros = bytearray(path.read_bytes()), random.random() < 0.5
    if zeros:
        data = bytearray(len(data))
    elif path.parent.name == kinds[0]:
        data[random.randrange(4)] ^= 1 << random.randrange(8)  # of the first record's size
    else:
        data[random.randrange(12)] ^= 1 << random.randrange(8)  # of the first unit's place or size
    path.write_bytes(data)
    return f"{path.relative_to(store)}: {'zeros' if zeros else 'one bit'}"


@on("5.3.3-expired")
def i_158(store: Path, random: Random) -> str:
    """The tier ends before the log begins."""
    with StoreReader(store) as opened:
        layout, start = opened.layout, opened.log_files.start
        queues = [(queue.topic, queue.queue_id) for queue in opened.queues]
    first = {}
    for queue in queues:
        with ConsumeQueue.open(layout, *queue) as units:
            first[queue] = units.summary(start)
    known = [queue for queue in queues if 1 < first[queue].min_offset < first[queue].max_offset]
    topic, queue_id = random.choice(known)
    begin = first[topic, queue_id].min_offset
    size, path = 20 * random.randrange(1, begin), f"broker-a/{topic}/{queue_id}"
    rows = {0: {"path": path, "type": 1, "baseOffset": 0, "status": 0, "size": size}}
    return _edit(
        store, _TIERED, lambda content: str(content.update({"consumeQueueFileSegmentTable": {path: rows}}) or rows)
    )


@on("5.3.3-clean", "4.9.7-clean", "5.1.4-clean", "5.5.0-clean")
def i_189(store: Path, random: Random) -> str:
    """The broker is to read decided half messages again, and not what decides them."""

    def change(content: dict[Any, Any]) -> str:
        key = TRANSACTION_POSITIONS[0]
        if random.random() < 0.5:
            del content["offsetTable"][key]
            return f"no {key}"
        content["offsetTable"][key] = {0: 0}
        return f"{key}: 0"

    return _edit(store, "consumerOffset.json", change)
