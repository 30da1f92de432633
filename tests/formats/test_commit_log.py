"""How items of a log are chained: the numbers of both frames as the specification has them (1.2, 1.13, 1.14)."""

from __future__ import annotations

import pytest

from mqstore.formats import dledger
from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.commit_log import DLEDGER, HEAD, HEAD_BYTES, IN_ENTRY, IN_FRAME, PLAIN, Frame
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE


def number(frame_bytes: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(frame_bytes[at : at + size], "big")


def message() -> bytes:
    hosts = {"ip": bytes([127, 0, 0, 1]), "port": 10911}
    names = ("body_crc", "queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp", "store_timestamp")
    fields = dict.fromkeys((*names, "reconsume_times", "prepared_transaction_offset"), 0)
    texts = {"body": b"b", "topic": b"t", "properties": b""}
    return MESSAGE.build(
        fields | texts | {"magic_code": MAGIC_V1, "physical_offset": 777, "born_host": hosts, "store_host": hosts}
    )


def test_a_record_is_read_by_the_plain_frame() -> None:
    record = message()
    assert number(record, PLAIN.size_offset) == len(record)
    assert number(record, PLAIN.magic_offset) == MAGIC_V1
    assert number(record, PLAIN.position_offset, 8) == 777
    assert PLAIN.magics == (MAGIC_V1, MAGIC_V2)
    assert (PLAIN.payload, PLAIN.smallest, PLAIN.spare) == (0, 91, 8)
    head = HEAD.parse(record[:HEAD_BYTES])
    assert (head.total_size, head.magic_code) == (len(record), MAGIC_V1)


def test_a_blank_is_read_by_the_plain_frame() -> None:
    blank = BLANK.build({"total_size": 500, "magic_code": MAGIC_BLANK})
    assert len(blank) == PLAIN.spare
    assert number(blank, PLAIN.blank_size_offset) == 500
    assert number(blank, PLAIN.magic_offset) == PLAIN.blank_magic == MAGIC_BLANK


def test_an_entry_is_read_by_the_frame_of_dledger() -> None:
    record = message()
    fields = {"index": 4, "term": 2, "pos": 900, "channel": 0, "chain_crc": 0, "body_crc": 0, "body": record}
    entry = dledger.ENTRY.build({"magic": dledger.MAGIC_ENTRY, "size": 48 + len(record), **fields})
    assert number(entry, DLEDGER.magic_offset) == dledger.MAGIC_ENTRY
    assert number(entry, DLEDGER.size_offset) == len(entry)
    assert number(entry, DLEDGER.position_offset, 8) == 900
    assert entry[DLEDGER.payload :] == record
    assert (DLEDGER.payload, DLEDGER.smallest) == (48, 48)
    assert dledger.MAGIC_ENTRY in DLEDGER.magics


@pytest.mark.parametrize("frame", [PLAIN, DLEDGER])
def test_the_numbers_for_the_kernel(frame: Frame) -> None:
    """Places, payload, smallest size, magic codes; without a position any is right."""
    places = [frame.size_offset, frame.magic_offset, frame.position_offset, frame.payload, frame.smallest]
    assert frame.numbers.tolist() == [*places, *frame.magics]
    assert frame.sizes.tolist() == [*places[:2], -1, *places[3:], *frame.magics]


def test_what_few_ask_for_comes_later() -> None:
    """The rules name fields that there are; of an entry they hold what the frame does not see."""
    record = MESSAGE.parse(message())
    for rules in (IN_FRAME, IN_ENTRY):
        for name in (*rules.checksum, *filter(None, (rules.size, rules.position, rules.known[0]))):
            assert name in record
        assert {name.partition(".")[0] for name in rules.later} <= set(record)
        assert not {"topic", "body", "queue_offset"} & rules.later
    assert (IN_FRAME.size, IN_FRAME.position, IN_FRAME.known[0]) == ("", "", "")
    assert (IN_ENTRY.size, IN_ENTRY.position, IN_ENTRY.known[1]) == ("total_size", "physical_offset", PLAIN.magics)
