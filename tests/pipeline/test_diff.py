"""`pipeline diff`: pairs of stores, and what a queue's first difference is."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqstore.cli.app import run
from mqstore.cli.record_types import schema_of
from mqstore.formats.hashing import crc31
from mqstore.pipeline import diff as pipeline_diff
from mqstore.pipeline import session
from mqstore.pipeline.diff import Damage, differences, pairs_of
from mqstore.store.commit_log import Batch, Extent, ExtentKind
from mqstore.store.message import messages
from mqstore.store.store import Store

from ..cli.json_schema import errors
from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_pairs_by_what_their_paths_have_in_common() -> None:
    assert pairs_of(["/a/x"], ["/b/y"]) == ({"/a/x": ""}, {"/b/y": ""}, [])
    a, b, alone = pairs_of(["/a/1/s", "/a/2/s"], ["/b/c/1/s", "/b/c/2/s", "/b/c/3/s"])
    assert a == {"/a/1/s": "1/s", "/a/2/s": "2/s"}
    assert b == {"/b/c/1/s": "1/s", "/b/c/2/s": "2/s"}
    assert alone == ["3/s"]


def test_the_first_message_that_differs(spark: SparkSession, tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    other = tmp_path / "other"
    shutil.copytree(root, other)
    with Store(root) as store:
        changed = store.message("logs", 0, 3)
        last = store.log_files.files[-1]
        lost = [item for item in store.log.scan(last.start, last.end) if isinstance(item, Batch)]
        gone = {
            (message.topic, message.queue_id): message.queue_offset
            for batch in lost
            for message in reversed(list(messages(batch)))
        }
        in_last = sum(len(batch) for batch in lost)
    log = other / "commitlog"
    first = min(log.iterdir())
    data = bytearray(first.read_bytes())
    at = data.index(changed.stored_body, changed.physical_offset)
    crc = data.index(changed.body_crc.to_bytes(4), changed.physical_offset)
    data[at] ^= 1
    data[crc : crc + 4] = crc31(bytes(data[at : at + len(changed.stored_body)])).to_bytes(4)
    first.write_bytes(data)
    max(log.iterdir()).unlink()
    found, damage = differences(spark, {str(root): ""}, {str(other): ""}, {})
    assert not damage
    for row in found:
        assert list(errors(schema_of("difference"), {"type": "difference", **row})) == []
    rows = {(row["topic"], row["queue_id"]): row for row in found}
    assert rows.keys() == {*gone, ("logs", 0)}
    assert (rows["logs", 0]["queue_offset"], rows["logs", 0]["how"]) == (3, "changed")
    assert sum(row["changed"] for row in found) == 1
    assert sum(row["only_a"] for row in found) == in_last
    for queue, offset in gone.items():
        if queue != ("logs", 0):
            assert (rows[queue]["queue_offset"], rows[queue]["how"]) == (offset, "only_a")


def test_the_same_and_what_has_expired(spark: SparkSession, tmp_path: Path) -> None:
    root = unpack("4.9.7-clean", tmp_path)
    other = tmp_path / "other"
    shutil.copytree(root, other)
    pair = {str(root): "x"}, {str(other): "x"}
    assert differences(spark, *pair, {}) == ([], Damage())
    min((other / "commitlog").iterdir()).unlink()
    kept = {row["topic"]: row for row in differences(spark, *pair, {})[0]}
    assert all(row["how"] == "only_a" for row in kept.values()), "queues that B has not at all"
    assert "orders" not in kept


def test_damage_is_told(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A copy with the same damage has no difference; that it was not compared is said."""
    root = unpack("4.9.7-killed-page", tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    monkeypatch.setattr(session, "spark_session", lambda *_: nullcontext(spark))
    assert run(["pipeline", "diff", str(root), str(copy), "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == []
    lost = [line.removeprefix("mqstore: not compared: ") for line in err.splitlines()]
    assert [line.partition(" at ")[0] for line in lost] == [str(root), str(copy)]
    with Store(root) as store:
        items = [item for item in store.log.scan() if isinstance(item, Extent)]
    (damage,) = (item for item in items if item.kind is ExtentKind.DAMAGE)
    assert all(f" at {damage.position}, {damage.size} bytes" in line for line in lost)
    monkeypatch.setattr(pipeline_diff, "DAMAGE_MAX", 1)
    assert run(["pipeline", "diff", str(root), str(copy)]) == 1
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == f"mqstore: not compared: {lost[0]}"
    assert rest == [f"mqstore: not compared: {copy}: in all {damage.size} bytes, in 1 place"]
