"""Columns of messages: they say what the JSON says, and bodies as they are asked for."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from mqstore.formats import kernel
from mqstore.formats.derive import Ragged
from mqstore.store.arrow.log_columns import COLUMNS, BatchColumns
from mqstore.store.arrow.log_rows import fields_of
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.broker.profiles import writer_profile
from mqstore.store.errors import InvalidInput
from mqstore.store.put.new_message import check_topic

from ...stores import unpack
from .rows import FAST, ask_of, damage, rows, walk

if TYPE_CHECKING:
    from mqstore.store.log.batch import Batch


@pytest.mark.parametrize("name", FAST)
def test_rows_are_the_json_of_messages(name: str, tmp_path: Path) -> None:
    """The JSON and the columns say the same of every message."""
    root = unpack(name, tmp_path)
    wanted, lost = walk(root)
    ask = ask_of(root, body="plain")
    given = rows(ask)
    assert len(given) == len(wanted)
    for row, message in zip(given, wanted, strict=True):
        assert row["store"] == str(root)
        for column, value in row.items():
            if column == "properties":
                assert dict(value) == message[column]
            elif column == "properties_raw":
                assert value == raw_of(message), f"{column} of the record at {row['position']}"
            elif column == "body" and "body" in message:
                assert value.decode() == message["body"]
            elif column in message:
                assert value == message[column], f"{column} of the record at {row['position']}"
    told = [(one.store, one.position, one.size) for one in damage(ask)]
    assert told == [(str(root), one.position, one.size) for one in lost]


def test_topics_that_are_no_utf_8_keep_their_bytes(tmp_path: Path) -> None:
    """Those of two damaged headers have one text; no new store takes it for a topic."""
    root = unpack("5.3.3-clean", tmp_path)
    path = root / "commitlog" / f"{0:020}"
    data = path.read_bytes()
    for topic in (b"log\xe9", b"log\xe8"):
        data = data.replace(b"\x04logs", b"\x04" + topic, 1)
    path.write_bytes(data)
    found = rows(ask_of(root, fields="position,topic,topic_base64"))
    odd = [(row["topic"], row["topic_base64"]) for row in found if row["topic"].startswith("log\ufffd")]
    assert odd == [("log\ufffd", "bG9n6Q=="), ("log\ufffd", "bG9n6A==")]
    assert sum(row["topic_base64"] is not None for row in found) == len(odd)
    for topic in ("log\ufffd".encode(), b"log\xe9"):
        with pytest.raises(InvalidInput, match="UTF-8"):
            check_topic(topic, writer_profile("5.3"))


def raw_of(message: dict[str, Any]) -> bytes | None:
    if "properties_raw_base64" in message:
        return base64.b64decode(message["properties_raw_base64"])
    return message["properties_raw"].encode() if "properties_raw" in message else None


ODD = (
    *(b"KEYS\1\xff\xfe\2TAGS\1\xc3(\2", b"a\1b\2a\1c\2", b"a\1b\2\2", b"\2", b"a\1\2b\1c\2", b"\1a\2", b"a\1b\1c\2"),
    *(b"a\2b\1c\2", b"a\1\xed\xa0\x80\2", b"\xff\1\2a\1b\2"),
)
PLAIN = (b"", b"a\1b\2", b"a\1b\2c\1d", "ключ\1中\2".encode())


class Texts:
    """As much of a batch as its properties need."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.columns = self
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def ragged(self, name: str) -> Ragged:
        assert name == "properties"
        return Ragged.of(self._texts)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("raw", [True, False])
def test_a_text_stands_beside_the_properties_that_do_not_give_it_back(
    raw: bool, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule of JSON, among others and alone."""
    kernel.is_wanted()  # then it is loaded, and few rows are enough
    if not native:
        monkeypatch.setattr(kernel, "is_wanted", lambda rows=0: False)
    for texts in (ODD, PLAIN, ODD + PLAIN, PLAIN[:2], *((odd, *PLAIN) for odd in ODD), *((one,) for one in PLAIN)):
        found = COLUMNS["properties_raw"].make(BatchColumns("", cast("Batch", Texts(texts)), raw=raw))
        odd = [text in ODD or (raw and text[-1:] not in (b"", b"\2")) for text in texts]
        assert found.to_pylist() == [text if is_odd else None for text, is_odd in zip(texts, odd, strict=True)]


def test_bodies_are_there_when_asked_for(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    plain = ReadOptions.of({"path": str(root)})
    assert "body" not in fields_of(plain)
    notes = ("body_crc_ok", "body_compression", "body_error")
    assert fields_of(replace(plain, body="plain"))[-4:] == ("body", *notes)
    assert fields_of(replace(plain, body="stored"))[-3:] == ("body", "body_crc_ok", "raw")
    stored = [row["body"] for row in rows(ask_of(root, body="stored"))]
    sizes = [row["body_length"] for row in rows(ask_of(root))]
    assert [len(body) for body in stored] == sizes
