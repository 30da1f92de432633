"""quick against construct: records of all kinds, damaged and cut ones; the tables are those of now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import consume_queue, message_id, quick, quick_tables
from mqstore.formats.derive.steps import tables
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SMALLEST

I4 = st.integers(-(2**31), 2**31 - 1)
I8 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V2]))
    sys_flag = draw(I4)

    def host(bit: int) -> dict[str, Any]:
        size = 16 if sys_flag & bit else 4
        return {"ip": draw(st.binary(min_size=size, max_size=size)), "port": draw(I4)}

    numbers = ("body_crc", "queue_id", "flag", "reconsume_times")
    longs = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp")
    return MESSAGE.build(
        {name: draw(I4) for name in numbers}
        | {name: draw(I8) for name in (*longs, "prepared_transaction_offset")}
        | {"magic_code": magic, "sys_flag": sys_flag}
        | {"born_host": host(0x10), "store_host": host(0x20)}
        | {"body": draw(st.binary(max_size=40)), "properties": draw(st.binary(max_size=40))}
        | {"topic": draw(st.binary(max_size=127))}
    )


def by_construct(data: bytes) -> dict[str, Any] | None:
    """What construct makes of exactly these bytes, with dotted names."""
    try:
        found = c.Sequence(MESSAGE, c.Terminated).parse(data)
    except c.ConstructError:
        return None
    flat: dict[str, Any] = {}
    for name, value in found[0].items():
        if isinstance(value, c.Container):
            flat |= {f"{name}.{inner}": value[inner] for inner in ("ip", "port")}
        elif not name.startswith("_"):
            flat[name] = value
    return flat if flat["magic_code"] in (MAGIC_V1, MAGIC_V2) else None


@given(records(), st.data())
def test_reads_what_construct_reads(record: bytes, data: st.DataObject) -> None:
    assert quick.message(record) == by_construct(record) is not None
    assert quick.total_size(record) == len(record)
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(record)))])
    for other in (bytes(changed), cut, record + b"\0"):
        assert quick.message(other) == by_construct(other)


@given(st.binary(max_size=200))
def test_noise_is_no_record(noise: bytes) -> None:
    assert quick.message(noise) == by_construct(noise)


@given(I8, I4, I8)
def test_units(physical_offset: int, size: int, tags_code: int) -> None:
    data = consume_queue.UNIT.build({"physical_offset": physical_offset, "size": size, "tags_code": tags_code})
    assert quick.UNIT.unpack(data) == (physical_offset, size, tags_code)
    assert quick.UNIT.size == quick.UNIT_BYTES == len(data)
    pre_fill = consume_queue.UNIT.build(consume_queue.PRE_FILL)
    assert quick.UNIT.unpack(pre_fill) == quick.PRE_FILL


@given(st.sampled_from([4, 16]), st.data(), I4, I8)
def test_message_ids(size: int, data: st.DataObject, port: int, physical_offset: int) -> None:
    ip = data.draw(st.binary(min_size=size, max_size=size))
    schema = message_id.MESSAGE_ID_V4 if size == 4 else message_id.MESSAGE_ID_V6
    built = schema.build({"ip": ip, "port": port, "physical_offset": physical_offset})
    text = quick.message_id(ip, port, physical_offset)
    assert text == built.hex().upper()
    assert quick.parse_message_id(text.lower()) == (ip, port, physical_offset)


@pytest.mark.parametrize("text", ["", "00", "x" * 32, "00" * 17, "00" * 28 + "0"])
def test_what_is_no_message_id(text: str) -> None:
    with pytest.raises(ValueError):
        quick.parse_message_id(text)


def test_the_tables_are_what_the_schemas_give() -> None:
    """Run man/generate.py where this fails."""
    assert Path(quick_tables.__file__).read_text("utf-8") == tables()
    assert (quick.SMALLEST, quick.MAGICS) == (SMALLEST, (MAGIC_V1, MAGIC_V2))
