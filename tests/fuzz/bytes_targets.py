"""Targets that look at bytes: schemas and what is derived from them, records, bodies, texts inside."""

from __future__ import annotations

import contextlib
import re

from mqstore.cli.json_text import dumps
from mqstore.cli.record_text import RecordText
from mqstore.cli.terminal import escape_lines
from mqstore.formats import message_properties, quick
from mqstore.formats.derive import Ragged, spans
from mqstore.formats.hashing import crc31, java_hash, java_string
from mqstore.formats.message import MESSAGE, SysFlag
from mqstore.formats.property_columns import PropertyItems
from mqstore.store.broker.filter import Where
from mqstore.store.disk.checkpoint import Checkpoint
from mqstore.store.log.batch import messages
from mqstore.store.log.message import compression_of, unpack
from mqstore.store.output.escaped import DANGEROUS

from ..formats.derive.schemas import REAL_SCHEMAS, parse
from ..formats.derive.test_decode import agree
from ..store.broker.batches import batch_of
from .target import cut, target

_NAMES = tuple(REAL_SCHEMAS)
_MAX_BODY = 1 << 16


@target
def schemas(data: bytes) -> None:
    """A schema by its name: columns and spans say what construct says, of the bytes and of each rest."""
    name, rest = cut(data, 2)
    other = _NAMES[sum(name) % len(_NAMES)]
    schema = REAL_SCHEMAS.get(name.decode("ascii", "replace"), REAL_SCHEMAS[other])
    starts = sorted({0, len(rest) // 2, len(rest)})
    agree(schema, rest, starts, None)
    agree(schema, rest, starts, [len(rest)] * len(starts))
    found = spans(schema, rest)
    assert sum(span.length for span in found) <= len(rest)
    parsed = parse(schema, rest)
    if parsed is None:
        return
    fields, size = parsed
    assert sum(span.length for span in found) == size
    values = {span.path: span.value for span in found if span.path}
    assert {path: fields[path] for path in values} == values


@target
def record(data: bytes) -> None:
    """One record: without construct, with it, as a message, as text and JSON of that."""
    found = quick.message(data)
    parsed = parse(MESSAGE, data)
    if found is None:
        assert parsed is None or parsed[1] != len(data) or parsed[0]["magic_code"] not in quick.MAGICS
        return
    assert parsed is not None
    fields, size = parsed
    assert size == len(data)
    assert found == fields
    assert spans(MESSAGE, data)[-1].path != "truncated"


@target
def shown(data: bytes) -> None:
    """A message of any topic, properties and body: nothing of it steers a terminal."""
    topic, properties, flag, body = cut(data, 4)
    batch = batch_of(
        [properties[:32767]],
        topic=topic[:127],
        body=body,
        sys_flag=int.from_bytes(flag[:1], "big") & ~(SysFlag.BORN_V6 | SysFlag.STORE_V6),
    )
    for raw in (False, True):
        for message in messages(batch):
            shown_record = message.to_json(raw=raw, max_body=_MAX_BODY)
            line = escape_lines(RecordText(utc=True)(shown_record))
            assert re.search(DANGEROUS, line.replace("\n", "")) is None
            assert re.search(DANGEROUS, dumps(shown_record)) is None
            line.encode()


@target
def properties(data: bytes) -> None:
    """Properties in columns are properties of one message; written again they are the same."""
    names, text = cut(data, 2)
    name = names.decode("ascii", "replace")
    parsed = message_properties.parse(text)
    if name and name.isascii() and not {"\1", "\2"} & set(name):
        value = PropertyItems(Ragged.of([b"", text])).find(name)[1]
        assert (java_string(value) if value else None) == parsed.get(name)
    with contextlib.suppress(ValueError):  # a value may hold a name's separator
        written = message_properties.format_properties(parsed)
        assert message_properties.parse(written) == parsed


@target
def body(data: bytes) -> None:
    """Compressed bodies: bounded, and what comes out says how."""
    kind, stored = cut(data, 2)
    flag = int.from_bytes(kind[:2], "big")
    found = unpack(stored, flag, _MAX_BODY)
    assert len(found.data) <= max(_MAX_BODY, len(stored))
    if found.error or not compression_of(flag):
        assert found.data == stored
    assert not (found.error and found.compression)


@target
def where(data: bytes) -> None:
    """An expression, and properties: columns and the single message agree."""
    text, first, second = cut(data, 3)
    condition = Where(text.decode("utf-8", "replace"))
    batch = batch_of([first[:32767], second[:32767], b""])
    mask = condition.mask(batch).tolist()
    assert mask == [condition.takes(message) for message in messages(batch)]


@target
def checkpoint(data: bytes) -> None:
    """Any length."""
    found = Checkpoint.from_bytes(data)
    assert all(isinstance(value, int) for value in found)


@target
def hashes(data: bytes) -> None:
    """Java's hash of any text, CRC of any bytes: in their range."""
    text = data.decode("utf-8", "replace")
    assert -(2**31) <= java_hash(text) < 2**31
    assert 0 <= crc31(data) < 2**31
