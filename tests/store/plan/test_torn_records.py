"""Records that a torn write has left without properties: the message stays, what can be read of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from construct import Int32sb

from mqstore.formats.derive.layout import offset_of
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MESSAGE
from mqstore.formats.message_properties import (
    CRC_ITEM_BYTES,
    ITEM_SEPARATOR,
    crc_item,
    crc_ok,
    ends_with_crc,
    format_properties,
    parse,
)
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFile, MappedFileQueue, file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.index.read import sizes_of
from mqstore.store.library import Store
from mqstore.store.log.commit_log import Batch
from mqstore.store.plan.lost_messages import RECORD_BYTES_MAX, LostUnits
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.plan.torn_records import PutRightRules, all_put_right, mended
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.recovery import replan
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import recovery_cases, stores
from ...recovery_cases import CONFIG
from ..recover.recovered import changes_of_starts, content, record_bytes, units_of
from ..verify.mutations.edit import set_field

MADE_MS = 1_795_300_000_000
FILE_BYTES = CONFIG.get_int("mappedFileSizeCommitLog") or 0
TEXT = format_properties({"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "0123456789ABCDEF"})


def record(text: bytes, topic: str = "t") -> bytes:
    host = {"ip": b"\x7f\0\0\1", "port": 1}
    zeros = ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp")
    more = ("store_timestamp", "reconsume_times", "prepared_transaction_offset")
    made: bytes = MESSAGE.build(
        {
            **dict.fromkeys((*zeros, *more), 0),
            **dict.fromkeys(("born_host", "store_host"), host),
            "magic_code": 0xDAA320A7,
            "body": b"body",
            "body_crc": crc31(b"body"),
            "topic": topic.encode(),
            "properties": text,
        }
    )
    return made


def cut(whole: bytes, count: int) -> bytes:
    """The last bytes never reached the disk."""
    return whole[: len(whole) - count] + bytes(count)


@pytest.mark.parametrize("count", range(1, len(TEXT) + 1))
def test_whole_items_stay_and_nothing_else(count: int) -> None:
    """Whatever the length of the cut: what is left is a part of what was there, at the same size."""
    whole = record(TEXT)
    text, made = mended(cut(whole, count), with_crc=False, ended=True)
    assert len(made) == len(whole) and made[: len(whole) - len(TEXT)] == whole[: -len(TEXT)]
    left = parse(MESSAGE.parse(made).properties)
    assert left == parse(text) and left.items() <= parse(TEXT).items()
    assert len(left) == 3 if count == 1 else len(left) < 3
    assert MESSAGE.parse(made).properties.removeprefix(text).strip(ITEM_SEPARATOR) == b""


def test_where_no_separator_ends_the_text_the_last_value_is_doubtful() -> None:
    """A writer of 4.9: one byte at the end may be the last one of a value."""
    whole = record(TEXT[:-1])
    text, _ = mended(cut(whole, 1), with_crc=False, ended=False)
    assert parse(text).keys() == {"KEYS", "TAGS"}


def test_a_page_in_the_middle() -> None:
    text = format_properties({"a": "1", "b": "2" * 5000, "c": "3"})
    whole = record(text)
    at = whole.index(b"2222")
    torn = whole[: at + 100] + bytes(4096) + whole[at + 4196 :]
    _, made = mended(torn, with_crc=False, ended=True)
    assert parse(MESSAGE.parse(made).properties) == {"a": "1", "c": "3"}


def test_a_checksum_of_the_whole_is_made_anew() -> None:
    whole = record(TEXT + bytes(CRC_ITEM_BYTES))
    whole = whole[:-CRC_ITEM_BYTES] + crc_item(whole[:-CRC_ITEM_BYTES])
    _, made = mended(cut(whole, 40), with_crc=True, ended=True)
    assert len(made) == len(whole) and ends_with_crc(MESSAGE.parse(made).properties)
    assert crc_ok(made)


def planned(root: Path, version: str, config: BrokerConfig = CONFIG) -> Plan:
    options = RecoveryOptions(Policy.KEEP, MADE_MS, (version.rpartition(".")[0],))
    return replan(Layout.open(root, config), version, options)


def tear(root: Path, config: BrokerConfig = CONFIG, topic: str = "") -> tuple[int, int]:
    """Cut the properties of a message in the middle of the log; returns position and size."""
    layout = Layout.open(root, config)
    log, file_bytes = commit_log_of(layout), sizes_of(layout).commit_log.value
    rows = [
        (position, int(size), int(text))
        for item in log.scan()
        if isinstance(item, Batch)
        for position, size, text, name in zip(
            item.position.tolist(),
            item.columns.ints("total_size").tolist(),
            item.columns.ragged("properties").length.tolist(),
            item.columns.ragged("topic").tolist(),
            strict=True,
        )
        if text > 20 and (not topic or name == topic.encode())
    ]
    position, size, text = rows[len(rows) // 2]
    path = root / "commitlog" / file_name(position // file_bytes * file_bytes)
    with path.open("r+b") as file:
        file.seek(position % file_bytes + size - text // 2)
        file.write(bytes(text // 2))
    return position, size


@pytest.mark.parametrize("name", ["4.3.1-clean-1", "4.9.7-halt-1", "5.3.3-halt-2", "5.5.0-clean-1"])
def test_the_message_stays(name: str, tmp_path: Path) -> None:
    """Body, header, unit as they were; a start of any version changes nothing; undo takes it back."""
    base, root = recovery_cases.base(name, tmp_path), tmp_path / "store"
    version = name.partition("-")[0]
    shutil.copytree(base, root)
    position, size = tear(root)
    before = content(root)
    plan = planned(root, version)
    assert plan.lost.messages == 0
    (row,) = plan.cut
    assert (row.position, len(row.data)) == (position, size) and row.lost_bytes > 0
    layout = Layout.open(root, CONFIG)
    applied = apply(layout, plan, lambda: planned(root, version), Files())
    made = MESSAGE.parse(record_bytes(root, FILE_BYTES, position, size))
    whole = MESSAGE.parse(record_bytes(base, FILE_BYTES, position, size))
    assert made.body == whole.body and made.queue_offset == whole.queue_offset
    assert b"\0" not in made.properties
    assert parse(made.properties).items() <= parse(whole.properties).items()
    assert units_of(root, CONFIG) == units_of(base, CONFIG) or "halt" in name
    assert planned(root, version).edits == ()
    assert not changes_of_starts(root, CONFIG, plan, (version.rpartition(".")[0],))
    kept = layout.journal / applied.session / "damaged" / f"{position:020d}"
    assert len(kept.read_bytes()) == size
    undo(layout, session_to_undo(layout), Files())
    assert content(root) == before


def test_a_service_of_the_broker_needs_the_properties(tmp_path: Path) -> None:
    """A delayed message without its own topic stops a delay level of 4.9: a tombstone passes."""
    name = "4.9.7-killed"
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig().with_set(stores.config_set(name, root))
    position, _ = tear(root, config, SCHEDULE_TOPIC)
    plan = planned(root, "4.9.7", config)
    assert not plan.cut and plan.lost.by_topic() == {SCHEDULE_TOPIC: 1}
    layout = Layout.open(root, config)
    apply(layout, plan, lambda: planned(root, "4.9.7", config), Files())
    batch = commit_log_of(Layout.open(root, config)).record(position)
    assert "REAL_TOPIC" in parse(batch.columns.ragged("properties")[0])


NAMED = {"INNER_MULTI_DISPATCH": "b,%LMQ%c", "INNER_MULTI_QUEUE_OFFSET": "18,7"}
NAMED_AT = 44640
"""In 4.9.7-lmq: a record of mqtt/0 that names copy_topic and three LMQs."""
FURTHER = [(b"b", 18), (b"%LMQ%c", 7)]


def test_a_record_that_has_lost_its_body_is_lost(store: Callable[[str], Path]) -> None:
    """Its checksum is that of the body, the length of the body is zeros: it was no empty one."""
    root = store("5.3.3-cqext")
    with (root / "commitlog" / file_name(0)).open("r+b") as log:
        log.seek(8192)  # behind the times of a record that begins 80 bytes before
        log.write(bytes(4096))
    plan = planned(root, "5.3.3", BrokerConfig())
    assert plan.restored == 0 and plan.lost.by_topic() == {"sql": 12}


@pytest.mark.parametrize("length", [0, 31, 34, 1 << 30, -1])
@pytest.mark.parametrize("name", ["5.3.3-clean", "5.5.0-propcrc"])
def test_a_length_of_a_body_is_put_right(name: str, length: int, tmp_path: Path) -> None:
    """The unit, the topic, the properties behind it and the body's own checksum prove what it was."""
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    path, whole, begin, body = some_record(root, config)
    end = begin + whole[begin:].index(body)
    path.write_bytes(whole[: end - Int32sb.sizeof()] + Int32sb.build(length) + whole[end:])
    assert path.read_bytes() != whole
    brought_back(root, config, name, path, whole)


def test_a_checksum_of_the_whole_proves_that_of_the_body(tmp_path: Path) -> None:
    root = stores.unpack(name := "5.5.0-propcrc", tmp_path)
    config = BrokerConfig(stores.config(name, root))
    path, whole, begin, _ = some_record(root, config)
    at = begin + offset_of(MESSAGE, "body_crc")
    path.write_bytes(whole[:at] + Int32sb.build(12345) + whole[at + Int32sb.sizeof() :])
    brought_back(root, config, name, path, whole)


def some_record(root: Path, config: BrokerConfig) -> tuple[Path, bytes, int, bytes]:
    """The file of a message with a body, what is in it, where its record begins there, its body."""
    with Store(root, config) as opened:
        message = next(m for m in opened.messages() if len(m.stored_body) > 34 and m.position > 2000)
        at, body = message.position, message.stored_body
    path = root / "commitlog" / file_name(0)
    return path, path.read_bytes(), at, body


def brought_back(root: Path, config: BrokerConfig, name: str, path: Path, whole: bytes) -> None:
    version = name.partition("-")[0]
    plan = planned(root, version, config)
    assert (plan.lost.messages, plan.restored) == (0, 1)
    apply(Layout.open(root, config), plan, lambda: planned(root, version, config), Files())
    assert path.read_bytes() == whole


@pytest.mark.parametrize("with_crc", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 30, 31, 60, 67])
def test_further_queues_are_named_again(count: int, with_crc: bool) -> None:
    """Whatever is lost of the names and the numbers: they are there with both or not at all."""
    text = format_properties({"KEYS": "k", **NAMED})
    crc = CRC_ITEM_BYTES * with_crc
    whole = record(text + bytes(crc))
    torn = cut(whole, count + crc)
    _, made = mended(torn, FURTHER, with_crc=with_crc, ended=True)
    left = MESSAGE.parse(made).properties
    assert len(made) == len(whole)
    assert NAMED.items() <= parse(left).items()
    assert ends_with_crc(left) == with_crc and (not with_crc or crc_ok(made))


def test_where_no_separator_ends_the_text_there_is_room_for_it_all() -> None:
    whole = record(format_properties({"KEYS": "k", **NAMED}).removesuffix(ITEM_SEPARATOR))
    _, made = mended(cut(whole, 1), FURTHER, with_crc=False, ended=False)
    assert made == whole


def test_names_that_do_not_fit_and_those_that_are_whole_stay_out() -> None:
    for text, further in ((TEXT, [(b"b" * len(TEXT), 1)]), (format_properties(NAMED | {"KEYS": "k"}), [(b"b", 18)])):
        torn = cut(record(text), 3)
        assert mended(torn, further, with_crc=False, ended=True) == mended(torn, with_crc=False, ended=True)


def test_a_queue_whose_name_no_record_can_have_is_not_named() -> None:
    further = [(b"%LMQ%a,b", 1), (b"%LMQ%a\1b", 2), *FURTHER, (b"%LMQ%a\2b", 3)]
    _, made = mended(cut(record(format_properties(NAMED)), 30), further, with_crc=False, ended=True)
    assert parse(MESSAGE.parse(made).properties) == NAMED


def test_a_message_of_a_lite_topic_names_it() -> None:
    """Without the name a client cannot acknowledge the message."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%$chat$room", "INNER_MULTI_QUEUE_OFFSET": "7"}
    whole = record(format_properties({**light, "__LITE_TOPIC": "room"}))
    for count in (3, 20, 60):
        _, made = mended(cut(whole, count), [(b"%LMQ%$chat$room", 7)], with_crc=False, ended=True)
        assert parse(MESSAGE.parse(made).properties) == {**light, "__LITE_TOPIC": "room"}


def tear_named(root: Path, *, all_of_it: bool) -> None:
    """A record that units of other queues name loses its properties, or all behind the names."""
    path = root / "commitlog" / file_name(0)
    data = path.read_bytes()
    whole = commit_log_of(Layout.open(root, BrokerConfig())).record(NAMED_AT)
    size, text = int(whole.columns.ints("total_size")[0]), whole.columns.ragged("properties")[0]
    lost = len(text) if all_of_it else len(text) - text.index(b"INNER_MULTI_QUEUE_OFFSET")
    end = NAMED_AT + size
    path.write_bytes(data[: end - lost] + bytes(lost) + data[end:])


def places(root: Path, config: BrokerConfig) -> set[tuple[QueueId, int, int]]:
    """(queue, queue offset, position) of all units."""
    return {(q, n, u[0]) for q, units in units_of(root, config).items() for n, u in units.items()}


@pytest.mark.parametrize("all_of_it", [False, True])
def test_queues_that_their_units_prove_keep_the_message(all_of_it: bool, tmp_path: Path) -> None:
    """A record of a queue that names others: their units stay, and verify finds it named there."""
    name = "4.9.7-lmq"
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig().with_set(stores.config_set(name, root))
    before = places(root, config)
    tear_named(root, all_of_it=all_of_it)
    plan = planned(root, "4.9.7", config)
    (row,) = plan.cut
    names = row.properties["INNER_MULTI_DISPATCH"].split(",")
    assert "copy_topic" in names
    assert len(names) == len(row.properties["INNER_MULTI_QUEUE_OFFSET"].split(","))
    apply(Layout.open(root, config), plan, lambda: planned(root, "4.9.7", config), Files())
    assert places(root, config) == before
    with StoreReader(root, config) as store:
        left = {finding.code for finding in verify(store, Scope()).serious}
    assert left <= {"I-065", "I-100"}, "keys and tags are lost, and what units and index say of them"


def test_units_that_name_more_than_a_record_has_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap may be a whole file, and so may what a wrong unit says of the record there."""
    path, asked, size = tmp_path / "0", list[int](), 4 * RECORD_BYTES_MAX
    path.touch()
    os.truncate(path, size)
    log = MappedFileQueue((), [MappedFile(str(path), 0, size)], size, [])
    read = MappedFileQueue.read_file

    def noting(self: MappedFileQueue, file: MappedFile, offset: int, count: int) -> bytes:
        asked.append(count)
        return read(self, file, offset, min(count, 100))

    monkeypatch.setattr(MappedFileQueue, "read_file", noting)
    position = np.array([0, 100, 100 + RECORD_BYTES_MAX], np.int64)
    sizes = np.array([100, RECORD_BYTES_MAX, 3 * RECORD_BYTES_MAX - 100], np.int64)
    rest = [np.zeros(3, np.int64)] * 3
    units = LostUnits([QueueId("orders", 0)], position, sizes, *rest)
    rules = PutRightRules(None, verify=False, record_rules=profile_of("5.3").record)
    found = all_put_right(log, units, rest[0], rest[0], rules)
    assert not found
    assert asked == [100 + RECORD_BYTES_MAX]


def recovered_as_before(base: Path, root: Path) -> None:
    """Log and queues are those of the undamaged store."""
    plan = planned(root, "5.3.3", CONFIG)
    assert not plan.lost_messages
    apply(Layout.open(root, CONFIG), plan, lambda: planned(root, "5.3.3", CONFIG), Files())
    for path in (base / "commitlog").iterdir():
        assert (root / "commitlog" / path.name).read_bytes() == path.read_bytes(), path.name
    assert units_of(root, CONFIG) == units_of(base, CONFIG)


@pytest.mark.parametrize("other", [("TopicA/1", 0), ("TopicA/1", 400), ("TopicA/1", 800), ("TopicB/2", 0)])
def test_queue_files_under_the_names_of_each_other(other: tuple[str, int], tmp_path: Path) -> None:
    """Their units name records of another queue, whose headers are right: the log has messages for these places."""
    base, root = recovery_cases.base("5.3.3-clean-1", tmp_path), tmp_path / "store"
    shutil.copytree(base, root)
    queue, start = other
    one, two = (root / "consumequeue" / name for name in (f"TopicA/0/{file_name(0)}", f"{queue}/{file_name(start)}"))
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    recovered_as_before(base, root)


@pytest.mark.parametrize(("at", "number"), [(9, 12), (9, 9000), (4, 5), (0, 2)])
def test_a_queue_offset_in_a_header_is_put_right(at: int, number: int, tmp_path: Path) -> None:
    """Also one for which there would be room: the unit names the record at the place that the log lacks."""
    base, root = recovery_cases.base("5.3.3-clean-1", tmp_path), tmp_path / "store"
    shutil.copytree(base, root)
    position = units_of(base, CONFIG)[QueueId("TopicB", 1)][at][0]
    start = position // FILE_BYTES * FILE_BYTES
    set_field(root / "commitlog" / file_name(start), position - start, MESSAGE, "queue_offset", number)
    recovered_as_before(base, root)
