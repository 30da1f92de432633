"""Lines made of columns are those of the messages one by one, whatever the records hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.json_text import dumps
from mqstore.formats import kernel
from mqstore.formats.derive import decode
from mqstore.formats.message import MESSAGE, SysFlag
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.lines import Lines, lines
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of

from ...stores import unpack
from ..choices import few
from ..made_log import record
from ..real_log import layout_of

CHARACTERS = st.one_of(
    st.sampled_from('aZ09 "\\\n\t\b\f\r\x00\x01\x02\x1b\x7f\x80\u00ad\u200b\u202e\ufeff\u4f60\U0001f600'),
    st.sampled_from("\U000e0001\U000e0100\ufffe\u00a0"),
    st.characters(codec="utf-8"),
)
BYTES = st.one_of(st.text(CHARACTERS, max_size=20).map(str.encode), st.binary(max_size=9))
NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xc3\xa4", b""])
VALUES = st.one_of(st.just(b" k1  k2 "), st.just(b"v"), BYTES)
PROPERTIES = st.one_of(
    st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
        lambda items: b"".join(name + b"\x01" + value + b"\x02" for name, value in items)
    ),
    st.lists(st.tuples(NAMES, VALUES), max_size=3).map(
        lambda items: b"\x02".join(name + b"\x01" + value for name, value in items)
    ),
    BYTES,
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "body": BYTES,
        "properties": PROPERTIES,
        "topic": st.one_of(st.just(b"T"), st.just(b"\xff"), st.just("\u4f60".encode())),
        "queue_id": st.integers(-(2**31), 2**31 - 1),
        "queue_offset": st.integers(-(2**63), 2**63 - 1),
        "sys_flag": st.sampled_from([0, SysFlag.COMPRESSED, SysFlag.BORN_V6, SysFlag.STORE_V6, SysFlag.INNER_BATCH]),
        "store_host": st.just({"ip": b"\x01\x02\x03\x04", "port": 0}),
    },
)


def batch_of(records: list[bytes], mark: Mark, shift: int = 0, crc_ok: Any = True) -> Batch:
    data = np.frombuffer(b"".join(records), np.uint8)
    starts = np.cumsum([0, *map(len, records[:-1])]).astype(np.int64)
    columns = decode(MESSAGE, data, starts)
    assert columns.ok.all()
    checked = None if crc_ok is None else np.arange(len(records)) % 3 > 0
    return Batch(columns, starts + shift, mark, checked)


def same_lines(batch: Batch) -> None:
    found = [
        bytes(one.data) if isinstance(one, Lines) else f"{dumps(one.to_json())}\n".encode() for one in lines(batch)
    ]
    counts = [one.records if isinstance(one, Lines) else 1 for one in lines(batch)]
    assert sum(counts) == len(batch)
    expected = [f"{dumps(message.to_json())}\n".encode() for message in messages(batch)]
    assert b"".join(found).split(b"\n") == b"".join(expected).split(b"\n")


@pytest.mark.parametrize("native", [True, False])
@given(st.lists(RECORDS, min_size=1, max_size=8), st.sampled_from(list(Mark)), st.booleans())
def test_lines_of_any_records(native: bool, fields: list[dict[str, Any]], mark: Mark, checked: bool) -> None:
    records: list[bytes] = []
    position = 0
    for row in [{"properties": b"TAGS\x01a\x02"}] * 40 + fields + [{"body": b"b"}] * 3:
        flags = row.get("sys_flag", 0)
        if flags & (SysFlag.STORE_V6 | SysFlag.BORN_V6):
            row = {name: value for name, value in row.items() if name != "store_host"}
        records.append(record(position, **row))
        position += len(records[-1])
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(kernel, "is_wanted", lambda rows=0: False)
        same_lines(batch_of(records, mark, crc_ok=True if checked else None))


def test_most_of_them_are_made_of_columns() -> None:
    rows = [record(n * 95, b"body", topic=b"Topic") for n in range(50)]
    assert len({len(row) for row in rows}) == 1
    size = len(rows[0])
    rows = [record(n * size, b"body", topic=b"Topic") for n in range(50)]
    rows[7] = record(7 * size, b"\xff\xff\xff\xff", topic=b"Topic")
    shown = list(lines(batch_of(rows, Mark.NONE)))
    assert [one.records if isinstance(one, Lines) else 1 for one in shown] == [7, 1, 42]
    moved = list(lines(batch_of(rows, Mark.NONE, shift=1)))
    assert not any(isinstance(one, Lines) for one in moved)
    same_lines(batch_of(rows, Mark.NONE, shift=1))


def test_a_text_of_escapes_alone_needs_more_room() -> None:
    rows = [record(0, b"\x1f" * 5000), *[record(n, b"x") for n in range(1, 60)]]
    position = 0
    for n, row in enumerate(rows):
        rows[n] = record(position, b"\x1f" * 5000 if n == 0 else b"x")
        position += len(row)
    same_lines(batch_of(rows, Mark.NONE))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", few())
def test_lines_of_real_stores(name: str, tmp_path: Path) -> None:
    log = commit_log_of(layout_of(name, unpack(name, tmp_path)))
    for item in log.scan(crc=True):
        if isinstance(item, Batch):
            same_lines(item)
