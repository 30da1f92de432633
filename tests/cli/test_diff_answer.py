"""The records of `diff`, and what it tells of damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.cli.app import run
from mqstore.cli.diff_answer import Sides
from mqstore.cli.diff_options import DiffOptions
from mqstore.cli.record_types import schema_of
from mqstore.store.arrow import differences
from mqstore.store.disk.broker_conf import BrokerConfig

from ..stores import unpack
from .json_schema import errors
from .two_stores import copy_of, spoil, told


def test_the_same_damage_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is alike byte for byte is not decoded; `verify` says that it is damaged."""
    root = unpack("4.9.7-killed-page", tmp_path)
    assert run(["diff", str(root), str(copy_of(root))]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("The same (") and err == ""


def test_all_records_are_what_their_schemas_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = unpack("5.3.3-killed-page", tmp_path), unpack("5.3.3-clean", tmp_path)
    spoilt = copy_of(a)
    spoil(spoilt)
    for other, words in ((b, []), (b, ["--quick"]), (a, []), (spoilt, ["--only", "log"]), (b, ["--only", "messages"])):
        run(["diff", str(a), str(other), "--format", "ndjson", *words])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert rows[0]["type"] == "comparison"
        for row in rows:
            assert list(errors(schema_of(row["type"]), row)) == []


@pytest.mark.parametrize(("name", "same"), [("5.3.3-clean", True), ("4.9.7-killed-page", False)])
def test_messages_alone(name: str, same: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That they are the same is said; not where damage hides some on both sides."""
    root = unpack(name, tmp_path)
    code = run(["diff", str(root), str(copy_of(root)), "--only", "messages", "--format", "json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (code, row["type"], row["same"], row["differences"]) == (int(not same), "comparison", same, {})
    assert row["unread"] == ([] if same else ["some messages: damage hides them"])


@pytest.mark.parametrize(
    ("looks", "unread"),
    [
        (DiffOptions(quick=True), "log, queues, index, offsets, config, timers"),
        (DiffOptions(only=frozenset({"queues", "config"})), "queues, config"),
        (DiffOptions(only=frozenset({"messages", "log"})), "log"),
        (DiffOptions(only=frozenset({"messages"})), ""),
        (DiffOptions(), ""),
    ],
)
def test_what_object_storage_lacks_is_not_the_same(looks: DiffOptions, unread: str) -> None:
    """What was asked for, or all of it where messages are not compared either, is said not to be compared."""
    for pair in (("s3://bucket/a", "/b"), ("/a", "s3://bucket/b")):
        sides = Sides({"": pair}, 0)
        sides.compare_parts(BrokerConfig(), lambda size: None, looks, quick=looks.quick)
        told = [text for part in sides.parts.values() for text in part.unread if not part.same]
        assert told == ([f"{unread}: in object storage only messages can be compared"] if unread else [])


def test_of_much_damage_only_numbers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(differences, "DAMAGE_MAX", 0)
    root = unpack("4.9.7-killed-page", tmp_path)
    other = copy_of(root)
    spoil(other)
    assert run(["diff", str(root), str(other)]) == 1
    lines = told(capsys.readouterr().err)
    for store, line in zip((root, other), lines, strict=True):
        assert line.startswith(f"not compared: {store}: ") and line.endswith(" bytes in total, in 1 place")
