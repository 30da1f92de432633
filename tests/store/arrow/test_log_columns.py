"""Columns of messages: they say what the JSON says, and bodies as they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.store.arrow.log_rows import fields_of
from mqstore.store.arrow.stores import Ask

from ...stores import unpack
from .rows import FAST, ask_of, damage, rows, walk


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
            elif column == "body" and "body" in message:
                assert value.decode() == message["body"]
            elif column in message:
                assert value == message[column], f"{column} of the record at {row['position']}"
    told = [(one.store, one.position, one.size) for one in damage(ask)]
    assert told == [(str(root), one.position, one.size) for one in lost]


def test_bodies_are_there_when_asked_for(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    plain = Ask.of({"path": str(root)})
    assert "body" not in fields_of(plain)
    notes = ("body_crc_ok", "body_compression", "body_error")
    assert fields_of(replace(plain, body="plain"))[-4:] == ("body", *notes)
    assert fields_of(replace(plain, body="stored"))[-3:] == ("body", "body_crc_ok", "raw")
    stored = [row["body"] for row in rows(ask_of(root, body="stored"))]
    sizes = [row["body_length"] for row in rows(ask_of(root))]
    assert [len(body) for body in stored] == sizes
