"""Guess which generation of brokers wrote a store, and why.

Nothing in a store names the version. A sign is something that only some versions write. Signs for "this version or a
newer one" hold for ever, since stores are upgraded and hardly ever downgraded. Signs for "this version or an older one"
come from what was written last, and are ignored if they contradict the first kind. The result is one generation, or all
that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats import (
    consumer_offset,
    consumer_order_info,
    lmq_consumer_offset,
    timer_check,
    topic_queue_mapping,
    topics,
    transaction_metrics,
)
from ...formats import message_properties as names
from ...formats.config import BACKUP
from ...formats.derive import Columns
from ...formats.hashing import java_hash, java_string
from ...formats.index_file import items_offset, slots_offset
from ...formats.json_table import DATA_VERSION, STATE_VERSION
from ...formats.message import MAGIC_V2, SysFlag
from ...formats.message_properties import CRC32, INNER_MULTI_QUEUE_OFFSET, ITEM_SEPARATOR, TAGS, UNIQ_KEY, parse
from ..broker.load_rules import BodyCheck, LoadFailure, walk
from ..broker.profiles import NEWEST, PROFILES, VERSIONS, file_rules_of
from ..broker.snapshot import DirectoryEntry, FileBytes, list_entries
from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX
from ..disk.broker_conf import DEFAULTS, FileRules
from ..disk.byte_reader import note, unread_of
from ..disk.checkpoint import Checkpoint, seen_checkpoint
from ..disk.compressed import plain_name, read_regular
from ..disk.layout import KV_STORE, ROCKSDB_CONSUME_QUEUE, ROCKSDB_CURRENT, ROCKSDB_STORE, Layout
from ..errors import Missing, StoreError, UnreadableRange, from_os_error
from ..index.read import IndexFile, sizes_of
from .parse import parse as parse_json
from .rocksdb import in_force, rows_of, written_ns

_LOG_FILES_LOOKED_AT = 3
_INDEX_ITEMS_LOOKED_AT = 2000
_RECORDS_LOOKED_AT = 500
_RECORD_RULES = PROFILES[NEWEST].record
_CLUSTER = "CLUSTER"
_ADDED_BY_BROKERS = frozenset(
    {_CLUSTER, "MSG_REGION", names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID, names.TRANSACTION_CHECK_TIMES}
)
"""Properties that a broker adds to messages of clients, and the bare message store does not."""
_QUEUE_FILTER = b"ConsumeQueueCompactionFilterFactory"
_CONFIG_BYTES_LOOKED_AT = 64 << 20


class Generation(NamedTuple):
    """A guess. version: the likeliest generation. candidates: all that fit, oldest first."""

    version: str
    reason: str
    candidates: tuple[str, ...]

    @property
    def certain(self) -> bool:
        """Whether only one generation fits."""
        return len(self.candidates) == 1

    @property
    def told(self) -> str:
        """The likeliest generation, and the others that fit."""
        others = [version for version in self.candidates if version != self.version]
        return f"{self.version} (or {', '.join(others)})" if others else self.version


class Sign(NamedTuple):
    """A sign that a broker of `oldest` to `newest`, not `without`, wrote the store last. find: returns what shows it,
    if it is there. text: says it; {} stands for what was found.
    """

    oldest: str
    newest: str
    text: str
    find: Callable[[_Evidence], object]
    without: str = ""

    def look(self, evidence: _Evidence) -> str:
        """The text if the sign is there, else "". Raises Unreadable."""
        found = self.find(evidence)
        return self.text.format(found) if found else ""

    def fitting(self, candidates: tuple[str, ...]) -> tuple[str, ...]:
        """The candidates that may have left this sign."""
        behind = VERSIONS.index(self.newest) + 1
        return tuple(v for v in candidates if v in VERSIONS[:behind] and v != self.without)


def generation_of(layout: Layout) -> Generation:
    """Guess the generation of the broker that last wrote a store; computed once per layout. Raises Unreadable."""
    try:
        return layout.once(_guess)
    except UnreadableRange:  # guess without the unreadable signs; not kept, so that the range is noted each time
        return _guess(layout, _readable)


def file_rules_of_any(layouts: Iterable[Layout]) -> FileRules:
    """The rules of broker.conf on which all brokers that may have written the stores agree. Raises Unreadable."""
    versions = {version for layout in layouts for version in generation_of(layout).candidates}
    if _FIRST_5 in versions:
        versions.add(_FIRST_5_STRIPPING)
    found = map(file_rules_of, versions)
    return FileRules(*(each[0] if len(set(each)) == 1 else None for each in zip(*found, strict=True)))


_SIZES = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "mappedFileSizeTimerLog",
)


def unnamed_sizes(layout: Layout) -> Iterator[str]:
    """Yield a sentence for each size of files that is not the default of a broker. Raises as `sizes_of`."""
    for name, size in zip(_SIZES, sizes_of(layout), strict=True):
        if size.origin == "files" and size.value != DEFAULTS[name]:
            yield f"{name} is not set: a broker uses {DEFAULTS[name]}, but the files have {size.value}"


def _guess(layout: Layout, look: Callable[[Sign, _Evidence], str] = Sign.look) -> Generation:
    """look: returns the text for a sign that is there, else ""."""
    evidence = _Evidence(layout)
    found = [(sign, text) for sign in SIGNS if (text := look(sign, evidence))]
    lowest = max((VERSIONS.index(s.oldest) for s, _ in found), default=0)
    candidates = VERSIONS[lowest:]
    reasons = [text for s, text in found if s.oldest == VERSIONS[lowest] and lowest]
    for sign, text in found:
        fitting = sign.fitting(candidates)
        if fitting and fitting != candidates:
            candidates = fitting
            reasons.append(text)
    if not found:
        return Generation(NEWEST, "nothing in the store shows it", VERSIONS)
    if VERSIONS[lowest] < _FIRST_5 and evidence.parts and evidence.has_files_of_brokers:
        candidates = tuple(v for v in candidates if v < _FIRST_5) or candidates
        reasons.append("no trace of a 5.x broker")
    # of 4.x the oldest: 4.9 would have left a sign
    likeliest = candidates[0] if candidates[-1] < _FIRST_5 else candidates[-1]
    return Generation(likeliest, "; ".join(dict.fromkeys(reasons)), candidates)


def _readable(sign: Sign, evidence: _Evidence) -> str:
    """The text for a sign that is there, else ""; an unreadable range is noted and counts as no sign."""
    try:
        return sign.look(evidence)
    except UnreadableRange as error:
        note(unread_of(error))
        return ""


def has_properties_of_brokers(layout: Layout) -> bool:
    """Whether some of the newest records have properties that a broker adds to a client's message. A program that opens
    the store itself, as `put` does, adds none. Raises Unreadable.
    """
    return layout.once(lambda layout: _Evidence(layout).has_name(*_ADDED_BY_BROKERS), has_properties_of_brokers)


def has_lmq_offsets(layout: Layout) -> bool:
    """Whether some of the newest records have the LMQ offsets that a broker assigns. Raises Unreadable."""
    return layout.once(lambda layout: _Evidence(layout).has_name(INNER_MULTI_QUEUE_OFFSET), has_lmq_offsets)


_FIRST_5, _FIRST_5_STRIPPING = "5.1", "5.2"
"""The first 5.x generation, and a version of it that reads broker.conf in another way."""


class _Evidence:
    """What the signs look at; each part is read once, when first needed."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return seen_checkpoint(self.layout.checkpoint) or Checkpoint()

    @cached_property
    def log_files(self) -> list[DirectoryEntry]:
        """Files of the commit log that are not empty, newest first."""
        entries = [e for d in self.layout.commit_log_directories for e in list_entries(d)]
        files = [e for e in entries if not e.directory and _is_number(e.name) and e.size]
        return sorted(files, reverse=True)

    @cached_property
    def parts(self) -> list[Columns]:
        """Some of the newest records, in log order: the first ones of the last used log file, and of the files before
        it if those are few.
        """
        found = list[Columns]()
        for entry in islice(self.log_files, _LOG_FILES_LOOKED_AT):
            start = int(plain_name(entry.name))
            records = walk(FileBytes(entry.path), 0, _RECORD_RULES, BodyCheck.NONE, start)
            found += [item for item in islice(records, 1) if not isinstance(item, LoadFailure)]
            if sum(map(len, found)) >= _RECORDS_LOOKED_AT:
                break
        return found[::-1]

    @property
    def has_files_of_brokers(self) -> bool:
        """Whether there is more than a log, so that a missing file is a sign, too."""
        return bool(self.is_there("checkpoint", "abort", "lock", "config", "consumequeue", "index"))

    def has_flags(self, flags: SysFlag) -> bool:
        """Whether some of `parts` have one of these flags."""
        return any((part.ints("sys_flag") & int(flags)).any() for part in self.parts)

    @cached_property
    def texts(self) -> list[list[bytes]]:
        """The property texts of each of `parts`, without empty and torn ones."""
        texts = (part.ragged("properties").tolist() for part in self.parts)
        return [[text for text in each if text and b"\0" not in text] for each in texts]

    @cached_property
    def properties(self) -> list[bytes]:
        """The property texts of all `parts`."""
        return [*chain.from_iterable(self.texts)]

    @cached_property
    def keys_twice(self) -> list[bool]:
        """Of each of `parts`: whether records of batches have the property twice, as in 5.1 and 5.3 (B13)."""
        name = UNIQ_KEY.encode()
        item = ITEM_SEPARATOR + name
        return [any(t.count(name) > 1 and (ITEM_SEPARATOR + t).count(item) > 1 for t in each) for each in self.texts]

    def has_name(self, *names: str) -> bool:
        """Whether some of `parts` have one of these properties."""
        return any(not parse(text).keys().isdisjoint(names) for text in self.properties)

    @cached_property
    def newest_index(self) -> IndexFile | None:
        """The newest index file with a whole header."""
        for entry in reversed(list_entries(self.layout.index)):
            if _is_number(entry.name) and not entry.directory:
                file = IndexFile(entry.path, sizes_of(self.layout).of_index)
                if file.size > slots_offset():
                    return file
        return None

    def config_text(self, name: str) -> bytes:
        """The content of a file of `config/`, empty if there is none."""
        path = self.layout.config / name
        try:
            return b"" if path.is_dir() else read_regular(path, _CONFIG_BYTES_LOOKED_AT)
        except Missing:
            return b""

    @cached_property
    def topics_version(self) -> int:
        """Major version by the data version in topics.json, 4 or 5; 0 if there is no such file."""
        text = self.config_text(topics.FILE)
        if f'"{DATA_VERSION.member}"'.encode() not in text:
            return 0
        return 5 if f'"{STATE_VERSION}"'.encode() in text else 4

    @cached_property
    def pull_offsets(self) -> bool | None:
        """Whether consumerOffset.json has its second table; None if there is no file with the first one."""
        text = self.config_text(consumer_offset.FILE)
        pulled = f'"{consumer_offset.PULL_OFFSET_TABLE}"'.encode() in text
        return pulled if f'"{consumer_offset.OFFSET_TABLE}"'.encode() in text else None

    def is_there(self, *names: str) -> str:
        """The first of some paths in the store that exists, else ""."""
        return next((name for name in names if (self.layout.root / name).exists()), "")


def _is_number(name: str) -> bool:
    """Whether a name is that of a log or index file, compressed or not."""
    return plain_name(name).isdigit()


def _file(oldest: str, *names: str) -> Sign:
    return Sign(oldest, NEWEST, "{} is there", lambda evidence: evidence.is_there(*names))


def _queue_position(evidence: _Evidence) -> object:
    """A field of 5.5; without a trace of 5.4 something else has written it."""
    return evidence.is_there(ROCKSDB_STORE) and evidence.checkpoint.logics_physical_offset


def _no_rocksdb(evidence: _Evidence) -> object:
    """Every start of a broker since 5.4 creates a RocksDB there."""
    written = evidence.log_files or _dledger(evidence)
    return written and evidence.has_files_of_brokers and not evidence.is_there(ROCKSDB_STORE)


def _filter_of_queues(evidence: _Evidence) -> object:
    """The filter class that drops units of RocksDB queues; since 5.5.1 it is native, and not named in OPTIONS."""
    database = evidence.layout.queue_database
    options = sorted(database.glob("OPTIONS-*")) if database else []
    return options and _QUEUE_FILTER in read_regular(options[-1], _CONFIG_BYTES_LOOKED_AT)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise from_os_error(error, path) from error


def _version_2(evidence: _Evidence) -> bool:
    return any((part.ints("magic_code") == MAGIC_V2).any() for part in evidence.parts)


def _ends(evidence: _Evidence, closed: bool) -> bool:
    """Whether the last properties end with the separator, if `closed`, or without it: the last writer decides."""
    texts = evidence.properties
    return bool(texts) and texts[-1].endswith(ITEM_SEPARATOR) == closed


def _closed_5(evidence: _Evidence) -> bool:
    """Since 5.2 the final separator is back: in a 5.x store this excludes 5.1."""
    return any(sign.look(evidence) for sign in _SIGNS_OF_5) and _ends(evidence, closed=True)


def _lmq_queues(evidence: _Evidence, prefix: str = LMQ_PREFIX) -> bool:
    """Of 4.x brokers only those since 4.9.3 make LMQs (spec 2.9), and those of LITE topics only brokers since 5.5."""
    queues = list_entries(evidence.layout.consume_queue)
    return any(entry.directory and entry.name.startswith(prefix) for entry in queues)


def _dledger(evidence: _Evidence) -> bool:
    entries = list_entries(evidence.layout.root)
    return any(entry.directory and entry.name.startswith("dledger-") for entry in entries)


def _counts_puts(evidence: _Evidence) -> bool:
    """Up to 4.7.0 hash_slot_count counts the items, not the slots in use."""
    file = evidence.newest_index
    if file is None or file.size < items_offset(file.slots):
        return False
    in_use = sum(np.count_nonzero(items) for _, items in file.slot_columns())
    return bool(file.read_header().hash_slot_count > in_use)


def _tag_items(evidence: _Evidence) -> bool:
    """Since 5.4 tags are indexed: look for the tags of the newest records."""
    file, parts = evidence.newest_index, evidence.parts
    if file is None or not parts:
        return False
    file.read_header()  # an unreadable index is no sign: this raises
    newest = file.columns(max(1, file.last + 1 - _INDEX_ITEMS_LOOKED_AT))
    hashes = {key_hash for _, items in newest for key_hash in items["key_hash"].tolist()}
    return any(tag_hash in hashes for tag_hash in _tag_hashes(parts[-1]))


def _tag_hashes(records: Columns) -> Iterator[int]:
    newest = records.take(slice(-_RECORDS_LOOKED_AT, None))
    topics = newest.ragged("topic").tolist()
    texts = newest.ragged("properties").tolist()
    of_topics = {
        (topic, tags): None for topic, text in zip(topics, texts, strict=True) if (tags := parse(text).get(TAGS))
    }
    for topic, tags in of_topics:
        yield abs(java_hash(f"{java_string(topic)}#T#{tags}"))


_SIGNS_OF_5 = (
    _file("5.1", "abort.bak", "timerwheel", "compaction", f"config/{timer_check.FILE}"),
    _file("5.1", f"config/{consumer_order_info.FILE}", f"config/{topic_queue_mapping.FILE}"),
    Sign("5.1", NEWEST, "abort holds a process id", lambda e: _size(e.layout.abort) > 0),
    Sign("5.1", NEWEST, "the checkpoint has master_flushed_offset", lambda e: e.checkpoint.master_flushed_offset),
    Sign("5.1", NEWEST, "the checkpoint has confirm_phy_offset", lambda e: e.checkpoint.confirm_phy_offset),
    Sign("5.1", NEWEST, "there are version 2 records", _version_2),
    # only 5.x stores the messages of a batch in one record (spec 02, 2.7)
    Sign("5.1", NEWEST, "there are batches in one record", lambda e: e.has_flags(SysFlag.INNER_BATCH)),
    Sign("5.1", NEWEST, f"topics.json has {STATE_VERSION}", lambda e: e.topics_version == 5),
)

SIGNS = (
    *_SIGNS_OF_5,
    _file("5.3", f"config/{transaction_metrics.FILE}", f"consumequeue/{ROCKSDB_CURRENT}", KV_STORE),
    Sign("5.3", NEWEST, f"records have {CRC32}", lambda e: CRC32.encode() in b"\0".join(e.properties)),
    Sign("5.3", NEWEST, "properties end with a separator", _closed_5),
    _file("5.4", "rocksdbstore"),
    Sign("5.4", NEWEST, "tags are in the index", _tag_items),
    Sign("5.5", NEWEST, "the checkpoint has logics_physical_offset", _queue_position),
    _file("5.5", f"{ROCKSDB_CONSUME_QUEUE}/{ROCKSDB_CURRENT}"),
    Sign("5.5", NEWEST, "there are LMQs of a LITE topic", lambda e: _lmq_queues(e, LITE_PREFIX)),
    # only 5.5.0 writes this table, and always (spec 5.2)
    Sign("5.5", "5.5", "consumerOffset.json has pullOffsetTable", lambda e: e.pull_offsets),
    Sign("4.9", NEWEST, "there are IPv6 hosts", lambda e: e.has_flags(SysFlag.BORN_V6 | SysFlag.STORE_V6)),
    Sign("4.9", NEWEST, f"records have the property {_CLUSTER}", lambda e: e.has_name(_CLUSTER)),
    Sign("4.9", NEWEST, "there is a DLedger log", _dledger),
    Sign("4.9", NEWEST, "there are LMQs", _lmq_queues),
    Sign("4.9", "5.1", "properties end without a separator", lambda e: _ends(e, closed=False)),
    Sign("5.1", NEWEST, f"records have {UNIQ_KEY} twice", lambda e: any(e.keys_twice)),
    # of the last used log file only, since an earlier broker may have written the others
    Sign("5.1", "5.4", f"records have {UNIQ_KEY} twice", lambda e: any(e.keys_twice[-1:])),
    Sign("4.3", "4.9", "abort is empty", lambda e: _size(e.layout.abort) == 0),
    Sign("4.3", "4.9", "the index counts puts, not slots", _counts_puts),
    Sign("4.3", "4.9", f"topics.json has no {STATE_VERSION}", lambda e: e.topics_version == 4),
    Sign("4.3", "5.3", f"there is no {ROCKSDB_STORE}", _no_rocksdb),
    Sign("4.3", "5.5", "OPTIONS of the queues names a filter class", _filter_of_queues),
    Sign("4.3", NEWEST, "consumerOffset.json has no pullOffsetTable", lambda e: e.pull_offsets is False, "5.5"),
)


def databases_are_newer(layout: Layout, *names: str) -> bool:
    """Whether the RocksDBs were in use when a broker last ran, and not files, of which these are asked, too. A broker
    with files writes the offsets of groups every 5 s and when it stops, and any table when it changes, with the time.
    """
    asked = (consumer_offset.FILE, lmq_consumer_offset.FILE, *names)
    files = [layout.config / f"{name}{end}" for name in asked for end in ("", BACKUP)]
    of_files = max((file.stat().st_mtime_ns for file in files if file.is_file()), default=0)
    places = in_force(layout.config, layout.broker_config).databases
    return written_ns(places.values()) > of_files + _IN_ONE_GO_NS and not layout.once(_changed_in_files)


def _changed_in_files(layout: Layout) -> bool:
    """Whether a file has a change that is later, by its dataVersion, than those of its table in a RocksDB."""
    for name, path in in_force(layout.config, layout.broker_config).databases.items():
        with suppress(StoreError):
            stored = [row["timestamp"] for row in rows_of(path, name) if row["type"] == "data_version"]
            value = parse_json(read_regular(layout.config / name, _CONFIG_BYTES_LOOKED_AT)).value
            version = value.get(DATA_VERSION.member) if isinstance(value, dict) else None
            own = version.get("timestamp") if isinstance(version, dict) else None
            if isinstance(own, int) and stored and own > max(stored):
                return True
    return False


_IN_ONE_GO_NS = 10_000_000_000
"""Times so close may come from a copy."""
