"""Messages as the library shows them: against the truth of every store, and corner by corner."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import dledger
from mqstore.formats.derive import decode
from mqstore.formats.host import host_of
from mqstore.formats.message import MAGIC_V2, MESSAGE
from mqstore.formats.sys_flag import SysFlag
from mqstore.formats.tombstone import FILLER_SYS_FLAG, FILLER_TOPIC, LOST, lost_item
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.message import FILLER, TOMBSTONE, Mark, Message, stand_ins, tombstones
from mqstore.store.queues.references import commit_log_of

from ...slices import pick
from ...stores import ALL, NAMES, truth, unpack
from ...stores import messages as rows_of
from ..choices import few
from ..made_log import Account, account, record
from ..real_log import layout_of

#: Records that Java's decoder shows though their fields do not add up: torn inside the properties.
TORN = {"4.9.7-killed-torn": 385137, "5.3.3-killed-page": 376817}
#: Behind a file that is missing all records are after damage.
AFTER_A_HOLE = {"5.3.3-killed-hole-restarted": [524288, 525198]}
SAME = (
    *("physical_offset", "total_size", "topic", "queue_id", "queue_offset", "sys_flag", "flag"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
    *("prepared_transaction_offset", "body_crc", "properties"),
)
LIVE = (Mark.NONE, Mark.AFTER_DAMAGE)


def like_truth(message: Message) -> dict[str, Any]:
    """The message with the names of a truth row; hosts as Java prints them."""
    shown = message.to_json()
    row = {name: shown[name] for name in SAME}
    row |= {name: as_java(row[name]) for name in ("born_host", "store_host")}
    row["magic"] = shown["magic_code"]
    row["offset_msg_id"] = shown["message_id"]
    row["body_length"] = len(message.stored_body)
    row["body_sha1"] = hashlib.sha1(message.stored_body).hexdigest()
    body = message.body()
    if body.compression and body.data != message.stored_body:
        row["body_sha1_decompressed"] = hashlib.sha1(body.data).hexdigest()
    if message.position != message.physical_offset:
        row["position"] = message.position
    return row


def as_java(host: str) -> str:
    """An IPv6 address in full, without brackets."""
    if not host.startswith("["):
        return host
    groups = ipaddress.ip_address(host_of(host)[0]).exploded.split(":")
    return ":".join([*(f"{int(group, 16):x}" for group in groups), host.rpartition(":")[2]])


def compare_with_truth(name: str, folder: Path) -> None:
    """Every record of the truth, every field; nothing live besides, every byte told once."""
    root = unpack(name, folder)
    log = commit_log_of(layout_of(name, root))
    around = dledger.HEADER_BYTES if log.queue.files[0].path.find("dledger") >= 0 else 0
    found: Account = account(log, around=around)
    delivered = {m.position: m for item in log.scan() if isinstance(item, Batch) for m in messages(item)}
    rows = {row.get("position", row["physical_offset"]): row for row in rows_of(name)}
    torn = rows.pop(TORN.get(name, -1), None)
    assert torn is None or TORN[name] in [extent.position for extent in found.extents]
    for position, row in rows.items():
        assert position in delivered, f"{name}: {position} is missing"
        message = delivered[position]
        assert like_truth(message) == row, f"{name}: {position}"
        wanted = Mark.AFTER_DAMAGE if position in AFTER_A_HOLE.get(name, ()) else Mark.NONE
        assert message.mark is wanted, f"{name}: {position}"
        assert log.record(position).position[0] == position
    besides = [p for p, m in delivered.items() if p not in rows and m.mark is Mark.NONE]
    assert besides == [], name
    if truth(name)["expected_verdict"] == "clean":
        assert all(message.mark in (Mark.NONE, Mark.DEAD_TAIL) for message in delivered.values())
        assert all(message.body_crc_ok for message in delivered.values())


@pytest.mark.few(6)
@pytest.mark.parametrize("name", few())
def test_truth(name: str, tmp_path: Path) -> None:
    compare_with_truth(name, tmp_path)


@pytest.mark.slow
def test_truth_of_the_other_stores(tmp_path: Path) -> None:
    """Those that the project does without, where they are."""
    for name in pick(sorted(set(ALL) - set(NAMES)), "truth of the other stores"):
        compare_with_truth(name, tmp_path)


def message_of(data: bytes, mark: Mark = Mark.NONE, position: int = 0) -> Message:
    """The message in one record."""
    columns = decode(MESSAGE, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))
    assert columns.ok[0]
    batch = Batch(columns, np.array([position]), mark, np.array([True]))
    (message,) = messages(batch)
    return message


def shown(*, raw: bool = False, **fields: Any) -> dict[str, Any]:
    body = fields.pop("body", b"")
    return message_of(record(0, body, **fields)).to_json(raw=raw)


def test_order_and_names_of_the_contract() -> None:
    names = list(shown(properties=b"a\x01b\x02"))
    assert names == [
        *("type", "physical_offset", "total_size", "magic_code", "body_crc", "body_crc_ok"),
        *("queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp", "born_host"),
        *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset"),
        *("topic", "properties", "tags", "keys", "unique_key", "message_id", "body"),
    ]


def test_position_only_where_it_differs() -> None:
    assert "position" not in shown()
    assert message_of(record(5), position=7).to_json()["position"] == 7


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        (Mark.NONE, {}),
        (Mark.AFTER_DAMAGE, {"after_damage": True}),
        (Mark.DEAD_TAIL, {"stale": "dead_tail"}),
        (Mark.EARLIER_LIFE, {"stale": "earlier_life"}),
        (Mark.EMBEDDED, {"stale": "embedded"}),
    ],
)
def test_marks(mark: Mark, told: dict[str, Any]) -> None:
    record_ = message_of(record(0), mark).to_json()
    assert {name: record_[name] for name in ("after_damage", "stale") if name in record_} == told


def test_topics() -> None:
    assert shown(topic="ключ😀".encode())["topic"] == "ключ😀"
    odd = shown(topic=b"a\xffb")
    assert (odd["topic"], base64.b64decode(odd["topic_base64"])) == ("a\ufffdb", b"a\xffb")
    assert shown(topic=b"a\xed\xa0\x80")["topic"] == "a\ufffd", "as Java decodes it"
    assert len(shown(topic=b"t" * 300, magic_code=MAGIC_V2)["topic"]) == 300


@pytest.mark.parametrize(
    ("stored", "properties", "beside"),
    [
        (b"", {}, {}),
        (b"a\x01b\x02", {"a": "b"}, {}),
        (b"a\x01b", {"a": "b"}, {}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}, {"properties_raw": "a\x01b\x02a\x01c\x02"}),
        (b"a\x01b\x02\x02", {"a": "b"}, {"properties_raw": "a\x01b\x02\x02"}),
        (b"a\x02b\x01c\x02", {"b": "c"}, {"properties_raw": "a\x02b\x01c\x02"}),
        (b"a\x01\x02b\x01c\x02", {"b": "c"}, {"properties_raw": "a\x01\x02b\x01c\x02"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}, {"properties_raw": "a\x01b\x01c\x02"}),
        (b"a\x01b\x01c\x02d\x02", {"a": "b\x01c"}, {"properties_raw": "a\x01b\x01c\x02d\x02"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}, {"properties_raw_base64": "YQH/Ag=="}),
    ],
)
def test_properties(stored: bytes, properties: dict[str, str], beside: dict[str, str]) -> None:
    """What the object cannot give back stands beside it."""
    record_ = shown(properties=stored)
    assert record_["properties"] == properties
    assert {name: record_[name] for name in record_ if name.startswith("properties_")} == beside


def test_raw_keeps_the_last_separator() -> None:
    assert "properties_raw" not in shown(raw=True, properties=b"a\x01b\x02")
    assert shown(raw=True, properties=b"a\x01b")["properties_raw"] == "a\x01b"


def test_names_of_well_known_properties() -> None:
    text = b"KEYS\x01k1  k2 \x02TAGS\x01t\x02UNIQ_KEY\x01old\x02UNIQ_KEY\x01new\x02"
    record_ = shown(properties=text)
    assert (record_["keys"], record_["tags"], record_["unique_key"]) == (["k1", "k2"], "t", "new")
    bare = shown()
    assert (bare["keys"], bare["tags"], bare["unique_key"]) == ([], None, None)


def test_bodies() -> None:
    assert shown(body="текст".encode())["body"] == "текст"
    odd = shown(body=b"\xff\x00")
    assert base64.b64decode(odd["body_base64"]) == b"\xff\x00"
    assert "body" not in odd
    packed = zlib.compress(b"text")
    good = shown(body=packed, sys_flag=0x301)
    assert (good["body"], good["body_compression"]) == ("text", "zlib")
    bad = shown(body=b"plain", sys_flag=0x301)
    assert (bad["body"], "body_compression" in bad) == ("plain", False)
    assert "zlib" in bad["body_error"]
    raw = shown(body=packed, sys_flag=0x301, raw=True)
    assert (base64.b64decode(raw["body_base64"]), raw["raw"]) == (packed, True)
    assert not {"body", "body_compression", "body_error"} & set(raw)


def test_the_bound_of_a_body() -> None:
    message = message_of(record(0, zlib.compress(bytes(1000)), sys_flag=0x301))
    assert "body_error" in message.to_json(max_body=999)
    assert "body_error" not in message.to_json(max_body=1000)


def test_hosts_of_both_widths() -> None:
    record_ = shown(sys_flag=0x10)
    assert record_["born_host"] == "[1:203:405:607:809:a0b:c0d:e0f]:10911"
    assert record_["store_host"] == "0.1.2.3:10911"
    assert len(record_["message_id"]) == 32
    assert len(shown(sys_flag=0x20)["message_id"]) == 56


def test_topics_of_a_message() -> None:
    names = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
    message = message_of(record(0, topic=b"T", properties=names))
    assert [message.is_of(topic) for topic in ("T", "%LMQ%b", "%LMQ%", "")] == [*(True, True, False, False)]


@given(
    st.fixed_dictionaries(
        {
            "topic": st.binary(max_size=127),
            "properties": st.binary(max_size=200),
            "body": st.binary(max_size=100),
            "sys_flag": st.integers(-(2**31), 2**31 - 1),
        }
    ),
    st.booleans(),
)
def test_any_message_is_json(fields: dict[str, Any], raw: bool) -> None:
    """No exception, and text that any JSON reader takes; the stored bytes can be had back."""
    record_ = shown(raw=raw, **fields)
    assert json.loads(json.dumps(record_).encode()) == record_
    json.dumps(record_, ensure_ascii=False).encode()
    if raw:
        assert base64.b64decode(record_["body_base64"]) == fields["body"]
        topic = record_.get("topic_base64")
        assert (base64.b64decode(topic) if topic else record_["topic"].encode()) == fields["topic"]
    elif not record_.get("body_compression"):
        stored = record_.get("body", "").encode() or base64.b64decode(record_.get("body_base64", ""))
        assert stored == fields["body"]


def test_what_stands_for_a_lost_record_is_the_same_in_columns() -> None:
    """As of a record alone. A filler in place of a record that only LMQs named bears the mark of tombstones, too."""
    ports, flags = (0, 10911), (0, FILLER_SYS_FLAG, int(SysFlag.PREPARED))
    texts = (b"", lost_item(12), LOST.encode() + b"\x01soon\x02", b"A\x01b\x02" + lost_item(9))
    made = [
        record(0, topic=topic, sys_flag=flag, properties=text, store_host={"ip": bytes(4), "port": port})
        for topic, flag, text, port in product((b"T", FILLER_TOPIC), flags, texts, ports)
    ]
    starts = np.cumsum([0, *map(len, made[:-1])])
    columns = decode(MESSAGE, np.frombuffer(b"".join(made), np.uint8), starts)
    alone = [message.stand_in for message in messages(Batch(columns, starts, Mark.NONE, None))]
    assert stand_ins(columns).tolist() == [kind != "" for kind in alone]
    fillers = np.array([kind == FILLER for kind in alone])
    assert (tombstones(columns) & ~fillers).tolist() == [kind == TOMBSTONE for kind in alone]
    assert {TOMBSTONE, FILLER, ""} == set(alone)


@pytest.mark.slow
def test_messages_of_a_large_batch() -> None:
    """More than are taken at once, in order."""
    data = b"".join(record(0, b"%d" % number) for number in range(3000))
    starts = np.cumsum([0, *[len(record(0, b"%d" % number)) for number in range(2999)]])
    columns = decode(MESSAGE, np.frombuffer(data, np.uint8), starts)
    batch = Batch(columns, starts, Mark.NONE, None)
    found = list(messages(batch))
    assert [int(message.stored_body) for message in found] == list(range(3000))
    assert {message.body_crc_ok for message in found} == {None}
