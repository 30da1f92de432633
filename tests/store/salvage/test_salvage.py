"""A renumbered store: the same messages, through the writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.dledger import ENTRY, HEADER_BYTES, MAGIC_ENTRY
from mqstore.formats.hashing import crc31
from mqstore.formats.message_properties import DELAY, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from mqstore.store.broker.profiles import RecordRules
from mqstore.store.broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC
from mqstore.store.disk.file_queue import file_name
from mqstore.store.plan.close import RESTORED
from mqstore.store.put.producer import refused_copies
from mqstore.store.salvage.runs import Grade
from mqstore.store.salvage.salvage import CONFLICTS, LayoutKind, SalvageSelection
from mqstore.store.search.selection import TimeRange
from mqstore.store.search.store import StoreReader
from tests.stores import messages, unpack

from .images import SMALL, fake, image, manifest, salvaged

STORE = "5.3.3-clean"
CONFIG = SMALL.with_set(["mappedFileSizeCommitLog=262144"])
COMPACT: dict[str, Any] = {"layout": LayoutKind.COMPACT, "config": CONFIG}


def test_the_same_messages_in_their_order(tmp_path: Path) -> None:
    root, new = unpack(STORE, tmp_path), tmp_path / "new"
    salvaged(new, root / "commitlog", **COMPACT)
    lines = manifest(new)
    rows = list(messages(STORE))
    assert [line["physical_offset"] for line in lines] == [row["physical_offset"] for row in rows]
    with StoreReader(new, CONFIG) as store, StoreReader(root) as old:
        for line in lines:
            mine, its = store.message_at(line["to"]), old.message_at(line["physical_offset"])
            for name in ("topic", "queue_id", "properties", "store_timestamp", "born_host"):
                assert getattr(mine, name) == getattr(its, name), (name, line)
            assert mine.body().data == its.body().data


@pytest.mark.parametrize("topics", [["orders"], ["ord*"], ["o?ders", "nothing of it", "[xy]*"]], ids=" ".join)
def test_only_what_is_asked_for(topics: list[str], tmp_path: Path) -> None:
    root, new = unpack(STORE, tmp_path), tmp_path / "new"
    rows = list(messages(STORE))
    middle = rows[len(rows) // 2]["store_timestamp"]
    wanted = SalvageSelection(frozenset(topics), TimeRange(middle))
    done = salvaged(new, root / "commitlog", selection=wanted, **COMPACT)
    expected = [row["physical_offset"] for row in rows if row["topic"] == "orders" and row["store_timestamp"] >= middle]
    kept = [line["physical_offset"] for line in manifest(new) if line["fate"] == "kept"]
    assert expected
    assert kept == expected
    assert done.written is not None
    assert done.written.left_out == len(rows) - len(kept)


@pytest.mark.parametrize(("grade", "stored"), [(Grade.BODY, 2), (Grade.WHOLE, 1)])
def test_torn_properties(grade: Grade, stored: int, tmp_path: Path) -> None:
    """They mean nothing: the message comes without them, or not at all."""
    torn = bytearray(fake(4096, b"body", crc=crc31(b"body")))
    whole = fake(0, b"body", crc=crc31(b"body"))
    torn[-2:] = (5).to_bytes(2, "big")
    torn[:4] = (len(torn) + 5).to_bytes(4, "big")
    path = image(tmp_path, whole + bytes(50) + bytes(torn) + bytes(50))
    done = salvaged(tmp_path / "new", path, grade=grade, **COMPACT)
    assert done.grades == {"whole": 1, "body": 1, "structure": 0}
    assert done.written is not None
    assert done.written.stored == stored
    assert not done.complete


def test_a_message_that_the_writer_refuses_lies_aside_and_the_reason_is_told(tmp_path: Path) -> None:
    """The others of its step are put."""
    records = [fake(4096 * n, body, crc=crc31(body)) for n, body in enumerate([b"a", b"b" * 3000, b"c"])]
    data = b"".join(record + bytes(9) for record in records)
    limit = CONFIG.with_set(["maxMessageSize=1000"])
    asked = {**COMPACT, "config": limit}
    done = salvaged(tmp_path / "new", image(tmp_path, data), **asked)
    assert done.written is not None
    assert (done.written.stored, done.written.refused) == (2, 1)
    _, refused, _ = lines = manifest(tmp_path / "new")
    assert [line["fate"] for line in lines] == ["kept", "refused", "kept"]
    assert refused["reason"].startswith("a body of 3000 bytes, more than maxMessageSize 1000")
    assert (tmp_path / "new" / refused["folder"] / file_name(4096)).read_bytes() == records[1]
    assert len(list((tmp_path / "new" / CONFLICTS).rglob("0*"))) == 1


def test_all_messages_that_the_writer_refuses_come_into_one_file(tmp_path: Path) -> None:
    bodies = [b"a" * 3000, b"b", b"c" * 2000, b"d" * 1001]
    records = [fake(4096 * n, body, crc=crc31(body)) for n, body in enumerate(bodies)]
    asked = {**COMPACT, "config": CONFIG.with_set(["maxMessageSize=1000"])}
    done = salvaged(tmp_path / "new", image(tmp_path, b"".join(each + bytes(9) for each in records)), **asked)
    assert done.written is not None and (done.written.stored, done.written.refused) == (1, 3)
    (path,) = (tmp_path / "new" / CONFLICTS / "refused").iterdir()
    assert path.read_bytes() == records[0] + records[2] + records[3]


def test_a_message_that_names_a_queue_of_no_broker_is_served_from_its_others(tmp_path: Path) -> None:
    """INNER_MULTI_DISPATCH without that name; other messages are as they were, but for their numbers."""
    name, new = "5.5.0-lmq-poison", tmp_path / "new"
    root, config = unpack(name, tmp_path), CONFIG.with_set(["enableLmq=true", "enableMultiDispatch=true"])
    done = salvaged(new, root / "commitlog", layout=LayoutKind.COMPACT, version="5.5.0", config=config)
    assert done.complete and not (new / CONFLICTS).exists()
    poisoned = 0
    with StoreReader(new, config) as store, StoreReader(root) as old:
        for line in manifest(new):
            mine, its = (s.message_at(line[n]).properties for s, n in ((store, "to"), (old, "physical_offset")))
            named = its.get(INNER_MULTI_DISPATCH, "").split(",")
            wanted = [each for each in named if each.startswith(LMQ_PREFIX)]
            assert mine.get(INNER_MULTI_DISPATCH, "") == ",".join(wanted)
            assert len(mine.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")) == max(1, len(wanted))
            assert ("reason" in line) == (wanted != named != [""])
            poisoned += "reason" in line
            for each in (mine, its):
                each.pop(INNER_MULTI_DISPATCH, None)
                each.pop(INNER_MULTI_QUEUE_OFFSET, None)
            assert mine == its
    assert poisoned


def test_a_delay_level_that_is_no_number_becomes_the_level_of_the_queue(tmp_path: Path) -> None:
    """Brokers would end the log there. The manifest says what was changed; other messages are as they were."""
    levels = {"abc": "2", "99999999999": "2", "7": "7", "-1": "-1"}
    target = (("REAL_TOPIC", "T"), ("REAL_QID", "0"))
    texts = ["".join(f"{n}\x01{v}\x02" for n, v in (("A", "1"), (DELAY, level), *target)) for level in levels]
    records = [
        fake(4096 * n, b"a", crc=crc31(b"a"), topic=SCHEDULE_TOPIC, queue_id=1, properties=text)
        for n, text in enumerate(texts)
    ]
    records.append(fake(4096 * len(texts), b"a", crc=crc31(b"a"), properties=texts[0]))
    data, new = b"".join(record + bytes(9) for record in records), tmp_path / "new"
    done = salvaged(new, image(tmp_path, data), version="4.9.7", **COMPACT)
    assert done.written is not None and (done.written.stored, done.written.refused) == (5, 0)
    with StoreReader(new, CONFIG) as store:
        for line, old in zip(manifest(new), [*levels, "abc"], strict=True):
            scheduled = line["topic"] == SCHEDULE_TOPIC
            level = levels[old] if scheduled else old
            assert store.message_at(line["to"]).properties == {"A": "1", DELAY: level, **dict(target)}
            assert ("reason" in line) == (level != old)


def test_the_manifest_tells_of_a_record_that_is_corrected_in_its_place(tmp_path: Path) -> None:
    root, new = unpack(STORE, tmp_path), tmp_path / "new"
    log = min((root / "commitlog").iterdir())
    data = log.read_bytes()
    level = data.index(b"DELAY\x01") + len(b"DELAY\x01")
    log.write_bytes(data[:level] + b"x" + data[level + 1 :])
    salvaged(new, root / "commitlog", config=CONFIG)
    (line,) = (line for line in manifest(new) if "reason" in line)
    assert line["fate"] == "kept" and line["reason"] == RESTORED[0]
    with StoreReader(new, CONFIG) as store:
        assert store.message_at(line["to"]).properties[DELAY] == str(line["queue_id"] + 1)


@pytest.mark.parametrize(("version", "refused"), [("4.9.7", 2), ("5.3.3", 0)])
def test_a_message_at_which_a_delay_level_stands_still_is_put_aside(
    version: str, refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are taken out at once, not looked for one by one."""
    asked = []

    def noted(columns: Mapping[str, Any], rules: RecordRules) -> dict[int, str]:
        asked.append(len(columns["topic"]))
        return refused_copies(columns, rules)

    monkeypatch.setattr("mqstore.store.salvage.salvage.refused_copies", noted)
    good, bad = "DELAY\x012\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02", "DELAY\x012\x02"
    data, new = b"", tmp_path / "new"
    for text in (good, bad, good, bad, good, good):
        data += fake(len(data), b"a", crc=crc31(b"a"), topic=SCHEDULE_TOPIC, queue_id=1, properties=text)
    done = salvaged(new, image(tmp_path, data), version=version, **COMPACT)
    assert done.written is not None and asked == [6]
    assert (done.written.stored, done.written.refused) == (6 - refused, refused)
    reasons = [line["reason"] for line in manifest(new) if line["fate"] == "refused"]
    assert len(reasons) == refused and all("deliver no later message" in reason for reason in reasons)


def test_a_source_is_named_as_it_is_called(tmp_path: Path) -> None:
    """In all JSON a byte that is no UTF-8 is half a surrogate pair, from which programs make it again."""
    path = image(tmp_path, fake(0, b"a", crc=crc31(b"a")), "\udcff")
    salvaged(tmp_path / "new", path)
    assert {line["source"] for line in manifest(tmp_path / "new")} == {str(path)}


@pytest.mark.parametrize("terms", [(1, 2), (2, 1)])
def test_of_two_entries_of_dledger_the_later_leader_has_the_right_one(terms: tuple[int, int], tmp_path: Path) -> None:
    """A former leader has an entry that the group never took; the order of the images means nothing."""
    members = []
    for term in terms:
        body = b"term %d" % term
        fields = {"magic": MAGIC_ENTRY, "index": 0, "term": term, "pos": 0, "channel": 0, "chain_crc": 0, "body_crc": 0}
        entry = ENTRY.build(fields | {"body": fake(HEADER_BYTES, body, crc=crc31(body))})
        members.append(image(tmp_path, entry, f"member{term}"))
    done = salvaged(tmp_path / "new", *members, **COMPACT)
    assert [done.sources.paths[run.source].name for run in done.log.runs] == ["member2"]
    assert [run.records for layer in done.aside for run in layer.runs] == [1]
